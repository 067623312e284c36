//! A cluster in a simulated Azure, and the managers that run in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    path::Path,
    sync::Arc,
    time::Duration,
};

use cloud_controller_manager::{
    app::{
        manager::{self, ManagerDeps},
        plan::ClusterPlan,
        plan_command::cluster_plan,
    },
    cli::{self, config::ManagerConfig},
    cloud_provider::{CloudProvider, ServiceDemand, load_balancer_class::LoadBalancerClasses, registry::ProviderConfig},
    controllers::service::conditions,
    metrics::Metrics,
    providers::azure::{
        AzureCloud,
        config::{AzureConfig, ConfigTexts, EnvironmentOverrides, offline_report},
        model::ResourceId,
    },
    runtime::{
        clock::{Clock, WallJump},
        shutdown::Shutdown,
    },
    sandbox::{
        api_server::ApiServer,
        azure::{
            Azure, AzureOptions, Class,
            topology::{PoolKind, Topology},
            world::World,
        },
    },
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Node, Service};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

use crate::azure_services::{
    documents::{differences, unordered},
    wire::{Lie, Objections, Wire, Witness},
};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Timeout of waits in scenarios that do not measure time.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3600);
/// Time without writes after which no work is pending: the longest backoff is ten minutes, and polls are more frequent.
const QUIET: Duration = Duration::from_secs(700);

pub(crate) const BALANCERS: &str = "Microsoft.Network/loadBalancers";
pub(crate) const PUBLIC_IPS: &str = "Microsoft.Network/publicIPAddresses";
pub(crate) const SECURITY_GROUPS: &str = "Microsoft.Network/networkSecurityGroups";

/// State that outlives a manager.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) cloud: World,
    pub(crate) objections: Objections,
    clock: Clock,
    /// Clock of all managers. [`Cluster::jump`] shifts its wall time.
    managers_clock: Clock,
    jump: &'static WallJump,
    config: Value,
    /// One per process, because the plans of one process do not cover the writes of another.
    witnesses: Mutex<Vec<Witness>>,
}

/// A manager that runs until it is killed, stopped or dropped.
pub(crate) struct Manager {
    pub(crate) wire: Wire,
    pub(crate) provider: Arc<AzureCloud>,
    pub(crate) metrics: Arc<Metrics>,
    stop: Shutdown,
    task: JoinHandle<Result<manager::ManagerOutcome, manager::ManagerStartError>>,
    /// Whether the scenario has killed or stopped it.
    has_ended: bool,
}

/// Ten instances of a uniform scale set.
pub(crate) fn ten_nodes() -> Topology {
    Topology::new().pools(PoolKind::Uniform, 1, 10)
}

/// Two instances of a uniform scale set, with addresses of both families.
pub(crate) fn two_nodes() -> Topology {
    Topology::new().dual_stack().pools(PoolKind::Uniform, 1, 2)
}

impl Cluster {
    /// Creates a cluster of two Nodes in an Azure without durations and quotas.
    pub(crate) fn with_two_nodes() -> Self {
        Self::new(two_nodes(), AzureOptions::default())
    }

    /// Creates a cluster of ten Nodes in an Azure without durations and quotas.
    pub(crate) fn with_ten_nodes() -> Self {
        Self::new(ten_nodes(), AzureOptions::default())
    }

    /// Creates a cluster in which all Nodes are registered and initialized.
    pub(crate) fn new(topology: Topology, options: AzureOptions) -> Self {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let cloud = World::new(topology, options, clock).unwrap();
        let server = ApiServer::new(clock);
        cloud.nodes().iter().for_each(|node| drop(server.create::<Node>(node)));
        let config = cloud.config();
        let (managers_clock, jump) = Clock::adjustable(clock.wall());
        let (objections, witnesses) = (Objections::default(), Mutex::default());
        Self { server, cloud, objections, clock, managers_clock, jump, config, witnesses }
    }

    /// Sets the wall clock of the managers ahead.
    pub(crate) fn jump(&self, ahead: SignedDuration) {
        self.jump.set(ahead);
    }

