//! Pauses between reads that fail for a lasting reason. They apply to documents that only some Services name: public IPs of
//! other resource groups, and subnets. Pure: time comes in.
//!
//! In: results of reads. Out: the reply to Services that name such a document during its pause. A role assignment takes
//! minutes to become effective: the read is retried after [`FIRST_DELAY`], then with doubled delays up to [`MAX_DELAY`]. A
//! subnet or resource group that does not exist may be created at any moment, and a single response may be wrong: its
//! retries follow [`MISSING`]. A namespace with hundreds of missing names waits longer, but no other namespace does
//! ([`ReadDenials::pause_of`]).
//!
//! A denial is removed when no Service has requested the document for [`MAX_DELAY`] after the pause. If there are
//! [`MAX_DENIALS`], the denial with the earliest retry is removed.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use crate::providers::azure::planner::load_balancer::network_query::{NetworkCacheKey, is_lasting};
use crate::{
    providers::azure::model::{ArmError, ArmErrorClass},
    runtime::backoff::ExponentialBackoff,
};

const FIRST_DELAY: Duration = Duration::from_secs(15);
/// Backoff for missing documents: after 5 s, then every 30 s.
const MISSING: ExponentialBackoff =
    ExponentialBackoff { factor: 6.0, ..ExponentialBackoff::doubling(Duration::from_secs(5), Duration::from_secs(30)) };
/// Share of each missing name in the pauses of the namespace that uses it: hundreds of them must not use up the request
/// budget.
const PAUSE_SHARE: Duration = Duration::from_millis(150);
const MAX_DELAY: Duration = Duration::from_secs(300);
/// Largest number of denials that are recorded.
const MAX_DENIALS: usize = 3_000;

/// Reason why a document was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DenialCause {
    Failed(ArmError),
    /// Possibly temporary error of a read that a caller did not wait for: the next caller receives it instead of waiting
    /// again.
    FailedLate(ArmError),
    /// Error of the list, when ARM also said that the group itself does not exist, and so nothing in it.
    GroupMissing(ArmError),
    /// ARM says that the subnet does not exist.
    Absent,
}

impl DenialCause {
    /// Returns ARM's error; `None` for an absent subnet, which is not an error.
    pub(super) fn error(&self) -> Option<&ArmError> {
        match self {
            DenialCause::Failed(error) | DenialCause::FailedLate(error) | DenialCause::GroupMissing(error) => Some(error),
            DenialCause::Absent => None,
        }
    }

    /// Returns `true` if the document does not exist, so it may be created at any moment.
    fn is_missing(&self) -> bool {
        match self {
            DenialCause::Absent | DenialCause::GroupMissing(_) => true,
            DenialCause::FailedLate(_) => false,
            DenialCause::Failed(error) => matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound),
        }
    }
}

#[derive(Debug)]
struct ReadDenial {
    cause: DenialCause,
    until: Instant,
    retry_delay: Duration,
    /// Namespaces of Services that wait for the document.
    namespaces: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct ReadDenials(HashMap<NetworkCacheKey, ReadDenial>);

impl ReadDenials {
    /// Records that a read of `what` failed at `now`.
    ///
    /// Errors other than 403 and 404 may pass at any moment, and are recorded only if they came late.
    pub(super) fn record_failure(&mut self, what: &NetworkCacheKey, cause: DenialCause, now: Instant) {
        if matches!(&cause, DenialCause::Failed(error) if !is_lasting(error)) {
            return;
        }
        self.0.retain(|_, denial| now < denial.until + MAX_DELAY);
        let before = self.0.get(what).map(|denial| denial.retry_delay);
        if before.is_none() && self.0.len() >= MAX_DENIALS {
            let soonest = self.0.iter().min_by_key(|(_, denial)| denial.until).map(|(what, _)| what.clone());
            soonest.and_then(|what| self.0.remove(&what));
        }
        let backoff = match cause {
            DenialCause::Failed(_) if !cause.is_missing() => ExponentialBackoff::doubling(FIRST_DELAY, MAX_DELAY),
            _ => MISSING,
        };
        let retry_delay = backoff.after(before);
        let namespaces = self.0.remove(what).map(|denial| denial.namespaces).unwrap_or_default();
        self.0.insert(what.clone(), ReadDenial { cause, until: now + retry_delay, retry_delay, namespaces });
    }

    pub(super) fn clear(&mut self, what: &NetworkCacheKey) {
        self.0.remove(what);
    }

    /// Returns the reason why the document is not read at `now`; `None`: it may be read.
    pub(super) fn of(&self, what: &NetworkCacheKey, now: Instant) -> Option<&DenialCause> {
        self.0.get(what).filter(|denial| now < denial.until).map(|denial| &denial.cause)
    }

    /// Returns the remaining pause at `now` of a document that does not exist; `None`: it exists, or cannot be read for
    /// another reason.
    pub(super) fn missing_for(&self, what: &NetworkCacheKey, now: Instant) -> Option<Duration> {
        let denial = self.0.get(what).filter(|denial| denial.cause.is_missing())?;
        Some(denial.until.saturating_duration_since(now).max(Duration::from_secs(1)))
    }

