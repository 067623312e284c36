//! Private link services: made at once, shared, kept from harm, and gone with their front ends.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::{
    AzureOptions, Class, ConnectionStatus, Effect, Fault, Latencies, Latency, LoadBalancerLimits, RequestRecord,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, PATIENCE, addresses, alone, is_ready, two_nodes},
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

fn cluster() -> Cluster {
    let takes = Latency { respond: Duration::ZERO, operation: Duration::from_secs(1) };
    let links = Latency { respond: Duration::ZERO, operation: WRITE };
    let latencies = Latencies::writes(takes).with(Class::Write, TYPE, links);
    Cluster::new(two_nodes(), AzureOptions { latencies, limits: LoadBalancerLimits::azure(), ..AzureOptions::default() })
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

/// The Service goes, and with it every private link service.
async fn goes(cluster: &Cluster) {
    cluster.delete("web");
    cluster.until("it is gone", PATIENCE, |cluster| cluster.service("web").is_none()).await;
    assert_eq!(links(cluster), Vec::<Value>::new());
}

#[test]
fn as_many_as_two_load_balancers_hold_are_made_at_once() {
    alone(async {
        let cluster = cluster();
        for index in 0..8 {
            cluster.create(&linked(&format!("i{index}")));
            let open = with(external(&format!("e{index}")), "azure-disable-load-balancer-floating-ip", "true");
            cluster.create(&with(open, CREATE, "true"));
        }
        let life = cluster.start();
        let took = cluster.until_ready(PATIENCE).await;
        let puts = asked(&cluster, "PUT");
        let begun: Vec<_> = puts.iter().map(|put| put.at).collect();
        assert_eq!((puts.len(), links(&cluster).len()), (16, 16), "{:?}", cluster.writes());
        let spread = *begun.iter().max().unwrap() - *begun.iter().min().unwrap();
        assert!(spread < WRITE, "all are being written before the first is: {spread:?}");
        assert!(took < 3 * WRITE, "{took:?}");
        let subnets = writes(&cluster).into_iter().filter(|write| write == "PUT subnets").count();
        assert_eq!(subnets, 1, "one write of the subnet for all");
        let balancers = writes(&cluster).into_iter().filter(|write| write == "PUT loadBalancers").count();
        assert!(balancers <= 6, "{balancers} writes of load balancers");
        println!("16 private link services in {took:?}, begun within {spread:?}");
        cluster.create(&linked("more"));
        cluster
            .until("it is refused", PATIENCE, |cluster| !warned(cluster, "more", "SyncLoadBalancerFailed").is_empty())
            .await;
        let told = warned(&cluster, "more", "SyncLoadBalancerFailed");
        assert!(told[0].contains("would have more than 8 private link services"), "{told:?}");
        assert!(addresses(&cluster.service("more").unwrap()).is_empty());
        cluster.services().iter().for_each(|service| cluster.delete(service.metadata.name.as_deref().unwrap()));
        cluster.until_gone(PATIENCE).await;
        assert_eq!(links(&cluster), Vec::<Value>::new());
        life.stop().await;
    });
}

/// Four entries have eight load balancers, and each of these holds eight.
#[test]
fn fifty_are_made_at_once() {
    alone(async {
        let takes = Latency { respond: Duration::ZERO, operation: Duration::from_secs(1) };
        let links_take = Latency { respond: Duration::ZERO, operation: WRITE };
        let latencies = Latencies::writes(takes).with(Class::Write, TYPE, links_take);
        let options = AzureOptions { latencies, limits: LoadBalancerLimits::azure(), ..AzureOptions::default() };
        let cluster = several::cluster(4, options);
        for index in 0..25 {
            cluster.create(&linked(&format!("i{index}")));
            let open = with(external(&format!("e{index}")), "azure-disable-load-balancer-floating-ip", "true");
            cluster.create(&with(open, CREATE, "true"));
        }
        let life = cluster.start();
        let took = cluster.until_ready(PATIENCE).await;
        let puts = asked(&cluster, "PUT");
        let begun: Vec<_> = puts.iter().map(|put| put.at).collect();
        let spread = *begun.iter().max().unwrap() - *begun.iter().min().unwrap();
        let count = |what: &str| writes(&cluster).into_iter().filter(|write| write == what).count();
        let (balancers, subnets) = (count("PUT loadBalancers"), count("PUT subnets"));
        println!("50 private link services in {took:?}, begun within {spread:?}, {balancers} writes of load balancers");
        assert_eq!((puts.len(), links(&cluster).len(), subnets), (50, 50, 1), "{:?}", cluster.writes());
        assert!(spread < WRITE / 2, "all are being written long before the first is: {spread:?}");
        assert!(took < 2 * WRITE, "one after another they take {:?}, and took {took:?}", 50 * WRITE);
        assert!(balancers <= 2 * 8, "{balancers} writes of load balancers");
        life.stop().await;
    });
}

#[test]
fn nobody_waits_for_one_at_another_front_end() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        cluster.create(&linked("web"));
        cluster.until("it is being written", PATIENCE, |cluster| !asked(cluster, "PUT").is_empty()).await;
        cluster.create(&internal("plain"));
        let ready = |cluster: &Cluster| cluster.service("plain").as_ref().is_some_and(is_ready);
        let took = cluster.until("the other one is served", PATIENCE, ready).await;
        assert!(took < Duration::from_secs(8), "{took:?}");
        assert!(!is_ready(&cluster.service("web").unwrap()), "it is still being written");
        // Who changes what it leads to does.
        cluster.azure().clear_requests();
        goes(&cluster).await;
        life.stop().await;
    });
}

