//! Two managers share a cluster and the load balancers of one name: one serves Services without a class, the other those of its class.

use cloud_controller_manager::sandbox::objects::ServiceExt;
use k8s_openapi::api::core::v1::Service;

use crate::azure_services::{
    cluster::{Cluster, MINUTE, Manager, addresses, is_ready, run_paused},
    documents::{State, differences, exact, unordered},
    services::{annotate, dual_stack, external, internal, local, pinned, set_port, with},
};

const CLASS: &str = "example.com/azure";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const CLASS_FINALIZER: &str = "load-balancer-cleanup.example.com/azure";
const FLAG: &str = "--load-balancer-class=example.com/azure";
const OF_CLASS: [&str; 2] = [FLAG, "--serve-services-without-class=false"];

fn classed(service: Service) -> Service {
    service.load_balancer_class(CLASS)
}

/// Returns one Service of each kind. Rules of the last one lead to the machines, which all Services share.
fn kinds(prefix: &str) -> Vec<Service> {
    let name = |kind: &str| format!("{prefix}-{kind}");
    let to_machines = with(external(&name("direct")), "azure-disable-load-balancer-floating-ip", "true");
    [external(&name("web")), internal(&name("in")), dual_stack(&name("dual")), local(&name("local")), to_machines].into()
}

/// Returns one Service of each kind. Those of `b` have the class.
fn kinds_with_class(prefix: &str) -> Vec<Service> {
    kinds(prefix).into_iter().map(|service| if prefix == "b" { classed(service) } else { service }).collect()
}

fn delete_all(cluster: &Cluster, prefix: &str) {
    kinds(prefix).iter().for_each(|service| cluster.delete(service.metadata.name.as_deref().unwrap()));
}

/// Creates the Services of both managers.
fn create_all(cluster: &Cluster) {
    ["a", "b"].into_iter().flat_map(kinds_with_class).for_each(|service| drop(cluster.create(&service)));
}

/// Starts both managers, and waits until they serve all Services.
async fn serve_both(cluster: &Cluster) -> [Manager; 2] {
    let managers = [cluster.start(), cluster.start_with(&OF_CLASS)];
    cluster.until_ready(30 * MINUTE).await;
    cluster.settle().await;
    managers
}

async fn stop(managers: [Manager; 2]) {
    for manager in managers {
        manager.stop().await;
    }
}

/// Waits until all Services are deleted, and asserts that the cloud is as before.
async fn assert_emptied(cluster: &Cluster, empty: &State) {
    cluster.until_all_deleted(30 * MINUTE).await;
    cluster.settle().await;
    assert_same(empty, &exact(cluster));
}

fn finalizers(cluster: &Cluster, name: &str) -> Vec<String> {
    cluster.service(name).and_then(|service| service.metadata.finalizers).unwrap_or_default()
}

/// Asserts that two states of the cloud are equal.
fn assert_same(before: &State, after: &State) {
    assert_eq!(differences(before, after), Vec::<String>::new());
}

/// Returns the cloud after a single manager has served all Services.
fn cloud_of_one_manager(services: impl FnOnce(&Cluster)) -> State {
    run_paused(async {
        let cluster = Cluster::with_two_nodes();
        services(&cluster);
        let manager = cluster.start_with(&[FLAG]);
        cluster.until_ready(30 * MINUTE).await;
        cluster.settle().await;
        manager.stop().await;
        unordered(&cluster)
    })
}

#[test]
fn two_managers_write_the_same_documents_as_one() {
    let expected = cloud_of_one_manager(create_all);
    run_paused(async {
        let cluster = Cluster::with_two_nodes();
        create_all(&cluster);
        let managers = serve_both(&cluster).await;
        assert_same(&expected, &unordered(&cluster));
        for service in cluster.services() {
            let name = service.metadata.name.clone().unwrap();
            let own = if name.starts_with('a') { FINALIZER } else { CLASS_FINALIZER };
            assert_eq!(finalizers(&cluster, &name), [own], "{name}");
        }
        stop(managers).await;
    });
}