    fn wire(&self) -> Wire {
        let witness = Witness::default();
        self.witnesses.lock().push(witness.clone());
        Wire::new(self.azure(), &self.server, &self.objections).witnessed_by(witness)
    }

    /// Sets a field in the configuration of all managers that start from now on.
    pub(crate) fn configured(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.config[field] = value.into();
        self
    }

    /// Starts a manager.
    pub(crate) fn start(&self) -> Manager {
        self.start_on(self.wire())
    }

    /// Starts a manager, and waits until it serves these Services and all others.
    pub(crate) async fn serve(&self, services: &[Service]) -> Manager {
        services.iter().for_each(|service| drop(self.create(service)));
        let manager = self.start();
        self.until_ready(TIMEOUT).await;
        manager
    }

    /// Starts a manager, and waits until it serves these Services and all others and has nothing left to do.
    pub(crate) async fn serve_and_settle(&self, services: &[Service]) -> Manager {
        let manager = self.serve(services).await;
        self.settle().await;
        manager
    }

    /// Begins a scenario with a manager that serves these Services and has nothing left to do.
    pub(crate) async fn serving(self, services: &[Service]) -> (Self, Manager) {
        let manager = self.serve_and_settle(services).await;
        (self, manager)
    }

    /// Asserts that a manager that starts now writes nothing.
    pub(crate) async fn assert_plans_nothing(&self, context: &str) {
        let before = unordered(self);
        self.azure().clear_requests();
        let manager = self.start();
        self.settle().await;
        let writes = self.writes();
        assert_eq!(writes, Vec::<String>::new(), "{context}\n{:#?}", differences(&before, &unordered(self)));
        manager.stop().await;
    }

    /// Starts a manager that gets a false response to its `nth` list of this kind.
    pub(crate) fn start_deceived(&self, list: &'static str, lie: Lie, nth: usize, lasting: bool) -> Manager {
        let wire = self.wire();
        wire.deceive(list, lie, nth, lasting);
        self.start_on(wire)
    }

    /// Starts a manager with more flags.
    pub(crate) fn start_with(&self, flags: &[&str]) -> Manager {
        self.start_under(flags, self.wire())
    }

    /// Starts a manager that reloads its configuration from `file`, which first has the cluster's configuration.
    pub(crate) fn start_following(&self, file: &Path) -> Manager {
        std::fs::write(file, self.config.to_string()).unwrap();
        let wire = self.wire();
        let provider = provider_of(&ProviderConfig { reload: true, ..provider_config(file) }, &wire);
        self.start_as(flags(&[]), wire, provider)
    }

    fn start_on(&self, wire: Wire) -> Manager {
        self.start_under(&[], wire)
    }

    /// Returns the writes that a manager with more flags would send.
    pub(crate) async fn plan(&self, flags: &[&str]) -> ClusterPlan {
        let flags: Vec<_> = flags.iter().chain(&["--dry-run"]).copied().collect();
        let (config, wire) = (self::flags(&flags), Wire::new(self.azure(), &self.server, &self.objections));
        let provider = self.provider(&wire, config.service.classes.clone());
        let parts = self.parts(config, &wire, Arc::new(provider));
        Box::pin(cluster_plan(parts, None)).await.unwrap().unwrap()
    }

    fn start_under(&self, more: &[&str], wire: Wire) -> Manager {
        let config = flags(more);
        let provider = self.provider(&wire, config.service.classes.clone());
        self.start_as(config, wire, provider)
    }

    fn start_as(&self, config: ManagerConfig, wire: Wire, provider: AzureCloud) -> Manager {
        let provider = Arc::new(provider);
        let parts = self.parts(config, &wire, Arc::clone(&provider));
        let metrics = Arc::clone(&parts.metrics);
        let stop = Shutdown::new();
        let stopping = stop.clone();
        let task = tokio::spawn(async move { manager::run(parts, &stopping).await });
        Manager { wire, provider, metrics, stop, task, has_ended: false }
    }

