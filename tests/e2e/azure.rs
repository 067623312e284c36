//! Scenarios on a simulated Azure that the binary reaches over TLS: with credentials, paging and errors as ARM has them.

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

/// Flags that make the guard against wrong deletions quick enough to wait for.
const FLAGS: &[&str] = &[
    "--configure-cloud-routes=false",
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--leader-elect=false",
];

/// A served world with the files that a manager needs.
pub(crate) struct Azure {
    pub(crate) world: World,
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
        let world = start_world(topology, start).await.expect("the simulated cloud");
        let config = plane.folder().join(format!("{name}-azure.json"));
        fs::write(&config, world.config().to_string()).expect("azure.json");
        Self { world, config, ca_file, stop }
    }

    /// Other values in the configuration of managers to come.
    pub(crate) fn configure(&self, values: &serde_json::Value) {
        let mut config = self.world.config();
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
        for node in self.world.uninitialized_nodes() {
            objects.register(&node).await;
            names.push(node.metadata.name.unwrap_or_default());
        }
        names
    }

    pub(crate) fn writes(&self) -> usize {
        self.world.azure().count(|request| ["PUT", "PATCH", "DELETE"].contains(&request.method.as_str()))
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

pub(crate) async fn initialised(azure: &Azure, objects: &Objects) -> Vec<String> {
    let names = azure.register_all(objects).await;
    for name in &names {
        objects.until_initialised(name).await;
    }
    names
}

/// Nodes of every kind of machine are initialised as upstream would, without a write to ARM.
pub(crate) async fn nodes(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::start(plane, "azure-nodes").await;
    let manager = azure.manager(plane, "azure-nodes").await;
    let names = initialised(&azure, objects).await;
    assert_eq!(names.len(), 8);
    for wanted in azure.world.nodes() {
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let node = objects.node(&name).await.expect("the node");
        assert_eq!(provider_id(&node), provider_id(&wanted), "{name}");
        for key in ["topology.kubernetes.io/zone", "topology.kubernetes.io/region", "node.kubernetes.io/instance-type"] {
            assert_eq!(label(&node, key), label(&wanted, key), "{name}: {key}");
        }
        let addresses = |node: k8s_openapi::api::core::v1::Node| {
            let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
            let mut pairs: Vec<_> = addresses.into_iter().map(|address| (address.type_, address.address)).collect();
            pairs.sort();
            pairs
        };
        assert_eq!(addresses(node), addresses(wanted), "{name}");
    }
    assert_eq!(azure.writes(), 0);
    manager.until_ready().await;
}

/// What becomes of a Node when something becomes of its machine.
pub(crate) async fn life_cycle(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::start(plane, "azure-life").await;
    let mut manager = azure.manager(plane, "azure-life").await;
    let names = initialised(&azure, objects).await;
    let of = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).cloned().collect::<Vec<_>>();
    let (uniform, flex, standard) = (of("pool1"), of("flex1"), of("as1"));

    for stopped in [&uniform[0], &flex[0], &standard[0]] {
        azure.world.set_power(stopped, Power::Deallocated).expect("the machine");
        objects.set_ready(stopped, "Unknown").await;
        objects.until_tainted(stopped, SHUTDOWN, true).await;
        objects.until_tainted(stopped, OUT_OF_SERVICE, true).await;
        azure.world.set_power(stopped, Power::Running).expect("the machine");
        objects.set_ready(stopped, "True").await;
        objects.until_tainted(stopped, SHUTDOWN, false).await;
        objects.until_tainted(stopped, OUT_OF_SERVICE, false).await;
    }
    for deleted in [&uniform[1], &flex[1], &standard[1]] {
        azure.world.delete_machine(deleted).expect("the machine");
        objects.set_ready(deleted, "Unknown").await;
        objects.until_gone(deleted).await;
    }
    // A machine made anew under the same name: the old Node goes, the one its kubelet registers stays.
    let again = &uniform[2];
    azure.world.recreate_machine(again).expect("the machine");
    objects.set_ready(again, "Unknown").await;
    objects.until_gone(again).await;
    objects.register(&azure.world.uninitialized_node(again).expect("the machine")).await;
    objects.until_initialised(again).await;
    objects.set_ready(again, "Unknown").await;
    let requests = azure.world.azure().requests().len();
    eventually("ARM is read often", SOON, async || azure.world.azure().requests().len() > requests + 8).await;
    assert!(objects.node(again).await.is_some(), "{again} was deleted\n{}", manager.log_text());
    assert!(manager.is_running());
    assert_eq!(azure.writes(), 0);
}

