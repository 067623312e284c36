//! Which documents a batch occupies, and which Services wait for another batch. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::super::in_flight::ALL;
use crate::providers::azure::{
    model::ResourceId,
    planner::load_balancer::{desired::ServiceRequest, naming, plan::network::NetworkPlan, spec::ServiceIdentity},
};

/// Those who wait for documents that another batch writes, with these.
pub(super) type BusyServices = BTreeMap<ServiceIdentity, BTreeSet<String>>;

/// Returns what a plan occupies: the load balancers that change and the Services that request it.
///
/// If addresses move between internal load balancers, it occupies everything: Azure could give one to another Service.
pub(super) fn keys_of<'a>(plan: &NetworkPlan, requests: impl Iterator<Item = &'a ServiceRequest>) -> BTreeSet<String> {
    let changes = &plan.load_balancers.changes;
    let waves: BTreeSet<u8> = changes.iter().map(|change| change.wave).collect();
    let has_internal = changes.iter().any(|change| naming::split_load_balancer(change.id.name()).1);
    if plan.load_balancers.is_interim || (waves.len() > 1 && has_internal) {
        return BTreeSet::from([ALL.to_owned()]);
    }
    changes.iter().map(|change| change.id.key()).chain(requests.map(|request| request.identity().key.clone())).collect()
}

/// Returns the Services that cause changes of documents that are occupied, and those of an earlier request that is still written.
pub(super) fn needing(
    occupied: &BTreeSet<String>,
    plan: &NetworkPlan,
    causes: &[BTreeSet<ServiceIdentity>],
    requests: &[ServiceRequest],
) -> BusyServices {
    let mut needing = BusyServices::new();
    let mut add = |service: &ServiceIdentity, key: &str| {
        needing.entry(service.clone()).or_default().insert(key.to_owned());
    };
    for (change, causes) in plan.load_balancers.changes.iter().zip(causes) {
        let key = change.id.key();
        let key = if occupied.contains(ALL) { ALL } else { &key };
        if occupied.contains(key) {
            causes.iter().for_each(|service| add(service, key));
        }
    }
    let earlier = requests.iter().map(ServiceRequest::identity).filter(|service| occupied.contains(&service.key));
    earlier.for_each(|service| add(service, &service.key));
    needing
}

/// Takes out the changes of documents that are occupied. Nobody waits for these.
pub(super) fn leave_out(occupied: &BTreeSet<String>, plan: &mut NetworkPlan, causes: &mut Vec<BTreeSet<ServiceIdentity>>) {
    let changes = std::mem::take(&mut plan.load_balancers.changes).into_iter().zip(std::mem::take(causes));
    let is_free = |id: &ResourceId| !occupied.contains(&id.key()) && !occupied.contains(ALL);
    (plan.load_balancers.changes, *causes) = changes.filter(|(change, _)| is_free(&change.id)).unzip();
}
