//! Verdicts on the facts about the cluster. Pure.
//!
//! In: facts, the manager's configuration, the time. Out: findings with remedies.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::LeaseSpec,
    core::v1::{Node, Pod},
};
use kube::ResourceExt;

use super::{
    checks::{API_SERVER, CLOCK, INITIALIZED, LEASE, PROVIDER_IDS, VERSIONS},
    cluster::ClusterFacts,
};
use crate::{
    cli::config::ManagerConfig,
    cloud_provider::diagnostics::{DiagnosticFinding, ProviderDiagnostics, first_of},
    node::{is_never_initialized, taints},
};

/// Time in seconds that the initialization of a Node may take.
const INITIALIZATION: i64 = 300;
/// Maximum number of objects that a finding names.
const NAMED: usize = 5;
/// Minor version of the oldest supported API server.
const OLDEST_MINOR: u32 = 26;
/// Number of minor versions by which a kubelet may be older than its API server.
const KUBELET_SKEW: u32 = 3;

/// Part of the name of a manager's container, in the manifests and charts of this program and of the Go CCM.
const CONTAINER: &str = "cloud-controller-manager";
/// End of the name of the Go CCM's image, without its version.
const GO_IMAGE: &str = "azure-cloud-controller-manager";

const GRANT_READ: &str = "grant the rights of manifests/viewer, or use another kubeconfig";

pub(super) fn of_cluster(
    facts: &ClusterFacts,
    manager: &ManagerConfig,
    provider: Option<&dyn ProviderDiagnostics>,
    now: Timestamp,
) -> Vec<DiagnosticFinding> {
    let mut findings = match &facts.server {
        Err(reason) => {
            let remedy =
                "check --kubeconfig, --master and the current context, and whether the API server runs and can be reached";
            return vec![DiagnosticFinding::problem(API_SERVER, reason, remedy)];
        }
        Ok((version, server_time)) => {
            let ahead = server_time.map(|time| now.as_second() - time.as_second());
            let clock = DiagnosticFinding::clock(CLOCK, "the API server", ahead);
            vec![DiagnosticFinding::ok(API_SERVER, format!("{version} responds")), clock]
        }
    };
    let (lease, has_no_leader) = lease(facts, manager, now);
    findings.push(lease);
    findings.extend(versions(facts));
    match &facts.nodes {
        Ok(nodes) => {
            let managed: Vec<&Node> =
                nodes.iter().filter(|node| provider.is_none_or(|provider| provider.manages_node(node))).collect();
            findings.push(provider_ids(&managed, &manager.cloud.provider));
            findings.push(initialized(&managed, has_no_leader, now));
        }
        Err(reason) => {
            findings
                .extend([PROVIDER_IDS, INITIALIZED].map(|check| DiagnosticFinding::undetermined(check, reason, GRANT_READ)));
        }
    }
    findings
}

/// Returns the finding about the lease, and whether it shows that no manager leads.
fn lease(facts: &ClusterFacts, manager: &ManagerConfig, now: Timestamp) -> (DiagnosticFinding, bool) {
    let election = &manager.leader_election;
    let name = format!("{}/{}", election.resource_namespace, election.resource_name);
    let start = "check the managers' pods and logs; start one if none exists";
    let no_leader = |text: String| (DiagnosticFinding::problem(LEASE, text, start), true);
    let spec: LeaseSpec = match &facts.lease {
        Ok(Some(lease)) => lease.spec.clone().unwrap_or_default(),
        Ok(None) => return no_leader(format!("no leader: lease {name} does not exist")),
        Err(reason) => return (DiagnosticFinding::undetermined(LEASE, reason, GRANT_READ), false),
    };
    let Some(holder) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
        return no_leader(format!("no leader: lease {name} has no holder"));
    };
    let age = spec.renew_time.map_or(i64::MAX, |time| now.as_second() - time.0.as_second());
    if age > i64::from(spec.lease_duration_seconds.unwrap_or_default()) {
        return no_leader(format!("no leader: {holder} holds lease {name} and last renewed it {age} s ago"));
    }
    let found = match &facts.pods {
        Err(reason) => {
            DiagnosticFinding::undetermined(LEASE, format!("{holder} leads; its pod is unknown: {reason}"), GRANT_READ)
        }
        Ok(pods) => check_holder(&holder, pods),
    };
    (found, false)
}