/// ARM is down at the start, then answers in every wrong way: the process stays, is not ready, says why, deletes nothing, and
/// recovers by itself.
pub(crate) async fn outages(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::start(plane, "azure-outage").await;
    azure.world.azure().faults().set_down(true);
    let mut manager = azure.manager(plane, "azure-outage").await;
    // Reasons are for those who have authenticated themselves.
    let readiness = async |manager: &Manager| manager.get("/readyz?verbose", Some(ADMIN_TOKEN)).await;
    eventually("it says that ARM is down", SOON, async || {
        let Some((status, page)) = readiness(&manager).await else { return false };
        status == 500 && page.contains("cloud-provider") && page.contains("cannot be initialised")
    })
    .await;
    azure.world.azure().faults().set_down(false);
    let names = initialised(&azure, objects).await;
    eventually("it is ready", SOON, async || readiness(&manager).await.is_some_and(|(status, _)| status == 200)).await;

    for name in &names {
        objects.set_ready(name, "Unknown").await;
    }
    for (what, fault) in [
        ("401", Fault::refuse(401, "InvalidAuthenticationToken")),
        ("403", Fault::refuse(403, "AuthorizationFailed")),
        ("429", Fault::refuse(429, "TooManyRequests")),
        ("500", Fault::refuse(500, "InternalServerError")),
        ("garbage", Fault::new(Effect::Garbage)),
        ("empty lists", Fault::new(Effect::EmptyList)),
    ] {
        azure.world.azure().faults().clear();
        azure.world.azure().add_fault(fault.path("*Microsoft.*"));
        let asked = azure.world.azure().requests().len();
        eventually(&format!("ARM answered {what} several times"), SOON, async || {
            azure.world.azure().requests().len() > asked + 4
        })
        .await;
        for name in &names {
            assert!(objects.node(name).await.is_some(), "{what}: {name} was deleted\n{}", manager.log_text());
        }
        assert!(manager.is_running(), "{what}: it ended\n{}", manager.log_text());
    }
    azure.world.azure().faults().clear();
    let gone = &names[0];
    azure.world.delete_machine(gone).expect("the machine");
    eventually("it works again", Duration::from_secs(90), async || objects.node(gone).await.is_none()).await;
}

/// Whoever holds the lease of the controllers, and when that was last renewed.
async fn lease(plane: &ControlPlane) -> Option<(String, String)> {
    let leases: Api<Lease> = Api::namespaced(plane.admin().await, "kube-system");
    let spec = leases.get_opt("cloud-controller-manager").await.ok()??.spec?;
    Some((spec.holder_identity?, serde_json::to_string(&spec.renew_time?).ok()?))
}

/// ARM is down for the one that leads: it goes on leading, since another replica would reach ARM no better, and says what it waits for.
pub(crate) async fn down_while_leading(plane: &mut ControlPlane, objects: &Objects) {
    const ELECTED: &[&str] = &["--configure-cloud-routes=false"];
    let azure = Azure::start(plane, "azure-down").await;
    let mut manager = azure.manager_with_only(plane, "azure-down", ELECTED).await;
    initialised(&azure, objects).await;
    let (holder, mut renewed) = lease(plane).await.expect("a lease");
    azure.world.azure().faults().set_down(true);
    objects.create_service("web").await;
    eventually("the Service says that ARM does not answer", SOON, async || {
        let reason = objects.service("web").await.and_then(|service| condition_reason(&service));
        reason.is_some_and(|reason| ["Failed", "Waiting"].contains(&reason.as_str()))
    })
    .await;
    for _ in 0..3 {
        let last = &renewed;
        eventually("the lease is renewed by the one that held it", SOON, async || {
            lease(plane).await.is_some_and(|(by, at)| by == holder && at != *last)
        })
        .await;
        renewed = lease(plane).await.map(|(_, at)| at).unwrap_or_default();
    }
    assert!(manager.is_running(), "{}", manager.log_text());
    azure.world.azure().faults().set_down(false);
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
        let all = self.world.azure().dump();
        all.into_iter().filter(|document| document["type"] == kind).collect()
    }

    /// How many machines are behind the load balancer.
    fn members(&self, balancer: &str) -> usize {
        let of = self.documents(BALANCERS).into_iter().find(|document| document["name"] == balancer);
        let pools = of.and_then(|document| document["properties"]["backendAddressPools"].as_array().cloned());
        let listed = |pool: &serde_json::Value| {
            pool["properties"]["backendIPConfigurations"].as_array().map(Vec::len).unwrap_or_default()
        };
        pools.iter().flatten().map(listed).sum()
    }
}

/// All four controllers at once: Nodes with routes, Services with load balancers in front of them; another manager finds nothing to
/// do; what is deleted leaves nothing behind.
pub(crate) async fn services(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::of(plane, "azure-services", topology()).await;
    let made_before = azure.documents(PUBLIC_IPS).len();
    let manager = azure.manager_with(plane, "azure-services", ALL).await;
    let names = initialised(&azure, objects).await;
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

    eventually("the Services say that they are served", SOON, async || {
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
    assert!(written <= 3, "{written} writes for one Service on what another process has left");

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

/// The shipped rights suffice for what is watched only because of the configuration.
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
    initialised(&azure, objects).await;
    // Kubernetes 1.20 has no EndpointSlices of this version; whoever may not list them gets 403 there, not 404.
    let has_slices = plane.serves("discovery.k8s.io/v1").await;
    let listed = eventually("the rights suffice for Namespaces and EndpointSlices", SOON, async || {
        let (_, status) = manager.get("/statusz?format=json", Some(ADMIN_TOKEN)).await.unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
        let (namespaces, slices) = (&status["informers"]["namespaces"], &status["informers"]["endpointslices"]);
        let is_missing = || slices["error"].as_str().is_some_and(|error| error.contains("could not find"));
        namespaces["synced"] == true && (slices["synced"] == true || (!has_slices && is_missing()))
    });
    if AssertUnwindSafe(listed).catch_unwind().await.is_err() {
        panic!("they have not been listed\n{}", manager.log_text());
    }
    if !has_slices {
        return;
    }
    objects.add_service("web").await;
    manager.until_ready().await;
    objects.remove_service("web").await;
    assert!(manager.is_running());
}
