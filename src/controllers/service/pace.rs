//! Rate limit for edits of Services. Pure.
//!
//! Each edit costs requests of a quota that all Services share, rejected edits included. A Service may be edited
//! [`SERVICE_BURST`] times at once, then every [`SERVICE_INTERVAL`]. Edits beyond the first of a Service also count for its
//! Namespace, so that one Namespace cannot use up the quota with many Services. Creations, deletions, node changes and
//! retries after transient errors are not paced.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::runtime::{store::ObjectKey, token_bucket::TokenBucket};

/// Edits of one Service that are carried out at once.
const SERVICE_BURST: u32 = 5;
/// Distance of its further edits.
pub(super) const SERVICE_INTERVAL: Duration = Duration::from_secs(15);
/// Repeated edits in one Namespace that are carried out at once.
const NAMESPACE_BURST: u32 = 100;
/// Distance of its further ones: 150 in five minutes, of the 500 writes that a manager may send by default.
const NAMESPACE_INTERVAL: Duration = Duration::from_secs(2);

/// After this time without an edit, the next one of a Service is its first again: the window of the provider's quota.
const QUIET: Duration = Duration::from_secs(300);
/// Entries that are kept before expired ones are removed.
const FEW: usize = 64;

/// The recent edits of one Service.
#[derive(Debug)]
struct ServiceEdits {
    bucket: TokenBucket,
    last: Instant,
}

/// The recent edits of all Services.
#[derive(Debug, Default)]
pub(super) struct EditPace {
    services: HashMap<ObjectKey, ServiceEdits>,
    namespaces: HashMap<String, TokenBucket>,
    /// Number of entries at which expired ones are removed.
    tidy_at: usize,
}

impl EditPace {
    /// Counts an edit of the Service at `key`, unless it has to wait: then returns how long.
    pub(super) fn admit(&mut self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        self.tidy(now);
        let Some(edits) = self.services.get_mut(key).filter(|edits| now < edits.last + QUIET) else {
            let mut bucket = TokenBucket::new(per_second(SERVICE_INTERVAL), SERVICE_BURST.into(), now);
            bucket.take(now);
            self.services.insert(key.clone(), ServiceEdits { bucket, last: now });
            return None;
        };
        let full_bucket = || TokenBucket::new(per_second(NAMESPACE_INTERVAL), NAMESPACE_BURST.into(), now);
        let namespace = self.namespaces.entry(key.namespace.clone()).or_insert_with(full_bucket);
        let wait = namespace.wait(now).max(edits.bucket.wait(now));
        if !wait.is_zero() {
            return Some(wait);
        }
        edits.bucket.take(now);
        namespace.take(now);
        edits.last = now;
        None
    }

    /// Removes expired entries, at a cost that is constant per edit on average.
    fn tidy(&mut self, now: Instant) {
        if self.services.len() + self.namespaces.len() < self.tidy_at.max(FEW) {
            return;
        }
        self.services.retain(|_, edits| now < edits.last + QUIET);
        self.namespaces.retain(|_, bucket| !bucket.is_full(now));
        self.tidy_at = 2 * (self.services.len() + self.namespaces.len());
    }
}

fn per_second(interval: Duration) -> f64 {
    interval.as_secs_f64().recip()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(namespace: &str, name: usize) -> ObjectKey {
        ObjectKey::namespaced(namespace, format!("web-{name}"))
    }

    /// Edits per Service and in total when each of `services` is edited every half second for five minutes.
    fn edits_in_five_minutes(services: usize) -> usize {
        let (mut pace, start) = (EditPace::default(), Instant::now());
        let rounds = (0..600).map(|round| start + SECOND / 2 * round);
        rounds.map(|now| (0..services).filter(|name| pace.admit(&key("noisy", *name), now).is_none()).count()).sum()
    }

    #[test]
    fn a_service_edited_all_the_time_waits() {
        assert_eq!(edits_in_five_minutes(1), 5 + 19);
    }

    #[test]
    fn a_namespace_leaves_room_for_others() {
        let edits = edits_in_five_minutes(60);
        assert!(edits <= 60 + 100 + 150, "{edits}");
        let (mut pace, now) = (EditPace::default(), Instant::now());
        (0..60).cycle().take(600).for_each(|name| _ = pace.admit(&key("noisy", name), now));
        assert!(pace.admit(&key("noisy", 0), now).is_some());
        assert_eq!(pace.admit(&key("quiet", 0), now), None);
        assert_eq!(pace.admit(&key("noisy", 60), now), None, "the first edit of a Service never waits");
    }

    #[test]
    fn editing_many_services_once_never_waits() {
        let (mut pace, now) = (EditPace::default(), Instant::now());
        assert!((0..2_000).all(|name| pace.admit(&key("large", name), now).is_none()));
    }

    #[test]
    fn expired_entries_are_removed() {
        let (mut pace, start) = (EditPace::default(), Instant::now());
        for name in 0..10_000u32 {
            pace.admit(&key("churn", name as usize), start + SECOND * name);
        }
        assert!(pace.services.len() <= 2 * 300 + FEW, "{}", pace.services.len());
    }
}
