//! Services that request foreign or unreadable resources: they fail alone, and nothing is written for them.

use cloud_controller_manager::{
    controllers::service::conditions,
    sandbox::{azure::Fault, objects::ServiceExt},
};
use k8s_openapi::api::core::v1::{Node, Service};

use crate::azure_services::{
    cluster::{Cluster, MINUTE},
    services::{annotate, external, internal, pinned, with},
};

fn is_invalid(cluster: &Cluster, name: &str) -> bool {
    let service = cluster.service(name);
    service.as_ref().and_then(conditions::current).is_some_and(|condition| condition.reason == "Invalid")
}

fn message(cluster: &Cluster, name: &str) -> String {
    let service: Service = cluster.service(name).unwrap();
    conditions::current(&service).map(|condition| condition.message.clone()).unwrap_or_default()
}

/// Returns the rules of the security group as text.
fn rules(cluster: &Cluster) -> String {
    let groups = cluster.security_groups();
    groups.iter().map(|group| group["properties"]["securityRules"].to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn addresses_of_nodes_and_other_services_cannot_be_claimed() {
    let cluster = Cluster::with_two_nodes();
    let _manager = cluster.serve(&[external("victim")]).await;
    let victim = cluster.addresses("victim").remove(0);
    let before = rules(&cluster);

    let closed = |name: &str| {
        let service = with(external(name), "azure-allowed-ip-ranges", "10.0.0.0/8");
        with(service, "azure-deny-all-except-load-balancer-source-ranges", "true")
    };
    let node = cluster.cloud.nodes()[0].status.clone().unwrap().addresses.unwrap()[0].address.clone();
    let mut plain = external("plain").service_type("ClusterIP");
    plain.spec.as_mut().unwrap().cluster_ip = Some("10.0.99.9".to_owned());
    cluster.create(&plain);
    let subnet = format!("{}.250", node.rsplit_once('.').unwrap().0);
    // Addresses in use are omitted, and all others are served, including private addresses.
    for (name, claimed, holder) in [
        ("of-a-node", node.as_str(), "of Node "),
        ("of-metadata", "169.254.169.254", "link-local"),
        ("of-azure", "168.63.129.16", "Azure's platform"),
        ("of-a-subnet", &subnet, "of subnet "),
        ("of-a-service", &victim, "of Service default/victim"),
        ("in-the-cluster", "10.0.99.9", "of Service default/plain"),
    ] {
        let named = format!("{claimed},20.77.0.1,10.20.0.1,192.168.0.1");
        cluster.create(&with(closed(name), "azure-additional-public-ips", &named));
        cluster.until_served(name, MINUTE).await;
        let served = cluster.addresses(name);
        assert_eq!(served[1..], ["20.77.0.1", "10.20.0.1", "192.168.0.1"], "{name}: {:?}", cluster.warnings(name));
        cluster.assert_warned(name, holder);
        let of_cluster = format!("\"{claimed}\"");
        assert_eq!(rules(&cluster).matches(&of_cluster).count(), before.matches(&of_cluster).count());
    }
    assert!(rules(&cluster).contains("\"10.20.0.1\""));
}

#[tokio::test(start_paused = true)]
async fn a_guest_neither_blocks_nor_publishes_an_address_owner() {
    let cluster = Cluster::with_two_nodes();
    let _manager = cluster.serve(&[internal("owner")]).await;
    let address = cluster.addresses("owner").remove(0);
    let guest = |name: &str, port: i32| with(internal(name).ports(&[("http", port)]), "azure-load-balancer-ipv4", &address);
    let denying = with(guest("denying", 81), "azure-allowed-ip-ranges", "203.0.113.1/32");
    cluster.add(&with(denying, "azure-deny-all-except-load-balancer-source-ranges", "true")).await;
    let rules = rules(&cluster);
    assert!(rules.contains("k8s-azure-lb_deny_IPv4_") && !rules.contains("deny-all"), "{rules}");
    cluster.create(&with(guest("linking", 82), "azure-pls-create", "true"));
    let words = "belongs to Service default/owner, which has no private link service";
    cluster.until("it is refused", MINUTE, |cluster| message(cluster, "linking").contains(words)).await;
    assert!(cluster.azure().documents_of("Microsoft.Network/privateLinkServices").is_empty());
}

/// The Go CCM writes the same single rule, so a start after it writes nothing.
#[tokio::test(start_paused = true)]
async fn services_that_all_deny_the_rest_share_one_rule() {
    let denying = |service: Service| {
        let service = service.source_ranges(&["203.0.113.0/24"]);
        with(service, "azure-deny-all-except-load-balancer-source-ranges", "true")
    };
    let (cluster, manager) = Cluster::with_two_nodes().serving(&[denying(external("owner"))]).await;
    let address = cluster.addresses("owner").remove(0);
    cluster.add(&denying(pinned("guest", &address, 81))).await;
    let rules = rules(&cluster);
    assert_eq!(rules.matches("\"access\":\"Deny\"").count(), 1, "{rules}");
    manager.stop().await;
    cluster.assert_plans_nothing("with one rule").await;
}

/// Without the subnets it is unknown which private addresses are free.
#[tokio::test(start_paused = true)]
async fn private_additional_addresses_wait_for_readable_subnets() {
    let cluster = Cluster::with_two_nodes();
    cluster.azure().add_fault(Fault::refuse(403, "AuthorizationFailed").method("GET").path("*/subnets").times(1));
    let _manager = cluster.serve(&[with(external("web"), "azure-additional-public-ips", "20.77.0.1,10.20.0.1")]).await;
    assert_eq!(cluster.addresses("web")[1..], ["20.77.0.1"]);
    cluster.assert_warned("web", "the subnets of virtual network vnet-test cannot be read");
    tokio::time::sleep(MINUTE).await;
    cluster.change("web", |service| annotate(service, "azure-additional-public-ips", Some("20.77.0.1,10.20.0.2")));
    let is_served = |cluster: &Cluster| cluster.addresses("web").contains(&"10.20.0.2".to_owned());
    cluster.until("the private address is served", MINUTE, is_served).await;
}

/// Services name the address and port of another one, without a load balancing rule or with a rule for all ports.
#[tokio::test(start_paused = true)]
async fn no_service_takes_over_the_port_of_another_at_its_address() {
    let restricted = |service: Service| with(service, "azure-allowed-ip-ranges", "10.9.0.0/16");
    let cluster = Cluster::with_two_nodes();
    let _manager = cluster.serve(&[external("outside"), internal("inside")].map(restricted)).await;
    let address = |name: &str| cluster.addresses(name).remove(0);
    let before = rules(&cluster);
    let mut sctp = with(pinned("sctp", &address("outside"), 80), "port_80_no_lb_rule", "true");
    sctp.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].protocol = Some("SCTP".to_owned());
    let thieves = [
        sctp,
        with(pinned("thief", &address("outside"), 80), "port_80_no_lb_rule", "true"),
        with(
            with(internal("all-ports"), "azure-load-balancer-ipv4", &address("inside")),
            "azure-load-balancer-enable-high-availability-ports",
            "true",
        ),
    ];
    thieves.iter().for_each(|thief| drop(cluster.create(thief)));
    for (name, owner) in
        [("sctp", "Service default/outside"), ("thief", "Service default/outside"), ("all-ports", "Service default/inside")]
    {
        cluster.until("it is refused", MINUTE, |cluster| message(cluster, name).contains(owner)).await;
        assert!(cluster.addresses(name).is_empty());
    }
    assert_eq!(rules(&cluster), before);
}

/// Returns `true` if a security rule allows this range to reach the port.
fn is_open(cluster: &Cluster, range: &str, port: &str) -> bool {
    let groups = cluster.security_groups();
    let rules = groups.iter().flat_map(|group| group["properties"]["securityRules"].as_array().into_iter().flatten());
    let opened = rules.map(|rule| &rule["properties"]).filter(|rule| rule.to_string().contains(range));
    opened
        .map(|rule| format!("{}{}", rule["destinationPortRange"], rule["destinationPortRanges"]))
        .any(|ports| ports.contains(port))
}

/// A guest that has a port without a load balancing rule neither keeps the port from the owner of the address nor opens it to its own
/// sources.
#[tokio::test(start_paused = true)]
async fn the_owner_of_an_address_gets_a_port_that_a_guest_uses() {
    const OWNERS: &str = "10.9.0.0/16";
    const GUESTS: &str = "203.0.113.0/24";
    let cluster = Cluster::with_two_nodes();
    let _manager = cluster.serve(&[with(external("owner"), "azure-allowed-ip-ranges", OWNERS)]).await;
    let guest = pinned("guest", &cluster.addresses("owner").remove(0), 81).port("tls", "TCP", 443);
    let guest = with(guest, "azure-allowed-ip-ranges", GUESTS);
    cluster.add(&with(guest, "port_443_no_lb_rule", "true")).await;
    assert!(is_open(&cluster, GUESTS, "443"));
    cluster.change("owner", |service| *service = service.clone().port("tls", "TCP", 443));
    cluster.until("the port is the owner's", MINUTE, |cluster| is_open(cluster, OWNERS, "443")).await;
    assert!(cluster.balancers().iter().any(|balancer| balancer.to_string().contains("\"frontendPort\":443")));
    assert!(is_open(&cluster, GUESTS, "81") && !is_open(&cluster, GUESTS, "443"), "{}", rules(&cluster));
}

/// Names of 240 KB appear in no condition, event or request path.
#[tokio::test(start_paused = true)]
async fn names_that_are_too_long_reach_no_status_event_or_request() {
    let cluster = Cluster::with_two_nodes();
    let _manager = cluster.start();
    let long = "x".repeat(240_000);
    cluster.create(&with(external("long"), "azure-load-balancer-resource-group", &long));
    cluster.until("it is refused", MINUTE, |cluster| is_invalid(cluster, "long")).await;
    assert!(message(&cluster, "long").len() <= 1024);
    assert!(cluster.warnings("long").iter().all(|(_, text)| text.len() <= 1024));
    assert!(cluster.azure().requests().iter().all(|request| request.path.len() < 1024));
    cluster.remove("long").await;
}

/// Returns a Service with one annotation for a name, as long as the API server accepts.
fn service_with_long_name(number: usize) -> Service {
    let key = NAMES[number % NAMES.len()];
    with(external(&format!("long-{number}")), key, &format!("{number}{}", "x".repeat(240_000)))
}

const NAMES: [&str; 10] = [
    "azure-load-balancer-resource-group",
    "azure-pip-name",
    "azure-pip-prefix-id",
    "azure-dns-label-name",
    "azure-load-balancer-internal-subnet",
    "azure-load-balancer-mode",
    "azure-pip-tags",
    "azure-pip-ip-tags",
    "azure-allowed-service-tags",
    "azure-load-balancer-health-probe-request-path",
];

/// Returns an uninitialized Node with long values or foreign subscriptions in its provider id and annotations.
fn hostile_node(number: usize) -> Node {
    let long = "x".repeat(120_000);
    let scopes = [
        format!("/subscriptions/{number}{long}/resourceGroups/{number}{long}"),
        format!("/subscriptions/99999999-0000-0000-0000-{number:012}/resourceGroups/rg-{number}"),
    ];
    let id = format!("azure://{}/providers/Microsoft.Compute/virtualMachines/vm{number}", scopes[number % 2]);
    serde_json::from_value(serde_json::json!({
        "metadata": {
            "name": format!("hostile-{number}"),
            "annotations": {"alpha.kubernetes.io/provided-node-ip": "x".repeat(240_000)},
            "labels": {"kubernetes.azure.com/resource-group": format!("group-{number}")},
        },
        "spec": {
            "providerID": id,
            "taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    }))
    .unwrap()
}

/// Returns the values of labels in a page of metrics.
fn label_values(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter(|line| !line.starts_with('#')).flat_map(|line| line.split('"').skip(1).step_by(2))
}

/// Users who may write Services or Nodes cannot make `/metrics` large, because their texts appear in no label.
#[tokio::test(start_paused = true)]
async fn hostile_services_and_nodes_do_not_grow_the_metrics() {
    const HOSTILE: usize = 20;
    /// Two names of Azure or Kubernetes with a slash between them.
    const LONGEST: usize = 512;
    let cluster = Cluster::with_two_nodes();
    let manager = cluster.serve(&[external("honest")]).await;
    let before = manager.metrics.render().unwrap();
    (0..HOSTILE).for_each(|number| drop(cluster.create(&service_with_long_name(number))));
    (0..HOSTILE).for_each(|number| drop(cluster.server.create::<Node>(&hostile_node(number))));
    cluster
        .until("all Services have been reconciled", 10 * MINUTE, |cluster| {
            cluster.services().iter().all(|service| conditions::current(service).is_some())
        })
        .await;
    tokio::time::sleep(10 * MINUTE).await;
    let after = manager.metrics.render().unwrap();
    let longest = label_values(&after).max_by_key(|value| value.len()).unwrap();
    assert!(longest.len() <= LONGEST, "{} bytes: {longest:.100}", longest.len());
    // Each Service has some series of its own, and no Node has any.
    assert!(after.len() <= before.len() + HOSTILE * 16 * 1024, "{} bytes, before {}", after.len(), before.len());
    for text in ["xxxx", "rg-1", "group-1", "hostile", "99999999-"] {
        let found = label_values(&after).find(|value| value.contains(text));
        assert_eq!(found, None, "{text}");
    }
    eprintln!("{} bytes of metrics, before {}; longest label {}", after.len(), before.len(), longest.len());
}
