//! The life of a manager: serve, watch, campaign, lead, drain, release.
//!
//! In: [`ManagerDeps`] – everything that differs between the binary, the demo and a test. Out: how it ended ([`ManagerOutcome`]). What runs on every
//! replica (servers, informers, the provider's caches) starts at once; controllers start when this replica leads.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

pub use super::{client_source::ClientSource, start_error::ManagerStartError};
use super::{
    client_source::ReadOnlyClients,
    dry_run,
    election::{self, ElectionHost, PendingElection},
    health, informer_watchdog,
    manager_state::ManagerState,
    preview::shadow::{self, ShadowReports},
    status, wiring,
};
use crate::{
    cli::{config::ManagerConfig, feature_gates, platform},
    cloud_provider::{
        CloudProvider, ProviderContext, metered,
        start::{ProviderReadiness, initialize},
    },
    controllers::{
        Controller, Informers,
        names::{ControllerNames, SERVICE},
        service::prune_service,
    },
    metrics::Metrics,
    node::{UNREAD_STATUS, prune_node, prune_node_and_labels},
    runtime::{
        clock::Clock,
        events::{self, EventRecorder, RecordedEvent},
        informer::Informer,
        leader_election::{ElectionOutcome as Election, Leadership},
        shutdown::Shutdown,
    },
    serving::{self, ServingDeps as ServingParts},
};

/// Source component of the manager's own events, and its user agent's last part.
pub const COMPONENT: &str = "cloud-controller-manager";

/// How long background tasks may take to end once the work is done; they only write what is already queued.
const BACKGROUND_DRAIN: Duration = Duration::from_secs(2);

/// Everything a manager is made of.
pub struct ManagerDeps {
    /// The command line, validated.
    pub config: ManagerConfig,
    /// Where clients come from.
    pub clients: Arc<dyn ClientSource>,
    pub provider: Arc<dyn CloudProvider>,
    /// Metrics, one registry for the process.
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    /// Sets the log verbosity (`PUT /debug/flags/v`).
    pub set_verbosity: Arc<dyn Fn(u8) + Send + Sync>,
}

/// How a manager ended, when it started at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagerOutcome {
    /// Asked to; everything was drained and the lease released.
    Stopped,
    /// The lease was lost: the process must end at once.
    LeaseLost,
    /// It led but could not see the cluster: the lease was released, so that another replica leads.
    InformersStale,
    /// A part that must not end did.
    UnexpectedEnd,
}

/// Runs a manager until `stop` begins or it ends by itself, with the leader election on this runtime.
pub async fn run(parts: ManagerDeps, stop: &Shutdown) -> Result<ManagerOutcome, ManagerStartError> {
    run_with(parts, ElectionHost::CallersRuntime, stop).await
}

/// The same with the leader election on `host`.
pub async fn run_with(parts: ManagerDeps, host: ElectionHost, stop: &Shutdown) -> Result<ManagerOutcome, ManagerStartError> {
    if !parts.provider.has_cluster_id() && !parts.config.cloud.allow_untagged_cloud {
        return Err(ManagerStartError::NoClusterId);
    }
    let background = Shutdown::new();
    let manager = ControllerManager::build(parts, host, &background).await?;
    manager.start_shadow(&background);
    let ended = manager.lead(stop).await;
    background.begin();
    if matches!(ended, ManagerOutcome::Stopped | ManagerOutcome::InformersStale) {
        background.drain(BACKGROUND_DRAIN).await;
    }
    Ok(ended)
}

/// What a manager that leads nothing watches, until `background` begins. `parts` are those of a process that only reads.
pub(super) async fn watch_only(
    mut parts: ManagerDeps,
    background: &Shutdown,
) -> Result<Arc<ManagerState>, ManagerStartError> {
    (parts.config.dry_run, parts.config.serving.port) = (true, 0);
    Ok(ControllerManager::build(parts, ElectionHost::CallersRuntime, background).await?.state)
}

struct ControllerManager {
    config: ManagerConfig,
    state: Arc<ManagerState>,
    election: PendingElection,
    provider_ready: watch::Receiver<ProviderReadiness>,
    metrics: Arc<Metrics>,
    /// With `--dry-run`.
    shadow: Option<Arc<ShadowReports>>,
}

