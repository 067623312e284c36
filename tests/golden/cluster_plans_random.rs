//! `plan --all` on random states: Go's final states with up to three external changes.

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::golden::{cluster_plans::compare, corpus::cases, seeds, stage::Stage};

const SEEDS: u64 = 50;

/// Deterministic pseudorandom numbers.
struct Dice(u64);

impl Dice {
    /// Returns a number below `limit`, which is not zero: the upper bits of the linear congruential generator of Numerical Recipes.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn one_of<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        (!items.is_empty()).then(|| &items[self.below(items.len())])
    }
}

fn ids(stage: &Stage, kind: &str) -> Vec<String> {
    stage.azure().documents_of(kind).iter().filter_map(|document| document["id"].as_str().map(str::to_owned)).collect()
}

/// Makes a random external change in Azure or in the cluster, and returns its description.
fn disturb(stage: &Stage, dice: &mut Dice) -> String {
    let balancers = ids(stage, "Microsoft.Network/loadBalancers");
    let groups = ids(stage, "Microsoft.Network/networkSecurityGroups");
    let services = stage.server.list::<Service>();
    match dice.below(6) {
        0 => of_one(dice, &balancers, "an idle timeout", |id, dice| {
            stage.azure().change_document(id, |document| {
                of_entry(document, "loadBalancingRules", dice, |rule| {
                    rule["properties"]["idleTimeoutInMinutes"] = json!(17)
                });
            });
        }),
        1 => of_one(dice, &balancers, "a probe's interval", |id, dice| {
            stage.azure().change_document(id, |document| {
                of_entry(document, "probes", dice, |probe| probe["properties"]["intervalInSeconds"] = json!(33));
            });
        }),
        2 => of_one(dice, &groups, "a security rule is deleted", |id, dice| {
            stage.azure().change_document(id, |document| {
                let rules = document["properties"]["securityRules"].as_array_mut();
                if let Some(rules) = rules.filter(|rules| !rules.is_empty()) {
                    rules.remove(dice.below(rules.len()));
                }
            });
        }),
        3 => of_one(dice, &services, "a Service is deleted without cleanup", |service, _| {
            let (namespace, name) = namespace_and_name(service);
            stage.server.update_with(&namespace, &name, |service: &mut Service| service.metadata.finalizers = None);
            stage.server.delete::<Service>(&namespace, &name);
        }),
        4 => of_one(dice, &services, "a Service is being deleted", |service, _| {
            let (namespace, name) = namespace_and_name(service);
            stage.server.delete::<Service>(&namespace, &name);
        }),
        _ => of_one(dice, &services, "another node port", |service, _| {
            let (namespace, name) = namespace_and_name(service);
            stage.server.update_with(&namespace, &name, |service: &mut Service| {
                let ports = service.spec.as_mut().and_then(|spec| spec.ports.as_mut());
                ports.into_iter().flatten().take(1).for_each(|port| port.node_port = Some(32_123));
            });
        }),
    }
}

fn of_one<T>(dice: &mut Dice, items: &[T], description: &str, change: impl FnOnce(&T, &mut Dice)) -> String {
    match dice.one_of(items) {
        Some(item) => change(item, dice),
        None => return "nothing".to_owned(),
    }
    description.to_owned()
}

fn of_entry(document: &mut Value, list: &str, dice: &mut Dice, change: impl FnOnce(&mut Value)) {
    let entries = document["properties"][list].as_array_mut();
    if let Some(entries) = entries.filter(|entries| !entries.is_empty()) {
        let at = dice.below(entries.len());
        change(&mut entries[at]);
    }
}

fn namespace_and_name(service: &Service) -> (String, String) {
    let metadata = &service.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_exactly_what_is_sent_on_random_states() {
    let recorded: Vec<_> = cases().iter().filter(|case| case.is_recorded).collect();
    let mut findings = Vec::new();
    for seed in seeds::printed(0..SEEDS) {
        let mut dice = Dice(seed.wrapping_mul(7_919) + 1);
        dice.below(2);
        let case = *dice.one_of(&recorded).unwrap();
        let number = dice.below(case.steps.len());
        let stage = Stage::after(case, number);
        let changes = 1 + dice.below(3);
        let changes: Vec<String> = (0..changes).map(|_| disturb(&stage, &mut dice)).collect();
        let about = format!("seed {seed}, {}/{}, {}", case.path, case.steps[number].name, changes.join(", "));
        let config = stage.config_after(case, number);
        findings.extend(compare(&stage, &config, &case.flags, &about).await);
    }
    assert!(findings.is_empty(), "{} differences:\n{}", findings.len(), findings.join("\n"));
}
