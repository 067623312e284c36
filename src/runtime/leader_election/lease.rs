//! What to do about the Lease: pure decisions.
//!
//! In: the Lease as last read, since when it has been seen unchanged, and the time. Out: a [`LeaseAction`]. Expiry is judged by the local
//! monotonic clock alone, from the moment a change was *seen*, so skewed wall clocks cannot make two leaders.
//! Upstream: client-go `tools/leaderelection/leaderelection.go`, `tryAcquireOrRenew` and `release`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use tokio::time::Instant;

use crate::runtime::backoff::ExponentialBackoff;

/// Waiting candidates poll at the retry period times 1 to 1 + this. Upstream: `leaderelection.JitterFactor`.
pub const JITTER_FACTOR: f64 = 1.2;

/// Who asks, and for which lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionCandidate {
    /// Namespace of the Lease.
    pub namespace: String,
    pub name: String,
    /// What goes into `holderIdentity`.
    pub identity: String,
    /// How long others must see the Lease unchanged before they may take it.
    pub lease_duration: Duration,
}

/// The Lease as last read or written, and since when its spec has been seen unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedLease {
    pub lease: Lease,
    /// When this spec was first seen; taken after the answer arrived, so never too early.
    pub unchanged_since: Instant,
}

impl ObservedLease {
    /// What is known after `lease` arrived at `now`.
    pub fn of(previous: Option<&Self>, lease: Lease, now: Instant) -> Self {
        let since =
            previous.filter(|previous| previous.lease.spec == lease.spec).map_or(now, |previous| previous.unchanged_since);
        Self { lease, unchanged_since: since }
    }

    /// `holderIdentity`; empty when nobody holds the lease.
    pub fn holder(&self) -> &str {
        holder(&self.lease)
    }

    /// When the lease may be taken: counted with the duration that the *holder* recorded.
    fn expires(&self, me: &ElectionCandidate) -> Instant {
        let recorded = self.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let recorded = recorded.and_then(|seconds| u64::try_from(seconds).ok());
        self.unchanged_since + recorded.map_or(me.lease_duration, Duration::from_secs)
    }
}

/// What to do next. The leases are complete objects to send.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseAction {
    /// There is none: create it.
    Create(Lease),
    /// It is free or expired: replace it, provided nobody else wrote in between.
    TakeOver(Lease),
    /// It is ours: replace it with a new renew time.
    Renew(Lease),
    /// Somebody else holds it for at least this long, unless released.
    Wait(Duration),
}

/// `holderIdentity` of `lease`, empty when nobody holds it.
pub fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// The next step for `me`, who last saw `seen` (`None`: there is no Lease). `wall` is only written, never compared.
pub fn decide(seen: Option<&ObservedLease>, now: Instant, wall: Timestamp, me: &ElectionCandidate) -> LeaseAction {
    let Some(seen) = seen else {
        return LeaseAction::Create(create(wall, me));
    };
    if seen.holder() == me.identity {
        return LeaseAction::Renew(renew(&seen.lease, wall, me));
    }
    let expires = seen.expires(me);
    if seen.holder().is_empty() || expires <= now {
        return LeaseAction::TakeOver(take_over(&seen.lease, wall, me));
    }
    LeaseAction::Wait(expires - now)
}

/// Who took the lease from `me`, if somebody did. A leader that sees another holder stops at once instead of contending.
pub fn taken_by<'a>(seen: Option<&'a ObservedLease>, me: &ElectionCandidate) -> Option<&'a str> {
    seen.map(ObservedLease::holder).filter(|holder| !holder.is_empty() && *holder != me.identity)
}

fn create(wall: Timestamp, me: &ElectionCandidate) -> Lease {
    let metadata =
        ObjectMeta { namespace: Some(me.namespace.clone()), name: Some(me.name.clone()), ..ObjectMeta::default() };
    let spec = LeaseSpec { lease_transitions: Some(0), acquire_time: Some(MicroTime(wall)), ..LeaseSpec::default() };
    renew(&Lease { metadata, spec: Some(spec) }, wall, me)
}

fn take_over(old: &Lease, wall: Timestamp, me: &ElectionCandidate) -> Lease {
    let mut lease = renew(old, wall, me);
    let spec = lease.spec.get_or_insert_default();
    spec.acquire_time = Some(MicroTime(wall));
    spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    lease
}

fn renew(old: &Lease, wall: Timestamp, me: &ElectionCandidate) -> Lease {
    let mut lease = old.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(me.identity.clone());
    spec.lease_duration_seconds = Some(whole_seconds(me.lease_duration));
    spec.renew_time = Some(MicroTime(wall));
    lease
}

/// The Lease given up: nobody holds it and the next candidate need not wait.
pub fn released(old: &Lease, wall: Timestamp) -> Lease {
    let mut lease = old.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(MicroTime(wall));
    spec.acquire_time = Some(MicroTime(wall));
    lease
}

/// Rounded up: what others wait for must not be shorter than what was configured.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX).max(1)
}

/// When a waiting candidate looks again: the retry period with jitter, or earlier if the lease expires before that. `random` is
/// in [0, 1).
pub fn next_poll_delay(retry_period: Duration, expires_in: Option<Duration>, random: f64) -> Duration {
    let max = expires_in.unwrap_or(Duration::MAX);
    let steady = ExponentialBackoff { first: retry_period, factor: 1.0, jitter: JITTER_FACTOR, max };
    steady.delay_with(1, random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
