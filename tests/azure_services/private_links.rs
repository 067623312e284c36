//! Private link services: created concurrently, shared, protected, and deleted with their frontends.

use std::time::Duration;

use cloud_controller_manager::sandbox::{
    azure::{AzureOptions, Class, ConnectionStatus, Effect, Fault, Latencies, Latency, LoadBalancerLimits, RequestRecord},
    objects::ServiceExt,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, Manager, TIMEOUT, is_ready, two_nodes},
    services::{annotate, external, internal, set_port, with},
    several,
};

const CREATE: &str = "azure-pls-create";
const TYPE: &str = "Microsoft.Network/privateLinkServices";
/// Duration of one write of a private link service.
const WRITE: Duration = Duration::from_secs(30);

/// Returns an internal Service with a private link service.
fn with_link(name: &str) -> Service {
    with(internal(name), CREATE, "true")
}

fn options() -> AzureOptions {
    let takes = Latency { respond: Duration::ZERO, operation: Duration::from_secs(1) };
    let links = Latency { respond: Duration::ZERO, operation: WRITE };
    let latencies = Latencies::writes(takes).with(Class::Write, TYPE, links);
    AzureOptions { latencies, limits: LoadBalancerLimits::azure(), ..AzureOptions::default() }
}

fn cluster() -> Cluster {
    Cluster::new(two_nodes(), options())
}

fn links(cluster: &Cluster) -> Vec<Value> {
    cluster.azure().documents_of(TYPE)
}

/// Returns the requests of this method for private link services.
fn link_requests(cluster: &Cluster, method: &str) -> Vec<RequestRecord> {
    let requests = cluster.azure().requests().into_iter();
    requests.filter(|it| it.method == method && it.path.contains("/privateLinkServices")).collect()
}

fn id(link: &Value) -> String {
    link["id"].as_str().unwrap().to_owned()
}

fn warned(cluster: &Cluster, service: &str, reason: &str) -> Vec<String> {
    cluster.warnings(service).into_iter().filter(|(actual, _)| actual == reason).map(|(_, message)| message).collect()
}

/// Creates a Service, and waits until all Services are served.
async fn served(cluster: &Cluster, service: &Service) {
    cluster.create(service);
    cluster.until_ready(TIMEOUT).await;
}

/// Returns the methods of the writes with the types of their targets.
fn writes(cluster: &Cluster) -> Vec<String> {
    let segment = |write: &String| {
        let (method, path) = write.split_once(' ').unwrap();
        let path = path.split(' ').next().unwrap();
        format!("{method} {}", path.rsplit('/').nth(1).unwrap())
    };
    cluster.writes().iter().map(segment).collect()
}

/// Counts writes of one kind since the log was cleared.
fn count(cluster: &Cluster, write: &str) -> usize {
    writes(cluster).iter().filter(|actual| *actual == write).count()
}

/// Waits until the Service is warned, and returns the first message.
async fn until_warned(cluster: &Cluster, service: &str, reason: &str) -> String {
    cluster.until("a warning is reported", TIMEOUT, |cluster| !warned(cluster, service, reason).is_empty()).await;
    warned(cluster, service, reason).remove(0)
}

/// Replaces the private link service of `web` by one with another name, as another process would.
fn rename_link(cluster: &Cluster) {
    let is_of_web = |link: &Value| link["tags"]["k8s-azure-owner-service"] == "default/web";
    let mut link = links(cluster).into_iter().find(is_of_web).unwrap();
    let (old, new) = (id(&link), id(&link) + "-moved");
    link["id"] = json!(new);
    link["name"] = json!(new.rsplit('/').next());
    for part in link["properties"]["ipConfigurations"].as_array_mut().unwrap() {
        part["id"] = json!(part["id"].as_str().unwrap().replace(&old, &new));
    }
    assert!(cluster.azure().delete_document(&old));
    cluster.azure().put_document(link).unwrap();
}

