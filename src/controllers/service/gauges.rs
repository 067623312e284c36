//! Number of Services in each phase, and the age of the oldest unsettled one. Pure.
//!
//! In: the cached state of each Service, and the time since which it is unsettled. Out: the values of two metrics.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::{conditions::LoadBalancerPhase, plan::AppliedService};
use crate::runtime::store::ObjectKey;

/// Stages with their reasons, so that all series exist from the start.
pub(super) const STAGES: [(&str, &str); 9] = [
    ("new", PENDING),
    ("working", "Ensuring"),
    ("working", "Updating"),
    ("working", "Deleting"),
    ("settled", "Ready"),
    ("settled", "ImplementedElsewhere"),
    ("blocked", "Waiting"),
    ("blocked", "Failed"),
    ("blocked", INVALID),
];

/// Reason before the first reconcile.
const PENDING: &str = "Pending";
/// Reason that only a change by the user can resolve.
const INVALID: &str = "Invalid";

pub(super) fn reason(applied: &AppliedService) -> &'static str {
    applied.phase.as_ref().map_or(PENDING, LoadBalancerPhase::reason)
}

/// Unsettled Services, each with the time of its first attempt.
#[derive(Debug, Default)]
pub(super) struct UnsettledServices(HashMap<ObjectKey, Instant>);

impl UnsettledServices {
    /// Records that a Service is unsettled, unless it already was.
    pub(super) fn begin(&mut self, key: &ObjectKey, now: Instant) {
        self.0.entry(key.clone()).or_insert(now);
    }

    /// Records that a Service is settled or deleted.
    pub(super) fn end(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }

    /// Returns the time for which the oldest Service has been unsettled. Services that wait for their user do not count.
    pub(super) fn oldest<'a>(&self, reason_of: impl Fn(&ObjectKey) -> Option<&'a str>, now: Instant) -> Duration {
        let counts = self.0.iter().filter(|(key, _)| reason_of(key).is_some_and(|reason| reason != INVALID));
        counts.map(|(_, since)| now.saturating_duration_since(*since)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn age_starts_at_the_first_attempt_and_ignores_invalid() {
        let key = |name: &str| ObjectKey { namespace: "default".into(), name: name.into() };
        let (start, mut unsettled) = (Instant::now(), UnsettledServices::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        unsettled.begin(&key("a"), start);
        unsettled.begin(&key("b"), at(10));
        unsettled.begin(&key("a"), at(20));
        let failed = |_: &ObjectKey| Some("Failed");
        assert_eq!(unsettled.oldest(failed, at(60)), Duration::from_secs(60));
        let a_is_invalid = |key: &ObjectKey| Some(if key.name == "a" { "Invalid" } else { "Waiting" });
        assert_eq!(unsettled.oldest(a_is_invalid, at(60)), Duration::from_secs(50));
        unsettled.end(&key("b"));
        assert_eq!(unsettled.oldest(a_is_invalid, at(60)), Duration::ZERO);
        assert_eq!(unsettled.oldest(|_| None, at(60)), Duration::ZERO, "a Service that is not cached any more");
    }

    #[test]
    fn every_reason_has_one_stage() {
        let of = |phase: Option<LoadBalancerPhase>| phase.as_ref().map_or(PENDING, LoadBalancerPhase::reason);
        use LoadBalancerPhase as Phase;
        let text = String::new;
        for phase in [
            None,
            Some(Phase::Ensuring),
            Some(Phase::Updating),
            Some(Phase::Deleting),
            Some(Phase::Ready),
            Some(Phase::ImplementedElsewhere),
            Some(Phase::Waiting(text())),
            Some(Phase::Failed(text())),
            Some(Phase::Invalid(text())),
        ] {
            assert_eq!(STAGES.iter().filter(|(_, reason)| *reason == of(phase.clone())).count(), 1, "{phase:?}");
        }
    }
}