    fn parts(&self, config: ManagerConfig, wire: &Wire, provider: Arc<AzureCloud>) -> ManagerDeps {
        ManagerDeps {
            config,
            clients: Arc::new(wire.clone()),
            provider,
            metrics: Arc::new(Metrics::new().unwrap()),
            clock: self.managers_clock,
            set_verbosity: Arc::new(|_| ()),
        }
    }

    fn provider(&self, wire: &Wire, load_balancer_classes: LoadBalancerClasses) -> AzureCloud {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("azure.json");
        std::fs::write(&file, self.config.to_string()).unwrap();
        provider_of(&ProviderConfig { load_balancer_classes, ..provider_config(&file) }, wire)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Returns the configuration of the managers.
    pub(crate) fn config(&self) -> AzureConfig {
        let texts = ConfigTexts { file: Some(self.config.to_string()), secret: None };
        offline_report(&texts, &EnvironmentOverrides::of(BTreeMap::new()), false).config.unwrap()
    }

    pub(crate) fn azure(&self) -> &Azure {
        self.cloud.azure()
    }

    /// Creates a Service, and returns it with the fields that the API server has set.
    pub(crate) fn create(&self, service: &Service) -> Service {
        self.server.create(service)
    }

    pub(crate) fn service(&self, name: &str) -> Option<Service> {
        self.server.get("default", name)
    }

    /// Returns the addresses in the status of a Service.
    pub(crate) fn addresses(&self, name: &str) -> Vec<String> {
        addresses(&self.service(name).unwrap())
    }

    pub(crate) fn services(&self) -> Vec<Service> {
        self.server.list()
    }

    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Service)) {
        self.server.update_with("default", name, change);
    }

    pub(crate) fn delete(&self, name: &str) {
        self.server.delete::<Service>("default", name);
    }

    /// Creates a resource group.
    pub(crate) fn put_group(&self, name: &str) {
        let topology = self.cloud.topology();
        let group = ResourceId::group_of(&topology.subscription, name);
        self.azure().put_document(topology.group_document(&group)).unwrap();
    }

    /// Creates a public IP of a user, and returns its id.
    pub(crate) fn put_public_ip(&self, name: &str, address: &str) -> String {
        let topology = self.cloud.topology();
        let id = topology.group_id().resource(PUBLIC_IPS, &[name]);
        let document = json!({
            "id": id, "name": name, "type": PUBLIC_IPS, "location": topology.location,
            "sku": {"name": "Standard", "tier": "Regional"}, "tags": {"owner": "me"},
            "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "ipAddress": address},
        });
        self.azure().put_document(document).unwrap();
        id.to_string()
    }

    pub(crate) fn balancers(&self) -> Vec<Value> {
        self.azure().documents_of(BALANCERS)
    }

    pub(crate) fn public_ips(&self) -> Vec<Value> {
        self.azure().documents_of(PUBLIC_IPS)
    }

    pub(crate) fn security_groups(&self) -> Vec<Value> {
        self.azure().documents_of(SECURITY_GROUPS)
    }

    /// Sets or removes a label of a Node.
    pub(crate) fn label_node(&self, node: &str, key: &str, value: Option<&str>) {
        self.server.update_with("", node, |node: &mut Node| {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.remove(key);
            labels.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        });
    }

    /// Adds a machine without a Node to the first scale set, and returns its name.
    pub(crate) fn add_machine(&self) -> String {
        let pool = self.cloud.topology().pools[0].name.clone();
        self.cloud.scale_out(&pool, 1).unwrap().remove(0)
    }

    /// Registers the Node of a machine.
    pub(crate) fn register(&self, machine: &str) {
        self.server.create::<Node>(&self.cloud.topology().node(&self.cloud.machine(machine).unwrap()));
    }

    /// Returns PUT, PATCH and DELETE requests to ARM since the log was cleared, refused requests included.
    pub(crate) fn writes(&self) -> Vec<String> {
        let requests = self.azure().requests();
        let writes = requests.iter().filter(|request| matches!(request.class, Class::Write | Class::Delete));
        writes.map(|request| format!("{} {} ({})", request.method, request.path, request.status)).collect()
    }

    /// Returns reasons and messages of the warnings about an object.
    pub(crate) fn warnings(&self, name: &str) -> Vec<(String, String)> {
        let about =
            |event: &Event| event.involved_object.name.as_deref() == Some(name) && event.type_.as_deref() == Some("Warning");
        let events = self.server.list::<Event>().into_iter().filter(about);
        events.map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
    }

    /// Returns `true` if a warning about an object contains these words.
    pub(crate) fn is_warned(&self, name: &str, words: &str) -> bool {
        self.warnings(name).iter().any(|(_, message)| message.contains(words))
    }

    #[track_caller]
    pub(crate) fn assert_warned(&self, name: &str, words: &str) {
        assert!(self.is_warned(name, words), "{name}: `{words}` is not in {:?}", self.warnings(name));
    }

    /// Waits until a warning about an object contains these words.
    pub(crate) async fn until_warned(&self, name: &str, words: &str) {
        self.until(words, TIMEOUT, |cluster| cluster.is_warned(name, words)).await;
    }

    /// Waits until `holds`, and returns the elapsed time to the second. Panics with `condition` after `limit`.
    pub(crate) async fn until(&self, condition: &str, limit: Duration, holds: impl Fn(&Self) -> bool) -> Duration {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < limit, "not within {limit:?}: {condition}\n{}", self.report());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        start.elapsed()
    }

    /// Waits until all Services are served.
    pub(crate) async fn until_ready(&self, limit: Duration) -> Duration {
        self.until("all Services are ready", limit, |cluster| cluster.services().iter().all(is_ready)).await
    }

    /// Creates a Service, and waits until it and all others are served.
    pub(crate) async fn add(&self, service: &Service) {
        self.create(service);
        self.until_ready(TIMEOUT).await;
    }

    /// Deletes a Service, and waits until it no longer exists.
    pub(crate) async fn remove(&self, name: &str) {
        self.delete(name);
        self.until_deleted(name).await;
    }

    /// Waits until this Service is served.
    pub(crate) async fn until_served(&self, name: &str, limit: Duration) -> Duration {
        let is_served = |cluster: &Self| cluster.service(name).as_ref().is_some_and(is_ready);
        self.until(&format!("{name} is served"), limit, is_served).await
    }

    /// Waits until this Service no longer exists.
    pub(crate) async fn until_deleted(&self, name: &str) -> Duration {
        self.until(&format!("{name} is deleted"), TIMEOUT, |cluster| cluster.service(name).is_none()).await
    }

    /// Waits until no Service exists.
    pub(crate) async fn until_all_deleted(&self, limit: Duration) -> Duration {
        self.until("all Services are deleted", limit, |cluster| cluster.services().is_empty()).await
    }

    /// Waits until ARM has received no write for longer than any backoff or poll interval.
    pub(crate) async fn settle(&self) {
        self.quiet_for(QUIET).await;
    }

    /// Waits until ARM has received no write for `quiet`.
    pub(crate) async fn quiet_for(&self, quiet: Duration) {
        let (mut before, mut now, start) = (None, self.writes().len(), Instant::now());
        while before != Some(now) {
            assert!(start.elapsed() < 24 * TIMEOUT, "ARM is written to without end\n{}", self.report());
            tokio::time::sleep(quiet).await;
            (before, now) = (Some(now), self.writes().len());
        }
    }

    /// Describes up to five Services that are not ready, with reasons, and the last writes.
    fn report(&self) -> String {
        let services = self.services();
        let waiting = services.iter().filter(|service| !is_ready(service)).take(5).map(|service| {
            let condition = conditions::current(service).map(|current| format!("{}: {}", current.reason, current.message));
            let name = service.metadata.name.clone().unwrap_or_default();
            format!("{name}: {condition:?} {:?}", self.warnings(&name))
        });
        let writes = self.writes();
        let last = writes.iter().rev().take(5).cloned();
        waiting.chain(last).collect::<Vec<_>>().join("\n")
    }
}

