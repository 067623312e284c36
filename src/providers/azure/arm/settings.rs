//! How requests to ARM are made: where to, under which name, how patiently. Plain data with checked construction.

use std::time::Duration;

use reqwest::Url;

use super::url;

/// What the ARM client needs to know before its first request.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmSettings {
    /// Base URL of the resource manager, e.g. `https://management.azure.com/`.
    pub endpoint: Url,
    /// Use the API versions of Azure Stack.
    pub azure_stack: bool,
    /// `User-Agent`, sent exactly so.
    pub user_agent: String,
    /// Tries of one request and the delays between them.
    pub backoff: Backoff,
    /// Time limits.
    pub limits: Limits,
    /// Pace of the polls of a long-running operation.
    pub polling: Polling,
}

/// Tries of one request. Throttled requests wait at the budget instead.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// Tries in all, the first included; at least 1.
    pub tries: u32,
    /// Delay before the second try.
    pub first: Duration,
    /// Growth from one delay to the next.
    pub factor: f64,
    /// Random share added to a delay: 0.2 adds up to a fifth.
    pub jitter: f64,
    /// Longest delay, also of one that ARM asks for; a longer one ends the tries.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { tries: 4, first: Duration::from_millis(500), factor: 2.0, jitter: 0.2, longest: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The smaller of both in each respect: how the legacy `cloudProviderBackoff*` fields bound it.
    pub fn at_most(self, bound: Self) -> Self {
        Self {
            tries: self.tries.min(bound.tries).max(1),
            first: self.first.min(bound.first),
            factor: self.factor.min(bound.factor).max(1.0),
            jitter: self.jitter.min(bound.jitter).max(0.0),
            longest: self.longest.min(bound.longest),
        }
    }
}

/// Time limits. A caller may set an earlier or later end with [`super::ArmClient::with_deadline`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connecting; whoever builds the transport applies it.
    pub connect: Duration,
    /// From sending one request until its whole answer is there.
    pub answer: Duration,
    /// A read with all its tries and waits; a list: each page.
    pub read: Duration,
    /// A write with all its tries, its operation and the final read.
    pub operation: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            answer: Duration::from_secs(60),
            read: Duration::from_secs(180),
            operation: Duration::from_secs(900),
        }
    }
}

/// Pace of polls. Go polls every 5 s; most operations on a load balancer are done sooner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Polling {
    /// Before the first poll, unless ARM asks for more.
    pub first: Duration,
    /// Growth from one pause to the next.
    pub factor: f64,
    /// Longest pause of our own.
    pub longest: Duration,
    /// Longest pause that ARM's `Retry-After` may ask for.
    pub longest_asked: Duration,
    /// With `enableMinimumRetryAfter`: a shorter `Retry-After` counts as this.
    pub shortest_asked: Duration,
}

impl Default for Polling {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            factor: 1.5,
            longest: Duration::from_secs(10),
            longest_asked: Duration::from_secs(60),
            shortest_asked: Duration::ZERO,
        }
    }
}

impl ArmSettings {
    /// Defaults for the resource manager at `endpoint`. The error says what is wrong with the URL: it has to be `https`, because
    /// every request carries a token; `http` is accepted on loopback addresses only.
    pub fn new(endpoint: &str, user_agent: impl Into<String>) -> Result<Self, String> {
        Ok(Self {
            endpoint: url::endpoint(endpoint)?,
            azure_stack: false,
            user_agent: user_agent.into(),
            backoff: Backoff::default(),
            limits: Limits::default(),
            polling: Polling::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legacy_fields_only_lower() {
        let legacy = Backoff {
            tries: 6,
            first: Duration::from_millis(100),
            factor: 1.5,
            jitter: 1.0,
            longest: Duration::from_secs(300),
        };
        let bounded = Backoff::default().at_most(legacy);
        assert_eq!((bounded.tries, bounded.first.as_millis(), bounded.factor), (4, 100, 1.5));
        assert_eq!((bounded.jitter, bounded.longest.as_secs()), (0.2, 30));
        let none = Backoff { tries: 0, first: Duration::ZERO, factor: 0.0, jitter: -1.0, longest: Duration::ZERO };
        let bounded = Backoff::default().at_most(none);
        assert_eq!((bounded.tries, bounded.factor, bounded.jitter), (1, 1.0, 0.0), "never less than one try");
    }
}
