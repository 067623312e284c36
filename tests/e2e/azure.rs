//! Scenarios on a simulated Azure that the binary reaches over TLS: with the credentials, paging and errors of ARM.

use std::{fs, panic::AssertUnwindSafe, path::PathBuf, time::Duration};

use cloud_controller_manager::{
    node::provider_id,
    runtime::shutdown::Shutdown,
    sandbox::azure::{
        Effect, Fault,
        topology::{Pool, PoolKind, Power, Topology},
        world::{Serving, Start, World, start_world},
    },
};

use futures::FutureExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::{
    control_plane::{ADMIN_TOKEN, ControlPlane},
    live_metrics,
    objects::{OUT_OF_SERVICE, Objects, SHUTDOWN, condition_reason, label},
    support::{Manager, SOON, eventually},
};

/// Flags that shorten the delays before Node deletions.
const FLAGS: &[&str] = &[
    "--configure-cloud-routes=false",
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--leader-elect=false",
];

/// A served simulation with the files that a manager needs.
pub(crate) struct Azure {
    pub(crate) simulation: World,
    pub(crate) config: PathBuf,
    pub(crate) ca_file: PathBuf,
    stop: Shutdown,
}

impl Drop for Azure {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

impl Azure {
    pub(crate) async fn start(plane: &ControlPlane, name: &str) -> Self {
        Self::of(plane, name, topology()).await
    }

    pub(crate) async fn of(plane: &ControlPlane, name: &str, topology: Topology) -> Self {
        let ca_file = plane.folder().join(format!("{name}-ca.pem"));
        let stop = Shutdown::new();
        let serving = Serving { port: 0, ca_file: Some(ca_file.clone()), shutdown: stop.clone() };
        let start = Start { serving: Some(serving), ..Start::default() };
        let simulation = start_world(topology, start).await.expect("the simulated cloud");
        let config = plane.folder().join(format!("{name}-azure.json"));
        fs::write(&config, simulation.config().to_string()).expect("azure.json");
        Self { simulation, config, ca_file, stop }
    }

    /// Changes fields of `azure.json` for managers that start later.
    pub(crate) fn configure(&self, values: &serde_json::Value) {
        let mut config = self.simulation.config();
        for (field, value) in values.as_object().expect("fields") {
            config[field] = value.clone();
        }
        fs::write(&self.config, config.to_string()).expect("azure.json");
    }

    async fn manager(&self, plane: &ControlPlane, name: &str) -> Manager {
        self.manager_with(plane, name, &[]).await
    }

    pub(crate) async fn manager_with(&self, plane: &ControlPlane, name: &str, flags: &[&str]) -> Manager {
        self.manager_with_only(plane, name, &[FLAGS, flags].concat()).await
    }

    pub(crate) async fn manager_with_only(&self, plane: &ControlPlane, name: &str, flags: &[&str]) -> Manager {
        let kubeconfig = plane.manager_kubeconfig(name).await;
        Manager::start_azure(plane, name, &kubeconfig, (&self.config, &self.ca_file), flags)
    }

    pub(crate) async fn register_all(&self, objects: &Objects) -> Vec<String> {
        let mut names = Vec::new();
        for node in self.simulation.uninitialized_nodes() {
            objects.register(&node).await;
            names.push(node.metadata.name.unwrap_or_default());
        }
        names
    }