fn provider_config(file: &Path) -> ProviderConfig {
    ProviderConfig { cloud_config: Some(file.to_owned()), cluster_name: "kubernetes".into(), ..ProviderConfig::default() }
}

fn provider_of(config: &ProviderConfig, wire: &Wire) -> AzureCloud {
    AzureCloud::new(config, BTreeMap::new(), Arc::new(wire.clone())).unwrap()
}

fn flags(more: &[&str]) -> ManagerConfig {
    let flags =
        ["ccm", "--cloud-provider=azure", "--secure-port=0", "--leader-elect=false", "--configure-cloud-routes=false"];
    match cli::parse(flags.iter().chain(more).map(Into::into), &["azure"], &[]).unwrap() {
        cli::CliCommand::Run(config) => *config,
        _ => unreachable!("no help requested"),
    }
}

/// Asserts that no manager has sent a read-only field, an unplanned write, or a write that had to wait for another one.
impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.azure().read_only_sent(), Vec::<String>::new(), "read-only fields were sent");
            let witnesses = self.witnesses.lock();
            let unplanned: Vec<String> = witnesses.iter().flat_map(Witness::unplanned).collect();
            assert_eq!(unplanned, Vec::<String>::new(), "written, but not planned");
            let early: Vec<String> = witnesses.iter().flat_map(|witness| witness.order.violations()).collect();
            assert_eq!(early, Vec::<String>::new(), "written too early");
        }
    }
}