impl ControllerManager {
    /// Builds everything and starts what every replica runs.
    async fn build(parts: ManagerDeps, host: ElectionHost, background: &Shutdown) -> Result<Self, ManagerStartError> {
        let ManagerDeps { config, clients, provider, metrics, clock, set_verbosity } = parts;
        let clients = if config.dry_run { Arc::new(ReadOnlyClients(clients)) } else { clients };
        publish_feature_gates(&config.feature_gates, &metrics);
        publish_build_info(&config.version, &metrics);
        let (recorder, recorded) = EventRecorder::channel(COMPONENT);
        let recorder = recorder.with_discard_metric(&metrics);
        let (campaign, election, leadership) = if config.dry_run {
            discard_events(recorded, background);
            election::abstain()
        } else {
            events::start_sink(recorded, clients.component(COMPONENT)?, clock, Arc::clone(&metrics), background);
            election::prepare(&config.leader_election, host, clients.as_ref(), clock, &recorder, &metrics)?
        };
        let provider =
            metered::metered(provider, Arc::clone(&metrics), leadership.clone(), metered::CallDeadlines::default());

        // A selector may name any label.
        let prune = if config.node_filter.is_none() { prune_node_and_labels } else { prune_node };
        let nodes = Informer::with_label_selector(config.node_filter.as_deref(), prune);
        let nodes = nodes.without_status_fields(UNREAD_STATUS);
        let mut informers = Informers { nodes, services: Informer::new(prune_service) };
        let context = wiring::WiringContext {
            config: &config,
            clients: clients.as_ref(),
            recorder: &recorder,
            leadership: &leadership,
            clock,
            metrics: &metrics,
        };
        let wired = wiring::controllers(&context, &mut informers, &provider)?;

        let watches_services = wired.controllers.iter().any(|(names, _)| *names == SERVICE);
        let client = provider_client(clients.as_ref(), provider.provider_name())?;
        let provider_context = ProviderContext {
            client,
            leadership: leadership.clone(),
            shutdown: background.clone(),
            clock,
            metrics: Arc::clone(&metrics),
            nodes: informers.nodes.store(),
            services: informers.services.store(),
            events: recorder.clone(),
        };
        let provider_ready = initialize(Arc::clone(&provider), provider_context, background);

        let watched = Arc::new(ManagerState {
            leadership,
            election,
            nodes: informers.nodes.store(),
            services: watches_services.then(|| informers.services.store()),
            provider,
            provider_ready: provider_ready.clone(),
            controllers: wired.controllers,
            skipped: wired.skipped,
        });
        let shadow = config.dry_run.then(|| ShadowReports::new(clock));
        serve(&config, (&watched, shadow.as_ref()), clients.reviews()?, &metrics, clock, set_verbosity, background).await?;

        let watches = clients.watches()?;
        informers.nodes.start(watches.clone(), background, Arc::clone(&metrics));
        if watches_services {
            informers.services.start(watches, background, Arc::clone(&metrics));
        }
        Ok(Self { config, state: watched, election: campaign, provider_ready, metrics, shadow })
    }

    /// Plans again and again, if that is what this process is for.
    fn start_shadow(&self, background: &Shutdown) {
        let Some(reports) = self.shadow.clone() else { return };
        let (work, over) = (shadow::run(Arc::clone(&self.state), reports, Arc::clone(&self.metrics)), background.clone());
        background.spawn(async move {
            tokio::select! {
                () = work => {}
                () = over.begun() => {}
            }
        });
    }

    /// Campaigns, leads, and ends in good order.
    async fn lead(self, stop: &Shutdown) -> ManagerOutcome {
        let (work, standing) = (Shutdown::new(), Shutdown::new());
        let Self { config, state: watched, election: campaign, provider_ready, metrics, .. } = self;
        let mut election = tokio::spawn(campaign.run(standing.clone()));
        let mut controllers = tokio::spawn(run_controllers(
            config.start_interval,
            Arc::clone(&watched),
            provider_ready,
            metrics,
            work.clone(),
        ));
        let unasked = |ended| {
            if matches!(ended, Ok(Some(Election::Lost))) { ManagerOutcome::LeaseLost } else { ManagerOutcome::UnexpectedEnd }
        };

        let ended = tokio::select! {
            biased;
            () = stop.begun() => ManagerOutcome::Stopped,
            ended = &mut election => return unasked(ended),
            _ = &mut controllers => return ManagerOutcome::UnexpectedEnd,
            why = informer_watchdog::until_stale(&watched) => {
                tracing::error!(why, "leading without a current view of the cluster: releasing the lease so that another replica can lead");
                ManagerOutcome::InformersStale
            }
        };
        tracing::info!("stopping: finishing running reconciles, then releasing the lease");
        work.begin();
        tokio::select! {
            biased;
            // Somebody else leads already: what still runs must not go on beside them.
            ended = &mut election => return unasked(ended),
            () = drain(&mut controllers, config.shutdown_grace_period) => {}
        }
        standing.begin();
        let _ = election.await;
        ended
    }
}