/// Checks whether the holder of the lease is a manager of this program.
fn check_holder(holder: &str, pods: &[Pod]) -> DiagnosticFinding {
    let host = holder.rsplit_once('_').map_or(holder, |(host, _)| host);
    let is_it = |pod: &&Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        manager_image(pod).is_some() && (pod.name_any() == host || node == host || node.split('.').next() == Some(host))
    };
    let found: Vec<&Pod> = pods.iter().filter(is_it).collect();
    let images: Vec<&str> = found.iter().filter_map(|pod| manager_image(pod)).collect();
    if images.is_empty() {
        let text = format!("{holder} leads, but is not a manager's pod of this namespace");
        let remedy = "another manager or a process outside the cluster holds the lease: stop it, or leave this program in shadow mode (--dry-run)";
        return DiagnosticFinding::warning(LEASE, text, remedy);
    }
    if images.iter().all(|image| is_go(image)) {
        let text = format!("{holder} leads: the Go cloud-controller-manager ({})", images.join(", "));
        let remedy = "this program waits until it stops: follow the migration guide, or leave this program in shadow mode (--dry-run)";
        return DiagnosticFinding::warning(LEASE, text, remedy);
    }
    DiagnosticFinding::ok(LEASE, format!("{holder} leads and renews its lease in time"))
}

fn manager_image(pod: &Pod) -> Option<&str> {
    let containers = &pod.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name.contains(CONTAINER))?.image.as_deref()
}

fn is_go(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split(['@', ':']).next() == Some(GO_IMAGE)
}

fn versions(facts: &ClusterFacts) -> Vec<DiagnosticFinding> {
    let mut findings = Vec::new();
    let server = facts.server.as_ref().ok().and_then(|(version, _)| minor(version));
    let version = facts.server.as_ref().map(|(version, _)| version.as_str()).unwrap_or_default();
    if server.is_some_and(|minor| minor < OLDEST_MINOR) {
        let text = format!("the API server is {version}; supported from 1.{OLDEST_MINOR} on");
        findings.push(DiagnosticFinding::warning(
            VERSIONS,
            text,
            "upgrade the control plane; see docs/explanation/compatibility.md",
        ));
    }
    findings.extend(server.and_then(|server| kubelets(facts.nodes.as_deref().ok()?, server)));
    match &facts.pods {
        Ok(pods) => {
            let images: BTreeSet<&str> = pods.iter().filter_map(manager_image).collect();
            if images.len() > 1 {
                let text = format!("managers run different images: {}", images.into_iter().collect::<Vec<_>>().join(", "));
                let remedy = "finish the rollout, or remove the superfluous manager";
                findings.push(DiagnosticFinding::warning(VERSIONS, text, remedy));
            }
        }
        Err(reason) => findings.push(DiagnosticFinding::undetermined(VERSIONS, reason, GRANT_READ)),
    }
    if findings.is_empty() {
        findings
            .push(DiagnosticFinding::ok(VERSIONS, format!("API server {version}, kubelets and managers are compatible")));
    }
    findings
}

/// Returns the finding about kubelets that are newer than the API server or too old for it, if there are any.
fn kubelets(nodes: &[Node], server: u32) -> Option<DiagnosticFinding> {
    let version = |node: &Node| node.status.as_ref()?.node_info.as_ref().map(|info| info.kubelet_version.clone());
    let is_incompatible =
        |version: &String| minor(version).is_some_and(|minor| minor > server || minor + KUBELET_SKEW < server);
    let incompatible: Vec<String> = nodes
        .iter()
        .filter_map(|node| Some((node, version(node).filter(is_incompatible)?)))
        .map(|(node, it)| format!("{} ({it})", node.name_any()))
        .collect();
    let remedy = "upgrade: a kubelet must not be newer than the API server, nor more than three minor versions older";
    let text = || {
        format!(
            "{} kubelets are incompatible with API server 1.{server}: {}",
            incompatible.len(),
            first_of(&incompatible, NAMED)
        )
    };
    (!incompatible.is_empty()).then(|| DiagnosticFinding::warning(VERSIONS, text(), remedy))
}

