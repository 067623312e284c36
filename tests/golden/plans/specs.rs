//! Who is refused: the Services that failed in the recording, and no others.

use super::{
    Scene, assert_only,
    cloud::{LOAD_BALANCER, PUBLIC_IP, SECURITY_GROUP},
    of_type,
};
use crate::golden::{case::State, compare::differences, deviations};

/// Failures that are found outside of the planner.
const ELSEWHERE: &[deviations::Deviation] =
    &[("nsg-missing/create", "who reads the security group says that it does not exist")];

fn judged_otherwise(scene: &Scene) -> Vec<String> {
    let failing = scene.step.failing();
    let accepted = failing.iter().filter(|key| !scene.refused.contains_key(*key));
    let accepted = accepted.map(|key| format!("{key} failed in the recording and is accepted"));
    let refused = scene.refused.iter().filter(|(key, _)| !failing.contains(*key));
    accepted.chain(refused.map(|(key, why)| format!("{key} is refused: {why}"))).collect()
}

#[test]
fn who_failed_in_the_recording_is_refused() {
    assert_only(ELSEWHERE, judged_otherwise);
}

/// What a step in which Services are refused changes, when it comes to these documents.
fn changed(scene: &Scene, kinds: &[&str], documents: &State) -> Vec<String> {
    if scene.refused.is_empty() {
        return Vec::new();
    }
    let changes = kinds.iter().flat_map(|kind| differences(&of_type(kind, scene.before), &of_type(kind, documents)));
    changes.map(|change| change.to_string()).collect()
}

#[test]
fn who_is_refused_keeps_what_there_was() {
    assert_only(&[], |scene| changed(scene, &[LOAD_BALANCER, PUBLIC_IP, SECURITY_GROUP], &scene.found));
}

#[test]
fn who_is_refused_keeps_the_load_balancer_in_the_recording() {
    let recorded = |scene: &Scene| scene.case.is_recorded.then(|| changed(scene, &[LOAD_BALANCER], &scene.step.after));
    assert_only(deviations::REFUSED, |scene| recorded(scene).unwrap_or_default());
}
