//! Cases are played as they were recorded, and a wrong result is told.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, Service};
use serde_json::json;

use crate::golden::{
    case::{Case, State, Step},
    corpus::{case, cases},
    replay::{replay, take_over},
    stage::Stage,
    understudy::{Twist, Understudy},
};

async fn played(case: &'static Case, twist: Twist) -> Vec<String> {
    replay(&Understudy { case, twist }, case).await
}

#[tokio::test(start_paused = true)]
async fn what_was_recorded_passes() {
    for case in cases() {
        assert_eq!(played(case, |_, _, _| ()).await, Vec::<String>::new());
    }
}

fn set_address(service: &mut Service, ip: &str) {
    let entry = LoadBalancerIngress { ip: Some(ip.to_owned()), ip_mode: Some("VIP".to_owned()), ..Default::default() };
    let balancer = service.status.get_or_insert_default().load_balancer.get_or_insert_default();
    balancer.ingress = Some(vec![entry]);
}

fn spoil(documents: &mut State, part: &str, field: &str) {
    let document = documents.iter_mut().find(|(id, _)| id.contains(part)).unwrap().1;
    document["properties"][field] = json!([]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_result_is_told() {
    let wrong: &[(&str, &str, Twist, &str)] = &[
        (
            "azure-lb/external-tcp",
            "documents",
            |step, documents, _| {
                if step.name == "create" {
                    spoil(documents, "/networksecuritygroups/", "securityRules");
                }
            },
            "securityRules",
        ),
        ("azure-lb/external-tcp", "address", |_, _, service| set_address(service, "9.9.9.9"), "9.9.9.9"),
        ("azure-lb/external-tcp", "finalizer", |_, _, service| service.metadata.finalizers = None, "finalizers"),
        (
            "azure-lb/nsg-missing",
            "a failing Service's neighbourhood",
            |step, documents, _| {
                assert!(step.failing().contains("default/web"));
                documents.retain(|id, _| !id.contains("/virtualnetworks/"));
            },
            "virtualNetworks",
        ),
        (
            "azure-lb/sctp-external",
            "address of a failing Service",
            |step, _, service| {
                if step.expect_failure {
                    set_address(service, "9.9.9.9");
                }
            },
            "it fails, but got an address",
        ),
    ];
    for (path, what, twist, told) in wrong {
        let findings = played(case(path), *twist).await;
        assert!(findings.iter().any(|finding| finding.contains(told)), "{path}, {what}: {findings:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_right_result_passes() {
    let other_address = |_: &Step, documents: &mut State, service: &mut Service| {
        for document in documents.values_mut() {
            *document = serde_json::from_str(&document.to_string().replace("\"20.0.0.1\"", "\"20.0.7.7\"")).unwrap();
        }
        let mut text = serde_json::to_value(&service).unwrap().to_string();
        text = text.replace("\"20.0.0.1\"", "\"20.0.7.7\"");
        *service = serde_json::from_str(&text).unwrap();
    };
    assert_eq!(played(case("azure-lb/shared-probe"), other_address).await, Vec::<String>::new());
    let cleaned = |step: &Step, documents: &mut State, _: &mut Service| {
        if step.name == "internal" {
            spoil(documents, "/networksecuritygroups/", "securityRules");
        }
    };
    assert_eq!(played(case("azure-lb/flip-external-internal"), cleaned).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn services_and_nodes_stay_as_recorded() {
    for case in cases() {
        let stage = Stage::new(case);
        for step in &case.steps {
            for action in &step.actions {
                stage.act(step, action).await;
            }
            same_services(case, step, &stage);
            same_nodes(case, step, &stage);
        }
    }
}

fn same_services(case: &Case, step: &Step, stage: &Stage) {
    let kept = |service: &Service| {
        let meta = &service.metadata;
        (meta.uid.clone(), meta.labels.clone(), meta.annotations.clone(), service.spec.clone())
    };
    let key = |service: &Service| service.metadata.name.clone();
    let found: BTreeMap<_, _> = stage.server.list::<Service>().iter().map(|one| (key(one), kept(one))).collect();
    let recorded: BTreeMap<_, _> = step.services.values().map(|one| (key(one), kept(one))).collect();
    assert_eq!(found, recorded, "{} {}", case.path, step.name);
}

fn same_nodes(case: &Case, step: &Step, stage: &Stage) {
    let Some(nodes) = &step.nodes else { return };
    let kept = |node: &Node| (node.metadata.name.clone(), (node.metadata.labels.clone(), node.spec.clone()));
    let found: BTreeMap<_, _> = stage.server.list::<Node>().iter().map(kept).collect();
    let recorded: BTreeMap<_, _> = nodes.iter().map(kept).collect();
    assert_eq!(found, recorded, "{} {}", case.path, step.name);
}

#[tokio::test(start_paused = true)]
async fn a_take_over_starts_with_everything_in_place() {
    let case = case("azure-lb/takeover-50");
    let last = case.steps.len() - 1;
    let stage = Stage::after(case, last);
    assert_eq!(stage.server.list::<Service>().len(), 50);
    assert_eq!(stage.address("default/svc04-int"), Some(vec!["10.224.0.10".to_owned()]));
    let service = stage.server.get::<Service>("default", "svc04-int").unwrap();
    assert_eq!(service.metadata.finalizers, Some(vec!["service.kubernetes.io/load-balancer-cleanup".to_owned()]));
    same_services(case, &case.steps[last], &stage);
    let writes = take_over(&Understudy { case, twist: |_, _, _| () }, case, last).await;
    assert_eq!(writes, Vec::<String>::new());
}