    pub(crate) fn writes(&self) -> usize {
        self.simulation.azure().count(|request| ["PUT", "PATCH", "DELETE"].contains(&request.method.as_str()))
    }
}

/// Machines of every kind.
fn topology() -> Topology {
    Topology::new()
        .pool(Pool::new(PoolKind::Uniform, "pool1", 3).zones(&["1", "2", "3"]))
        .pool(Pool::new(PoolKind::Flexible, "flex1", 2))
        .pool(Pool::new(PoolKind::AvailabilitySet, "as1", 2))
        .pool(Pool::new(PoolKind::Standalone, "lone", 1).public_ips())
}

pub(crate) async fn initialized(azure: &Azure, objects: &Objects) -> Vec<String> {
    let names = azure.register_all(objects).await;
    for name in &names {
        objects.until_initialized(name).await;
    }
    names
}

/// Nodes of every kind of machine are initialized as upstream does, without a write to ARM.
pub(crate) async fn nodes(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::start(plane, "azure-nodes").await;
    let manager = azure.manager(plane, "azure-nodes").await;
    let names = initialized(&azure, objects).await;
    assert_eq!(names.len(), 8);
    for expected in azure.simulation.nodes() {
        let name = expected.metadata.name.clone().unwrap_or_default();
        let node = objects.node(&name).await.expect("the node");
        assert_eq!(provider_id(&node), provider_id(&expected), "{name}");
        for key in ["topology.kubernetes.io/zone", "topology.kubernetes.io/region", "node.kubernetes.io/instance-type"] {
            assert_eq!(label(&node, key), label(&expected, key), "{name}: {key}");
        }
        let addresses = |node: k8s_openapi::api::core::v1::Node| {
            let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
            let mut pairs: Vec<_> = addresses.into_iter().map(|address| (address.type_, address.address)).collect();
            pairs.sort();
            pairs
        };
        assert_eq!(addresses(node), addresses(expected), "{name}");
    }
    assert_eq!(azure.writes(), 0);
    manager.until_ready().await;
}

/// Nodes follow their machines: stopped, started, deleted and recreated.
pub(crate) async fn life_cycle(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::start(plane, "azure-life").await;
    let mut manager = azure.manager(plane, "azure-life").await;
    let names = initialized(&azure, objects).await;
    let of = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).cloned().collect::<Vec<_>>();
    let (uniform, flex, standard) = (of("pool1"), of("flex1"), of("as1"));

    for stopped in [&uniform[0], &flex[0], &standard[0]] {
        azure.simulation.set_power(stopped, Power::Deallocated).expect("the machine");
        objects.set_ready(stopped, "Unknown").await;
        objects.until_tainted(stopped, SHUTDOWN, true).await;
        objects.until_tainted(stopped, OUT_OF_SERVICE, true).await;
        azure.simulation.set_power(stopped, Power::Running).expect("the machine");
        objects.set_ready(stopped, "True").await;
        objects.until_tainted(stopped, SHUTDOWN, false).await;
        objects.until_tainted(stopped, OUT_OF_SERVICE, false).await;
    }
    for deleted in [&uniform[1], &flex[1], &standard[1]] {
        azure.simulation.delete_machine(deleted).expect("the machine");
        objects.set_ready(deleted, "Unknown").await;
        objects.until_gone(deleted).await;
    }
    // A recreated machine of the same name: the old Node is deleted, the Node that its kubelet registers remains.
    let recreated = &uniform[2];
    azure.simulation.recreate_machine(recreated).expect("the machine");
    objects.set_ready(recreated, "Unknown").await;
    objects.until_gone(recreated).await;
    objects.register(&azure.simulation.uninitialized_node(recreated).expect("the machine")).await;
    objects.until_initialized(recreated).await;
    objects.set_ready(recreated, "Unknown").await;
    let requests = azure.simulation.azure().requests().len();
    eventually("ARM is read often", SOON, async || azure.simulation.azure().requests().len() > requests + 8).await;
    assert!(objects.node(recreated).await.is_some(), "{recreated} was deleted\n{}", manager.log_text());
    assert!(manager.is_running());
    assert_eq!(azure.writes(), 0);
}