#[test]
fn consumers_are_told_when_they_are_disconnected_and_not_before() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        served(&cluster, &linked("web")).await;
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
        life.stop().await;
    });
}

/// A standby that takes over, or a leader that lost the lease for a while: what it remembers may be wrong.
#[test]
fn what_another_holder_of_the_lease_did_is_read_again() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        served(&cluster, &linked("web")).await;
        cluster.settle().await;
        served(&cluster, &linked("other")).await;
        let by = |holder: &str| {
            cluster.server.update_with("kube-system", "aks-managed-resource-locker", |lease: &mut Lease| {
                lease.spec.get_or_insert_default().holder_identity = Some(holder.to_owned());
            });
        };
        let mut link =
            links(&cluster).into_iter().find(|link| link["tags"]["k8s-azure-owner-service"] == "default/web").unwrap();
        let (old, new) = (id(&link), id(&link) + "-moved");
        link["id"] = json!(new);
        link["name"] = json!(new.rsplit('/').next());
        for part in link["properties"]["ipConfigurations"].as_array_mut().unwrap() {
            part["id"] = json!(part["id"].as_str().unwrap().replace(&old, &new));
        }
        assert!(cluster.azure().delete_document(&old));
        cluster.azure().put_document(link).unwrap();
        by("aks-rp");
        by("");
        cluster.azure().clear_requests();
        cluster.delete("web");
        cluster.until("it is gone", PATIENCE, |cluster| cluster.service("web").is_none()).await;
        assert_eq!(links(&cluster).len(), 1);
        let refused: Vec<_> =
            cluster.writes().into_iter().filter(|write| !write.ends_with("(200)") && !write.ends_with("(202)")).collect();
        assert_eq!(refused, [""; 0], "nothing is tried on what was remembered");
        life.stop().await;
    });
}

#[test]
fn who_asks_for_none_costs_one_list_when_front_ends_go() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        ["a", "b", "c"].iter().for_each(|name| drop(cluster.create(&internal(name))));
        cluster.until_ready(PATIENCE).await;
        assert_eq!(asked(&cluster, "GET").len(), 0, "nobody asks for one");
        ["a", "b", "c"].iter().for_each(|name| cluster.delete(name));
        cluster.until_gone(PATIENCE).await;
        assert_eq!(asked(&cluster, "GET").len(), 1, "one list for all of them");
        life.stop().await;
    });
}

#[test]
fn another_resource_group_has_it() {
    alone(async {
        let cluster = cluster();
        let group = cluster.world.topology().subscription_id().to_string() + "/resourceGroups/links";
        let document =
            json!({"id": group, "name": "links", "location": "eastus", "type": "Microsoft.Resources/resourceGroups"});
        cluster.azure().put_document(document).unwrap();
        let life = cluster.start();
        served(&cluster, &with(linked("web"), "azure-pls-resource-group", "links")).await;
        assert!(id(&links(&cluster)[0]).contains("/resourceGroups/links/"), "{:?}", links(&cluster));
        life.stop().await;
        // Its annotations are gone when its front end goes, and nobody remembers them.
        cluster.change("web", |service| annotate(service, CREATE, None));
        cluster.change("web", |service| annotate(service, "azure-pls-resource-group", None));
        let life = cluster.start();
        cluster.settle().await;
        assert_eq!(links(&cluster).len(), 1);
        cluster.delete("web");
        cluster.until_gone(PATIENCE).await;
        assert_eq!(links(&cluster), Vec::<Value>::new(), "Azure said where it is");
        life.stop().await;
    });
}

