//! `plan --all` on final states of Go: it prints exactly the requests that the manager then sends, and sends none itself.

use std::collections::BTreeMap;

use cloud_controller_manager::{
    app::{
        plan::ClusterPlan,
        plan_command::{cluster_plan, plan},
    },
    cli::PlanOptions,
    providers::azure::planner::load_balancer::rule_records::CONFIG_MAP,
    sandbox::azure::Class,
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::Value;

use crate::golden::{
    corpus::{case, cases},
    stage::Stage,
};

/// Kind of the writes of the record of security rules. Their number depends on the batches.
const RECORD: &str = "config_map";

/// Number of requests by method and path. Paths of Azure are in lower case.
pub(crate) type Requests = BTreeMap<String, usize>;

/// Returns the plan of this stage. Checks that planning sends no writes.
pub(crate) async fn planned(stage: &Stage, config: &Value, flags: &[String]) -> ClusterPlan {
    let mut flags = flags.to_vec();
    flags.push("--dry-run".to_owned());
    let (deps, _files) = stage.manager_deps(config, &flags);
    let plan = Box::pin(cluster_plan(deps, None)).await.unwrap().unwrap();
    assert_eq!(sent(stage), Requests::new(), "a plan sends nothing");
    plan
}

/// Returns the requests of a plan, without those for the record of security rules.
pub(crate) fn planned_requests(plan: &ClusterPlan) -> Requests {
    let mut requests = Requests::new();
    for write in plan.writes().filter(|write| write.kind != RECORD) {
        *requests.entry(format!("{} {}", write.method, write.target.to_ascii_lowercase())).or_default() += 1;
    }
    requests
}

/// Returns the writes to Azure and the API server, without Events, Leases and the record of security rules.
pub(crate) fn sent(stage: &Stage) -> Requests {
    let mut requests = Requests::new();
    for request in stage.azure().requests() {
        if matches!(request.class, Class::Write | Class::Delete) {
            *requests.entry(format!("{} {}", request.method, request.path.to_ascii_lowercase())).or_default() += 1;
        }
    }
    for request in stage.server.requests() {
        let method = match request.verb.as_str() {
            "patch" => "PATCH",
            "delete" | "deletecollection" => "DELETE",
            "create" => "POST",
            "update" => "PUT",
            _ => continue,
        };
        if matches!(request.resource.as_str(), "events" | "leases" | "configmaps") {
            continue;
        }
        let namespace =
            if request.namespace.is_empty() { String::new() } else { format!("/namespaces/{}", request.namespace) };
        let part = if request.subresource.is_empty() { String::new() } else { format!("/{}", request.subresource) };
        *requests.entry(format!("{method} /api/v1{namespace}/{}/{}{part}", request.resource, request.name)).or_default() +=
            1;
    }
    requests
}

/// Compares a plan with the writes of a manager. A plan that announces later steps may be shorter.
pub(crate) async fn compare(stage: &Stage, config: &Value, flags: &[String], about: &str) -> Vec<String> {
    // Earlier requests must not count as writes of the manager.
    stage.azure().clear_requests();
    stage.server.clear_requests();
    let plan = planned(stage, config, flags).await;
    let recorded = || stage.server.get::<ConfigMap>("kube-system", CONFIG_MAP).and_then(|map| map.data).unwrap_or_default();
    let before = recorded();
    let mut findings: Vec<String> = plan.unread().map(|line| format!("{about}: not read: {line}")).collect();
    let running = stage.start(config, flags);
    stage.settled().await;
    running.stop().await;
    let (announced, sent) = (planned_requests(&plan), sent(stage));
    let is_final = plan.parts.iter().all(|(_, part)| part.later.is_empty());
    if is_final && recorded() != before && !plan.writes().any(|write| write.kind == RECORD) {
        findings.push(format!("{about}: the record of security rules was written, not planned"));
    }
    for (request, times) in &announced {
        let found = sent.get(request).copied().unwrap_or_default();
        if found < *times {
            findings.push(format!("{about}: planned {times} times, sent {found}: {request}"));
        }
    }
    for (request, times) in sent.iter().filter(|_| is_final) {
        let found = announced.get(request).copied().unwrap_or_default();
        if found < *times {
            findings.push(format!("{about}: sent {times} times, planned {found}: {request}"));
        }
    }
    findings
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_exactly_what_a_take_over_sends() {
    let (mut findings, mut compared, mut with_writes) = (Vec::new(), 0, 0);
    for case in cases() {
        for number in 0..case.steps.len() {
            let stage = Stage::after(case, number);
            let config = stage.config_after(case, number);
            let about = format!("{}/{}", case.path, case.steps[number].name);
            findings.extend(compare(&stage, &config, &case.flags, &about).await);
            compared += 1;
            with_writes += usize::from(!sent(&stage).is_empty());
        }
    }
    println!("{compared} take-overs, {with_writes} with writes, {} differences", findings.len());
    assert!(findings.is_empty(), "{} differences:\n{}", findings.len(), findings.join("\n"));
    assert!(compared > 200 && with_writes > 10, "{compared} compared, {with_writes} with writes");
}

/// Returns the printed plan and the report, each with its exit code.
async fn printed(stage: &Stage, config: &Value, flags: &[String]) -> [(String, u8); 2] {
    [printed_as(stage, config, flags, false).await, printed_as(stage, config, flags, true).await]
}

async fn printed_as(stage: &Stage, config: &Value, flags: &[String], report: bool) -> (String, u8) {
    let mut flags = flags.to_vec();
    flags.push("--dry-run".to_owned());
    let (deps, _files) = stage.manager_deps(config, &flags);
    let manager = deps.config.clone();
    let options = PlanOptions { manager, service: None, json: false, diff: false, report };
    let outcome = plan(deps, &options).await.unwrap();
    (outcome.text, outcome.code)
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_cannot_see_everything_says_so_and_fails() {
    let case = case("azure-lb/external-tcp");
    for (action, seen) in [
        ("nothing/read", true),
        ("Microsoft.Network/loadBalancers/*", false),
        ("Microsoft.Network/networkSecurityGroups/*", false),
        ("Microsoft.Network/publicIPAddresses/*", false),
        ("Microsoft.Compute/virtualMachineScaleSets/*", false),
        ("*", false),
    ] {
        let stage = Stage::after(case, 0);
        let config = stage.config_after(case, 0);
        stage.azure().deny(action, "");
        let [(text, code), (report, report_code)] = printed(&stage, &config, &case.flags).await;
        assert_eq!((code, report_code), (u8::from(!seen), u8::from(!seen)), "{action}: {text}");
        assert_eq!(report.starts_with("ready to switch: "), seen, "{action}: {report}");
        let is_marked = text.starts_with("INCOMPLETE: ") || text.starts_with("no plan: ");
        assert_eq!(is_marked, !seen, "{action}: {text}");
        assert_eq!(text.contains("0 writes planned, 0 leftovers would be removed\n"), seen, "{action}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_cannot_be_listed_has_no_plan() {
    let case = case("azure-lb/external-tcp");
    for (resource, message) in [("services", "cannot list the Services"), ("nodes", "cannot list the Nodes")] {
        let stage = Stage::after(case, 0);
        let config = stage.config_after(case, 0);
        stage.server.faults().fail_every(403, move |request| request.resource == resource);
        for (text, code) in printed(&stage, &config, &case.flags).await {
            assert!(code == 1 && text.starts_with("no plan: ") && text.contains(message), "{code} {text}");
        }
    }
}

/// A kubeconfig that names a cluster of another cloud: the plan is empty, but that is no evidence that the cluster is ready to switch.
#[tokio::test(start_paused = true)]
async fn a_cluster_of_another_cloud_is_not_ready_to_switch() {
    let case = case("azure-lb/external-tcp");
    let stage = Stage::after(case, 0);
    let config = stage.config_after(case, 0);
    for service in stage.server.list::<Service>() {
        let (namespace, name) = (service.metadata.namespace.unwrap_or_default(), service.metadata.name.unwrap_or_default());
        stage.server.update_with(&namespace, &name, |service: &mut Service| service.metadata.finalizers = None);
        stage.server.delete::<Service>(&namespace, &name);
    }
    for mut node in stage.server.list::<Node>() {
        stage.server.delete::<Node>("", node.metadata.name.as_deref().unwrap_or_default());
        node.metadata = ObjectMeta { name: node.metadata.name, ..ObjectMeta::default() };
        node.spec.get_or_insert_default().provider_id = Some("kind://docker/kind/kind-control-plane".to_owned());
        stage.server.create::<Node>(&node);
    }
    let [(text, code), (report, report_code)] = printed(&stage, &config, &case.flags).await;
    assert_eq!((code, report_code), (1, 1), "{text}\n{report}");
    assert!(text.starts_with("INCOMPLETE: ") && text.contains("does --kubeconfig name the right cluster?"), "{text}");
    assert!(report.starts_with("not ready to switch: "), "{report}");
}
