//! Private link services: made at once, shared, kept from harm, and gone with their front ends.

use std::time::Duration;

use cloud_controller_manager::sandbox::{
    azure::{AzureOptions, Class, ConnectionStatus, Effect, Fault, Latencies, Latency, LoadBalancerLimits, RequestRecord},
    objects::ServiceExt,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, Life, PATIENCE, is_ready, two_nodes},
    services::{annotate, external, internal, set_port, with},
    several,
};

const CREATE: &str = "azure-pls-create";
const TYPE: &str = "Microsoft.Network/privateLinkServices";
/// One write of a private link service.
const WRITE: Duration = Duration::from_secs(30);

/// Internal, with a private link service.
fn linked(name: &str) -> Service {
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

/// Requests of this method about private link services.
fn asked(cluster: &Cluster, method: &str) -> Vec<RequestRecord> {
    let requests = cluster.azure().requests().into_iter();
    requests.filter(|it| it.method == method && it.path.contains("/privateLinkServices")).collect()
}

fn id(link: &Value) -> String {
    link["id"].as_str().unwrap().to_owned()
}

fn warned(cluster: &Cluster, service: &str, reason: &str) -> Vec<String> {
    cluster.warnings(service).into_iter().filter(|(known, _)| known == reason).map(|(_, message)| message).collect()
}

/// A Service called `web` is served.
async fn served(cluster: &Cluster, service: &Service) {
    cluster.create(service);
    cluster.until_ready(PATIENCE).await;
}

/// The last segments of the paths of writes, with the methods.
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
    writes(cluster).iter().filter(|known| *known == write).count()
}

/// Waits until the Service is warned, and returns the first message.
async fn until_warned(cluster: &Cluster, service: &str, reason: &str) -> String {
    cluster.until("it is told", PATIENCE, |cluster| !warned(cluster, service, reason).is_empty()).await;
    warned(cluster, service, reason).remove(0)
}

/// Deletes the one of `web` and makes it under another name, as another process does it.
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

/// The Service goes, and with it every private link service.
async fn goes(cluster: &Cluster) {
    cluster.remove("web").await;
    assert_eq!(links(cluster), Vec::<Value>::new());
}

/// Makes so many, half of them at external Services: all begin within the first time, and end within the second.
async fn made_at_once(cluster: &Cluster, total: usize, (begin, end): (Duration, Duration), most_balancers: usize) -> Life {
    for index in 0..total / 2 {
        cluster.create(&linked(&format!("i{index}")));
        let open = with(external(&format!("e{index}")), "azure-disable-load-balancer-floating-ip", "true");
        cluster.create(&with(open, CREATE, "true"));
    }
    let life = cluster.start();
    let took = cluster.until_ready(PATIENCE).await;
    let puts = asked(cluster, "PUT");
    let begun: Vec<_> = puts.iter().map(|put| put.at).collect();
    let spread = *begun.iter().max().unwrap() - *begun.iter().min().unwrap();
    let (balancers, subnets) = (count(cluster, "PUT loadBalancers"), count(cluster, "PUT subnets"));
    println!("{total} private link services in {took:?}, begun within {spread:?}, {balancers} writes of load balancers");
    assert_eq!((puts.len(), links(cluster).len(), subnets), (total, total, 1), "{:?}", cluster.writes());
    assert!(spread < begin, "{spread:?}");
    assert!(took < end, "one after another they take longer: {took:?}");
    assert!(balancers <= most_balancers, "{balancers} writes of load balancers");
    life
}

#[tokio::test(start_paused = true)]
async fn as_many_as_two_load_balancers_hold_are_made_at_once() {
    let cluster = cluster();
    let _life = made_at_once(&cluster, 16, (WRITE, 3 * WRITE), 6).await;
    cluster.create(&linked("more"));
    let told = until_warned(&cluster, "more", "SyncLoadBalancerFailed").await;
    assert!(told.contains("would have more than 8 private link services"), "{told}");
    assert!(cluster.addresses("more").is_empty());
    cluster.services().iter().for_each(|service| cluster.delete(service.metadata.name.as_deref().unwrap()));
    cluster.until_gone(PATIENCE).await;
    assert_eq!(links(&cluster), Vec::<Value>::new());
}