#[test]
fn a_group_that_does_not_exist_holds_up_nobody_else() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        cluster.create(&with(linked("lost"), "azure-pls-resource-group", "nowhere"));
        cluster.create(&linked("web"));
        let ready = |cluster: &Cluster| cluster.service("web").as_ref().is_some_and(is_ready);
        cluster.until("the other one is served", PATIENCE, ready).await;
        assert!(addresses(&cluster.service("lost").unwrap()).is_empty(), "nothing is written before it is refused");
        cluster.delete("lost");
        cluster.until("it is gone", PATIENCE, |cluster| cluster.service("lost").is_none()).await;
        life.stop().await;
    });
}

#[test]
fn connections_go_with_it_and_are_told() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        served(&cluster, &linked("web")).await;
        let link = id(&links(&cluster)[0]);
        for (name, status) in [("one", ConnectionStatus::Approved), ("two", ConnectionStatus::Pending)] {
            let endpoint =
                format!("/subscriptions/consumer/resourceGroups/rg/providers/Microsoft.Network/privateEndpoints/{name}");
            cluster.azure().connect_private_endpoint(&endpoint, &link, status).unwrap();
        }
        // What is known of it grows old.
        tokio::time::sleep(Duration::from_secs(130)).await;
        cluster.azure().clear_requests();
        cluster.delete("web");
        cluster.until_gone(PATIENCE).await;
        assert_eq!(links(&cluster), Vec::<Value>::new());
        let told = warned(&cluster, "web", "PrivateEndpointsDisconnected");
        assert!(told[0].contains("connections that are deleted with it: 2, approved: 1"), "{told:?}");
        let deleted: Vec<_> = writes(&cluster).into_iter().filter(|write| write.starts_with("DELETE")).collect();
        let (connection, link) = ("DELETE privateEndpointConnections", "DELETE privateLinkServices");
        assert_eq!(deleted, [connection, connection, link, "DELETE loadBalancers"]);
        life.stop().await;
    });
}

#[test]
fn one_of_somebody_else_keeps_the_front_end() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        served(&cluster, &linked("web")).await;
        let link = id(&links(&cluster)[0]);
        cluster.azure().change_document(&link, |body| body["tags"] = json!({"k8s-azure-cluster-name": "other"}));
        tokio::time::sleep(Duration::from_secs(130)).await;
        cluster.azure().clear_requests();
        cluster.delete("web");
        cluster.create(&internal("bystander"));
        cluster.until("it is released", PATIENCE, |cluster| cluster.service("web").is_none()).await;
        let told = warned(&cluster, "web", "DeletingFrontendIPConfiguration");
        assert!(told[0].contains("private link service") && told[0].contains(&link), "{told:?}");
        let ready = |cluster: &Cluster| cluster.service("bystander").as_ref().is_some_and(is_ready);
        cluster.until("the other one is served", PATIENCE, ready).await;
        assert!(!cluster.writes().iter().any(|write| write.starts_with("DELETE")), "{:?}", cluster.writes());
        assert_eq!(links(&cluster).len(), 1);
        let rules = several::parts(&cluster).into_values().flatten().filter(|name| name.contains("-TCP-")).count();
        assert_eq!(rules, 1, "the rule of the bystander alone");
        life.stop().await;
    });
}

#[test]
fn without_rights_on_the_subnet_the_service_waits_and_is_told_what_to_do() {
    alone(async {
        let cluster = cluster();
        cluster.azure().deny("Microsoft.Network/virtualNetworks/subnets/write", "");
        let life = cluster.start();
        cluster.create(&linked("web"));
        cluster.create(&internal("plain"));
        cluster.until("it is told", PATIENCE, |cluster| !warned(cluster, "web", "SyncLoadBalancerFailed").is_empty()).await;
        let told = warned(&cluster, "web", "SyncLoadBalancerFailed");
        assert!(told[0].contains("subnets/subnet-nodes") && told[0].contains("administrator"), "{told:?}");
        let ready = |cluster: &Cluster| cluster.service("plain").as_ref().is_some_and(is_ready);
        cluster.until("the other one is served", PATIENCE, ready).await;
        assert!(!is_ready(&cluster.service("web").unwrap()));
        cluster.azure().allow_all();
        cluster.until_ready(PATIENCE).await;
        assert_eq!(links(&cluster).len(), 1);
        life.stop().await;
    });
}

#[test]
fn whoever_else_writes_the_subnet_loses_nothing() {
    alone(async {
        let cluster = cluster();
        let subnet = "*/subnets/subnet-nodes";
        cluster.azure().add_fault(Fault::refuse(412, "PreconditionFailed").method("PUT").path(subnet).times(2));
        let life = cluster.start();
        served(&cluster, &linked("web")).await;
        let network = cluster.azure().documents_of("Microsoft.Network/virtualNetworks").remove(0);
        let found = &network["properties"]["subnets"][0]["properties"];
        assert_eq!(found["privateLinkServiceNetworkPolicies"], "Disabled");
        assert!(!found["networkSecurityGroup"].is_null(), "{found}");
        let puts = writes(&cluster).into_iter().filter(|write| write == "PUT subnets").count();
        assert_eq!(puts, 3);
        assert_eq!(warned(&cluster, "web", "SyncLoadBalancerFailed"), Vec::<String>::new());
        life.stop().await;
    });
}

