//! A manager in this process, without a lease and without a port.

use std::sync::Arc;

use cloud_controller_manager::{
    app::manager::{self, ClientSource, ManagerDeps, ManagerOutcome, ManagerStartError},
    cli,
    cloud_provider::CloudProvider,
    metrics::Metrics,
    runtime::{clock::Clock, shutdown::Shutdown},
};

pub(crate) struct Manager {
    stop: Shutdown,
    task: tokio::task::JoinHandle<Result<ManagerOutcome, ManagerStartError>>,
}

impl Manager {
    pub(crate) fn start(clients: Arc<dyn ClientSource>, provider: Arc<dyn CloudProvider>, flags: &[&str]) -> Self {
        let fixed = ["cloud-controller-manager", "--secure-port=0", "--leader-elect=false"];
        let arguments = fixed.iter().chain(flags).map(std::ffi::OsString::from);
        let cli::CliCommand::Run(config) = cli::parse(arguments, &["azure", "fake"], &[]).expect("flags") else {
            unreachable!("no flag prints help")
        };
        let parts = ManagerDeps {
            config: *config,
            clients,
            provider,
            metrics: Arc::new(Metrics::new().expect("metrics")),
            clock: Clock::System,
            set_verbosity: Arc::new(|_| ()),
        };
        let stop = Shutdown::new();
        let stopping = stop.clone();
        Self { stop, task: tokio::spawn(async move { manager::run(parts, &stopping).await }) }
    }

    pub(crate) async fn stop(self) {
        self.stop.begin();
        let ended = self.task.await.expect("the manager").expect("a start");
        assert_eq!(ended, ManagerOutcome::Stopped);
    }
}