impl Manager {
    /// Returns the entry of the status page about a Service that is not settled.
    pub(crate) fn unsettled(&self, service: &str) -> Value {
        json!(self.provider.status())["session"]["loadBalancers"]["unsettled"]["services"][format!("default/{service}")]
            .clone()
    }

    /// Plans one Service with these Nodes as hosts. Returns a line for each write, then one for each later step.
    pub(crate) async fn plan(&self, service: &Service, nodes: &[Arc<Node>]) -> String {
        let to_ensure = vec![Arc::new(service.clone())];
        let demand = ServiceDemand { to_ensure, nodes: nodes.to_vec(), ..ServiceDemand::default() };
        let plan = self.provider.load_balancer().unwrap().plan_services("kubernetes", &demand).await.unwrap().writes;
        assert_eq!((&plan.unread, &plan.refused), (&BTreeSet::new(), &BTreeSet::new()));
        let later = plan.later.iter().map(|line| format!("later: {line}\n"));
        plan.writes.iter().map(|write| format!("{write}\n")).chain(later).collect()
    }

    /// Ends the manager as SIGKILL does.
    pub(crate) fn kill(mut self) {
        self.has_ended = true;
        self.wire.cut();
        self.task.abort();
    }

    /// Ends the manager as SIGTERM does.
    pub(crate) async fn stop(mut self) {
        self.has_ended = true;
        self.stop.begin();
        assert_eq!((&mut self.task).await.unwrap().unwrap(), manager::ManagerOutcome::Stopped);
    }
}

/// Asserts that the manager ran until the scenario ended it.
impl Drop for Manager {
    fn drop(&mut self) {
        assert!(self.has_ended || !self.task.is_finished() || std::thread::panicking(), "the manager has ended");
    }
}

/// Returns `true` if a Service has an address and its condition says that it is ready.
pub(crate) fn is_ready(service: &Service) -> bool {
    let reason = conditions::current(service).map(|condition| condition.reason.as_str());
    !addresses(service).is_empty() && reason == Some("Ready")
}

/// Returns the addresses in a Service's status.
pub(crate) fn addresses(service: &Service) -> Vec<String> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    ingress.filter_map(|ingress| ingress.ip.clone()).collect()
}

/// Runs a scenario in its own runtime with a paused clock. All of its tasks end with the runtime.
pub(crate) fn run_paused<T>(scenario: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(scenario)
}
