//! A cluster on Azure, and the manager that works for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloud_controller_manager::{
    app::manager::{self, ManagerDeps, ManagerOutcome, ManagerStartError},
    cli,
    cloud_provider::registry::ProviderConfig,
    metrics::Metrics,
    providers::azure::{
        AzureCloud,
        arm::{Budget, BudgetSettings},
        config::{self, ConfigTexts, EnvironmentOverrides},
        session::{Session, SessionDeps},
    },
    runtime::{clock::Clock, leader_election::Leadership, shutdown::Shutdown, store::InformerStore},
    sandbox::{
        api_server::ApiServer,
        azure::{AzureOptions, Class, RequestRecord, topology::Topology, world::World},
        in_process::InProcess,
    },
};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) const TABLE_TYPE: &str = "Microsoft.Network/routeTables";
const POD_CIDRS: &str = "--cluster-cidr=100.64.0.0/10,fd00:64::/32";

/// A cluster and its cloud.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) world: World,
    pub(crate) config: Value,
    clock: Clock,
}

/// A manager at work.
pub(crate) struct Life {
    pub(crate) metrics: Arc<Metrics>,
    stop: Shutdown,
    task: JoinHandle<Result<ManagerOutcome, ManagerStartError>>,
}

impl Cluster {
    pub(crate) fn new(topology: Topology) -> Self {
        Self::with_options(topology, AzureOptions::default())
    }

    pub(crate) fn with_options(topology: Topology, options: AzureOptions) -> Self {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let world = World::new(topology, options, clock).unwrap();
        let config = world.config();
        Self { server: ApiServer::new(clock), world, config, clock }
    }

    /// Kubelets of all machines that have no Node yet register.
    pub(crate) fn join(&self) {
        for node in self.world.uninitialized_nodes() {
            if self.server.get::<Node>("", &node.name_any()).is_none() {
                self.server.create::<Node>(&node);
            }
        }
    }

    /// All controllers that make sense on Azure.
    pub(crate) fn start(&self) -> Life {
        self.start_with(&["--leader-elect=false"])
    }

    pub(crate) fn start_with(&self, flags: &[&str]) -> Life {
        let files = tempfile::tempdir().unwrap();
        let azure_json = files.path().join("azure.json");
        std::fs::write(&azure_json, self.config.to_string()).unwrap();
        let flags = [&["ccm", "--cloud-provider=azure", "--secure-port=0", POD_CIDRS], flags].concat();
        let cli::CliCommand::Run(config) = cli::parse(flags.iter().map(Into::into), &["azure"], &[]).unwrap() else {
            panic!("no help asked for")
        };
        let cloud_config = ProviderConfig {
            cloud_config: Some(azure_json),
            cluster_name: "kubernetes".into(),
            ..ProviderConfig::default()
        };
        let provider = AzureCloud::new(&cloud_config, BTreeMap::new(), self.world.azure().transport()).unwrap();
        let metrics = Arc::new(Metrics::new().unwrap());
        let parts = ManagerDeps {
            config: *config,
            clients: Arc::new(InProcess(self.server.clone())),
            provider: Arc::new(provider),
            metrics: Arc::clone(&metrics),
            clock: self.clock,
            set_verbosity: Arc::new(|_| ()),
        };
        let stop = Shutdown::new();
        let until = stop.clone();
        let task = tokio::spawn(async move { manager::run(parts, &until).await });
        Life { metrics, stop, task }
    }

    /// The provider's session alone, without controllers.
    pub(crate) async fn session(&self) -> Session {
        self.counted_session().await.0
    }

    /// The same, and where it counts.
    pub(crate) async fn counted_session(&self) -> (Session, Arc<Metrics>) {
        let texts = ConfigTexts { file: Some(self.config.to_string()), secret: None };
        let config = config::merge(&texts, &EnvironmentOverrides::of(BTreeMap::new()), false).unwrap().config;
        let metrics = Arc::new(Metrics::new().unwrap());
        let surroundings = SessionDeps {
            transport: self.world.azure().transport(),
            environment: BTreeMap::new(),
            leadership: Leadership::unopposed(),
            route_leadership: Leadership::unopposed(),
            budget: Budget::new(BudgetSettings::from(&config), Arc::clone(&metrics), self.clock),
            metrics: Arc::clone(&metrics),
            clock: self.clock,
            nodes: InformerStore::of(self.world.nodes()),
        };
        (Session::open(Arc::new(config), &surroundings).await.unwrap(), metrics)
    }

