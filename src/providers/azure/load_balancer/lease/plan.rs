//! What to write into the lease, and whether it may be written. Pure.
//!
//! In: the lease as last read, the wall clock. Out: the lease to send, or who holds it until when. Expiry is judged by the wall clock,
//! since whoever else takes this lease does so. Upstream: `pkg/provider/azure_lock.go`, `pkg/consts`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};

/// Namespace of the lease.
pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "aks-managed-resource-locker";
/// Who holds it, whichever replica leads: only the leader works.
pub const HOLDER: &str = "cloud-controller-manager";
/// Who held it last.
pub const PREVIOUS_HOLDER: &str = "aks-managed-resource-locker-previous-holder";
/// How long others must leave a silent holder alone, in seconds.
const SECONDS: i32 = 900;

/// What to do to get the lease.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseAcquisition {
    /// There is none: create it.
    Create(Box<Lease>),
    /// It is free, expired or ours: replace it, provided nobody writes in between.
    Take(Box<Lease>),
    /// Somebody else holds it.
    Wait { holder: String, until: Timestamp },
}

/// The next step, given the lease as it is.
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

/// The lease, held for longer.
pub fn renewed(lease: &Lease, now: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let held = spec(&mut lease);
    held.holder_identity = Some(HOLDER.to_owned());
    held.lease_duration_seconds = Some(SECONDS);
    held.renew_time = Some(MicroTime(now));
    lease
}

/// The lease given up, with who held it.
pub fn released(lease: &Lease) -> Lease {
    let mut lease = lease.clone();
    spec(&mut lease).holder_identity = Some(String::new());
    let annotations: &mut BTreeMap<_, _> = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(PREVIOUS_HOLDER.to_owned(), HOLDER.to_owned());
    lease
}

/// Whether this program holds it, in whichever replica.
pub fn is_ours(lease: &Lease) -> bool {
    holder(lease).eq_ignore_ascii_case(HOLDER)
}

/// Whether somebody else had the lease since this process last wrote `own_version` (`None`: never), so that what it remembers of
/// Azure may be wrong. Another replica of this program counts, too.
pub fn others_held(lease: &Lease, own_version: Option<&str>) -> bool {
    if own_version.is_some() {
        return lease.metadata.resource_version.as_deref() != own_version;
    }
    let previous = lease.metadata.annotations.as_ref().and_then(|all| all.get(PREVIOUS_HOLDER));
    let named = |name: &str| !name.is_empty() && !name.eq_ignore_ascii_case(HOLDER);
    named(holder(lease)) || previous.is_some_and(|name| named(name))
}

/// When a holder's time is over; `None`: nobody holds it, or it says no time.
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
