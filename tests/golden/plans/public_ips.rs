//! Public IPs: planned as recorded.

use cloud_controller_manager::providers::azure::planner::load_balancer::{
    desired::public_ips::{PublicIpPlan, plan_public_ips},
    observed::ObservedNetwork,
};
use serde_json::Value;

use super::{
    assert_only,
    cloud::{Cloud, PUBLIC_IP},
    cluster::Turn,
};
use crate::golden::deviations;

/// Plans the public IPs.
pub(super) fn plan(cloud: &mut Cloud<'_>, turn: &Turn) -> PublicIpPlan {
    let outcome = reconcile_all(&cloud.observed(turn), turn);
    cloud.answered(&outcome.services);
    outcome
}

/// Writes those that have to be there before the load balancers.
pub(super) fn put(cloud: &mut Cloud<'_>, planned: &PublicIpPlan) {
    planned.writes.iter().for_each(|change| cloud.put(&change.id, &change.document));
}

/// Plans alone.
pub(super) fn reconcile_all(observed: &ObservedNetwork, turn: &Turn) -> PublicIpPlan {
    plan_public_ips(observed, &turn.asks, &turn.others, &turn.settings)
}

/// Deletes what no front end has any more.
pub(super) fn release(cloud: &mut Cloud<'_>, planned: &PublicIpPlan) {
    for release in &planned.releases {
        if !cloud.is_used(&release.id) {
            cloud.delete(&release.id);
        }
    }
}

/// ARM makes the full name from the label.
pub(super) fn without_derived_name(document: &mut Value) {
    if let Some(settings) = document["properties"]["dnsSettings"].as_object_mut() {
        settings.remove("fqdn");
    }
}

#[test]
fn public_ips_become_as_recorded() {
    assert_only(deviations::PUBLIC_IPS, |scene| scene.differences(PUBLIC_IP, without_derived_name));
}

#[test]
fn recorded_public_ips_are_left_alone() {
    assert_only(&[], |scene| {
        let (cloud, turn) = scene.end();
        let outcome = reconcile_all(&cloud.observed(&turn), &turn);
        let unused = &scene.step.oddities.unused_managed_public_ips;
        let released =
            outcome.releases.iter().filter(|release| !unused.iter().any(|id| id.eq_ignore_ascii_case(release.id.as_str())));
        let released = released.map(|release| format!("{} would go: {:?}", release.id.name(), release.reasons));
        outcome
            .writes
            .iter()
            .map(|change| format!("{} would change: {:?}", change.id.name(), change.reasons))
            .chain(released)
            .collect()
    });
}

#[test]
fn unused_public_ips_are_deleted() {
    assert_only(deviations::STILL_USED, |scene| {
        let unused = scene.step.oddities.unused_managed_public_ips.iter();
        let remaining = unused.filter(|id| scene.found.contains_key(&id.to_ascii_lowercase()));
        remaining.map(|id| format!("{id} remains")).collect()
    });
}
