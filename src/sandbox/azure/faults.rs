//! Faults on demand: refusals, delays, lost and broken responses, failing operations, an ARM that is down, and crashes of a
//! client.
//!
//! [`FaultTable::decide`] is a pure function of the requests so far and the seed, and decides what a fault does to a
//! request. [`super::distort`] has the effects on documents, [`super::delivery`] those on bodies. Every effect works for
//! every type of resource: matchers (type, path, method, class, lists only) select the requests, and counts, probabilities
//! and times limit them.

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::{log::RequestRecord, options::Class};

/// Entries that a partial list omits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Omission {
    /// Last entries of each page, this many.
    Last(usize),
    /// The second, the fourth and so on of each page.
    EveryOther,
    /// The entry of this name, in any letter case.
    Named(String),
    /// Pages after the first, with the link to them.
    LaterPages,
}

/// Distortion of the etags in responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtagMode {
    /// Strong etags are shown as weak (`W/"1"`). A write may send either form.
    Weak,
    /// Etags are shown neither in bodies nor in headers.
    Absent,
    /// Every document that is read gets a new etag, though nothing has changed.
    Restless,
}

/// Effect of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Response with this status, error code and `Retry-After` (seconds); nothing is done.
    Refuse(u16, String, Option<u64>),
    /// Delay before it is served.
    Delay(Duration),
    /// No connection: nothing is sent.
    NoConnection,
    /// The connection breaks before anything is done.
    DropBefore,
    /// Executed, and the response is lost.
    DropAfter,
    /// Executed, and the response (200) is HTML.
    Garbage,
    /// 403 `AuthorizationFailed`, as while a role assignment takes effect; nothing is done.
    Forbidden,
    /// 404 `ResourceGroupNotFound`, although the group is there; nothing is done.
    GroupNotFound,
    /// From now on ARM treats the token of this request as expired: 401 `ExpiredAuthenticationToken`, until a request has
    /// another token.
    ExpireToken,
    /// A proxy responds in place of ARM: HTML with this status; nothing is done.
    ProxyPage(u16),
    /// A list is empty.
    EmptyList,
    /// A list lacks some of its documents.
    PartialList(Omission),
    /// A list shows the documents of this long ago (10 minutes at most).
    StaleList(Duration),
    /// A list lacks the documents that were written within this time (10 minutes at most); a GET shows them.
    MissJustWritten(Duration),
    /// Etags are distorted in this mode.
    Etags(EtagMode),
    /// Executed, and the response's body ends in the middle, as if it were whole.
    Truncated,
    /// Executed, and the connection breaks in the middle of the response's body.
    BreakHalfway,
    /// Executed, and the second half of the response's body never arrives.
    StallHalfway,
    /// Executed, and the response's body arrives byte by byte, with this delay in between.
    SlowBody(Duration),
    /// No response is ever sent; nothing is done.
    Hang,
    /// The operation that a write starts ends as `Failed` with this code and message.
    FailOperation(String, String),
    /// The operation that a write starts never ends.
    HangOperation,
}

impl Effect {
    /// Returns `true` if the effect changes lists only. Other requests are not hit.
    fn is_for_lists(&self) -> bool {
        matches!(self, Self::EmptyList | Self::PartialList(_) | Self::StaleList(_) | Self::MissJustWritten(_))
    }
}

/// Requests that are hit, their number, and the effect on them.
#[derive(Debug, Clone)]
pub struct Fault {
    effect: Effect,
    method: Option<String>,
    path: Option<String>,
    resource_type: Option<String>,
    class: Option<Class>,
    lists: bool,
    lasting: Option<Duration>,
    until: Option<Instant>,
    skip: usize,
    times: Option<usize>,
    probability: f64,
}

impl Fault {
    /// Creates a fault that hits every request to which the effect applies.
    pub fn new(effect: Effect) -> Self {
        Self {
            lists: effect.is_for_lists(),
            effect,
            method: None,
            path: None,
            resource_type: None,
            class: None,
            lasting: None,
            until: None,
            skip: 0,
            times: None,
            probability: 1.0,
        }
    }

    /// Refuses with this status and code.
    pub fn refuse(status: u16, code: &str) -> Self {
        Self::new(Effect::Refuse(status, code.to_owned(), None))
    }