/// ARM is down at the start, then returns every kind of error: the process keeps running, is not ready, reports the reason, deletes
/// nothing, and recovers without a restart.
pub(crate) async fn outages(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::start(plane, "azure-outage").await;
    azure.simulation.azure().faults().set_down(true);
    let mut manager = azure.manager(plane, "azure-outage").await;
    // Only authenticated clients see reasons.
    let readiness = async |manager: &Manager| manager.get("/readyz?verbose", Some(ADMIN_TOKEN)).await;
    eventually("readiness reports that ARM is down", SOON, async || {
        let Some((status, page)) = readiness(&manager).await else { return false };
        status == 500 && page.contains("cloud-provider") && page.contains("cannot be initialized")
    })
    .await;
    azure.simulation.azure().faults().set_down(false);
    let names = initialized(&azure, objects).await;
    eventually("the manager is ready", SOON, async || readiness(&manager).await.is_some_and(|(status, _)| status == 200))
        .await;

    for name in &names {
        objects.set_ready(name, "Unknown").await;
    }
    for (failure, fault) in [
        ("401", Fault::refuse(401, "InvalidAuthenticationToken")),
        ("403", Fault::refuse(403, "AuthorizationFailed")),
        ("429", Fault::refuse(429, "TooManyRequests")),
        ("500", Fault::refuse(500, "InternalServerError")),
        ("garbage", Fault::new(Effect::Garbage)),
        ("empty lists", Fault::new(Effect::EmptyList)),
    ] {
        azure.simulation.azure().faults().clear();
        azure.simulation.azure().add_fault(fault.path("*Microsoft.*"));
        let before = azure.simulation.azure().requests().len();
        eventually(&format!("ARM returned {failure} several times"), SOON, async || {
            azure.simulation.azure().requests().len() > before + 4
        })
        .await;
        for name in &names {
            assert!(objects.node(name).await.is_some(), "{failure}: {name} was deleted\n{}", manager.log_text());
        }
        assert!(manager.is_running(), "{failure}: the manager ended\n{}", manager.log_text());
    }
    azure.simulation.azure().faults().clear();
    let deleted = &names[0];
    azure.simulation.delete_machine(deleted).expect("the machine");
    eventually("the manager works again", Duration::from_secs(90), async || objects.node(deleted).await.is_none()).await;
}

/// Returns the holder of the Lease of the controllers and its renew time.
async fn lease(plane: &ControlPlane) -> Option<(String, String)> {
    let leases: Api<Lease> = Api::namespaced(plane.admin().await, "kube-system");
    let spec = leases.get_opt("cloud-controller-manager").await.ok()??.spec?;
    Some((spec.holder_identity?, serde_json::to_string(&spec.renew_time?).ok()?))
}

/// ARM is down for the leader: it remains leader, because another replica could not reach ARM either, and reports what it waits for.
pub(crate) async fn down_while_leading(plane: &mut ControlPlane, objects: &Objects) {
    const ELECTED: &[&str] = &["--configure-cloud-routes=false"];
    let azure = Azure::start(plane, "azure-down").await;
    let mut manager = azure.manager_with_only(plane, "azure-down", ELECTED).await;
    initialized(&azure, objects).await;
    let (holder, mut renewed) = lease(plane).await.expect("a lease");
    azure.simulation.azure().faults().set_down(true);
    objects.create_service("web").await;
    eventually("the Service reports that ARM does not respond", SOON, async || {
        let reason = objects.service("web").await.and_then(|service| condition_reason(&service));
        reason.is_some_and(|reason| ["Failed", "Waiting"].contains(&reason.as_str()))
    })
    .await;
    for _ in 0..3 {
        let last = &renewed;
        eventually("the lease is renewed by its holder", SOON, async || {
            lease(plane).await.is_some_and(|(by, at)| by == holder && at != *last)
        })
        .await;
        renewed = lease(plane).await.map(|(_, at)| at).unwrap_or_default();
    }
    assert!(manager.is_running(), "{}", manager.log_text());
    azure.simulation.azure().faults().set_down(false);
    eventually("the Service is served when ARM is back", Duration::from_secs(120), async || {
        !objects.ingress("web").await.is_empty()
    })
    .await;
    objects.remove_service("web").await;
}

/// Flags for all four controllers.
const ALL: &[&str] = &["--configure-cloud-routes=true", "--cluster-cidr=100.64.0.0/10", "--allocate-node-cidrs=true"];
const BALANCERS: &str = "Microsoft.Network/loadBalancers";
const PUBLIC_IPS: &str = "Microsoft.Network/publicIPAddresses";

impl Azure {
    fn documents(&self, kind: &str) -> Vec<serde_json::Value> {
        let all = self.simulation.azure().dump();
        all.into_iter().filter(|document| document["type"] == kind).collect()
    }

    /// Returns the number of machines behind the load balancer.
    fn members(&self, balancer: &str) -> usize {
        let of = self.documents(BALANCERS).into_iter().find(|document| document["name"] == balancer);
        let pools = of.and_then(|document| document["properties"]["backendAddressPools"].as_array().cloned());
        let listed = |pool: &serde_json::Value| {
            pool["properties"]["backendIPConfigurations"].as_array().map(Vec::len).unwrap_or_default()
        };
        pools.iter().flatten().map(listed).sum()
    }
}

