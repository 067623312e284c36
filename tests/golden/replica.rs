//! A manager, or a session of the provider alone, in this process on a simulated Azure.

use std::{collections::BTreeMap, sync::Arc};

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
    sandbox::{api_server::ApiServer, azure::Azure},
    sandbox_demo::in_process::InProcess,
};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use tokio::task::JoinHandle;

/// Running manager. It stops when the value is dropped.
pub(crate) struct Replica {
    pub(crate) metrics: Arc<Metrics>,
    stop: Shutdown,
    task: JoinHandle<Result<ManagerOutcome, ManagerStartError>>,
    /// Folder with `azure.json`, deleted with the manager.
    _files: tempfile::TempDir,
}

/// Returns the dependencies of a manager with this `azure.json` and further flags, and the folder of its files.
pub(crate) fn manager_deps(
    server: &ApiServer,
    azure: &Azure,
    clock: Clock,
    config: &Value,
    flags: &[&str],
) -> (ManagerDeps, tempfile::TempDir) {
    let files = tempfile::tempdir().unwrap();
    let azure_json = files.path().join("azure.json");
    std::fs::write(&azure_json, config.to_string()).unwrap();
    let file = format!("--cloud-config={}", azure_json.display());
    let flags = [&["cloud-controller-manager", "--cloud-provider=azure", "--secure-port=0", file.as_str()], flags].concat();
    let cli::CliCommand::Run(config) = cli::parse(flags.iter().map(Into::into), &["azure"], &[]).unwrap() else {
        panic!("{flags:?} does not start a manager")
    };
    let provider_config = ProviderConfig {
        cloud_config: Some(azure_json),
        cluster_name: config.cloud.config.cluster_name.clone(),
        read_only: config.cloud.config.read_only,
        ..ProviderConfig::default()
    };
    let provider = AzureCloud::new(&provider_config, BTreeMap::new(), azure.transport()).unwrap();
    let deps = ManagerDeps {
        config: *config,
        clients: Arc::new(InProcess(server.clone())),
        provider: Arc::new(provider),
        metrics: Arc::new(Metrics::new().unwrap()),
        clock,
        set_verbosity: Arc::new(|_| ()),
    };
    (deps, files)
}

impl Replica {
    /// Starts a manager with the result of [`manager_deps`].
    pub(crate) fn start((deps, files): (ManagerDeps, tempfile::TempDir)) -> Self {
        let (metrics, stop) = (Arc::clone(&deps.metrics), Shutdown::new());
        let until = stop.clone();
        let task = tokio::spawn(async move { manager::run(deps, &until).await });
        Self { metrics, stop, task, _files: files }
    }

    /// Stops the manager and waits for its end.
    pub(crate) async fn stop(mut self) {
        self.stop.begin();
        assert_eq!((&mut self.task).await.unwrap().unwrap(), ManagerOutcome::Stopped);
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

/// Opens a session of a leader with these Nodes, and returns it with its metrics.
pub(crate) async fn session(azure: &Azure, clock: Clock, config: &Value, nodes: Vec<Node>) -> (Session, Arc<Metrics>) {
    let texts = ConfigTexts { file: Some(config.to_string()), secret: None };
    let config = config::merge(&texts, &EnvironmentOverrides::of(BTreeMap::new()), false).unwrap().config;
    let metrics = Arc::new(Metrics::new().unwrap());
    let deps = SessionDeps {
        transport: azure.transport(),
        environment: BTreeMap::new(),
        leadership: Leadership::unopposed(),
        route_leadership: Leadership::unopposed(),
        budget: Budget::new(BudgetSettings::from(&config), Arc::clone(&metrics), clock),
        metrics: Arc::clone(&metrics),
        clock,
        nodes: InformerStore::of(nodes),
    };
    (Session::open(Arc::new(config), &deps).await.unwrap(), metrics)
}
