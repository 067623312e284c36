//! Two managers with different classes, each with its own cloud.

use cloud_controller_manager::cloud_provider::load_balancer_class::LoadBalancerClasses;

use super::*;

const CLASS: &str = "example.com/azure";
const CLASS_FINALIZER: &str = "load-balancer-cleanup.example.com/azure";

/// Returns the same API server with the cloud of another manager.
fn second(cluster: &Cluster) -> Cluster {
    Cluster { server: cluster.server.clone(), cloud: FakeCloud::new(FakeConfig::any_node()), clock: cluster.clock }
}

fn start(cluster: &Cluster, class: Option<&str>, without_class: bool) -> Replica {
    let classes = LoadBalancerClasses::new(class, without_class).unwrap();
    cluster.start_under(Leadership::unopposed(), ServiceControllerConfig { classes, ..ServiceControllerConfig::default() })
}

fn finalizers(cluster: &Cluster, name: &str) -> Vec<String> {
    cluster.service(name).and_then(|service| service.metadata.finalizers).unwrap_or_default()
}

/// Changes the class of a Service. It can only change while the Service has another type.
fn reclassify(cluster: &Cluster, name: &str, class: Option<&str>) {
    let retype = |type_: &str, class: Option<&str>| {
        cluster.server.update_with("default", name, |service: &mut Service| {
            let spec = service.spec.as_mut().unwrap();
            (spec.type_, spec.load_balancer_class) = (Some(type_.to_owned()), class.map(str::to_owned));
        });
    };
    retype("ClusterIP", None);
    retype("LoadBalancer", class);
}

#[tokio::test(start_paused = true)]
async fn each_manager_has_its_services() {
    let cluster = Cluster::new();
    let theirs = second(&cluster);
    let (mut replica, mut other) = (start(&cluster, None, true), start(&theirs, Some(CLASS), false));
    cluster.create("plain");
    cluster.server.create(&load_balancer_service("default", "classed").load_balancer_class(CLASS));
    cluster.server.create(&load_balancer_service("default", "third").load_balancer_class("example.com/third"));
    pass(10).await;
    let served = |cluster: &Cluster| cluster.cloud.load_balancers().into_values().map(|it| it.service).collect::<Vec<_>>();
    assert_eq!((served(&cluster), served(&theirs)), (vec!["default/plain".to_owned()], vec!["default/classed".to_owned()]));
    assert_eq!(finalizers(&cluster, "plain"), [FINALIZER]);
    assert_eq!(finalizers(&cluster, "classed"), [CLASS_FINALIZER]);
    assert_eq!((finalizers(&cluster, "third"), cluster.ips("third")), (Vec::new(), Vec::new()));
    assert_eq!([replica.reasons(), other.reasons()], [["EnsuringLoadBalancer", "EnsuredLoadBalancer"]; 2]);
    for name in ["plain", "classed"] {
        cluster.server.delete::<Service>("default", name);
    }
    pass(10).await;
    assert!(cluster.service("plain").is_none() && cluster.service("classed").is_none());
    assert_eq!((served(&cluster), served(&theirs)), (Vec::new(), Vec::new()));
    assert_eq!([&cluster, &theirs].map(|cluster| cluster.cloud.call_count(CallName::EnsureLoadBalancerDeleted)), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_manager_may_serve_services_with_and_without_class() {
    let cluster = Cluster::new();
    let _replica = start(&cluster, Some(CLASS), true);
    cluster.create("web");
    pass(10).await;
    assert_eq!(finalizers(&cluster, "web"), [FINALIZER]);
    reclassify(&cluster, "web", Some(CLASS));
    pass(10).await;
    assert_eq!(finalizers(&cluster, "web"), [CLASS_FINALIZER]);
    assert_eq!((cluster.cloud.load_balancers().len(), cluster.ips("web").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_service_waits_for_the_cleanup_of_its_former_manager() {
    let cluster = Cluster::new();
    let theirs = second(&cluster);
    let replica = start(&cluster, None, true);
    cluster.create("web");
    pass(10).await;
    replica.kill().await;
    let mut other = start(&theirs, Some(CLASS), false);
    reclassify(&cluster, "web", Some(CLASS));
    pass(600).await;
    assert_eq!((theirs.cloud.calls(), finalizers(&cluster, "web")), (Vec::new(), vec![FINALIZER.to_owned()]));
    assert_eq!(other.reasons(), ["WaitingForOtherManager"]);
    assert_eq!(other.controller.status().unsettled, []);
    let _replica = start(&cluster, None, true);
    pass(10).await;
    assert!(cluster.cloud.load_balancers().is_empty());
    assert_eq!((theirs.cloud.load_balancers().len(), finalizers(&cluster, "web")), (1, vec![CLASS_FINALIZER.to_owned()]));
}

/// A manager that is down during the change of the class has no state of the Service afterwards, and its cloud has no resources of it.
#[tokio::test(start_paused = true)]
async fn a_service_without_load_balancer_is_handed_over() {
    for (from, to, its_finalizer) in [(None, Some(CLASS), CLASS_FINALIZER), (Some(CLASS), None, FINALIZER)] {
        let cluster = Cluster::new();
        let theirs = second(&cluster);
        let former = || start(&cluster, from, from.is_none());
        cluster.cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::refused("no such subnet"), 1000);
        let service = load_balancer_service("default", "web");
        cluster.server.create(&from.map_or(service.clone(), |class| service.load_balancer_class(class)));
        let replica = former();
        pass(10).await;
        replica.kill().await;
        assert_eq!((cluster.cloud.load_balancers().len(), finalizers(&cluster, "web").len()), (0, 1), "{from:?}");
        let _other = start(&theirs, to, to.is_none());
        reclassify(&cluster, "web", to);
        pass(600).await;
        assert_eq!(theirs.cloud.calls(), [], "{from:?}");
        let _replica = former();
        pass(10).await;
        let served = (theirs.cloud.load_balancers().len(), finalizers(&cluster, "web"));
        assert_eq!(served, (1, vec![its_finalizer.to_owned()]), "{from:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_service_keeps_a_foreign_finalizer_on_deletion() {
    let cluster = Cluster::new();
    let theirs = second(&cluster);
    let _other = start(&theirs, Some(CLASS), false);
    cluster.server.create(&load_balancer_service("default", "web").load_balancer_class(CLASS).finalizer(FINALIZER));
    pass(10).await;
    cluster.server.delete::<Service>("default", "web");
    pass(10).await;
    assert_eq!(finalizers(&cluster, "web"), [FINALIZER], "the finalizer belongs to another manager");
    cluster.server.update_with("default", "web", |service: &mut Service| service.metadata.finalizers = None);
    pass(10).await;
    assert!(cluster.service("web").is_none());
    assert_eq!(theirs.cloud.calls(), []);
}
