//! Replays a case with the whole manager and compares the result with the recording.

use std::collections::{BTreeMap, BTreeSet};

use cloud_controller_manager::sandbox::azure::Class;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, Service};

use crate::golden::{
    addresses::Addresses,
    case::{Action, Case, Outcome, State, Step},
    compare::differences,
    stage::{Stage, split},
    tolerance::{Cleaned, Failing, without},
};

/// Replays all steps of `case` from its initial state. Returns the differences, each with its step.
pub(crate) async fn replay(case: &Case) -> Vec<String> {
    let stage = Stage::new(case);
    let mut config = stage.config(&case.config);
    let mut running = stage.start(&config, &case.flags);
    let mut judge = Judge { addresses: Addresses::new(&case.before), cleaned: Cleaned::default() };
    let mut findings = Vec::new();
    stage.settled().await;
    for step in &case.steps {
        let start = Start::of(&stage, step);
        for action in &step.actions {
            if let Action::Restart { config: changes } = action {
                running.stop().await;
                json_patch::merge(&mut config, changes);
                running = stage.start(&config, &case.flags);
            }
            stage.act(step, action).await;
        }
        stage.settled().await;
        let found = judge.step(&stage, step, &start);
        findings.extend(found.into_iter().map(|finding| format!("{} {}: {finding}", case.path, step.name)));
    }
    running.stop().await;
    findings.extend(stage.azure().read_only_sent().into_iter().map(|field| format!("{}: sent {field}", case.path)));
    findings
}

/// Starts the manager on the complete state after step `number` (from 0). Returns the writes that it sends.
pub(crate) async fn take_over(case: &Case, number: usize) -> Vec<String> {
    let stage = Stage::after(case, number);
    let running = stage.start(&stage.config_after(case, number), &case.flags);
    stage.settled().await;
    running.stop().await;
    let writes =
        stage.azure().requests().into_iter().filter(|request| matches!(request.class, Class::Write | Class::Delete));
    writes.map(|request| format!("{} {}", request.method, request.path)).collect()
}

/// Addresses and warnings of failing Services when a step starts.
struct Start {
    addresses: BTreeMap<String, BTreeSet<String>>,
    warnings: BTreeMap<String, BTreeMap<Option<String>, Option<String>>>,
}

impl Start {
    fn of(stage: &Stage, step: &Step) -> Self {
        let addresses = |key: &String| (key.clone(), stage.address(key).into_iter().flatten().collect());
        let warnings = |key: &String| (key.clone(), stage.warnings(split(key).1));
        let failing = step.failing();
        Self { addresses: failing.iter().map(addresses).collect(), warnings: failing.iter().map(warnings).collect() }
    }
}

struct Judge {
    addresses: Addresses,
    cleaned: Cleaned,
}

impl Judge {
    fn step(&mut self, stage: &Stage, step: &Step, start: &Start) -> Vec<String> {
        let mut findings = self.documents(step, stage.documents());
        for (key, outcome) in &step.outcomes {
            let finding = match split(key) {
                ("node", name) => node(stage, name, outcome),
                _ if start.addresses.contains_key(key) => failing(stage, key, start),
                _ => self.service(stage, key, outcome),
            };
            findings.extend(finding.map(|finding| format!("{key}: {finding}")));
        }
        findings
    }

    fn documents(&mut self, step: &Step, found: State) -> Vec<String> {
        let failing: Vec<Failing> = step.failing().into_iter().map(|key| owner(step, key)).collect();
        let (expected, found) = without(&failing, (step.after.clone(), found));
        let lost = self.addresses.advance(&expected, &found);
        let found = self.addresses.rename_all(found);
        let expected = self.cleaned.adapt(&step.oddities, &expected, &found);
        lost.into_iter().chain(differences(&expected, &found)).map(|difference| difference.to_string()).collect()
    }

    fn service(&self, stage: &Stage, key: &str, outcome: &Outcome) -> Option<String> {
        let (namespace, name) = split(key);
        let service = stage.server.get::<Service>(namespace, name);
        let Some(service) = service.filter(|_| !outcome.is_deleted) else {
            let exists = stage.server.get::<Service>(namespace, name).is_some();
            return (exists == outcome.is_deleted).then(|| format!("it exists: {exists}, expected {}", !outcome.is_deleted));
        };
        let balancer = service.status.and_then(|status| status.load_balancer).unwrap_or_default();
        let found = self.ingress(&balancer.ingress.unwrap_or_default());
        let expected = Self::plain(&outcome.load_balancer.ingress);
        if found != expected {
            return Some(format!("its addresses are {found:?}, expected {expected:?}"));
        }
        let found: BTreeSet<String> = service.metadata.finalizers.into_iter().flatten().collect();
        let expected: BTreeSet<String> = outcome.finalizers.iter().cloned().collect();
        (found != expected).then(|| format!("its finalizers are {found:?}, expected {expected:?}"))
    }

    /// Returns the addresses in their order, because some clients use only the first.
    fn ingress(&self, entries: &[LoadBalancerIngress]) -> Vec<(String, String)> {
        Self::plain(entries).into_iter().map(|(ip, mode)| (self.addresses.rename(&ip).to_owned(), mode)).collect()
    }

    fn plain(entries: &[LoadBalancerIngress]) -> Vec<(String, String)> {
        let pair =
            |entry: &LoadBalancerIngress| (entry.ip.clone().unwrap_or_default(), entry.ip_mode.clone().unwrap_or_default());
        entries.iter().map(pair).collect()
    }
}

/// Returns key and resource name prefix of a failing Service. Upstream: `cloudprovider.DefaultLoadBalancerName`.
fn owner(step: &Step, key: String) -> Failing {
    let uid = step.services.get(&key).and_then(|service| service.metadata.uid.clone()).unwrap_or_default();
    let base = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
    Failing { key, base }
}

fn failing(stage: &Stage, key: &str, start: &Start) -> Option<String> {
    let now: BTreeSet<String> = stage.address(key).into_iter().flatten().collect();
    let before = start.addresses.get(key).cloned().unwrap_or_default();
    if !now.is_subset(&before) {
        return Some(format!("it fails, but got an address: {now:?}, before {before:?}"));
    }
    let warned = start.warnings.get(key) != Some(&stage.warnings(split(key).1));
    (!warned).then(|| "it fails without a warning event".to_owned())
}

fn node(stage: &Stage, name: &str, outcome: &Outcome) -> Option<String> {
    let expected = outcome.network_unavailable.as_ref()?;
    let conditions = stage.server.get::<Node>("", name)?.status?.conditions.unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition.type_ == "NetworkUnavailable");
    let found = found.map(|found| (found.status, found.reason.unwrap_or_default()));
    let same = found.as_ref().is_some_and(|(status, reason)| *status == expected.status && *reason == expected.reason);
    (!same).then(|| format!("NetworkUnavailable is {found:?}, expected {expected:?}"))
}
