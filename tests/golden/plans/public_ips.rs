//! Public IPs: planned as recorded.

use cloud_controller_manager::providers::azure::load_balancer::{
    desired::public_ips::{Outcome, reconcile},
    observed::Observed,
};
use serde_json::Value;

use super::{
    Deviation, assert_only,
    cloud::{Cloud, PUBLIC_IP},
    cluster::Turn,
};

/// Each has a line in `docs/explanation/differences-from-go.md`.
const DEVIATIONS: &[Deviation] = &[
    (
        "ip-tags/change",
        "a public IP with other IP tags is made anew, and the front end comes back at once rather than at the next change",
    ),
    ("pip-other-cluster/delete", "a Service leaves the list of a public IP that another cluster made"),
];

/// Public IPs that nobody uses in the recording, but somebody does here.
const STILL_USED: &[Deviation] = &[
    ("basic-mode-named/unknown", "the Service that is refused keeps its front end"),
    ("ip-tags/change", "it was made anew, and the front end came back"),
];

/// Plans the public IPs.
pub(super) fn plan(cloud: &mut Cloud<'_>, turn: &Turn) -> Outcome {
    let outcome = reconcile_all(&cloud.observed(turn), turn);
    cloud.answered(&outcome.services);
    outcome
}

/// Writes those that have to be there before the load balancers.
pub(super) fn put(cloud: &mut Cloud<'_>, planned: &Outcome) {
    planned.put.iter().for_each(|change| cloud.put(&change.id, &change.document));
}

/// Plans alone.
pub(super) fn reconcile_all(observed: &Observed, turn: &Turn) -> Outcome {
    reconcile(observed, &turn.asks, &turn.others, &turn.settings)
}

/// Deletes what no front end has any more.
pub(super) fn release(cloud: &mut Cloud<'_>, planned: &Outcome) {
    for release in &planned.release {
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
    assert_only(DEVIATIONS, |scene| scene.differences(PUBLIC_IP, without_derived_name));
}

#[test]
fn recorded_public_ips_are_left_alone() {
    assert_only(&[], |scene| {
        let (cloud, turn) = scene.end();
        let outcome = reconcile_all(&cloud.observed(&turn), &turn);
        let unused = &scene.step.oddities.unused_managed_public_ips;
        let released =
            outcome.release.iter().filter(|release| !unused.iter().any(|id| id.eq_ignore_ascii_case(release.id.as_str())));
        let released = released.map(|release| format!("{} would go: {:?}", release.id.name(), release.reasons));
        outcome
            .put
            .iter()
            .map(|change| format!("{} would change: {:?}", change.id.name(), change.reasons))
            .chain(released)
            .collect()
    });
}

#[test]
fn unused_public_ips_are_deleted() {
    assert_only(STILL_USED, |scene| {
        let unused = scene.step.oddities.unused_managed_public_ips.iter();
        let remaining = unused.filter(|id| scene.found.contains_key(&id.to_ascii_lowercase()));
        remaining.map(|id| format!("{id} remains")).collect()
    });
}
