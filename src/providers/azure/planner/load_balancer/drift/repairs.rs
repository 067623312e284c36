//! Times of repairs of documents that another writer changed. Pure.
//!
//! In: the changed documents of a Service, and the time. Out: a repair now or later. A document that differs for the first
//! time is repaired at once. A document that differs again has another writer: with each repair, the pause before the next
//! one doubles, from the first of [`PAUSES`] to the longest. A document without differences for [`MEMORY`] counts as new
//! again.
//!
//! ```text
//!            differs                    differs, pause over
//! (unknown) ─────────► Repair (no pause) ─────────────────► Repair (pause doubled)
//!     ▲                   │ differs, pause not over                │
//!     └── MEMORY ─────────┴──────────► Delay ◄─────────────────────┘
//! ```

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::super::spec::ServiceIdentity;
use crate::{providers::azure::model::ResourceId, runtime::backoff::ExponentialBackoff};

/// Pauses between repairs of a document that is changed repeatedly.
pub const PAUSES: ExponentialBackoff =
    ExponentialBackoff::doubling(Duration::from_secs(10 * 60), Duration::from_secs(6 * 3600));
/// Time for which a repair is remembered after the document was last seen to differ.
pub const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// Decision on the differences of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairDecision {
    /// Repair of all differences now.
    Repair,
    /// Repair at this time or later. The flag is `true` if repeated changes of another writer were not reported yet.
    Delay { until: Instant, is_news: bool },
}

#[derive(Debug, Clone)]
struct RepairEntry {
    repaired: Instant,
    seen: Instant,
    /// Pause before the next repair; `None` if the document was changed once.
    pause: Option<Duration>,
    is_told: bool,
}

impl RepairEntry {
    fn new(now: Instant) -> Self {
        Self { repaired: now, seen: now, pause: None, is_told: false }
    }

    fn due(&self) -> Instant {
        self.repaired + self.pause.unwrap_or_default()
    }

    fn repair(&mut self, now: Instant) {
        self.repaired = now;
        self.pause = Some(PAUSES.after(self.pause));
    }
}

/// Past repairs with their times. The size depends on the differences, not on the size of the cluster.
#[derive(Debug, Default)]
pub struct RepairSchedule {
    entries: BTreeMap<(ServiceIdentity, ResourceId), RepairEntry>,
}

impl RepairSchedule {
    /// Decides on the repair of these documents of a Service, which differ at `now`.
    ///
    /// A repair covers the whole Service and is due as soon as one of its documents may be repaired.
    pub fn decide<'a>(
        &mut self,
        who: &ServiceIdentity,
        documents: impl IntoIterator<Item = &'a ResourceId>,
        now: Instant,
    ) -> RepairDecision {
        self.entries.retain(|_, entry| now.saturating_duration_since(entry.seen) < MEMORY);
        let keys: Vec<_> = documents.into_iter().map(|id| (who.clone(), id.clone())).collect();
        for key in &keys {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.seen = now;
                entry.pause.get_or_insert(PAUSES.first);
            }
        }
        let due = keys.iter().map(|key| self.entries.get(key).map_or(now, RepairEntry::due)).min().unwrap_or(now);
        if due > now {
            return RepairDecision::Delay { until: due, is_news: self.tell(&keys) };
        }
        for key in keys {
            self.entries.entry(key).and_modify(|entry| entry.repair(now)).or_insert_with(|| RepairEntry::new(now));
        }
        RepairDecision::Repair
    }

    /// Marks the documents as reported. Returns `true` if one of them was not.
    fn tell(&mut self, keys: &[(ServiceIdentity, ResourceId)]) -> bool {
        keys.iter().fold(false, |is_news, key| {
            let entry = self.entries.get_mut(key);
            entry.is_some_and(|entry| !std::mem::replace(&mut entry.is_told, true)) || is_news
        })
    }

    /// Removes the repairs of a deleted Service.
    pub fn forget(&mut self, who: &ServiceIdentity) {
        self.entries.retain(|(known, _), _| known != who);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::super::desired::samples::*, *};

    const MINUTE: Duration = Duration::from_secs(60);

    fn document(name: &str) -> ResourceId {
        ResourceId::parse(&network(&format!("loadBalancers/{name}"))).unwrap()
    }

    #[test]
    fn a_delay_is_news_once_and_another_document_or_service_is_put_right_at_once() {
        let (mut schedule, start) = (RepairSchedule::default(), Instant::now());
        let (web, api) = (service("web").identity, service("api").identity);
        let (balancer, ip) = (document("kubernetes"), public_ip("kubernetes-web"));
        let delay = |is_news| RepairDecision::Delay { until: start + 10 * MINUTE, is_news };
        for (minute, who, documents, decision) in [
            (0, &web, vec![&balancer], RepairDecision::Repair),
            (1, &web, vec![&balancer], delay(true)),
            (2, &web, vec![&balancer], delay(false)),
            (2, &api, vec![&balancer], RepairDecision::Repair),
            (3, &web, vec![&balancer, &ip], RepairDecision::Repair),
        ] {
            assert_eq!(schedule.decide(who, documents, start + minute * MINUTE), decision, "minute {minute}");
        }
        let RepairDecision::Delay { until, .. } = schedule.decide(&web, [&balancer], start + 4 * MINUTE) else { panic!() };
        assert_eq!(until, start + 23 * MINUTE);
    }

    #[test]
    fn what_nobody_changed_for_a_day_and_a_service_that_went_are_new() {
        let (mut schedule, start) = (RepairSchedule::default(), Instant::now());
        let (who, document) = (service("web").identity, document("kubernetes"));
        let mut at = |after: Duration| schedule.decide(&who, [&document], start + after);
        let repairs = [Duration::ZERO, MEMORY, MEMORY].map(|after| at(after) == RepairDecision::Repair);
        assert_eq!(repairs, [true, true, false]);
        schedule.forget(&who);
        assert_eq!(schedule.decide(&who, [&document], start + MEMORY), RepairDecision::Repair);
    }

    proptest! {
        /// Checks with random times of changes that repairs of one document are at least as far apart as the pauses, and
        /// that no repair waits longer than the longest pause.
        #[test]
        fn repairs_are_bounded_and_none_waits_for_ever(gaps in prop::collection::vec(1_u64..40_000, 1..200)) {
            let (mut schedule, mut now) = (RepairSchedule::default(), Instant::now());
            let (who, document) = (service("web").identity, document("kubernetes"));
            let (mut last, mut pause, mut seen) = (None::<Instant>, Duration::ZERO, now);
            for gap in gaps {
                now += Duration::from_secs(gap);
                if now - seen >= MEMORY {
                    (last, pause) = (None, Duration::ZERO);
                }
                let decision = schedule.decide(&who, [&document], now);
                if last.is_some() {
                    pause = pause.max(PAUSES.first);
                }
                let due = last.map_or(now, |last| last + pause);
                prop_assert_eq!(decision == RepairDecision::Repair, now >= due);
                if let RepairDecision::Delay { until, .. } = decision {
                    prop_assert!(until == due && until - now <= PAUSES.max);
                } else {
                    pause = last.map_or(Duration::ZERO, |_| (2 * pause).min(PAUSES.max));
                    last = Some(now);
                }
                seen = now;
            }
        }
    }
}