/// Returns the minor version in `v1.33.2-gke.1`. Builds without a release have none.
fn minor(version: &str) -> Option<u32> {
    version.trim_start_matches('v').strip_prefix("1.")?.split('.').next()?.parse().ok()
}

fn provider_ids(nodes: &[&Node], provider: &str) -> DiagnosticFinding {
    let id = |node: &Node| node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
    let scheme = format!("{provider}://");
    let names = |predicate: &dyn Fn(&str) -> bool| -> Vec<String> {
        nodes.iter().filter(|node| predicate(&id(node))).map(|node| node.name_any()).collect()
    };
    let (lacking, foreign) = (names(&str::is_empty), names(&|id| !id.is_empty() && !id.starts_with(&scheme)));
    if !foreign.is_empty() {
        let text = format!("{} Nodes belong to another cloud: {}", foreign.len(), first_of(&foreign, NAMED));
        let remedy = "a provider id is permanent: delete the Node object and let its kubelet register again, or set --cloud-provider to its cloud";
        return DiagnosticFinding::problem(PROVIDER_IDS, text, remedy);
    }
    if !lacking.is_empty() {
        let text = format!("{} of {} Nodes have no provider id: {}", lacking.len(), nodes.len(), first_of(&lacking, NAMED));
        return DiagnosticFinding::problem(PROVIDER_IDS, text, id_remedy(nodes));
    }
    DiagnosticFinding::ok(PROVIDER_IDS, format!("all {} Nodes have a provider id of {provider}", nodes.len()))
}

/// Returns the remedy for Nodes without a provider ID. Those without the taint are never initialized.
fn id_remedy(nodes: &[&Node]) -> String {
    let never: Vec<_> = nodes.iter().filter(|node| is_never_initialized(node)).map(|node| node.name_any()).collect();
    if never.is_empty() {
        return "they wait for their initialization: run `status node/NAME`".to_owned();
    }
    let command = taints::initialization_command("NAME");
    format!("run `{command}` for {}, and start their kubelets with --cloud-provider=external", first_of(&never, NAMED))
}

fn initialized(nodes: &[&Node], has_no_leader: bool, now: Timestamp) -> DiagnosticFinding {
    let waiting: Vec<&&Node> = nodes.iter().filter(|node| taints::is_uninitialized(node)).collect();
    if waiting.is_empty() {
        return DiagnosticFinding::ok(INITIALIZED, "no Node waits for its initialization");
    }
    let names: Vec<String> = waiting.iter().map(|node| node.name_any()).collect();
    let text = format!("{} Nodes wait for their initialization: {}", names.len(), first_of(&names, NAMED));
    if has_no_leader {
        let remedy = "pods without a toleration for the taint do not run there: start a manager, and check that it leads";
        return DiagnosticFinding::problem(INITIALIZED, format!("{text}; no manager leads"), remedy);
    }
    let age = |node: &Node| node.metadata.creation_timestamp.as_ref().map_or(0, |time| now.as_second() - time.0.as_second());
    let remedy = "run `status node/NAME`; see the runbook nodes-uninitialized";
    match waiting.iter().any(|node| age(node) > INITIALIZATION) {
        true => DiagnosticFinding::problem(INITIALIZED, format!("{text}; for more than {INITIALIZATION} s"), remedy),
        false => DiagnosticFinding::warning(INITIALIZED, text, remedy),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn incompatible_kubelets_are_reported() {
        let node = |name: &str, version: &str| -> Node {
            let info = json!({"kubeletVersion": version, "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""});
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"nodeInfo": info}})).unwrap()
        };
        let nodes = [node("new", "v1.35.0"), node("fits", "v1.31.2"), node("old", "v1.30.9"), node("odd", "v0.0.0-master")];
        let found = kubelets(&nodes, 34).unwrap();
        assert!(
            found.text.contains("2 kubelets are incompatible with API server 1.34: new (v1.35.0), old (v1.30.9)"),
            "{found:?}"
        );
        assert!(kubelets(&nodes[1..2], 34).is_none() && found.remedy.contains("upgrade"), "{found:?}");
        assert_eq!((minor("v1.33.2-gke.1"), minor("v0.0.0-master+1"), minor("")), (Some(33), None, None));
    }
}
