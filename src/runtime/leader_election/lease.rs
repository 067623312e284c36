//! Decisions about the Lease. Pure.
//!
//! In: the Lease as last read, the time since which it is unchanged, and the current time. Out: a [`LeaseAction`]. Expiry is
//! measured on the local monotonic clock from the observation of a change, so skewed wall clocks cannot cause two leaders.
//! Upstream: client-go `tools/leaderelection/leaderelection.go`, `tryAcquireOrRenew` and `release`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use tokio::time::Instant;

use crate::runtime::backoff::ExponentialBackoff;

/// Maximum jitter of polls: candidates poll at the retry period times 1 to 1 + this factor. Upstream:
/// `leaderelection.JitterFactor`.
pub const JITTER_FACTOR: f64 = 1.2;

/// Values of the flags `--leader-elect-*`, and the identity of the candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectorConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    pub name: String,
    /// Unique name of the candidate, see [`super::identity`].
    pub identity: String,
    /// Time for which a silent leader keeps the lease.
    pub lease_duration: Duration,
    /// Time for which a leader tries to renew before it stops.
    pub renew_deadline: Duration,
    /// Delay between attempts to acquire or renew.
    pub retry_period: Duration,
}

/// Lease as last read or written, and the time since which its spec is unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedLease {
    pub lease: Lease,
    /// Time at which this spec was first observed. It is measured after the response arrived, so it is never too early.
    pub unchanged_since: Instant,
}

impl ObservedLease {
    /// Returns the observation after `lease` arrived at `now`.
    pub fn of(previous: Option<&Self>, lease: Lease, now: Instant) -> Self {
        let since =
            previous.filter(|previous| previous.lease.spec == lease.spec).map_or(now, |previous| previous.unchanged_since);
        Self { lease, unchanged_since: since }
    }

    /// Returns `holderIdentity`; empty if the lease has no holder.
    pub fn holder(&self) -> &str {
        holder(&self.lease)
    }

    /// Returns the time at which another candidate may take the lease, from the duration that the holder recorded.
    fn expires(&self, candidate: &ElectorConfig) -> Instant {
        let recorded = self.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let recorded = recorded.and_then(|seconds| u64::try_from(seconds).ok());
        self.unchanged_since + recorded.map_or(candidate.lease_duration, Duration::from_secs)
    }
}

/// Newest version of the Lease that was read or written.
///
/// Reads and writes of one object are in order. A version that is older than one before shows that the API server lost what
/// was written since: its etcd was restored from a backup. The cached state of the cluster may then be wrong, and watches
/// that continue from a lost version miss changes. Kubernetes compares resourceVersions as numbers (KEP-5504).
#[derive(Debug, Default)]
pub struct NewestLease {
    version: u64,
    went_back: bool,
}

impl NewestLease {
    /// Reason for the end of a replica that observed the loss.
    pub const WENT_BACK: &str = "the API server went back to an older state, so what this replica knows may be wrong";

    /// Records a Lease that was read or written. Versions that are not numbers are ignored.
    pub fn note(&mut self, lease: &Lease) {
        let version =
            lease.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(self.version);
        self.went_back |= version < self.version;
        self.version = self.version.max(version);
    }

    /// Returns `true` if an older version followed a newer one.
    pub fn went_back(&self) -> bool {
        self.went_back
    }
}

/// Next step. The leases are complete objects to send.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseAction {
    /// The Lease does not exist: create it.
    Create(Lease),
    /// The lease is free or expired: replace it, unless another writer changed it in between.
    TakeOver(Lease),
    /// The candidate holds the lease: replace it with a new renew time.
    Renew(Lease),
    /// Another candidate holds the lease for at least this duration, unless it releases the lease.
    Wait(Duration),
}

/// Returns `holderIdentity` of `lease`, empty if it has no holder.
pub fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Returns the next step for `candidate`, which last observed `observed` (`None`: the Lease does not exist). `wall` is only
/// written, never compared.
pub fn decide(observed: Option<&ObservedLease>, now: Instant, wall: Timestamp, candidate: &ElectorConfig) -> LeaseAction {
    let Some(observed) = observed else {
        return LeaseAction::Create(create(wall, candidate));
    };
    if observed.holder() == candidate.identity {
        return LeaseAction::Renew(renew(&observed.lease, wall, candidate));
    }
    let expires = observed.expires(candidate);
    if observed.holder().is_empty() || expires <= now {
        return LeaseAction::TakeOver(take_over(&observed.lease, wall, candidate));
    }
    LeaseAction::Wait(expires - now)
}

/// Returns the candidate that took the lease from `candidate`, if any. A leader that sees another holder stops at once
/// instead of contending.
pub fn taken_by<'a>(observed: Option<&'a ObservedLease>, candidate: &ElectorConfig) -> Option<&'a str> {
    observed.map(ObservedLease::holder).filter(|holder| !holder.is_empty() && *holder != candidate.identity)
}

fn create(wall: Timestamp, candidate: &ElectorConfig) -> Lease {
    let metadata = ObjectMeta {
        namespace: Some(candidate.namespace.clone()),
        name: Some(candidate.name.clone()),
        ..ObjectMeta::default()
    };
    let spec = LeaseSpec { lease_transitions: Some(0), acquire_time: Some(MicroTime(wall)), ..LeaseSpec::default() };
    renew(&Lease { metadata, spec: Some(spec) }, wall, candidate)
}

fn take_over(old: &Lease, wall: Timestamp, candidate: &ElectorConfig) -> Lease {
    let mut lease = renew(old, wall, candidate);
    let spec = lease.spec.get_or_insert_default();
    spec.acquire_time = Some(MicroTime(wall));
    spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    lease
}

fn renew(old: &Lease, wall: Timestamp, candidate: &ElectorConfig) -> Lease {
    let mut lease = old.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(candidate.identity.clone());
    spec.lease_duration_seconds = Some(whole_seconds(candidate.lease_duration));
    spec.renew_time = Some(MicroTime(wall));
    lease
}

/// Returns the released Lease: it has no holder, and the next candidate does not have to wait.
pub fn released(old: &Lease, wall: Timestamp) -> Lease {
    let mut lease = old.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(MicroTime(wall));
    spec.acquire_time = Some(MicroTime(wall));
    lease
}

/// Returns the seconds, rounded up: others must not wait for less than what was configured.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX).max(1)
}

/// Returns the delay until a waiting candidate reads again: the retry period with jitter, or less if the lease expires
/// before. `random` is in [0, 1).
pub fn next_poll_delay(retry_period: Duration, expires_in: Option<Duration>, random: f64) -> Duration {
    let max = expires_in.unwrap_or(Duration::MAX);
    let steady = ExponentialBackoff { first: retry_period, factor: 1.0, jitter: JITTER_FACTOR, max };
    steady.delay_with(1, random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