    /// Returns how long a Service of `namespace` waits for the first of `keys` that does not exist.
    ///
    /// The result is `None` if all exist, or cannot be read for another reason. Each missing name of the namespace makes the
    /// pauses of that namespace longer.
    pub(super) fn pause_of(&mut self, keys: &[NetworkCacheKey], namespace: &str, now: Instant) -> Option<Duration> {
        let pause = keys.iter().filter_map(|key| self.missing_for(key, now)).min()?;
        for key in keys {
            if let Some(denial) = self.0.get_mut(key) {
                denial.namespaces.insert(namespace.to_owned());
            }
        }
        let count = self.0.values().filter(|denial| denial.namespaces.contains(namespace)).count();
        let share = PAUSE_SHARE * u32::try_from(count).unwrap_or(u32::MAX);
        Some(pause.max(share.min(MAX_DELAY)))
    }

    /// Returns the keys whose last read failed for a lasting reason. Only Services that name such a key wait for its next
    /// read.
    pub(super) fn keys(&self) -> impl Iterator<Item = &NetworkCacheKey> {
        self.0.iter().filter(|(_, denial)| !matches!(denial.cause, DenialCause::FailedLate(_))).map(|(what, _)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{model::ResourceId, samples::arm_error};

    fn failed(class: ArmErrorClass) -> DenialCause {
        DenialCause::Failed(arm_error(class, "", ""))
    }

    fn public_ips(group: &str) -> NetworkCacheKey {
        NetworkCacheKey::PublicIps(ResourceId::group_of("s", group))
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_forbidden_or_absent_is_asked_for_less_and_less_often() {
        let forbidden = (public_ips("g"), failed(ArmErrorClass::Forbidden), [15, 30, 60, 120, 240, 300]);
        let absent = (NetworkCacheKey::Subnet("a".into()), DenialCause::Absent, [5, 30, 30, 30, 30, 30]);
        let group = (
            public_ips("h"),
            DenialCause::GroupMissing(arm_error(ArmErrorClass::ParentNotFound, "", "")),
            [5, 30, 30, 30, 30, 30],
        );
        for (what, cause, pauses) in [forbidden, absent, group] {
            let (mut denials, mut now) = (ReadDenials::default(), Instant::now());
            for pause in pauses {
                denials.record_failure(&what, cause.clone(), now);
                assert!(denials.of(&what, now + Duration::from_secs(pause - 1)).is_some(), "{pause}");
                now += Duration::from_secs(pause);
                assert!(denials.of(&what, now).is_none() && denials.0.contains_key(&what), "{pause}");
            }
            denials.clear(&what);
            assert!(!denials.0.contains_key(&what));
            denials.record_failure(&what, failed(ArmErrorClass::Transient), now);
            assert!(!denials.0.contains_key(&what), "that may pass at any moment");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_names_any_more_is_forgotten() {
        let (mut denials, start, what) = (ReadDenials::default(), Instant::now(), public_ips("g"));
        let note = |denials: &mut ReadDenials, what: &NetworkCacheKey, now| {
            denials.record_failure(what, failed(ArmErrorClass::Forbidden), now)
        };
        note(&mut denials, &what, start);
        note(&mut denials, &what, start + FIRST_DELAY);
        let later = start + FIRST_DELAY * 3 + MAX_DELAY;
        note(&mut denials, &public_ips("other"), later);
        assert!(!denials.0.contains_key(&what));
        note(&mut denials, &what, later);
        assert!(denials.of(&what, later + FIRST_DELAY).is_none(), "long ago it was denied twice");
    }

    #[tokio::test(start_paused = true)]
    async fn missing_names_of_one_namespace_delay_only_that() {
        let (mut denials, now, regular) = (ReadDenials::default(), Instant::now(), Duration::from_secs(30));
        let subnet = |index: usize| NetworkCacheKey::Subnet(format!("s{index}"));
        for index in 0..=1_000 {
            (0..2).for_each(|_| denials.record_failure(&subnet(index), DenialCause::Absent, now));
            let namespace = if index == 0 { "quiet" } else { "noisy" };
            assert!(denials.pause_of(&[subnet(index)], namespace, now).is_some());
        }
        assert!(denials.of(&subnet(0), now + regular).is_none(), "it is read again after 30 s");
        assert_eq!(denials.pause_of(&[subnet(0)], "quiet", now), Some(regular));
        assert_eq!(denials.pause_of(&[subnet(7)], "noisy", now), Some(PAUSE_SHARE * 1_000));
        assert_eq!(denials.pause_of(&[public_ips("g")], "noisy", now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_remembered_and_no_more() {
        let (mut denials, start) = (ReadDenials::default(), Instant::now());
        for index in 0..=MAX_DENIALS {
            let now = start + Duration::from_millis(u64::try_from(index).unwrap());
            denials.record_failure(&public_ips(&format!("g{index}")), failed(ArmErrorClass::Forbidden), now);
        }
        assert_eq!(denials.0.len(), MAX_DENIALS);
        assert!(!denials.0.contains_key(&public_ips("g0")) && denials.0.contains_key(&public_ips("g1")));
    }
}