    pub(crate) fn table_id(&self) -> String {
        let topology = self.world.topology();
        topology.group_id().resource(TABLE_TYPE, &[&topology.route_table]).to_string()
    }

    pub(crate) fn table(&self) -> Value {
        self.world.azure().document(&self.table_id()).unwrap_or_default()
    }

    /// Prefix to next hop of all routes.
    pub(crate) fn routes(&self) -> BTreeMap<String, String> {
        let text = |route: &Value, field: &str| route["properties"][field].as_str().unwrap().to_owned();
        let routes = self.table()["properties"]["routes"].as_array().cloned().unwrap_or_default();
        routes.iter().map(|route| (text(route, "addressPrefix"), text(route, "nextHopIpAddress"))).collect()
    }

    /// What the routes have to be: each pod CIDR leads to the machine's address of its family.
    pub(crate) fn wanted_routes(&self) -> BTreeMap<String, String> {
        let nodes = self.server.list::<Node>();
        let routes = nodes.iter().flat_map(|node| {
            let machine = self.world.machine(&node.name_any()).unwrap();
            let addresses: Vec<_> = machine.ip_configurations.iter().map(|found| found.address).collect();
            cidrs(node).into_iter().map(move |cidr| {
                let hop = addresses.iter().find(|address| address.is_ipv6() == cidr.contains(':')).unwrap();
                (cidr, hop.to_string())
            })
        });
        routes.collect()
    }

    /// Names of Nodes whose `NetworkUnavailable` has this status.
    pub(crate) fn unavailable(&self, status: &str) -> BTreeSet<String> {
        let is_so = |node: &Node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "NetworkUnavailable" && condition.status == status)
        };
        self.server.list::<Node>().iter().filter(|node| is_so(node)).map(ResourceExt::name_any).collect()
    }

    /// Each Node has its routes and says so; there are no others.
    pub(crate) fn assert_converged(&self, when: &str) {
        assert_eq!(self.routes(), self.wanted_routes(), "{when}");
        assert_eq!(self.unavailable("False").len(), self.server.list::<Node>().len(), "{when}");
    }

    /// A Node that says that it has its routes has them.
    pub(crate) fn assert_truthful(&self) {
        let (routes, truthful) = (self.routes(), self.unavailable("False"));
        for node in self.server.list::<Node>().into_iter().filter(|node| truthful.contains(&node.name_any())) {
            assert!(cidrs(&node).iter().all(|cidr| routes.contains_key(cidr)), "{} has no route", node.name_any());
        }
    }

    /// Requests to ARM about the route table since last asked: writes, reads.
    pub(crate) fn requests(&self) -> (usize, usize) {
        let requests = self.world.azure().requests();
        self.world.azure().clear_requests();
        let about: Vec<&RequestRecord> =
            requests.iter().filter(|request| request.resource_type.eq_ignore_ascii_case(TABLE_TYPE)).collect();
        let writes = requests.iter().filter(|request| matches!(request.class, Class::Write | Class::Delete)).count();
        assert_eq!(writes, about.iter().filter(|request| request.class == Class::Write).count(), "writes elsewhere");
        (writes, about.iter().filter(|request| request.class == Class::Read).count())
    }

    /// Messages about routes that somebody else changed.
    pub(crate) fn drifted(&self) -> Vec<String> {
        let events = self.server.list::<Event>().into_iter();
        let events = events.filter(|event| event.reason.as_deref() == Some("RouteDrifted"));
        events.filter_map(|event| event.message).collect()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let events = self.server.list::<Event>().into_iter().filter(|event| event.type_.as_deref() == Some("Warning"));
        events.filter_map(|event| event.message).collect()
    }
}

impl Life {
    pub(crate) async fn stop(self) {
        self.stop.begin();
        assert_eq!(self.task.await.unwrap().unwrap(), ManagerOutcome::Stopped);
    }
}

pub(crate) fn cidrs(node: &Node) -> Vec<String> {
    node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default()
}

/// A route as Go's program leaves it in ARM.
pub(crate) fn route_left_by_go(node: &str, cidr: &str, hop: &str) -> Value {
    let suffix: String = cidr.chars().filter(|c| !".:/".contains(*c)).collect();
    json!({
        "name": format!("{node}____{suffix}"),
        "properties": {"addressPrefix": cidr, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop, "hasBgpOverride": false},
    })
}

/// Lets everything happen that happens within this (virtual) time.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
