//! Load balancers: planned as recorded, but for the members of their pools, which are planned elsewhere.

use cloud_controller_manager::providers::azure::planner::load_balancer::desired::{
    load_balancers::{LoadBalancerChange, LoadBalancerWrite, PublicIpAssignment, plan_load_balancers},
    status::status,
};
use serde_json::Value;

use super::{
    assert_only,
    cloud::{Cloud, LOAD_BALANCER, ensured},
    cluster::Turn,
    public_ips,
};
use crate::golden::deviations;

/// Plans the load balancers.
pub(super) fn plan(cloud: &mut Cloud<'_>, turn: &Turn, public_ips: &PublicIpAssignment) -> Vec<LoadBalancerChange> {
    let outcome = plan_load_balancers(&cloud.observed(turn), &turn.asks, &turn.others, public_ips, &turn.settings);
    cloud.answered(&outcome.services);
    outcome.changes
}

/// Writes them.
pub(super) fn write(cloud: &mut Cloud<'_>, changes: &[LoadBalancerChange]) {
    for change in changes {
        match &change.write {
            LoadBalancerWrite::Put(document) => cloud.put(&change.id, document),
            LoadBalancerWrite::Delete => cloud.delete(&change.id),
        }
    }
}

/// Members of pools are planned elsewhere.
pub(super) fn without_members(document: &mut Value) {
    for pool in document["properties"]["backendAddressPools"].as_array_mut().into_iter().flatten() {
        pool["properties"] = Value::Null;
    }
}

#[test]
fn load_balancers_become_as_recorded() {
    assert_only(deviations::LOAD_BALANCERS, |scene| scene.differences(LOAD_BALANCER, without_members));
}

#[test]
fn recorded_load_balancers_are_left_alone() {
    assert_only(deviations::BALANCERS_PUT_RIGHT, |scene| {
        let (cloud, turn) = scene.end();
        let observed = cloud.observed(&turn);
        let wanted = public_ips::reconcile_all(&observed, &turn).assigned;
        let outcome = plan_load_balancers(&observed, &turn.asks, &turn.others, &wanted, &turn.settings);
        outcome.changes.iter().map(|change| format!("{} would change: {:?}", change.id.name(), change.reasons)).collect()
    });
}

#[test]
fn recorded_addresses_are_found_again() {
    assert_only(deviations::STATUS, |scene| {
        let (cloud, turn) = scene.end();
        let observed = cloud.observed(&turn);
        let wrong = turn.asks.iter().filter_map(ensured).filter_map(|spec| {
            let found: Vec<String> = status(&observed, spec, &turn.settings).iter().map(ToString::to_string).collect();
            let ingress = &scene.step.outcomes.get(&spec.identity.key)?.load_balancer.ingress;
            let expected: Vec<String> = ingress.iter().filter_map(|entry| entry.ip.clone()).collect();
            (found != expected).then(|| format!("{}: found {found:?}, expected {expected:?}", spec.identity.key))
        });
        wrong.collect()
    });
}