/// Deletes `web`, and asserts that every private link service is deleted with it.
async fn delete_web(cluster: &Cluster) {
    cluster.remove("web").await;
    assert_eq!(links(cluster), Vec::<Value>::new());
}

/// Creates `total` private link services, half of them for external Services. All writes begin within `begin`, and all Services are ready
/// within `end`.
async fn create_at_once(
    cluster: &Cluster,
    total: usize,
    (begin, end): (Duration, Duration),
    most_balancers: usize,
) -> Manager {
    for index in 0..total / 2 {
        cluster.create(&with_link(&format!("i{index}")));
        let open = with(external(&format!("e{index}")), "azure-disable-load-balancer-floating-ip", "true");
        cluster.create(&with(open, CREATE, "true"));
    }
    let manager = cluster.start();
    let took = cluster.until_ready(TIMEOUT).await;
    let puts = link_requests(cluster, "PUT");
    let begun: Vec<_> = puts.iter().map(|put| put.at).collect();
    let spread = *begun.iter().max().unwrap() - *begun.iter().min().unwrap();
    let (balancers, subnets) = (count(cluster, "PUT loadBalancers"), count(cluster, "PUT subnets"));
    println!("{total} private link services in {took:?}, begun within {spread:?}, {balancers} writes of load balancers");
    assert_eq!((puts.len(), links(cluster).len(), subnets), (total, total, 1), "{:?}", cluster.writes());
    assert!(spread < begin, "{spread:?}");
    assert!(took < end, "sequential writes take longer: {took:?}");
    assert!(balancers <= most_balancers, "{balancers} writes of load balancers");
    manager
}

#[tokio::test(start_paused = true)]
async fn private_links_that_fill_two_balancers_are_created_at_once() {
    let cluster = cluster();
    let _manager = create_at_once(&cluster, 16, (WRITE, 3 * WRITE), 6).await;
    cluster.create(&with_link("more"));
    let message = until_warned(&cluster, "more", "SyncLoadBalancerFailed").await;
    assert!(message.contains("would have more than 8 private link services"), "{message}");
    assert!(cluster.addresses("more").is_empty());
    cluster.services().iter().for_each(|service| cluster.delete(service.metadata.name.as_deref().unwrap()));
    cluster.until_all_deleted(TIMEOUT).await;
    assert_eq!(links(&cluster), Vec::<Value>::new());
}

/// Four entries have eight load balancers, and each of these holds eight.
#[tokio::test(start_paused = true)]
async fn fifty_private_link_services_are_created_at_once() {
    let cluster = several::cluster(4, options());
    create_at_once(&cluster, 50, (WRITE / 2, 2 * WRITE), 2 * 8).await;
}