/// Nobody is told what did not happen.
fn discard_events(mut recorded: mpsc::Receiver<(&'static str, RecordedEvent)>, background: &Shutdown) {
    let over = background.clone();
    background.spawn(async move {
        let all = async { while recorded.recv().await.is_some() {} };
        tokio::select! {
            () = all => {}
            () = over.begun() => {}
        }
    });
}

/// Lets running steps end, for at most `limit`. Those that do not are dropped where they wait: once the lease is released the next
/// leader begins, and two must not write.
async fn drain(controllers: &mut JoinHandle<()>, limit: Duration) {
    if tokio::time::timeout(limit, &mut *controllers).await.is_err() {
        tracing::warn!(?limit, "running reconciles did not finish in time; the next leader will finish them");
        controllers.abort();
        let _ = controllers.await;
    }
}

/// The provider acts as ServiceAccount `<name>-cloud-provider` where controllers have accounts of their own. It asks for leadership
/// itself. Upstream: `pkg/provider/azure.go`, `Initialize`.
fn provider_client(clients: &dyn ClientSource, provider: &str) -> Result<kube::Client, kube::Error> {
    clients.controller(&format!("{provider}-cloud-provider"), &Leadership::unopposed())
}

/// Upstream: `k8s.io/component-base/metrics/prometheus/feature`.
fn publish_feature_gates(gates: &feature_gates::FeatureGates, metrics: &Metrics) {
    for gate in feature_gates::TABLE {
        let on = if gates.enabled(gate.name) { 1.0 } else { 0.0 };
        metrics.feature_enabled.with_label_values(&[gate.name, gate.stage.label()]).set(on);
    }
}

/// Upstream: `k8s.io/component-base/metrics/version.go`.
fn publish_build_info(version: &str, metrics: &Metrics) {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let platform = platform();
    let labels = [major, minor, version, "", "", "", "", "rustc", &platform];
    metrics.build_info.with_label_values(&labels).set(1.0);
}

async fn serve(
    config: &ManagerConfig,
    (watched, shadow): (&Arc<ManagerState>, Option<&Arc<ShadowReports>>),
    client: kube::Client,
    metrics: &Arc<Metrics>,
    clock: Clock,
    set_verbosity: Arc<dyn Fn(u8) + Send + Sync>,
    background: &Shutdown,
) -> Result<(), ManagerStartError> {
    if config.serving.port == 0 {
        return Ok(());
    }
    let (for_status, for_metrics) = (Arc::clone(watched), Arc::clone(watched));
    let parts = ServingParts {
        metrics: Arc::clone(metrics),
        health: health::checks(watched),
        client: Some(client),
        configz: config.configz(),
        flagz: config.flagz(),
        status: Arc::new(move || status::value(&for_status)),
        planner: Some(dry_run::planner(watched, shadow, config.cloud.config.cluster_name.clone())),
        before_metrics: Arc::new(move || status::observe(&for_metrics)),
        set_verbosity,
        clock,
    };
    serving::serve(config.serving.clone(), parts, background.clone()).await?;
    Ok(())
}

/// Waits until this replica leads and everything it reads is there, then runs all controllers until `work` begins. Returns early
/// only when a controller ended by itself, which none should.
async fn run_controllers(
    start_interval: Duration,
    watched: Arc<ManagerState>,
    mut provider: watch::Receiver<ProviderReadiness>,
    metrics: Arc<Metrics>,
    work: Shutdown,
) {
    let ready = async {
        watched.leadership.acquired().await;
        watched.nodes.synced().await;
        if let Some(services) = &watched.services {
            services.synced().await;
        }
        provider.wait_for(|state| matches!(state, Some(Ok(())))).await.is_ok()
    };
    tokio::select! {
        () = work.begun() => return,
        ready = ready => if !ready { return },
    }
    let mut running = tokio::task::JoinSet::new();
    for (position, (names, controller)) in watched.controllers.iter().enumerate() {
        let pause = start_interval.mul_f64(f64::from(u32::try_from(position).unwrap_or(0)) * rand::random_range(1.0..2.0));
        running.spawn(supervise(*names, Arc::clone(controller), pause, Arc::clone(&metrics), work.clone()));
    }
    while let Some(ended) = running.join_next().await {
        if ended.is_ok_and(|orderly| orderly) {
            continue;
        }
        return;
    }
    work.begun().await;
}

/// Runs one controller; answers whether it ended because it was told to.
async fn supervise(
    names: ControllerNames,
    controller: Arc<dyn Controller>,
    pause: Duration,
    metrics: Arc<Metrics>,
    work: Shutdown,
) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = work.begun() => return true,
    }
    let name = names.canonical;
    tracing::info!(controller = name, "started");
    let gauge = metrics.running_managed_controllers.with_label_values(&[COMPONENT, names.metric]);
    gauge.set(1.0);
    let ended = AssertUnwindSafe(controller.run(work.clone())).catch_unwind().await;
    gauge.set(0.0);
    let orderly = ended.is_ok() && work.has_begun();
    if !orderly {
        tracing::error!(controller = name, "ended unexpectedly; exiting so that another replica takes over");
    }
    orderly
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::value::{FlagValue, MapStringBool},
        providers::fake::{FakeCloud, FakeConfig},
    };

    /// Remembers who asked for an account's client.
    #[derive(Default)]
    struct Accounts(std::sync::Mutex<Vec<String>>);

    impl ClientSource for Accounts {
        fn component(&self, _: &str) -> Result<kube::Client, kube::Error> {
            let answer = || http::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
            let nobody = tower::service_fn(move |_: http::Request<kube::client::Body>| {
                std::future::ready(Ok::<_, std::convert::Infallible>(answer()))
            });
            Ok(kube::Client::new(nobody, "default"))
        }
        fn controller(&self, account: &str, _: &Leadership) -> Result<kube::Client, kube::Error> {
            self.0.lock().unwrap().push(account.to_owned());
            self.component(account)
        }
        fn watches(&self) -> Result<kube::Client, kube::Error> {
            self.component("")
        }
    }

    #[tokio::test]
    async fn the_provider_acts_as_an_account_of_its_own() {
        let accounts = Accounts::default();
        provider_client(&accounts, "azure").unwrap();
        assert_eq!(*accounts.0.lock().unwrap(), ["azure-cloud-provider"]);

        let flags = ["ccm", "--cloud-provider=fake", "--secure-port=0", "--configure-cloud-routes=false"];
        let Ok(crate::cli::CliCommand::Run(config)) = crate::cli::parse(flags.map(Into::into), &["fake"], &[]) else {
            panic!("no help asked for")
        };
        let (accounts, background) = (Arc::new(Accounts::default()), Shutdown::new());
        let parts = ManagerDeps {
            config: *config,
            clients: Arc::clone(&accounts) as _,
            provider: Arc::new(FakeCloud::new(FakeConfig::any_node())),
            metrics: Arc::new(Metrics::new().unwrap()),
            clock: Clock::System,
            set_verbosity: Arc::new(|_| ()),
        };
        ControllerManager::build(parts, ElectionHost::CallersRuntime, &background).await.map(drop).unwrap();
        background.begin();
        let asked = accounts.0.lock().unwrap();
        assert!(asked.iter().any(|account| account == "fake-cloud-provider"), "{asked:?}");
    }

    #[test]
    fn the_build_is_shown() {
        let metrics = Metrics::new().unwrap();
        publish_build_info("v1.30.2", &metrics);
        let page = metrics.render().unwrap();
        let line = page.lines().find(|line| line.starts_with("kubernetes_build_info{")).unwrap();
        assert!(line.contains(r#"major="1",minor="30""#) && line.contains(r#"git_version="v1.30.2""#), "{line}");
        assert!(line.ends_with(" 1"), "{line}");
    }

    /// Tells when it is dropped.
    struct Step(Arc<std::sync::atomic::AtomicBool>);

    impl Drop for Step {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn steps_that_outlast_the_grace_period_are_dropped_before_the_lease_is_released() {
        let dropped = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let step = Step(Arc::clone(&dropped));
        let mut controllers = tokio::spawn(async move {
            let _step = step;
            std::future::pending().await
        });
        let started = tokio::time::Instant::now();
        drain(&mut controllers, Duration::from_secs(10)).await;
        assert!(dropped.load(std::sync::atomic::Ordering::SeqCst));
        assert_eq!(started.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_the_steps_run() {
        let mut controllers = tokio::spawn(tokio::time::sleep(Duration::from_secs(1)));
        let started = tokio::time::Instant::now();
        drain(&mut controllers, Duration::from_secs(10)).await;
        assert_eq!(started.elapsed().as_secs(), 1);
    }

    #[test]
    fn every_feature_gate_is_a_metric() {
        let metrics = Metrics::new().unwrap();
        let given = MapStringBool::parse("ComponentFlagz=false").unwrap();
        publish_feature_gates(&feature_gates::resolve(&given).gates, &metrics);
        let text = metrics.render().unwrap();
        assert!(text.contains("kubernetes_feature_enabled{name=\"ComponentFlagz\",stage=\"BETA\"} 0"), "{text}");
        assert!(text.contains("kubernetes_feature_enabled{name=\"ConsistentListFromCache\",stage=\"\"} 1"), "{text}");
        assert!(text.contains("kubernetes_feature_enabled{name=\"AllAlpha\",stage=\"ALPHA\"} 0"), "{text}");
    }
}