/// Four entries have eight load balancers, and each of these holds eight.
#[tokio::test(start_paused = true)]
async fn fifty_are_made_at_once() {
    let cluster = several::cluster(4, options());
    made_at_once(&cluster, 50, (WRITE / 2, 2 * WRITE), 2 * 8).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_one_at_another_front_end() {
    let cluster = cluster();
    let _life = cluster.start();
    cluster.create(&linked("web"));
    cluster.until("it is being written", PATIENCE, |cluster| !asked(cluster, "PUT").is_empty()).await;
    cluster.create(&internal("plain"));
    let took = cluster.until_served("plain", PATIENCE).await;
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert!(!is_ready(&cluster.service("web").unwrap()), "it is still being written");
    // Who changes what it leads to does.
    cluster.azure().clear_requests();
    goes(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn consumers_are_told_when_they_are_disconnected_and_not_before() {
    let (cluster, _life) = cluster().serving(&[linked("web")]).await;
    let link = id(&links(&cluster)[0]);
    let endpoint = "/subscriptions/consumer/resourceGroups/rg/providers/Microsoft.Network/privateEndpoints/one";
    cluster.azure().connect_private_endpoint(endpoint, &link, ConnectionStatus::Approved).unwrap();
    tokio::time::sleep(Duration::from_secs(130)).await;
    let fails = Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned());
    cluster.azure().add_fault(Fault::new(fails).method("DELETE").path("*/privateLinkServices/pls-*").times(1));
    let told = |cluster: &Cluster| warned(cluster, "web", "PrivateEndpointsDisconnected");
    cluster.delete("web");
    let refused = |cluster: &Cluster| {
        let deletions = asked(cluster, "DELETE").into_iter();
        deletions.filter(|it| !it.path.contains("Connections")).count() == 1
    };
    cluster.until("its deletion is tried", PATIENCE, refused).await;
    assert_eq!(told(&cluster), Vec::<String>::new());
    cluster.until_gone(PATIENCE).await;
    let told = told(&cluster);
    assert!(told.len() == 1 && told[0].contains("connections that are deleted with it: 1, approved: 1"), "{told:?}");
}

/// A standby that takes over, or a leader that lost the lease for a while: what it remembers may be wrong.
#[tokio::test(start_paused = true)]
async fn what_another_holder_of_the_lease_did_is_read_again() {
    let (cluster, _life) = cluster().serving(&[linked("web")]).await;
    served(&cluster, &linked("other")).await;
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
    assert_eq!(refused, [""; 0], "nothing is tried on what was remembered");
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_none_costs_one_list_when_front_ends_go() {
    let cluster = cluster();
    let _life = cluster.serve(&["a", "b", "c"].map(internal)).await;
    assert_eq!(asked(&cluster, "GET").len(), 0, "nobody asks for one");
    ["a", "b", "c"].iter().for_each(|name| cluster.delete(name));
    cluster.until_gone(PATIENCE).await;
    assert_eq!(asked(&cluster, "GET").len(), 1, "one list for all of them");
}

#[tokio::test(start_paused = true)]
async fn another_resource_group_has_it() {
    let cluster = cluster();
    cluster.put_group("links");
    let life = cluster.serve(&[with(linked("web"), "azure-pls-resource-group", "links")]).await;
    assert!(id(&links(&cluster)[0]).contains("/resourceGroups/links/"), "{:?}", links(&cluster));
    life.stop().await;
    // Its annotations are gone when its front end goes, and nobody remembers them.
    cluster.change("web", |service| annotate(service, CREATE, None));
    cluster.change("web", |service| annotate(service, "azure-pls-resource-group", None));
    let _life = cluster.start();
    cluster.settle().await;
    assert_eq!(links(&cluster).len(), 1);
    cluster.remove("web").await;
    assert_eq!(links(&cluster), Vec::<Value>::new(), "Azure said where it is");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_does_not_exist_holds_up_nobody_else() {
    let cluster = cluster();
    let _life = cluster.start();
    cluster.create(&with(linked("lost"), "azure-pls-resource-group", "nowhere"));
    cluster.create(&linked("web"));
    cluster.until_served("web", PATIENCE).await;
    assert!(cluster.addresses("lost").is_empty(), "nothing is written before it is refused");
    cluster.remove("lost").await;
}

#[tokio::test(start_paused = true)]
async fn connections_go_with_it_and_are_told() {
    let (cluster, _life) = cluster().serving(&[linked("web")]).await;
    let link = id(&links(&cluster)[0]);
    for (name, status) in [("one", ConnectionStatus::Approved), ("two", ConnectionStatus::Pending)] {
        let endpoint =
            format!("/subscriptions/consumer/resourceGroups/rg/providers/Microsoft.Network/privateEndpoints/{name}");
        cluster.azure().connect_private_endpoint(&endpoint, &link, status).unwrap();
    }
    // What is known of it grows old.
    tokio::time::sleep(Duration::from_secs(130)).await;
    cluster.azure().clear_requests();
    cluster.remove("web").await;
    assert_eq!(links(&cluster), Vec::<Value>::new());
    let told = warned(&cluster, "web", "PrivateEndpointsDisconnected");
    assert!(told[0].contains("connections that are deleted with it: 2, approved: 1"), "{told:?}");
    let deleted: Vec<_> = writes(&cluster).into_iter().filter(|write| write.starts_with("DELETE")).collect();
    let (connection, link) = ("DELETE privateEndpointConnections", "DELETE privateLinkServices");
    assert_eq!(deleted, [connection, connection, link, "DELETE loadBalancers"]);
}

#[tokio::test(start_paused = true)]
async fn one_of_somebody_else_keeps_the_front_end() {
    let (cluster, _life) = cluster().serving(&[linked("web")]).await;
    let link = id(&links(&cluster)[0]);
    cluster.azure().change_document(&link, |body| body["tags"] = json!({"k8s-azure-cluster-name": "other"}));
    tokio::time::sleep(Duration::from_secs(130)).await;
    cluster.azure().clear_requests();
    cluster.delete("web");
    cluster.create(&internal("bystander"));
    cluster.until_deleted("web").await;
    let told = warned(&cluster, "web", "DeletingFrontendIPConfiguration");
    assert!(told[0].contains("private link service") && told[0].contains(&link), "{told:?}");
    cluster.until_served("bystander", PATIENCE).await;
    assert!(!cluster.writes().iter().any(|write| write.starts_with("DELETE")), "{:?}", cluster.writes());
    assert_eq!(links(&cluster).len(), 1);
    let rules = several::parts(&cluster).into_values().flatten().filter(|name| name.contains("-TCP-")).count();
    assert_eq!(rules, 1, "the rule of the bystander alone");
}

#[tokio::test(start_paused = true)]
async fn without_rights_on_the_subnet_the_service_waits_and_is_told_what_to_do() {
    let cluster = cluster();
    cluster.azure().deny("Microsoft.Network/virtualNetworks/subnets/write", "");
    let _life = cluster.start();
    cluster.create(&linked("web"));
    cluster.create(&internal("plain"));
    let told = until_warned(&cluster, "web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("subnets/subnet-nodes") && told.contains("administrator"), "{told}");
    cluster.until_served("plain", PATIENCE).await;
    assert!(!is_ready(&cluster.service("web").unwrap()));
    cluster.azure().allow_all();
    cluster.until_ready(PATIENCE).await;
    assert_eq!(links(&cluster).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_else_writes_the_subnet_loses_nothing() {
    let cluster = cluster();
    let subnet = "*/subnets/subnet-nodes";
    cluster.azure().add_fault(Fault::refuse(412, "PreconditionFailed").method("PUT").path(subnet).times(2));
    let _life = cluster.serve(&[linked("web")]).await;
    let network = cluster.azure().documents_of("Microsoft.Network/virtualNetworks").remove(0);
    let found = &network["properties"]["subnets"][0]["properties"];
    assert_eq!(found["privateLinkServiceNetworkPolicies"], "Disabled");
    assert!(!found["networkSecurityGroup"].is_null(), "{found}");
    assert_eq!(count(&cluster, "PUT subnets"), 3);
    assert_eq!(warned(&cluster, "web", "SyncLoadBalancerFailed"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn it_follows_its_service_to_another_front_end() {
    let service = with(linked("web"), "azure-disable-load-balancer-floating-ip", "true");
    let (cluster, _life) = cluster().serving(&[service]).await;
    for (internal, load_balancer) in
        [(None, "/loadBalancers/kubernetes/"), (Some("true"), "/loadBalancers/kubernetes-internal/")]
    {
        cluster.change("web", |service| annotate(service, "azure-load-balancer-internal", internal));
        cluster.settle().await;
        let all = links(&cluster);
        let frontend = all[0]["properties"]["loadBalancerFrontendIpConfigurations"][0]["id"].as_str().unwrap();
        assert!(all.len() == 1 && frontend.contains(load_balancer), "{all:?}");
        assert_eq!(cluster.balancers().len(), 1, "the other one is gone");
        assert!(is_ready(&cluster.service("web").unwrap()));
    }
    assert_eq!(warned(&cluster, "web", "SyncLoadBalancerFailed"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_header_stops_before_the_new_probe_meets_it() {
    let proxied = with(linked("web"), "azure-pls-proxy-protocol", "true").external_traffic_policy("Local");
    let (cluster, _life) = cluster().serving(&[proxied]).await;
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
async fn who_asks_no_more_keeps_it_and_is_told() {
    let (cluster, _life) = cluster().serving(&[linked("web")]).await;
    cluster.azure().clear_requests();
    cluster.change("web", |service| annotate(service, CREATE, None));
    cluster.settle().await;
    assert_eq!((links(&cluster).len(), cluster.writes()), (1, Vec::new()));
    assert_eq!(warned(&cluster, "web", "KeptPrivateLinkService").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_one_has_is_refused_before_anything_is_written() {
    let (cluster, _life) = cluster().serving(&[with(linked("web"), "azure-pls-name", "mine")]).await;
    cluster.azure().clear_requests();
    cluster.create(&with(linked("late"), "azure-pls-name", "mine"));
    until_warned(&cluster, "late", "PrivateLinkServiceNameTaken").await;
    assert_eq!(cluster.writes(), Vec::<String>::new());
    let owner = &links(&cluster)[0]["tags"]["k8s-azure-owner-service"];
    assert_eq!(owner, "default/web");
    cluster.change("late", |service| annotate(service, "azure-pls-name", Some("other")));
    cluster.until_ready(PATIENCE).await;
    assert_eq!(links(&cluster).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_on_its_services_list_is_found_by_its_refusal() {
    let cluster = cluster();
    let _life = cluster.serve(&[linked("web")]).await;
    served(&cluster, &internal("other")).await;
    rename_link(&cluster);
    goes(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_made_up_for() {
    let cluster = cluster();
    let fails = Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned());
    cluster.azure().add_fault(Fault::new(fails).method("PUT").path("*/privateLinkServices/*").times(1));
    let _life = cluster.serve_and_settle(&[linked("web")]).await;
    assert_eq!(links(&cluster)[0]["properties"]["provisioningState"], "Succeeded");
    cluster.change("web", |service| set_port(service, 8080));
    cluster.settle().await;
    assert!(is_ready(&cluster.service("web").unwrap()));
}