#[test]
fn deleting_services_of_one_manager_keeps_those_of_the_other() {
    for (deleted, kept_prefix) in [("a", "b"), ("b", "a")] {
        run_paused(async {
            let cluster = Cluster::with_two_nodes();
            let empty = exact(&cluster);
            kinds_with_class(kept_prefix).iter().for_each(|service| drop(cluster.create(service)));
            let managers = serve_both(&cluster).await;
            let (before, served) = (unordered(&cluster), cluster.services());
            kinds_with_class(deleted).iter().for_each(|service| drop(cluster.create(service)));
            cluster.until_ready(30 * MINUTE).await;
            delete_all(&cluster, deleted);
            cluster.until("they are deleted", 30 * MINUTE, |cluster| cluster.services().len() == served.len()).await;
            cluster.settle().await;
            assert_same(&before, &unordered(&cluster));
            assert_eq!(cluster.services(), served, "not even written to");
            delete_all(&cluster, kept_prefix);
            assert_emptied(&cluster, &empty).await;
            stop(managers).await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_either_changes_nothing() {
    let cluster = Cluster::with_two_nodes();
    create_all(&cluster);
    let [first, second] = serve_both(&cluster).await;
    let (before, served, written) = (exact(&cluster), cluster.services(), cluster.writes().len());
    first.kill();
    let first = cluster.start();
    cluster.settle().await;
    second.kill();
    let second = cluster.start_with(&OF_CLASS);
    cluster.settle().await;
    assert_same(&before, &exact(&cluster));
    assert_eq!(cluster.services(), served);
    assert_eq!(cluster.writes()[written..], [] as [String; 0]);
    stop([first, second]).await;
}

#[test]
fn changes_of_one_managers_services_keep_the_others() {
    let expected = cloud_of_one_manager(|cluster| {
        create_all(cluster);
        cluster.change("a-web", |web| set_port(web, 8080));
        cluster.change("b-in", |service| annotate(service, "azure-load-balancer-internal", None));
    });
    run_paused(async {
        let cluster = Cluster::with_two_nodes();
        create_all(&cluster);
        let managers = serve_both(&cluster).await;
        cluster.change("a-web", |web| set_port(web, 8080));
        cluster.change("b-in", |service| annotate(service, "azure-load-balancer-internal", None));
        let before = cluster.addresses("b-in");
        let moved = |cluster: &Cluster| cluster.service("b-in").is_some_and(|it| is_ready(&it) && addresses(&it) != before);
        cluster.until("it has another address", 30 * MINUTE, moved).await;
        cluster.settle().await;
        assert_same(&expected, &unordered(&cluster));
        stop(managers).await;
    });
}

/// The finalizer of a killed manager keeps its Services. The running manager does not write to them.
#[tokio::test(start_paused = true)]
async fn no_manager_cleans_up_services_of_the_other() {
    let cluster = Cluster::with_two_nodes();
    let empty = exact(&cluster);
    create_all(&cluster);
    let [first, second] = serve_both(&cluster).await;
    second.kill();
    let before = exact(&cluster);
    delete_all(&cluster, "b");
    cluster.settle().await;
    assert_same(&before, &exact(&cluster));
    let state = |name: &str| (finalizers(&cluster, name), cluster.service(name).is_some_and(|service| is_ready(&service)));
    assert_eq!(state("b-web"), (vec![CLASS_FINALIZER.to_owned()], true));
    let second = cluster.start_with(&OF_CLASS);
    first.kill();
    delete_all(&cluster, "a");
    cluster.until("their Services are deleted", 30 * MINUTE, |cluster| cluster.services().len() == 5).await;
    cluster.settle().await;
    assert_eq!(state("a-web"), (vec![FINALIZER.to_owned()], true));
    let first = cluster.start();
    assert_emptied(&cluster, &empty).await;
    stop([first, second]).await;
}

/// Hands a Service over to the other manager. Its class can change only while its type is not LoadBalancer.
fn change_hands(cluster: &Cluster, name: &str, class: Option<&str>) {
    cluster.change(name, |service| {
        service.spec.as_mut().unwrap().load_balancer_class = None;
        *service = service.clone().service_type("ClusterIP");
    });
    cluster.change(name, |service| {
        *service = service.clone().service_type("LoadBalancer");
        service.spec.as_mut().unwrap().load_balancer_class = class.map(str::to_owned);
    });
}

#[test]
fn new_manager_waits_for_cleanup_of_the_old_one() {
    for (from, to) in [(None, Some(CLASS)), (Some(CLASS), None)] {
        run_paused(async {
            let cluster = Cluster::with_two_nodes();
            let empty = exact(&cluster);
            let web = external("web");
            cluster.create(&if from.is_some() { classed(web) } else { web });
            let start = |class: Option<&str>| if class.is_some() { cluster.start_with(&OF_CLASS) } else { cluster.start() };
            let managers = [start(from), start(to)];
            cluster.until_ready(5 * MINUTE).await;
            let former_finalizers = finalizers(&cluster, "web");
            change_hands(&cluster, "web", to);
            let is_handed_over = |cluster: &Cluster| {
                cluster.service("web").is_some_and(|web| is_ready(&web)) && finalizers(cluster, "web") != former_finalizers
            };
            cluster.until("the other serves it", 30 * MINUTE, is_handed_over).await;
            cluster.settle().await;
            assert_eq!(finalizers(&cluster, "web").len(), 1);
            let frontends = cluster.balancers();
            assert_eq!(frontends.len(), 1, "{from:?}");
            cluster.delete("web");
            assert_emptied(&cluster, &empty).await;
            stop(managers).await;
        });
    }
}

/// A public IP of one manager serves Services of both. Deleting the first Service keeps it and the rule that denies other sources.
#[test]
fn a_shared_address_is_kept_until_its_last_service_is_deleted() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        run_paused(async {
            let cluster = Cluster::with_two_nodes();
            let empty = exact(&cluster);
            let restricted = |service: Service, prefix: &str| {
                let denying = with(service, "azure-deny-all-except-load-balancer-source-ranges", "true");
                if prefix == "b" { classed(denying) } else { denying }
            };
            cluster.create(&restricted(local(first), first));
            let managers = serve_both(&cluster).await;
            let address = cluster.addresses(first).remove(0);
            let guest = pinned(second, &address, 8080).source_ranges(&["203.0.113.0/24", "198.51.100.0/24"]);
            cluster.add(&restricted(guest, second)).await;
            cluster.settle().await;
            cluster.remove(first).await;
            cluster.settle().await;
            let remaining_service = cluster.service(second).unwrap();
            assert!(
                is_ready(&remaining_service) && addresses(&remaining_service) == [address.clone()],
                "{remaining_service:?}"
            );
            // The rule of the former guest may remain next to the one for all ports until its manager reconciles it.
            let denied = denied(&cluster);
            assert!(denied.contains(&address) && denied.iter().all(|destination| *destination == address), "{denied:?}");
            assert_eq!(rules(&cluster), 1);
            cluster.delete(second);
            assert_emptied(&cluster, &empty).await;
            stop(managers).await;
        });
    }
}

/// Returns the destinations of rules that deny access.
fn denied(cluster: &Cluster) -> Vec<String> {
    let groups = cluster.security_groups();
    let rules = groups.iter().filter_map(|group| group["properties"]["securityRules"].as_array()).flatten();
    let denying = rules.filter(|rule| rule["properties"]["access"] == "Deny");
    let lists = denying.flat_map(|rule| {
        let prefix = &rule["properties"]["destinationAddressPrefix"];
        rule["properties"]["destinationAddressPrefixes"].as_array().into_iter().flatten().chain([prefix])
    });
    lists.filter_map(|address| address.as_str().map(str::to_owned)).collect()
}

fn rules(cluster: &Cluster) -> usize {
    let balancers = cluster.balancers();
    balancers.iter().filter_map(|it| it["properties"]["loadBalancingRules"].as_array()).map(Vec::len).sum()
}

/// A manager with another load balancer name does not take the other manager's load balancers for former ones of its own.
#[tokio::test(start_paused = true)]
async fn load_balancers_of_two_names_belong_to_their_managers() {
    let cluster = Cluster::with_two_nodes().configured("loadBalancerBackendPoolConfigurationType", "nodeIP");
    let empty = exact(&cluster);
    kinds_with_class("a").iter().for_each(|service| drop(cluster.create(service)));
    let first = cluster.serve_and_settle(&[]).await;
    let (before, served) = (unordered(&cluster), cluster.services());
    let cluster = cluster.configured("loadBalancerName", "second");
    kinds_with_class("b").iter().for_each(|service| drop(cluster.create(service)));
    let second = cluster.start_with(&OF_CLASS);
    cluster.until_ready(30 * MINUTE).await;
    cluster.settle().await;
    let names = |cluster: &Cluster| {
        let balancers = cluster.balancers();
        balancers.iter().filter_map(|it| it["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(names(&cluster), ["kubernetes", "kubernetes-internal", "second", "second-internal"]);
    second.kill();
    let second = cluster.start_with(&OF_CLASS);
    cluster.settle().await;
    delete_all(&cluster, "b");
    cluster.until("they are deleted", 30 * MINUTE, |cluster| cluster.services().len() == served.len()).await;
    cluster.settle().await;
    assert_same(&before, &unordered(&cluster));
    assert_eq!(cluster.services(), served);
    delete_all(&cluster, "a");
    assert_emptied(&cluster, &empty).await;
    stop([first, second]).await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_has_only_the_writes_of_its_manager() {
    let cluster = Cluster::with_two_nodes();
    create_all(&cluster);
    for (flags, own) in [(&[][..], "a-"), (&OF_CLASS[..], "b-")] {
        let plan = cluster.plan(flags).await;
        let services: Vec<_> = plan.writes().filter(|write| write.target.contains("/services/")).collect();
        assert!(!services.is_empty());
        let is_own = |target: &str| target.contains(&format!("/services/{own}"));
        assert!(services.iter().all(|write| is_own(&write.target)), "{services:?}");
    }
    let managers = serve_both(&cluster).await;
    stop(managers).await;
    for flags in [&[][..], &OF_CLASS[..]] {
        assert!(!cluster.plan(flags).await.has_changes(), "{flags:?}");
    }
}
