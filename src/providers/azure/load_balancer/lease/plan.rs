//! Contents of the lease, and the decision whether it may be written. Pure.
//!
//! In: the lease as last read, the wall clock. Out: the lease to send, or its holder and expiry. The wall clock decides
//! about expiry, because all other programs that take this lease use it. Upstream: `pkg/provider/azure_lock.go`,
//! `pkg/consts`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};

pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "aks-managed-resource-locker";
/// Holder's name, the same for all replicas, because only the leader writes.
pub const HOLDER: &str = "cloud-controller-manager";
/// Annotation with the name of the previous holder.
pub const PREVIOUS_HOLDER: &str = "aks-managed-resource-locker-previous-holder";
/// Validity after a renewal, in seconds: other components must not take the lease in that time.
const SECONDS: i32 = 900;

/// Next step of the acquisition of the lease.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseAcquisition {
    /// The lease does not exist: create it.
    Create(Box<Lease>),
    /// The lease is free, expired or ours: replace it, on the condition that no other writer changes it in between.
    Take(Box<Lease>),
    /// Another component holds the lease.
    Wait { holder: String, until: Timestamp },
}

/// Returns the next step of the acquisition; `seen` is the lease as last read, `None` if it does not exist.
pub fn acquire(seen: Option<&Lease>, now: Timestamp) -> LeaseAcquisition {
    let Some(seen) = seen else {
        let metadata = ObjectMeta { namespace: Some(NAMESPACE.into()), name: Some(NAME.into()), ..ObjectMeta::default() };
        return LeaseAcquisition::Create(Box::new(taken(&Lease { metadata, spec: None }, now)));
    };
    match expires(seen) {
        Some(until) if !is_ours(seen) && now <= until => LeaseAcquisition::Wait { holder: holder(seen).to_owned(), until },
        _ => LeaseAcquisition::Take(Box::new(taken(seen, now))),
    }
}

fn taken(lease: &Lease, now: Timestamp) -> Lease {
    let mut lease = renewed(lease, now);
    spec(&mut lease).acquire_time = Some(MicroTime(now));
    lease
}

/// Returns the lease with this program as holder and `now` as the time of renewal.
pub fn renewed(lease: &Lease, now: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let held = spec(&mut lease);
    held.holder_identity = Some(HOLDER.to_owned());
    held.lease_duration_seconds = Some(SECONDS);
    held.renew_time = Some(MicroTime(now));
    lease
}

/// Returns the lease without a holder, and with this program as the previous holder.
pub fn released(lease: &Lease) -> Lease {
    let mut lease = lease.clone();
    spec(&mut lease).holder_identity = Some(String::new());
    let annotations: &mut BTreeMap<_, _> = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(PREVIOUS_HOLDER.to_owned(), HOLDER.to_owned());
    lease
}

/// Returns `true` if a replica of this program holds the lease.
pub fn is_ours(lease: &Lease) -> bool {
    holder(lease).eq_ignore_ascii_case(HOLDER)
}

/// Returns `true` if another component may have held the lease since this process wrote the version `own_version` (`None`:
/// it never did).
///
/// Then the cached state of Azure may be outdated. Another replica of this program counts as another component.
pub fn others_held(lease: &Lease, own_version: Option<&str>) -> bool {
    if own_version.is_some() {
        return lease.metadata.resource_version.as_deref() != own_version;
    }
    let previous = lease.metadata.annotations.as_ref().and_then(|all| all.get(PREVIOUS_HOLDER));
    let named = |name: &str| !name.is_empty() && !name.eq_ignore_ascii_case(HOLDER);
    named(holder(lease)) || previous.is_some_and(|name| named(name))
}

/// Returns when the lease expires; `None` if it has no holder or no time.
pub fn expires(lease: &Lease) -> Option<Timestamp> {
    let held = lease.spec.as_ref().filter(|_| !holder(lease).is_empty())?;
    let seconds = i64::from(held.lease_duration_seconds.unwrap_or(0));
    held.renew_time.as_ref()?.0.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn spec(lease: &mut Lease) -> &mut LeaseSpec {
    lease.spec.get_or_insert_default()
}

#[cfg(test)]
mod tests;
