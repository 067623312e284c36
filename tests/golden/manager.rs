//! The program itself as the subject: the whole manager with the azure provider, its own clients and its own flags, in this process.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use cloud_controller_manager::{
    app::manager::{self, ManagerDeps, ManagerOutcome, ManagerStartError},
    cli,
    cloud_provider::registry::ProviderConfig,
    metrics::Metrics,
    providers::azure::AzureCloud,
    runtime::shutdown::Shutdown,
    sandbox::in_process::InProcess,
};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::golden::{
    replay::{Running, Subject},
    stage::Stage,
};

/// Added to a recorded command line where it does not have the flag: what the recordings leave out, and no network.
const FURTHER_FLAGS: &[&str] = &[
    "--cloud-provider=azure",
    "--secure-port=0",
    "--leader-elect=false",
    "--configure-cloud-routes=false",
    "--cluster-cidr=100.64.0.0/10,fd00:64::/32",
];

/// Runs the manager.
pub(crate) struct Manager;

struct Leading {
    stop: Shutdown,
    task: JoinHandle<Result<ManagerOutcome, ManagerStartError>>,
    /// With `azure.json`; goes with the manager.
    _files: tempfile::TempDir,
}

#[async_trait]
impl Subject for Manager {
    async fn start(&self, stage: &Stage, config: &Value, flags: &[String]) -> Box<dyn Running> {
        let (parts, files) = parts(stage, config, flags);
        let stop = Shutdown::new();
        let until = stop.clone();
        let task = tokio::spawn(async move { manager::run(parts, &until).await });
        Box::new(Leading { stop, task, _files: files })
    }
}

/// What a manager is made of on a stage, and the folder of its `azure.json`.
pub(crate) fn parts(stage: &Stage, config: &Value, flags: &[String]) -> (ManagerDeps, tempfile::TempDir) {
    let files = tempfile::tempdir().unwrap();
    let azure_json = files.path().join("azure.json");
    std::fs::write(&azure_json, config.to_string()).unwrap();
    let flags = with_further(flags, &format!("--cloud-config={}", azure_json.display()));
    let cli::CliCommand::Run(config) = cli::parse(flags.iter().map(Into::into), &["azure"], &[]).unwrap() else {
        panic!("{flags:?} asks for help")
    };
    let provider_config = ProviderConfig {
        cloud_config: Some(azure_json),
        cluster_name: config.cloud.config.cluster_name.clone(),
        read_only: config.cloud.config.read_only,
        ..ProviderConfig::default()
    };
    let provider = AzureCloud::new(&provider_config, BTreeMap::new(), stage.azure().transport()).unwrap();
    let parts = ManagerDeps {
        config: *config,
        clients: Arc::new(InProcess(stage.server.clone())),
        provider: Arc::new(provider),
        metrics: Arc::new(Metrics::new().unwrap()),
        clock: stage.clock,
        set_verbosity: Arc::new(|_| ()),
    };
    (parts, files)
}

#[async_trait]
impl Running for Leading {
    async fn stop(self: Box<Self>) {
        self.stop.begin();
        assert_eq!(self.task.await.unwrap().unwrap(), ManagerOutcome::Stopped);
    }
}

/// A command line with a program name, `more`, and those of [`FURTHER_FLAGS`] that are not in it.
fn with_further(recorded: &[String], more: &str) -> Vec<String> {
    let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
    let known: Vec<String> = recorded.iter().map(|flag| name(flag)).collect();
    let further = FURTHER_FLAGS.iter().filter(|flag| !known.contains(&name(flag)));
    let start = ["cloud-controller-manager", more].into_iter().map(str::to_owned);
    start.chain(recorded.iter().cloned()).chain(further.map(|flag| (*flag).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_manager_starts_on_a_stage_and_stops() {
    let case = crate::golden::corpus::case("azure-lb/external-tcp");
    let writes = crate::golden::replay::take_over(&Manager, case, 0).await;
    assert!(writes.is_empty(), "{writes:?}");
}
