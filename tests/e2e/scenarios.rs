//! The scenarios: the built binary, as its own ServiceAccount, on a cluster.

use std::time::Duration;

use cloud_controller_manager::node::provider_id;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    cloud::Cloud,
    control_plane::{ADMIN_TOKEN, ControlPlane},
    objects::{Objects, SHUTDOWN, has_finalizer, label},
    support::{Manager, SOON, eventually},
};

/// Flags that shorten the delays before Node deletions, and enable routes.
const FLAGS: &[&str] = &[
    "--cluster-cidr=10.244.0.0/16",
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--leader-elect=false",
];

/// Nodes are initialized, tainted when shut down and deleted when gone; routes follow them.
pub(crate) async fn nodes_and_routes(plane: &mut ControlPlane, objects: &Objects) {
    let mut cloud = Cloud::new(plane.folder(), "nodes").with_instances(&["node-a", "node-b", "node-c"]);
    objects.register_node("node-a", "10.244.0.0/24").await;
    objects.register_node("node-b", "10.244.1.0/24").await;
    let _manager = Manager::start(plane, "manager-a", cloud.path(), FLAGS).await;
    // A Node that joins while the manager runs.
    objects.register_node("node-c", "10.244.2.0/24").await;

    for name in ["node-a", "node-b", "node-c"] {
        objects.until_initialized(name).await;
        objects.until_routed(name).await;
    }
    let node = objects.node("node-a").await.expect("node-a");
    assert_eq!(provider_id(&node), Some("fake://node-a"));
    assert_eq!(label(&node, "topology.kubernetes.io/zone"), Some("zone-1"));
    assert_eq!(label(&node, "node.kubernetes.io/instance-type"), Some("fake.large"));
    let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
    assert!(addresses.iter().any(|address| address.type_ == "InternalIP" && address.address == "10.1.0.1"), "{addresses:?}");
    assert_eq!(cloud.resources("routes").len(), 3);

    cloud.edit(|config| config["instances"]["node-b"]["powerState"] = json!("stopped"));
    objects.set_ready("node-b", "Unknown").await;
    objects.until_tainted("node-b", SHUTDOWN, true).await;

    cloud.remove_instance("node-c");
    objects.set_ready("node-c", "Unknown").await;
    objects.until_gone("node-c").await;
    eventually("its route is deleted with it", SOON, async || cloud.resources("routes").len() == 2).await;
    assert!(objects.node("node-a").await.is_some() && objects.node("node-b").await.is_some());
}

