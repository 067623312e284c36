//! Faults on demand: refusals, delays, missing, truncated and slow responses, broken or silent watches, missing bookmarks,
//! truncated history, and crashes of a client.
//!
//! [`FaultTable::decide`] is a pure function of the requests so far and decides what a fault does to a request.

use std::time::Duration;

use super::{api_server::RequestRecord, http::Verb};

/// Predicate that selects requests.
pub type Matcher = Box<dyn Fn(&RequestRecord) -> bool + Send + Sync>;

/// Moment of a crash, relative to its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Before the write reaches the server.
    BeforeEffect,
    /// After the write took effect; the response is lost.
    AfterEffect,
}

/// Way in which a response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As it should be.
    Whole,
    /// Half of it arrives, then nothing; the connection stays open. Of a watch: the head arrives, then nothing.
    Half,
    /// Byte by byte, with this pause between two.
    Trickle(Duration),
    /// A watch begins with an ERROR event of code 410; anything else is refused with 410.
    Expired,
    /// A watch gets no bookmarks.
    WithoutBookmarks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    pub code: u16,
    /// Value of `Retry-After` in seconds.
    pub retry_after: Option<u32>,
}

enum Action {
    Answer(Outcome),
    Delay(Duration),
}

struct Rule {
    /// Number of requests that it still hits; `None` for every one.
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

/// Effect on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Serve(Manner),
    Refuse(Refused),
    /// No response is ever sent; the connection stays open.
    Hang,
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
        let mut outcome = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.remaining != Some(0) && (rule.matches)(request)) {
            match rule.action {
                Action::Answer(_) if outcome.is_some() => continue,
                Action::Answer(response) => outcome = Some(response),
                Action::Delay(time) => delay += time,
            }
            rule.remaining = rule.remaining.map(|remaining| remaining - 1);
        }
        (delay, outcome.unwrap_or_else(|| self.burn(request)))
    }

    fn burn(&mut self, request: &RequestRecord) -> Outcome {
        let Some(fuse) = self.fuse.as_mut().filter(|fuse| request.verb.is_write() && (fuse.matches)(request)) else {
            return Outcome::Serve(Manner::Whole);
        };
        fuse.remaining = fuse.remaining.saturating_sub(1);
        if fuse.remaining > 0 {
            return Outcome::Serve(Manner::Whole);
        }
        let crash = fuse.crash;
        self.fuse = None;
        self.crashed = true;
        Outcome::Lose(crash)
    }

    /// Returns `true` if a crash has happened and was not recovered from.
    pub fn has_crashed(&self) -> bool {
        self.crashed
    }

    pub(super) fn add_rule(&mut self, remaining: Option<usize>, outcome: Outcome, matches: Matcher) {
        self.rules.push(Rule { remaining, action: Action::Answer(outcome), matches });
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

/// Matches every request, whatever it is.
pub fn any(_: &RequestRecord) -> bool {
    true
}
