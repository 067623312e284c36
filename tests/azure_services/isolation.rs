//! Services that only ARM can reject: they fail alone, report the cause, and recover.

use cloud_controller_manager::controllers::service::conditions;
use k8s_openapi::api::core::v1::Service;

use crate::azure_services::{
    cluster::{Cluster, MINUTE, is_ready, run_paused},
    documents::{State, differences, unordered},
    services::{annotate, external, internal, set_port, with},
    wire::Objection,
};

const SERVICES: usize = 200;
/// Services that ARM rejects, with a part of its message.
const REJECTED: [(usize, &str); 5] = [
    (17, "TagNotAllowedByPolicy"),
    (58, "TagNotAllowedByPolicy"),
    (99, "PortNotAllowedByPolicy"),
    (140, "PortNotAllowedByPolicy"),
    (181, "SecurityRuleInvalidAddressPrefix"),
];

fn is_rejected(index: usize) -> bool {
    REJECTED.iter().any(|(rejected, _)| *rejected == index)
}

fn name(index: usize) -> String {
    format!("s{index}")
}

/// Returns a Service; three of four are external. Rejected Services differ from others only in the value that ARM rejects.
fn service(index: usize) -> Service {
    let plain = if index.is_multiple_of(4) && !is_rejected(index) { internal(&name(index)) } else { external(&name(index)) };
    let port = |mut service: Service, port: i32| {
        set_port(&mut service, port);
        service
    };
    match index {
        17 => with(plain, "azure-pip-tags", "forbidden=one"),
        58 => with(plain, "azure-pip-tags", "forbidden=two"),
        99 => port(plain, 6666),
        140 => port(plain, 6667),
        181 => with(plain, "azure-allowed-service-tags", "NoSuchTag"),
        _ => plain,
    }
}

/// Adds policies that forbid tags of public IPs, ports and service tags.
fn add_policies(cluster: &Cluster) {
    cluster.objections.add(Objection {
        kind: "publicIPAddresses",
        text: "\"forbidden\":".to_owned(),
        code: "TagNotAllowedByPolicy",
        message: "TagNotAllowedByPolicy: a tag with the name forbidden is not allowed.".to_owned(),
    });
    for port in [6666, 6667] {
        cluster.objections.add(Objection {
            kind: "loadBalancers",
            text: format!("\"frontendPort\":{port}"),
            code: "PortNotAllowedByPolicy",
            message: format!("PortNotAllowedByPolicy: a rule with port {port} is not allowed."),
        });
    }
    cluster.objections.add(Objection {
        kind: "networkSecurityGroups",
        text: "\"NoSuchTag\"".to_owned(),
        code: "SecurityRuleInvalidAddressPrefix",
        message: "SecurityRuleInvalidAddressPrefix: NoSuchTag is not a valid address prefix.".to_owned(),
    });
}

fn others_are_ready(cluster: &Cluster) -> bool {
    (0..SERVICES)
        .filter(|index| !is_rejected(*index))
        .all(|index| cluster.service(&name(index)).is_some_and(|s| is_ready(&s)))
}

/// Returns the cloud without the parts of the rejected Services.
fn without_rejected(cluster: &Cluster, rejected: &[Service]) -> State {
    let mut state = unordered(cluster);
    let base = |service: &Service| {
        let uid = service.metadata.uid.clone().unwrap_or_default().replace('-', "");
        format!("a{uid}").chars().take(32).collect::<String>()
    };
    let bases: Vec<String> = rejected.iter().map(base).collect();
    let is_theirs = |text: &str| bases.iter().any(|base| text.contains(base.as_str()));
    state.retain(|id, _| !is_theirs(id));
    for document in state.values_mut() {
        for list in ["frontendIPConfigurations", "loadBalancingRules", "probes"] {
            let parts = document["properties"][list].as_array_mut();
            parts.into_iter().for_each(|parts| parts.retain(|part| !is_theirs(part["name"].as_str().unwrap_or_default())));
        }
        for rule in document["properties"]["securityRules"].as_array_mut().into_iter().flatten() {
            let to = rule["properties"]["destinationAddressPrefixes"].as_array_mut();
            to.into_iter().for_each(|to| to.retain(|to| !is_theirs(to.as_str().unwrap_or_default())));
        }
    }
    state
}