/// Load balancers are created, changed and deleted with their Services. The finalizer blocks the deletion of a Service until its
/// resources are deleted.
pub(crate) async fn services(plane: &mut ControlPlane, objects: &Objects) {
    let cloud = Cloud::new(plane.folder(), "services").with_instances(&["node-a"]);
    let _manager = Manager::start(plane, "manager-a", cloud.path(), FLAGS).await;
    objects.register_node("node-a", "10.244.0.0/24").await;
    objects.add_service("web").await;
    assert!(objects.service("web").await.is_some_and(|service| has_finalizer(&service)));
    eventually("the load balancer sends to the node", SOON, async || {
        cloud.load_balancer_of("default/web").is_some_and(|balancer| balancer["hosts"] == json!(["node-a"]))
    })
    .await;

    objects.patch_service("web", json!({"spec": {"ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]}})).await;
    eventually("the load balancer has the new port", SOON, async || {
        cloud.load_balancer_of("default/web").is_some_and(|balancer| balancer["ports"][0]["port"] == 8080)
    })
    .await;

    objects.add_service("other").await;
    objects.patch_service("other", json!({"spec": {"type": "ClusterIP"}})).await;
    eventually("a Service of another type is cleaned up", SOON, async || {
        let clean = objects.service("other").await.is_some_and(|service| !has_finalizer(&service));
        clean && cloud.load_balancer_of("default/other").is_none() && objects.ingress("other").await.is_empty()
    })
    .await;

    objects.remove_service("web").await;
    assert!(
        cloud.is_clean(),
        "left in the cloud: {:?} {:?}",
        cloud.resources("loadBalancers"),
        cloud.resources("addresses")
    );
}

/// Two replicas: a terminated leader hands over in under a second, a killed one within the lease time; never do two write.
pub(crate) async fn high_availability(plane: &mut ControlPlane, objects: &Objects) {
    const ELECTION: &[&str] = &[
        "--leader-elect-lease-duration=6s",
        "--leader-elect-renew-deadline=4s",
        "--leader-elect-retry-period=1s",
        "--cluster-cidr=10.244.0.0/16",
    ];
    let cloud = Cloud::new(plane.folder(), "ha").with_instances(&["node-a"]);
    objects.register_node("node-a", "10.244.0.0/24").await;
    let mut first = Manager::start(plane, "manager-a", cloud.path(), ELECTION).await;
    eventually("the first replica leads", SOON, async || leads(&first).await).await;
    let second = Manager::start(plane, "manager-b", cloud.path(), ELECTION).await;
    second.until_ready().await;
    objects.add_service("one").await;
    assert!(!leads(&second).await, "two replicas lead");
    let terminated = Instant::now();
    first.terminate();
    eventually("the second replica leads", SOON, async || leads(&second).await).await;
    let took = terminated.elapsed();
    assert!(first.ended(SOON).await.success(), "a terminated manager ends with 0\n{}", first.log_text());
    assert!(took < Duration::from_secs(1), "the hand-over took {took:?}");
    objects.add_service("two").await;

    let third = Manager::start(plane, "manager-c", cloud.path(), ELECTION).await;
    third.until_ready().await;
    let killed = Instant::now();
    second.kill();
    eventually("the third replica leads", SOON, async || leads(&third).await).await;
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(6 + 2 * 3), "the take-over took {took:?}, the lease is 6 s");
    objects.add_service("three").await;
    if plane.is_real() {
        let replicas = ["manager-a", "manager-b", "manager-c"];
        let terms = terms(plane, &replicas);
        assert_eq!(terms[terms.len().saturating_sub(3)..], replicas, "writes of replicas interleave");
    }
}

/// Returns the writers among `replicas` in the order of the audit log, without Leases, Events, ConfigMaps and reviews. If the writes of two
/// replicas do not interleave, each replica occurs once.
pub(crate) fn terms(plane: &ControlPlane, replicas: &[&str]) -> Vec<String> {
    let name = |user: &str| user.rsplit(':').next().unwrap_or_default().to_owned();
    let writes = plane.audited_writes().into_iter().filter(|(user, request)| {
        replicas.contains(&name(user).as_str())
            && !request.contains("/leases")
            && !request.contains("/events")
            && !request.contains("/configmaps")
            && !request.contains("reviews")
    });
    let mut terms: Vec<String> = writes.map(|(user, _)| name(&user)).collect();
    terms.dedup();
    terms
}

pub(crate) async fn leads(manager: &Manager) -> bool {
    let log = manager.log_text();
    manager.get("/healthz", None).await.is_some() && log.contains("became leader")
}

/// The API server stops and restarts: the manager keeps running, is not ready meanwhile, and then continues.
pub(crate) async fn api_server_restart(plane: &mut ControlPlane, objects: &Objects) {
    let cloud = Cloud::new(plane.folder(), "restart").with_instances(&["node-a"]);
    let kubeconfig = plane.manager_kubeconfig("manager-a").await;
    plane.stop_apiserver();
    let mut manager = Manager::start_with(plane, "manager-a", &kubeconfig, cloud.path(), FLAGS);
    eventually("it serves without an API server", SOON, async || manager.get("/healthz", None).await.is_some()).await;
    assert!(!manager.is_ready().await, "ready without an API server");
    plane.start_apiserver().await;
    manager.until_ready().await;

    plane.stop_apiserver();
    plane.start_apiserver().await;
    objects.add_service("web").await;
    assert!(manager.is_running(), "the manager ended\n{}", manager.log_text());
}

/// Without the shipped role nothing works, and the manager logs the missing verb and resource.
pub(crate) async fn forbidden(plane: &mut ControlPlane) {
    let cloud = Cloud::new(plane.folder(), "forbidden").with_instances(&["node-a"]);
    let kubeconfig = plane.powerless_kubeconfig("no-rights").await;
    let mut manager = Manager::start_with(plane, "no-rights", &kubeconfig, cloud.path(), FLAGS);
    eventually("it logs what is forbidden", SOON, async || {
        let log = manager.log_text();
        log.contains("cannot list resource \\\"nodes\\\"") || log.contains("cannot list resource \"nodes\"")
    })
    .await;
    assert!(!manager.is_ready().await, "ready without rights");
    assert!(manager.is_running());
}

/// The secure port serves health to every client, and the other paths to users that the cluster authorizes.
pub(crate) async fn secure_port(plane: &mut ControlPlane) {
    let cloud = Cloud::new(plane.folder(), "port").with_instances(&["node-a"]);
    let manager = Manager::start(plane, "manager-a", cloud.path(), FLAGS).await;
    manager.until_ready().await;
    for path in ["/metrics", "/configz", "/statusz", "/flagz"] {
        let (status, _) = manager.get(path, None).await.expect("a response");
        assert_eq!(status, 403, "{path} without a token");
        let (status, body) = manager.get(path, Some(ADMIN_TOKEN)).await.expect("a response");
        assert_eq!(status, 200, "{path} for an administrator: {body}");
    }
    let (_, metrics) = manager.get("/metrics", Some(ADMIN_TOKEN)).await.expect("a response");
    for name in
        ["workqueue_depth", "running_managed_controllers", "rest_client_requests_total", "process_resident_memory_bytes"]
    {
        assert!(metrics.contains(name), "{name} is missing from\n{metrics}");
    }
}