    /// Hits only this method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_ascii_uppercase());
        self
    }

    /// Restricts the fault to paths that match as a whole, ignoring letter case; `*` matches any text.
    pub fn path(mut self, pattern: &str) -> Self {
        self.path = Some(pattern.to_ascii_lowercase());
        self
    }

    /// Hits only requests of this class.
    pub fn class(mut self, class: Class) -> Self {
        self.class = Some(class);
        self
    }

    /// Hits only requests for this type of resource (`Microsoft.Network/loadBalancers`, any letter case), lists among them.
    pub fn resource_type(mut self, resource_type: &str) -> Self {
        self.resource_type = Some(resource_type.to_ascii_lowercase());
        self
    }

    /// Restricts the fault to lists.
    pub fn lists(mut self) -> Self {
        self.lists = true;
        self
    }

    /// Hits only before this time.
    pub fn until(mut self, end: Instant) -> Self {
        self.until = Some(end);
        self
    }

    /// Limits the fault to this time after the first request that it hits.
    pub fn lasting(mut self, time: Duration) -> Self {
        self.lasting = Some(time);
        self
    }

    /// Limits the number of requests that the fault hits.
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Serves this number of matching requests first.
    pub fn after(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Hits each matching request with this probability, 0 to 1.
    pub fn with_probability(mut self, probability: f64) -> Self {
        self.probability = probability.clamp(0.0, 1.0);
        self
    }

    fn matches(&self, request: &RequestRecord) -> bool {
        self.times != Some(0)
            && self.method.as_ref().is_none_or(|method| *method == request.method)
            && self.class.is_none_or(|class| class == request.class)
            && (request.list || !self.lists)
            && self.until.is_none_or(|end| request.at < end)
            && self.resource_type.as_ref().is_none_or(|desired| *desired == request.resource_type)
            && self.path.as_ref().is_none_or(|pattern| glob(pattern, &request.path.to_ascii_lowercase()))
    }

    /// Counts a matching request. Returns `true` if it is hit.
    fn hit(&mut self, random: &mut SmallRng, now: Instant) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.probability < 1.0 && !random.random_bool(self.probability) {
            return false;
        }
        self.times = self.times.map(|times| times - 1);
        if let Some(time) = self.lasting.take() {
            let end = now + time;
            self.until = Some(self.until.map_or(end, |until| until.min(end)));
        }
        true
    }
}

/// Returns `true` if `text` matches `pattern`, in which `*` matches any text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for piece in middle.split('*').filter(|piece| !piece.is_empty()) {
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
    }
    text.ends_with(last)
}

/// Moment at which a crash hits its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Before it has an effect.
    Before,
    /// After its effect; the response is lost.
    After,
}

/// Effect on a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Delay before any effect.
    pub delay: Duration,
    /// Effect; `None` if the request is served.
    pub effect: Option<Effect>,
}

/// The faults that are set up.
pub struct FaultTable {
    faults: Vec<Fault>,
    random: SmallRng,
    down: bool,
    crash: Option<(usize, Crash)>,
    crashed: bool,
}

impl FaultTable {
    /// Creates a table without faults.
    pub fn new(seed: u64) -> Self {
        Self { faults: Vec::new(), random: SmallRng::seed_from_u64(seed), down: false, crash: None, crashed: false }
    }

