//! Random Services: the order and grouping of their creation does not affect the cloud, a second manager writes nothing, and foreign
//! resources stay the same to the last byte.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, run_paused},
    documents::{State, differences, exact, unordered},
    services::{dual_stack, external, internal, local, set_port, with},
};

const MINUTE: Duration = Duration::from_secs(60);

/// Kind and port of a Service, and in which of three groups it is created.
type ServiceCase = (usize, i32, usize);

fn service(index: usize, (kind, port, _): ServiceCase) -> Service {
    let name = format!("s{index}");
    let mut service = match kind {
        0 => external(&name),
        1 => internal(&name),
        2 => dual_stack(&name),
        3 => local(&name),
        4 => with(external(&name), "azure-allowed-service-tags", "AzureCloud"),
        _ => with(internal(&name), "azure-load-balancer-enable-high-availability-ports", "true"),
    };
    set_port(&mut service, port);
    service
}

/// Adds foreign resources: a load balancer for outbound traffic, and rules in the security group.
fn add_foreign(cluster: &Cluster) {
    let topology = cluster.cloud.topology();
    let group = topology.group_id();
    let public = group.resource("Microsoft.Network/publicIPAddresses", &["outbound"]);
    let balancer = group.resource("Microsoft.Network/loadBalancers", &["kubernetes"]);
    let part = |list: &str, name: &str| json!({"id": format!("{balancer}/{list}/{name}")});
    let documents = [
        json!({
            "id": public, "name": "outbound", "type": "Microsoft.Network/publicIPAddresses", "location": topology.location,
            "sku": {"name": "Standard", "tier": "Regional"}, "tags": {"k8s-azure-service": "", "owner": "me"},
            "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "ipAddress": "52.0.0.9",
                           "idleTimeoutInMinutes": 30},
        }),
        json!({
            "id": balancer, "name": "kubernetes", "type": "Microsoft.Network/loadBalancers", "location": topology.location,
            "sku": {"name": "Standard", "tier": "Regional"}, "tags": {"owner": "me"},
            "properties": {
                "frontendIPConfigurations": [{"name": "outbound", "properties": {
                    "privateIPAllocationMethod": "Dynamic", "publicIPAddress": {"id": public},
                }}],
                "backendAddressPools": [{"name": "aksOutboundBackendPool", "properties": {"drainPeriodInSeconds": 3}}],
                "outboundRules": [{"name": "aksOutboundRule", "properties": {
                    "protocol": "All", "allocatedOutboundPorts": 1024, "enableTcpReset": true, "idleTimeoutInMinutes": 30,
                    "backendAddressPool": part("backendAddressPools", "aksOutboundBackendPool"),
                    "frontendIPConfigurations": [part("frontendIPConfigurations", "outbound")],
                }}],
                "loadBalancingRules": [], "probes": [], "inboundNatRules": [],
            },
        }),
    ];
    documents.into_iter().for_each(|document| cluster.azure().put_document(document).unwrap());
    let id = group.resource("Microsoft.Network/networkSecurityGroups", &[&topology.security_group]);
    let changed = cluster.azure().change_document(id.as_str(), |group| {
        let rule = |name: &str, priority: u32| json!({"id": format!("{id}/securityRules/{name}"), "name": name, "properties": {
            "priority": priority, "access": "Deny", "direction": "Inbound", "protocol": "*", "description": "mine",
            "sourceAddressPrefix": "Internet", "sourcePortRange": "*", "destinationAddressPrefix": "10.224.0.4", "destinationPortRange": "22",
        }});
        group["properties"]["securityRules"] = json!([rule("mine", 500), rule("k8s-not-really", 502), rule("mine-too", 4000)]);
    });
    assert!(changed);
}

/// Returns the foreign parts of the documents that the manager writes.
fn others(state: &State) -> Vec<Value> {
    let mut found = Vec::new();
    for (id, document) in state {
        let named = |list: &str| document["properties"][list].as_array().into_iter().flatten();
        let lists = ["frontendIPConfigurations", "outboundRules", "backendAddressPools", "securityRules"];
        let names = ["outbound", "aksOutboundRule", "aksOutboundBackendPool", "mine", "k8s-not-really", "mine-too"];
        let parts = lists.iter().flat_map(|list| named(list)).filter(|part| names.iter().any(|name| part["name"] == *name));
        found.extend(parts.cloned());
        found.extend(id.ends_with("/outbound").then(|| document.clone()));
        found.extend(id.ends_with("/loadbalancers/kubernetes").then(|| document["tags"].clone()));
    }
    found
}

/// Returns all Services with UIDs and node ports, which are then the same in any order of creation.
fn allocated(service_cases: &[ServiceCase]) -> Vec<Service> {
    let cluster = Cluster::with_two_nodes();
    service_cases.iter().enumerate().map(|(index, case)| cluster.create(&service(index, *case))).collect()
}

/// Returns the cloud after Services were created in groups; `None`: all at once.
fn outcome(services: &[Service], groups: Option<&[ServiceCase]>) -> State {
    run_paused(async {
        let cluster = Cluster::with_two_nodes();
        add_foreign(&cluster);
        let before = exact(&cluster);
        let manager = cluster.start();
        for group in 0..3 {
            let is_now = |index: usize| groups.map_or(group == 0, |service_cases| service_cases[index].2 == group);
            let now = services.iter().enumerate().filter(|(index, _)| is_now(*index));
            now.rev().for_each(|(_, service)| drop(cluster.server.restore(service)));
            cluster.until_ready(10 * MINUTE).await;
        }
        cluster.settle().await;
        let found = exact(&cluster);
        assert_eq!(others(&before), others(&found));
        let state = unordered(&cluster);
        manager.stop().await;

        cluster.azure().clear_requests();
        let manager = cluster.start();
        cluster.settle().await;
        assert_eq!(cluster.writes(), Vec::<String>::new(), "planned again");
        cluster.services().iter().filter_map(|service| service.metadata.name.clone()).for_each(|name| cluster.delete(&name));
        cluster.until_all_deleted(30 * MINUTE).await;
        cluster.settle().await;
        assert_eq!(others(&before), others(&exact(&cluster)));
        manager.stop().await;
        state
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn order_and_grouping_do_not_affect_the_cloud(service_cases in prop::collection::vec((0..6_usize, 80..83_i32, 0..3_usize), 1..8)) {
        let services = allocated(&service_cases);
        let expected = outcome(&services, None);
        prop_assert_eq!(differences(&expected, &outcome(&services, Some(&service_cases))), Vec::<String>::new());
    }
}
