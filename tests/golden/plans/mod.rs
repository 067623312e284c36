//! The recorded steps planned by the pure core of load balancing alone: no controllers, no requests.
//!
//! ```text
//! case ─► cluster (actions to asks) ─► cloud (documents to Observed, outcomes to documents) ─► Scene ─► specs, public_ips,
//!                                                                                             load_balancers, private_links,
//!                                                                                             security_rules
//! ```
//!
//! Every step begins with the recorded documents of the step before. Each of the last five modules compares one kind of documents with
//! the recording, and says which differences are meant.

mod cloud;
mod cluster;
mod load_balancers;
mod printed;
mod private_links;
mod public_ips;
mod security_rules;
mod specs;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use cloud_controller_manager::providers::azure::planner::load_balancer::{desired::ServiceRequest, naming};
use serde_json::Value;

use self::{
    cloud::{Cloud, LOAD_BALANCER, PUBLIC_IP, SECURITY_GROUP},
    cluster::{Cluster, Turn},
};
use crate::golden::{
    case::{Case, State, Step},
    compare::differences,
    corpus,
    deviations::Deviation,
    tolerance::{Cleaned, Failing, without},
};

/// Topics that the planner does not cover yet, and routes, which are none of its business.
const LEFT_OUT: [&str; 1] = ["routes"];

/// Whether a case is not played.
pub(crate) fn is_left_out(case: &Case) -> bool {
    LEFT_OUT.contains(&case.topic.as_str())
}

/// One planned step.
pub(super) struct Scene {
    case: &'static Case,
    step: &'static Step,
    /// The recorded documents before the step.
    before: &'static State,
    /// What the plans make of them.
    found: State,
    /// Who was refused, by namespace/name, and why.
    refused: BTreeMap<String, String>,
    /// All Services after the step.
    everybody: Turn,
}

impl Scene {
    /// `case/step`.
    fn name(&self) -> String {
        format!("{}/{}", self.case.path.trim_start_matches("azure-lb/"), self.step.name)
    }

    /// The recorded end of the step, with all Services that do not fail.
    fn end(&self) -> (Cloud<'static>, Turn) {
        let cloud = Cloud::new(self.case, self.step, self.step.after.clone());
        (cloud, self.everybody.without(&self.step.failing()))
    }

    /// Where the documents of the given type differ from the recording. `adapt` takes out of both what is not compared.
    fn differences(&self, kind: &str, adapt: fn(&mut Value)) -> Vec<String> {
        let (mut expected, mut found) = without(&self.failing(), (self.step.after.clone(), self.found.clone()));
        for state in [&mut expected, &mut found] {
            state.retain(|_, document| document["type"] == kind);
            state.values_mut().for_each(adapt);
        }
        let expected = Cleaned::default().adapt(&self.step.oddities, &expected, &found);
        differences(&expected, &found).iter().map(ToString::to_string).collect()
    }

    fn failing(&self) -> Vec<Failing> {
        let uid = |key: &String| self.step.services.get(key).and_then(|service| service.metadata.uid.clone());
        let base = |key: &String| naming::identity("", "", &uid(key).unwrap_or_default()).name_prefix;
        self.step.failing().into_iter().map(|key| Failing { base: base(&key), key }).collect()
    }
}

/// The documents of the given type.
fn of_type(kind: &str, state: &State) -> State {
    state
        .iter()
        .filter(|(_, document)| document["type"] == kind)
        .map(|(id, document)| (id.clone(), document.clone()))
        .collect()
}

/// All steps of all cases.
fn scenes() -> &'static [Scene] {
    static SCENES: OnceLock<Vec<Scene>> = OnceLock::new();
    SCENES.get_or_init(|| {
        let cases = corpus::cases().iter().filter(|case| !is_left_out(case));
        cases.flat_map(play).collect()
    })
}

fn play(case: &'static Case) -> Vec<Scene> {
    let mut cluster = Cluster::new(case);
    let mut documents = &case.before;
    let mut scenes = Vec::new();
    for step in &case.steps {
        let mut cloud = Cloud::new(case, step, documents.clone());
        cluster.begin(step);
        for action in &step.actions {
            cloud.act(action);
            if let Some(turn) = cluster.act(step, action) {
                cloud.settle(&turn);
            }
        }
        cluster.finish(step);
        let everybody = cluster.everybody();
        scenes.push(Scene { case, step, before: documents, found: cloud.documents, refused: cloud.refused, everybody });
        documents = &step.after;
    }
    scenes
}

/// Fails on every finding that is not meant, and on every deviation that does not happen.
fn assert_only(deviations: &[Deviation], check: impl Fn(&Scene) -> Vec<String>) {
    let mut wrong = Vec::new();
    let mut met = BTreeSet::new();
    for scene in scenes() {
        let name = scene.name();
        let findings = check(scene);
        if let Some((known, _)) = deviations.iter().find(|(known, _)| *known == name) {
            met.extend((!findings.is_empty()).then_some(*known));
        } else {
            wrong.extend(findings.into_iter().map(|finding| format!("{name}: {finding}")));
        }
    }
    wrong.extend(
        deviations
            .iter()
            .filter(|(name, _)| !met.contains(name))
            .map(|(name, why)| format!("{name} no longer deviates: {why}")),
    );
    assert!(wrong.is_empty(), "{} findings\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn many_steps_are_played() {
    assert!(scenes().len() > 150, "{}", scenes().len());
}

#[test]
fn fifty_services_can_be_planned_at_once() {
    let scene = scenes().iter().find(|scene| scene.name() == "takeover-50/create").unwrap();
    let mut everybody = scene.everybody.clone();
    for ask in &mut everybody.asks {
        let ServiceRequest::Ensure(spec) = ask else { continue };
        Arc::make_mut(spec).status_addresses.clear();
    }
    let mut cloud = Cloud::new(scene.case, scene.step, scene.before.clone());
    cloud.settle(&everybody);
    let (mut expected, mut found) = (scene.step.after.clone(), cloud.documents);
    for state in [&mut expected, &mut found] {
        state.retain(|_, document| [LOAD_BALANCER, PUBLIC_IP, SECURITY_GROUP].iter().any(|kind| document["type"] == *kind));
        state.values_mut().for_each(load_balancers::without_members);
        state.values_mut().for_each(public_ips::without_derived_name);
    }
    assert_eq!(differences(&expected, &found), []);
}