    /// Adds a fault. Of several that hit a request, delays add up and the first other one applies.
    pub fn add(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Removes all faults, ends a crash, and starts ARM again.
    pub fn clear(&mut self) {
        self.faults.clear();
        (self.down, self.crash, self.crashed) = (false, None, false);
    }

    /// Sets whether ARM is down, that is, refuses connections.
    pub fn set_down(&mut self, down: bool) {
        self.down = down;
    }

    /// Breaks every connection from the `nth` ARM request (counted from 1) on, until [`FaultTable::recover`].
    pub fn crash_at(&mut self, nth: usize, crash: Crash) {
        self.crash = Some((nth, crash));
    }

    /// Returns `true` if the crash has happened and was not recovered from.
    pub fn has_crashed(&self) -> bool {
        self.crashed
    }

    /// Ends a crash of the client.
    pub fn recover(&mut self) {
        (self.crash, self.crashed) = (None, false);
    }

    /// Decides on a request, and counts it.
    pub fn decide(&mut self, request: &RequestRecord) -> Verdict {
        if request.class != Class::Other {
            if self.crashed || self.down {
                return Verdict { delay: Duration::ZERO, effect: Some(Effect::NoConnection) };
            }
            if let Some(effect) = self.burn() {
                return Verdict { delay: Duration::ZERO, effect: Some(effect) };
            }
        }
        let mut verdict = Verdict::default();
        for fault in self.faults.iter_mut().filter(|fault| fault.matches(request)) {
            match &fault.effect {
                Effect::Delay(time) => {
                    let time = *time;
                    verdict.delay += if fault.hit(&mut self.random, request.at) { time } else { Duration::ZERO };
                }
                _ if verdict.effect.is_some() => {}
                effect => {
                    let effect = effect.clone();
                    verdict.effect = fault.hit(&mut self.random, request.at).then_some(effect);
                }
            }
        }
        verdict
    }

    fn burn(&mut self) -> Option<Effect> {
        let (remaining, crash) = self.crash.as_mut()?;
        *remaining = remaining.saturating_sub(1);
        if *remaining > 0 {
            return None;
        }
        let crash = *crash;
        (self.crash, self.crashed) = (None, true);
        Some(if crash == Crash::Before { Effect::DropBefore } else { Effect::DropAfter })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn request(method: &str, path: &str) -> RequestRecord {
        RequestRecord {
            method: method.to_owned(),
            host: String::new(),
            path: path.to_owned(),
            query: String::new(),
            class: if method == "GET" { Class::Read } else { Class::Write },
            resource_type: String::new(),
            list: false,
            sent: 0,
            status: 0,
            bytes: 0,
            at: Instant::now(),
            user_agent: String::new(),
        }
    }

    #[test]
    fn patterns() {
        let cases = [
            ("/a/*", "/a/b", true),
            ("/a/*", "/b/a", false),
            ("*b*", "/a/b/c", true),
            ("*/x", "/a/x", true),
            ("/a", "/ab", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
        assert!(!glob("a*a", "a"), "a text is not used twice");
        assert!(glob("*a*b*c", "xaxbxc") && !glob("*a*b*c", "xbxaxc"));
    }

    #[test]
    fn faults_are_chosen_and_counted() {
        let mut table = FaultTable::new(0);
        table.add(Fault::refuse(503, "Down").method("put").path("*/LoadBalancers/*").after(1).times(2));
        table.add(Fault::new(Effect::Delay(Duration::from_secs(1))).class(Class::Read));
        let put = request("PUT", "/x/loadBalancers/y");
        let hits: Vec<bool> = (0..4).map(|_| table.decide(&put).effect.is_some()).collect();
        assert_eq!(hits, [false, true, true, false]);
        assert_eq!(
            table.decide(&request("GET", "/x/loadBalancers/y")),
            Verdict { delay: Duration::from_secs(1), effect: None }
        );
        table.set_down(true);
        assert_eq!(table.decide(&put).effect, Some(Effect::NoConnection));
        table.clear();
        assert_eq!(table.decide(&put), Verdict::default());
    }

    #[test]
    fn lists_types_and_times_are_distinguished() {
        let mut table = FaultTable::new(0);
        table.add(Fault::new(Effect::EmptyList).resource_type("Microsoft.Network/loadBalancers").times(1));
        table.add(Fault::new(Effect::Forbidden).lasting(Duration::from_secs(30)).after(2));
        let kind = "microsoft.network/loadbalancers".to_owned();
        let single_read = RequestRecord { resource_type: kind, ..request("GET", "/lb/a") };
        let list = RequestRecord { list: true, ..single_read.clone() };
        let others = RequestRecord { resource_type: String::new(), ..list.clone() };
        let later = |seconds| RequestRecord { at: others.at + Duration::from_secs(seconds), ..others.clone() };
        let requests = [single_read, others.clone(), list, later(100), later(129), later(130)];
        let effects: Vec<_> = requests.iter().map(|request| table.decide(request).effect).collect();
        let forbidden = Some(Effect::Forbidden);
        assert_eq!(effects, [None, None, Some(Effect::EmptyList), forbidden.clone(), forbidden, None]);
        table.add(Fault::new(Effect::DropBefore).until(others.at + Duration::from_secs(200)));
        assert_eq!(table.decide(&later(199)).effect, Some(Effect::DropBefore));
        assert_eq!(table.decide(&later(200)).effect, None);
    }
}