/// All four controllers at once: Nodes with routes, Services with load balancers. A second manager writes no more than a new Service needs.
/// Deleted Services leave no resources.
pub(crate) async fn services(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::of(plane, "azure-services", topology()).await;
    let made_before = azure.documents(PUBLIC_IPS).len();
    let manager = azure.manager_with(plane, "azure-services", ALL).await;
    let names = initialized(&azure, objects).await;
    for name in &names {
        objects.until_routed(name).await;
    }
    for name in ["web", "api"] {
        objects.create_service(name).await;
    }
    objects.create_service("inside").await;
    let internal = serde_json::json!({"service.beta.kubernetes.io/azure-load-balancer-internal": "true"});
    objects.patch_service("inside", serde_json::json!({"metadata": {"annotations": internal}})).await;
    eventually("the internal Service has a private address", SOON, async || {
        objects.ingress("inside").await.first().is_some_and(|address| address.starts_with("10."))
    })
    .await;
    for name in ["web", "api"] {
        objects.until_service_has_address(name).await;
    }
    eventually("all machines are behind both load balancers", SOON, async || {
        ["", "-internal"].iter().all(|kind| azure.members(&format!("kubernetes{kind}")) == names.len())
    })
    .await;
    eventually("the public IP of the Service that became internal is gone", SOON, async || {
        azure.documents(PUBLIC_IPS).len() == made_before + 2
    })
    .await;

    eventually("all Services are settled", SOON, async || {
        live_metrics::scrape(&manager).await.1.get("cloud_controller_manager_oldest_unsettled_service_seconds") == Some(&0.0)
    })
    .await;
    live_metrics::check_settled(&manager, 3.0).await;

    manager.kill();
    let mut manager = azure.manager_with(plane, "azure-services-again", ALL).await;
    manager.until_ready().await;
    let before = azure.writes();
    objects.add_service("late").await;
    let written = azure.writes() - before;
    assert!(written <= 3, "{written} writes for one Service on the resources of another process");

    for name in ["web", "api", "inside", "late"] {
        objects.delete_service(name).await;
    }
    for name in ["web", "api", "inside", "late"] {
        objects.until_service_is_gone(name).await;
    }
    assert_eq!(azure.documents(PUBLIC_IPS).len(), made_before);
    assert!(azure.documents(BALANCERS).is_empty(), "{:?}", azure.documents(BALANCERS));
    assert!(manager.is_running());
}

/// The shipped rights suffice for the watches that only this configuration needs.
pub(crate) async fn several_load_balancers(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::of(plane, "azure-several", topology()).await;
    azure.configure(&serde_json::json!({
        "loadBalancerBackendPoolConfigurationType": "nodeIP",
        "multipleStandardLoadBalancerConfigurations": [
            {"name": "kubernetes", "primaryVMSet": "pool1"},
            {"name": "lb2", "primaryVMSet": "none", "serviceNamespaceSelector": {"matchLabels": {"tier": "gold"}}},
        ],
    }));
    let mut manager = azure.manager_with(plane, "azure-several", ALL).await;
    initialized(&azure, objects).await;
    // Kubernetes 1.20 has no EndpointSlices of this version. A client without the right to list them gets 403, not 404.
    let has_slices = plane.serves("discovery.k8s.io/v1").await;
    let listed = eventually("the rights suffice for Namespaces and EndpointSlices", SOON, async || {
        let (_, status) = manager.get("/statusz?format=json", Some(ADMIN_TOKEN)).await.unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
        let (namespaces, slices) = (&status["informers"]["namespaces"], &status["informers"]["endpointslices"]);
        let is_missing = || slices["error"].as_str().is_some_and(|error| error.contains("could not find"));
        namespaces["synced"] == true && (slices["synced"] == true || (!has_slices && is_missing()))
    });
    if AssertUnwindSafe(listed).catch_unwind().await.is_err() {
        panic!("Namespaces and EndpointSlices have not been listed\n{}", manager.log_text());
    }
    if !has_slices {
        return;
    }
    objects.add_service("web").await;
    manager.until_ready().await;
    objects.remove_service("web").await;
    assert!(manager.is_running());
}
