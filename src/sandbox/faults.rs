//! Faults on demand: refusals, delays, broken watches, forgotten history, and crashes of a client in the middle of its work.
//! What a fault does to a request is decided by [`FaultTable::decide`], a pure function of the requests so far.

use std::time::Duration;

use super::{api_server::RequestRecord, http::Verb};

/// Chooses requests.
pub type Matcher = Box<dyn Fn(&RequestRecord) -> bool + Send + Sync>;

/// What happens to the write that a crash hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// It never reaches the server.
    BeforeEffect,
    /// It takes effect, the response is lost.
    AfterEffect,
}

enum Action {
    Fail(u16),
    Delay(Duration),
}

struct Rule {
    /// How many requests it still hits; `None` is every one.
    remaining: Option<usize>,
    action: Action,
    matches: Matcher,
}

struct Fuse {
    /// Writes until the crash.
    remaining: usize,
    crash: Crash,
    matches: Matcher,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is served.
    Serve,
    /// It is refused with this code.
    Refuse(u16),
    /// The connection breaks, before or after the effect.
    Lose(Crash),
}

/// The faults that are set up.
#[derive(Default)]
pub struct FaultTable {
    rules: Vec<Rule>,
    fuse: Option<Fuse>,
    crashed: bool,
}

impl FaultTable {
    /// Decides on a request, and counts it.
    pub fn decide(&mut self, request: &RequestRecord) -> (Duration, Outcome) {
        if self.crashed {
            return (Duration::ZERO, Outcome::Lose(Crash::BeforeEffect));
        }
        let mut delay = Duration::ZERO;
        let mut refused = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.remaining != Some(0) && (rule.matches)(request)) {
            match rule.action {
                Action::Fail(_) if refused.is_some() => continue,
                Action::Fail(code) => refused = Some(code),
                Action::Delay(time) => delay += time,
            }
            rule.remaining = rule.remaining.map(|remaining| remaining - 1);
        }
        match refused {
            Some(code) => (delay, Outcome::Refuse(code)),
            None => (delay, self.burn(request)),
        }
    }

    fn burn(&mut self, request: &RequestRecord) -> Outcome {
        let Some(fuse) = self.fuse.as_mut().filter(|fuse| request.verb.is_write() && (fuse.matches)(request)) else {
            return Outcome::Serve;
        };
        fuse.remaining = fuse.remaining.saturating_sub(1);
        if fuse.remaining > 0 {
            return Outcome::Serve;
        }
        let crash = fuse.crash;
        self.fuse = None;
        self.crashed = true;
        Outcome::Lose(crash)
    }

    /// Whether a crash has happened and was not recovered from.
    pub fn has_crashed(&self) -> bool {
        self.crashed
    }

    pub(super) fn fail(&mut self, remaining: Option<usize>, code: u16, matches: Matcher) {
        self.rules.push(Rule { remaining, action: Action::Fail(code), matches });
    }

    pub(super) fn delay(&mut self, time: Duration, matches: Matcher) {
        self.rules.push(Rule { remaining: None, action: Action::Delay(time), matches });
    }

    pub(super) fn crash(&mut self, writes: usize, crash: Crash, matches: Matcher) {
        self.fuse = Some(Fuse { remaining: writes, crash, matches });
    }

    pub(super) fn recover(&mut self) {
        self.crashed = false;
        self.fuse = None;
    }
}

/// Matches every request for a resource, e.g. `on(Verb::Patch, "nodes")`.
pub fn on(verb: Verb, resource: &'static str) -> impl Fn(&RequestRecord) -> bool + Send + Sync + 'static {
    move |request| request.verb == verb && request.resource == resource
}

/// Matches every request.
pub fn any(_: &RequestRecord) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: Verb) -> RequestRecord {
        RequestRecord {
            verb,
            resource: "nodes".into(),
            subresource: String::new(),
            namespace: String::new(),
            name: "n".into(),
            user_agent: String::new(),
            code: 0,
        }
    }

    #[test]
    fn refusals_are_counted_down() {
        let mut table = FaultTable::default();
        table.fail(Some(1), 503, Box::new(on(Verb::Get, "nodes")));
        table.fail(Some(1), 429, Box::new(any));
        table.delay(Duration::from_secs(1), Box::new(on(Verb::List, "nodes")));
        let outcomes: Vec<_> = (0..3).map(|_| table.decide(&request(Verb::Get)).1).collect();
        assert_eq!(outcomes, [Outcome::Refuse(503), Outcome::Refuse(429), Outcome::Serve]);
        assert_eq!(table.decide(&request(Verb::List)), (Duration::from_secs(1), Outcome::Serve));
    }

    #[test]
    fn a_crash_hits_the_nth_write_and_lasts_until_recovery() {
        let mut table = FaultTable::default();
        table.crash(2, Crash::AfterEffect, Box::new(any));
        let verbs = [Verb::Patch, Verb::Get, Verb::Create, Verb::Get];
        let outcomes: Vec<_> = verbs.map(|verb| table.decide(&request(verb)).1).into();
        let (serve, lost) = (Outcome::Serve, Outcome::Lose(Crash::AfterEffect));
        assert_eq!(outcomes, [serve, serve, lost, Outcome::Lose(Crash::BeforeEffect)]);
        assert!(table.has_crashed());
        table.recover();
        assert_eq!(table.decide(&request(Verb::Patch)).1, Outcome::Serve);
    }
}