#[test]
fn five_of_two_hundred_services_fail_alone_and_recover() {
    let (expected, calm) = run_paused(async {
        let cluster = Cluster::with_ten_nodes();
        let all: Vec<Service> = (0..SERVICES).map(|index| cluster.create(&service(index))).collect();
        let rejected: Vec<Service> = REJECTED.iter().map(|(index, _)| all[*index].clone()).collect();
        REJECTED.iter().for_each(|(index, _)| cluster.delete(&name(*index)));
        let manager = cluster.start();
        let took = cluster.until_ready(10 * MINUTE).await;
        cluster.settle().await;
        manager.stop().await;
        (without_rejected(&cluster, &rejected), took)
    });
    run_paused(async {
        let cluster = Cluster::with_ten_nodes();
        add_policies(&cluster);
        let all: Vec<Service> = (0..SERVICES).map(|index| cluster.create(&service(index))).collect();
        let rejected: Vec<Service> = REJECTED.iter().map(|(index, _)| all[*index].clone()).collect();
        let _manager = cluster.start();
        let took = cluster.until("195 are ready", 10 * MINUTE, others_are_ready).await;
        println!(
            "195 of 200 ready after {took:?}, without the other 5 after {calm:?}; {} writes and {} refusals",
            cluster.writes().len(),
            cluster.objections.refused()
        );
        assert!(took <= calm + MINUTE / 4, "{took:?}, {calm:?} without the five");
        tokio::time::sleep(10 * MINUTE).await;
        let refused = cluster.objections.refused();
        assert!(refused <= 250, "{refused} refusals of five Services in ten minutes");
        assert!(others_are_ready(&cluster));
        assert_eq!(differences(&expected, &without_rejected(&cluster, &rejected)), Vec::<String>::new());
        REJECTED.iter().for_each(|(index, cause)| assert_cause_is_reported(&cluster, &name(*index), cause));
        for (index, _) in REJECTED {
            assert_eq!(cluster.addresses(&name(index)), Vec::<String>::new(), "s{index}");
        }

        cluster.objections.clear();
        let took = cluster.until_ready(15 * MINUTE).await;
        println!("all 200 ready {took:?} after the policies were removed");
    });
}

/// Asserts that an event and the condition name the cause.
fn assert_cause_is_reported(cluster: &Cluster, name: &str, cause: &str) {
    let warnings = cluster.warnings(name);
    let is_reported = warnings.iter().any(|(reason, message)| reason == "SyncLoadBalancerFailed" && message.contains(cause));
    assert!(is_reported, "{name}: {warnings:?}");
    let service = cluster.service(name).unwrap();
    let condition = conditions::current(&service).expect("a condition");
    assert!(["Failed", "Invalid"].contains(&condition.reason.as_str()), "{name}: {condition:?}");
    assert!(condition.message.contains(cause), "{name}: {condition:?}");
}

#[tokio::test(start_paused = true)]
async fn an_internal_service_with_a_used_address_fails_alone() {
    let cluster = Cluster::with_ten_nodes();
    let used_address = cluster.cloud.machines()[3].ip_configurations[0].address.to_string();
    (0..20).for_each(|index| drop(cluster.create(&internal(&name(index)))));
    cluster.create(&with(internal("bad"), "azure-load-balancer-ipv4", &used_address));
    let _manager = cluster.start();
    let ready = |cluster: &Cluster| (0..20).all(|index| cluster.service(&name(index)).is_some_and(|s| is_ready(&s)));
    cluster.until("the others are ready", 10 * MINUTE, ready).await;
    tokio::time::sleep(MINUTE).await;
    assert_cause_is_reported(&cluster, "bad", &used_address);
    cluster.change("bad", |service| annotate(service, "azure-load-balancer-ipv4", None));
    cluster.until_ready(10 * MINUTE).await;
}