#[test]
fn it_follows_its_service_to_another_front_end() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        let service = with(linked("web"), "azure-disable-load-balancer-floating-ip", "true");
        served(&cluster, &service).await;
        for (internal, load_balancer) in
            [(None, "/loadBalancers/kubernetes/"), (Some("true"), "/loadBalancers/kubernetes-internal/")]
        {
            cluster.change("web", |service| annotate(service, "azure-load-balancer-internal", internal));
            cluster.settle().await;
            let all = links(&cluster);
            let frontend = all[0]["properties"]["loadBalancerFrontendIpConfigurations"][0]["id"].as_str().unwrap();
            assert!(all.len() == 1 && frontend.contains(load_balancer), "{all:?}");
            assert_eq!(cluster.azure().documents_of("Microsoft.Network/loadBalancers").len(), 1, "the other one is gone");
            assert!(is_ready(&cluster.service("web").unwrap()));
        }
        assert_eq!(warned(&cluster, "web", "SyncLoadBalancerFailed"), Vec::<String>::new());
        life.stop().await;
    });
}

#[test]
fn the_header_stops_before_the_new_probe_meets_it() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        let proxied = with(linked("web"), "azure-pls-proxy-protocol", "true").external_local();
        served(&cluster, &proxied).await;
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
        life.stop().await;
    });
}

/// Services whose load balancer leads to nodes with endpoints only.
trait ExternalLocal {
    fn external_local(self) -> Self;
}

impl ExternalLocal for Service {
    fn external_local(self) -> Self {
        use cloud_controller_manager::sandbox::objects::ServiceExt;
        self.external_traffic_policy("Local")
    }
}

#[test]
fn who_asks_no_more_keeps_it_and_is_told() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        served(&cluster, &linked("web")).await;
        cluster.azure().clear_requests();
        cluster.change("web", |service| annotate(service, CREATE, None));
        cluster.settle().await;
        assert_eq!((links(&cluster).len(), cluster.writes()), (1, Vec::new()));
        assert_eq!(warned(&cluster, "web", "KeptPrivateLinkService").len(), 1);
        life.stop().await;
    });
}

#[test]
fn a_name_that_another_one_has_is_refused_before_anything_is_written() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        served(&cluster, &with(linked("web"), "azure-pls-name", "mine")).await;
        cluster.azure().clear_requests();
        cluster.create(&with(linked("late"), "azure-pls-name", "mine"));
        cluster
            .until("it is told", PATIENCE, |cluster| !warned(cluster, "late", "PrivateLinkServiceNameTaken").is_empty())
            .await;
        assert_eq!(cluster.writes(), Vec::<String>::new());
        let owner = &links(&cluster)[0]["tags"]["k8s-azure-owner-service"];
        assert_eq!(owner, "default/web");
        cluster.change("late", |service| annotate(service, "azure-pls-name", Some("other")));
        cluster.until_ready(PATIENCE).await;
        assert_eq!(links(&cluster).len(), 2);
        life.stop().await;
    });
}

#[test]
fn one_that_is_not_on_its_services_list_is_found_by_its_refusal() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        served(&cluster, &linked("web")).await;
        served(&cluster, &internal("other")).await;
        // Another process deletes it and makes one under another name, and nobody notices.
        let mut link = links(&cluster).remove(0);
        let (old, new) = (id(&link), id(&link) + "-moved");
        link["id"] = json!(new);
        link["name"] = json!(new.rsplit('/').next());
        for part in link["properties"]["ipConfigurations"].as_array_mut().unwrap() {
            part["id"] = json!(part["id"].as_str().unwrap().replace(&old, &new));
        }
        assert!(cluster.azure().delete_document(&old));
        cluster.azure().put_document(link).unwrap();
        goes(&cluster).await;
        life.stop().await;
    });
}

#[test]
fn a_write_that_fails_is_made_up_for() {
    alone(async {
        let cluster = cluster();
        let fails = Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned());
        cluster.azure().add_fault(Fault::new(fails).method("PUT").path("*/privateLinkServices/*").times(1));
        let life = cluster.start();
        served(&cluster, &linked("web")).await;
        cluster.settle().await;
        assert_eq!(links(&cluster)[0]["properties"]["provisioningState"], "Succeeded");
        cluster.change("web", |service| set_port(service, 8080));
        cluster.settle().await;
        assert!(is_ready(&cluster.service("web").unwrap()));
        life.stop().await;
    });
}