#[tokio::test(start_paused = true)]
async fn a_private_link_service_delays_no_other_frontend() {
    let cluster = cluster();
    let _manager = cluster.start();
    cluster.create(&with_link("web"));
    cluster.until("it is being written", TIMEOUT, |cluster| !link_requests(cluster, "PUT").is_empty()).await;
    cluster.create(&internal("plain"));
    let took = cluster.until_served("plain", TIMEOUT).await;
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert!(!is_ready(&cluster.service("web").unwrap()), "it is still being written");
    // A deletion of its frontend waits for it.
    cluster.azure().clear_requests();
    delete_web(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn disconnected_consumers_are_reported_only_after_deletion() {
    let (cluster, _manager) = cluster().serving(&[with_link("web")]).await;
    let link = id(&links(&cluster)[0]);
    let endpoint = "/subscriptions/consumer/resourceGroups/rg/providers/Microsoft.Network/privateEndpoints/one";
    cluster.azure().connect_private_endpoint(endpoint, &link, ConnectionStatus::Approved).unwrap();
    tokio::time::sleep(Duration::from_secs(130)).await;
    let fails = Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned());
    cluster.azure().add_fault(Fault::new(fails).method("DELETE").path("*/privateLinkServices/pls-*").times(1));
    let messages = |cluster: &Cluster| warned(cluster, "web", "PrivateEndpointsDisconnected");
    cluster.delete("web");
    let refused = |cluster: &Cluster| {
        let deletions = link_requests(cluster, "DELETE").into_iter();
        deletions.filter(|it| !it.path.contains("Connections")).count() == 1
    };
    cluster.until("its deletion is attempted", TIMEOUT, refused).await;
    assert_eq!(messages(&cluster), Vec::<String>::new());
    cluster.until_all_deleted(TIMEOUT).await;
    let messages = messages(&cluster);
    assert!(
        messages.len() == 1 && messages[0].contains("connections that are deleted with it: 1, approved: 1"),
        "{messages:?}"
    );
}

/// The cache of a standby that takes over, or of a leader that lost the lease for a while, may be outdated.
#[tokio::test(start_paused = true)]
async fn changes_by_another_lease_holder_are_read_again() {
    let (cluster, _manager) = cluster().serving(&[with_link("web")]).await;
    served(&cluster, &with_link("other")).await;
    let by = |holder: &str| {
        cluster.server.update_with("kube-system", "aks-managed-resource-locker", |lease: &mut Lease| {
            lease.spec.get_or_insert_default().holder_identity = Some(holder.to_owned());
        });
    };
    rename_link(&cluster);
    by("aks-rp");
    by("");
    cluster.azure().clear_requests();
    cluster.remove("web").await;
    assert_eq!(links(&cluster).len(), 1);
    let refused: Vec<_> =
        cluster.writes().into_iter().filter(|write| !write.ends_with("(200)") && !write.ends_with("(202)")).collect();
    assert_eq!(refused, [""; 0], "no request is based on the cache");
}

#[tokio::test(start_paused = true)]
async fn services_without_private_links_cost_one_list_at_deletion() {
    let cluster = cluster();
    let _manager = cluster.serve(&["a", "b", "c"].map(internal)).await;
    assert_eq!(link_requests(&cluster, "GET").len(), 0, "no Service requests one");
    ["a", "b", "c"].iter().for_each(|name| cluster.delete(name));
    cluster.until_all_deleted(TIMEOUT).await;
    assert_eq!(link_requests(&cluster, "GET").len(), 1, "one list for all of them");
}

#[tokio::test(start_paused = true)]
async fn a_private_link_in_another_resource_group_is_deleted() {
    let cluster = cluster();
    cluster.put_group("links");
    let manager = cluster.serve(&[with(with_link("web"), "azure-pls-resource-group", "links")]).await;
    assert!(id(&links(&cluster)[0]).contains("/resourceGroups/links/"), "{:?}", links(&cluster));
    manager.stop().await;
    // Its annotations are removed before its frontend, and a new process has not seen them.
    cluster.change("web", |service| annotate(service, CREATE, None));
    cluster.change("web", |service| annotate(service, "azure-pls-resource-group", None));
    let _manager = cluster.start();
    cluster.settle().await;
    assert_eq!(links(&cluster).len(), 1);
    cluster.remove("web").await;
    assert_eq!(links(&cluster), Vec::<Value>::new(), "Azure reported its resource group");
}

#[tokio::test(start_paused = true)]
async fn a_missing_resource_group_delays_no_other_service() {
    let cluster = cluster();
    let _manager = cluster.start();
    cluster.create(&with(with_link("lost"), "azure-pls-resource-group", "nowhere"));
    cluster.create(&with_link("web"));
    cluster.until_served("web", TIMEOUT).await;
    assert!(cluster.addresses("lost").is_empty(), "nothing is written before it is refused");
    cluster.remove("lost").await;
}

#[tokio::test(start_paused = true)]
async fn deleted_private_endpoint_connections_are_reported() {
    let (cluster, _manager) = cluster().serving(&[with_link("web")]).await;
    let link = id(&links(&cluster)[0]);
    for (name, status) in [("one", ConnectionStatus::Approved), ("two", ConnectionStatus::Pending)] {
        let endpoint =
            format!("/subscriptions/consumer/resourceGroups/rg/providers/Microsoft.Network/privateEndpoints/{name}");
        cluster.azure().connect_private_endpoint(&endpoint, &link, status).unwrap();
    }
    // The cached state expires.
    tokio::time::sleep(Duration::from_secs(130)).await;
    cluster.azure().clear_requests();
    cluster.remove("web").await;
    assert_eq!(links(&cluster), Vec::<Value>::new());
    let messages = warned(&cluster, "web", "PrivateEndpointsDisconnected");
    assert!(messages[0].contains("connections that are deleted with it: 2, approved: 1"), "{messages:?}");
    let deleted: Vec<_> = writes(&cluster).into_iter().filter(|write| write.starts_with("DELETE")).collect();
    let (connection, link) = ("DELETE privateEndpointConnections", "DELETE privateLinkServices");
    assert_eq!(deleted, [connection, connection, link, "DELETE loadBalancers"]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_private_link_service_keeps_the_frontend() {
    let (cluster, _manager) = cluster().serving(&[with_link("web")]).await;
    let link = id(&links(&cluster)[0]);
    cluster.azure().change_document(&link, |body| body["tags"] = json!({"k8s-azure-cluster-name": "other"}));
    tokio::time::sleep(Duration::from_secs(130)).await;
    cluster.azure().clear_requests();
    cluster.delete("web");
    cluster.create(&internal("bystander"));
    cluster.until_deleted("web").await;
    let messages = warned(&cluster, "web", "DeletingFrontendIPConfiguration");
    assert!(messages[0].contains("private link service") && messages[0].contains(&link), "{messages:?}");
    cluster.until_served("bystander", TIMEOUT).await;
    assert!(!cluster.writes().iter().any(|write| write.starts_with("DELETE")), "{:?}", cluster.writes());
    assert_eq!(links(&cluster).len(), 1);
    let rules = several::parts(&cluster).into_values().flatten().filter(|name| name.contains("-TCP-")).count();
    assert_eq!(rules, 1, "the rule of the bystander alone");
}

#[tokio::test(start_paused = true)]
async fn missing_rights_on_the_subnet_are_reported_with_the_remedy() {
    let cluster = cluster();
    cluster.azure().deny("Microsoft.Network/virtualNetworks/subnets/write", "");
    let _manager = cluster.start();
    cluster.create(&with_link("web"));
    cluster.create(&internal("plain"));
    let message = until_warned(&cluster, "web", "SyncLoadBalancerFailed").await;
    assert!(message.contains("subnets/subnet-nodes") && message.contains("administrator"), "{message}");
    cluster.until_served("plain", TIMEOUT).await;
    assert!(!is_ready(&cluster.service("web").unwrap()));
    cluster.azure().allow_all();
    cluster.until_ready(TIMEOUT).await;
    assert_eq!(links(&cluster).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_writes_of_the_subnet_are_not_lost() {
    let cluster = cluster();
    let subnet = "*/subnets/subnet-nodes";
    cluster.azure().add_fault(Fault::refuse(412, "PreconditionFailed").method("PUT").path(subnet).times(2));
    let _manager = cluster.serve(&[with_link("web")]).await;
    let network = cluster.azure().documents_of("Microsoft.Network/virtualNetworks").remove(0);
    let found = &network["properties"]["subnets"][0]["properties"];
    assert_eq!(found["privateLinkServiceNetworkPolicies"], "Disabled");
    assert!(!found["networkSecurityGroup"].is_null(), "{found}");
    assert_eq!(count(&cluster, "PUT subnets"), 3);
    assert_eq!(warned(&cluster, "web", "SyncLoadBalancerFailed"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_private_link_follows_its_service_to_another_frontend() {
    let service = with(with_link("web"), "azure-disable-load-balancer-floating-ip", "true");
    let (cluster, _manager) = cluster().serving(&[service]).await;
    for (internal, load_balancer) in
        [(None, "/loadBalancers/kubernetes/"), (Some("true"), "/loadBalancers/kubernetes-internal/")]
    {
        cluster.change("web", |service| annotate(service, "azure-load-balancer-internal", internal));
        cluster.settle().await;
        let all = links(&cluster);
        let frontend = all[0]["properties"]["loadBalancerFrontendIpConfigurations"][0]["id"].as_str().unwrap();
        assert!(all.len() == 1 && frontend.contains(load_balancer), "{all:?}");
        assert_eq!(cluster.balancers().len(), 1, "the other load balancer is deleted");
        assert!(is_ready(&cluster.service("web").unwrap()));
    }
    assert_eq!(warned(&cluster, "web", "SyncLoadBalancerFailed"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_proxy_header_and_the_probe_change_in_a_safe_order() {
    let proxied = with(with_link("web"), "azure-pls-proxy-protocol", "true").external_traffic_policy("Local");
    let (cluster, _manager) = cluster().serving(&[proxied]).await;
    let order = |cluster: &Cluster| {
        let mut order = writes(cluster);
        order.retain(|write| write.ends_with("privateLinkServices") || write.ends_with("loadBalancers"));
        cluster.azure().clear_requests();
        order
    };
    order(&cluster);
    cluster.change("web", |service| annotate(service, "azure-pls-proxy-protocol", None));
    cluster.settle().await;
    assert_eq!(order(&cluster), ["PUT privateLinkServices", "PUT loadBalancers"]);
    cluster.change("web", |service| annotate(service, "azure-pls-proxy-protocol", Some("true")));
    cluster.settle().await;
    assert_eq!(order(&cluster), ["PUT loadBalancers", "PUT privateLinkServices"]);
}

#[tokio::test(start_paused = true)]
async fn a_private_link_no_longer_requested_is_kept_and_reported() {
    let (cluster, _manager) = cluster().serving(&[with_link("web")]).await;
    cluster.azure().clear_requests();
    cluster.change("web", |service| annotate(service, CREATE, None));
    cluster.settle().await;
    assert_eq!((links(&cluster).len(), cluster.writes()), (1, Vec::new()));
    assert_eq!(warned(&cluster, "web", "KeptPrivateLinkService").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_used_link_name_is_refused_before_any_write() {
    let (cluster, _manager) = cluster().serving(&[with(with_link("web"), "azure-pls-name", "mine")]).await;
    cluster.azure().clear_requests();
    cluster.create(&with(with_link("late"), "azure-pls-name", "mine"));
    until_warned(&cluster, "late", "PrivateLinkServiceNameTaken").await;
    assert_eq!(cluster.writes(), Vec::<String>::new());
    let owner = &links(&cluster)[0]["tags"]["k8s-azure-owner-service"];
    assert_eq!(owner, "default/web");
    cluster.change("late", |service| annotate(service, "azure-pls-name", Some("other")));
    cluster.until_ready(TIMEOUT).await;
    assert_eq!(links(&cluster).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_private_link_service_missing_from_the_cache_is_found() {
    let cluster = cluster();
    let _manager = cluster.serve(&[with_link("web")]).await;
    served(&cluster, &internal("other")).await;
    rename_link(&cluster);
    delete_web(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_repeated() {
    let cluster = cluster();
    let fails = Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned());
    cluster.azure().add_fault(Fault::new(fails).method("PUT").path("*/privateLinkServices/*").times(1));
    let _manager = cluster.serve_and_settle(&[with_link("web")]).await;
    assert_eq!(links(&cluster)[0]["properties"]["provisioningState"], "Succeeded");
    cluster.change("web", |service| set_port(service, 8080));
    cluster.settle().await;
    assert!(is_ready(&cluster.service("web").unwrap()));
}
