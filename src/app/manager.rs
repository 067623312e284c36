//! Lifecycle of a manager: serve, watch, acquire the lease, lead, drain, release.
//!
//! In: [`ManagerDeps`], which differ between the binary, the demo and a test. Out: a [`ManagerOutcome`]. Servers, informers and the
//! provider's caches start immediately on every replica; controllers start when this replica leads.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{core::v1::Namespace, discovery::v1::EndpointSlice};

use super::{
    build_metrics::{publish_build_info, publish_feature_gates},
    client_source::ReadOnlyClients,
    controller_runs::{ControllerStart, drain, run_controllers},
    election::{self, ElectionContext, ElectionHost, PendingElection},
    health, informer_watchdog,
    manager_state::{COMPONENT, ManagerState, MigrationState},
    plan::{
        dry_run::{self, DryRunReports},
        page,
    },
    second_lease::{self, SecondLease},
    start_error::StartResult,
    status,
    webhooks::{self, RunningWebhooks},
    wiring::{self, ControllerLeases},
};
pub use super::{client_source::ClientSource, start_error::ManagerStartError};
use crate::{
    cli::config::ManagerConfig,
    cloud_provider::{CloudProvider, ProviderContext, metered, start::initialize},
    controllers::{
        Informers,
        names::SERVICE,
        service::{prune_endpoint_slice, service_informer},
    },
    metrics::Metrics,
    runtime::{
        clock::Clock,
        events::{self, EventRecorder},
        informer::{Informer, OnDemandInformer},
        leader_election::{self, ElectionOutcome as Election, Leadership},
        shutdown::Shutdown,
        watch,
    },
    serving::{self, HealthEndpointSet, ReviewClients, ServingDeps as ServingParts},
};

/// Time that background tasks may take to end after the work; they only write what is already queued.
const BACKGROUND_DRAIN: Duration = Duration::from_secs(2);

/// Dependencies of a manager.
pub struct ManagerDeps {
    pub config: ManagerConfig,
    pub clients: Arc<dyn ClientSource>,
    pub provider: Arc<dyn CloudProvider>,
    /// Metrics, one registry for the process.
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    /// Function that sets the log verbosity (`PUT /debug/flags/v`).
    pub set_verbosity: Arc<dyn Fn(u8) + Send + Sync>,
}

/// Outcome of a manager that has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagerOutcome {
    /// Orderly stop: running work was drained and the lease released.
    Stopped,
    /// Loss of the lease: the process must exit immediately.
    LeaseLost,
    /// End of a leader without a current view of the cluster: the lease was released, so that another replica leads.
    InformersStale,
    /// Refusal of the provider to lead a cluster with these Nodes; nothing was written.
    ClusterRefused,
    /// Unexpected end of a component.
    UnexpectedEnd,
}

/// Runs a manager until `stop` begins or it ends on its own, with the leader election on this runtime. Returns an error if it
/// cannot start.
pub async fn run(parts: ManagerDeps, stop: &Shutdown) -> StartResult<ManagerOutcome> {
    run_with(parts, ElectionHost::CallersRuntime, stop).await
}

/// Runs a manager as [`run`] does, with the leader election on `host`.
pub async fn run_with(parts: ManagerDeps, host: ElectionHost, stop: &Shutdown) -> StartResult<ManagerOutcome> {
    if !parts.provider.has_cluster_id() && !parts.config.cloud.allow_untagged_cloud {
        return Err(ManagerStartError::NoClusterId);
    }
    let background = Shutdown::new();
    // Both are boxed to keep the caller's future small.
    let manager = Box::pin(ControllerManager::build(parts, host, &background)).await?;
    manager.start_dry_run(&background);
    let ended = Box::pin(manager.lead(stop)).await;
    background.begin();
    if matches!(ended, ManagerOutcome::Stopped | ManagerOutcome::InformersStale | ManagerOutcome::ClusterRefused) {
        background.drain(BACKGROUND_DRAIN).await;
    }
    Ok(ended)
}

/// Starts the watches of a manager that only reads, and returns its state. They end when `background` begins.
pub(super) async fn watch_only(mut parts: ManagerDeps, background: &Shutdown) -> StartResult<Arc<ManagerState>> {
    (parts.config.dry_run, parts.config.serving.port) = (true, 0);
    Ok(ControllerManager::build(parts, ElectionHost::CallersRuntime, background).await?.state)
}

struct ControllerManager {
    config: ManagerConfig,
    state: Arc<ManagerState>,
    election: PendingElection,
    second_election: Option<PendingElection>,
    /// Reason why the provider must not lead this cluster, if any.
    refusal: watch::Receiver<Option<String>>,
    metrics: Arc<Metrics>,
    clock: Clock,
    /// Reports of `--dry-run`; `None` without it.
    reports: Option<Arc<DryRunReports>>,
}

impl ControllerManager {
    /// Builds the manager, and starts the components that run on every replica.
    ///
    /// The order is required: [`start_recorder`], [`prepare_elections`], [`start_webhooks`], controllers, [`on_demand_informers`],
    /// the provider, the secure port. The informers start last, because they accept no subscribers afterwards.
    async fn build(parts: ManagerDeps, host: ElectionHost, background: &Shutdown) -> StartResult<Self> {
        let ManagerDeps { config, clients, provider, metrics, clock, set_verbosity } = parts;
        let clients = if config.dry_run { Arc::new(ReadOnlyClients(clients)) } else { clients };
        publish_feature_gates(&config.feature_gates, &metrics);
        publish_build_info(&config.version, &metrics);
        metrics.create_first_values(provider.provider_name());
        let recorder = start_recorder(&config, clients.as_ref(), &metrics, clock, background)?;
        let elections = ElectionContext {
            settings: &config.leader_election,
            identity: leader_election::identity(),
            host,
            clients: clients.as_ref(),
            clock,
            recorder: &recorder,
            metrics: &metrics,
        };
        let (main, second, leases) = prepare_elections(&elections, &config)?;
        let for_provider = leases.of_provider();
        let metered::WriteLeadership { load_balancers, routes } = for_provider.clone();
        let provider = metered::metered(provider, Arc::clone(&metrics), for_provider, metered::CallDeadlines::default());
        let context = wiring::WiringContext {
            config: &config,
            clients: clients.as_ref(),
            recorder: &recorder,
            leases: &leases,
            clock,
            metrics: &metrics,
        };
        let webhooks = start_webhooks(&context, &provider, background).await?;
        let nodes = wiring::node_informer(config.node_filter.as_deref(), &provider);
        let mut informers = Informers::new(nodes, service_informer(config.service.classes.clone(), &provider));
        let wired = wiring::controllers(&context, &mut informers, &provider)?;

        let watches_services = wired.controllers.iter().any(|(names, _)| *names == SERVICE);
        let watches = clients.watches()?;
        let Informers { mut nodes, services, namespaces } = informers;
        let refusal = wiring::watch_refusals(&mut nodes, &provider);
        let (namespaces, endpoint_slices) = match watches_services {
            true => on_demand_informers(&context, namespaces, &watches, background),
            false => Default::default(),
        };
        let provider_context = ProviderContext {
            client: provider_client(clients.as_ref(), provider.provider_name())?,
            leadership: load_balancers,
            route_leadership: routes,
            shutdown: background.clone(),
            clock,
            metrics: Arc::clone(&metrics),
            nodes: nodes.store(),
            services: services.store(),
            namespaces: namespaces.clone(),
            endpoint_slices: endpoint_slices.clone(),
            events: recorder.clone(),
        };
        let provider_ready = initialize(Arc::clone(&provider), provider_context, background);

        let (migration, second_election) = second.map_or((None, None), |(migration, election)| {
            let (leadership, health) = (election.leadership.clone(), election.health());
            (Some(MigrationState { migration, leadership, election: health }), Some(election))
        });
        let state = Arc::new(ManagerState {
            leadership: main.leadership.clone(),
            migration,
            election: main.health(),
            nodes: nodes.store(),
            services: watches_services.then(|| services.store()),
            classes: config.service.classes.clone(),
            namespaces,
            endpoint_slices,
            provider,
            provider_ready,
            controllers: wired.controllers,
            skipped: wired.skipped,
            is_dry_run: config.dry_run,
        });
        let observed = Arc::downgrade(&state);
        metrics.observe_with(move || observed.upgrade().iter().for_each(|state| status::observe(state)));
        let reports = config.dry_run.then(|| DryRunReports::new(clock));
        let shown = ServedState { state: &state, webhooks, reports: reports.as_ref() };
        Box::pin(serve(&config, shown, clients.reviews()?, &metrics, clock, set_verbosity, background)).await?;

        nodes.with_clock(clock).start(watches.clone(), background, Arc::clone(&metrics));
        if watches_services {
            services.with_clock(clock).start(watches, background, Arc::clone(&metrics));
        }
        Ok(Self { config, state, election: main, second_election, refusal, metrics, clock, reports })
    }

    /// Plans periodically in the background, if `--dry-run` is set.
    fn start_dry_run(&self, background: &Shutdown) {
        let Some(reports) = self.reports.clone() else { return };
        let (work, shutdown) =
            (dry_run::run(Arc::clone(&self.state), reports, Arc::clone(&self.metrics)), background.clone());
        background.spawn(async move { shutdown.run_until_begun(work).await });
    }

    /// Acquires the lease, runs the controllers, and stops in order.
    async fn lead(self, stop: &Shutdown) -> ManagerOutcome {
        let (work, election_shutdown) = (Shutdown::new(), Shutdown::new());
        let Self { config, state, election: main, second_election, refusal, metrics, clock, .. } = self;
        let mut election = tokio::spawn(election::run_both(main, second_election, election_shutdown.clone()));
        let start = ControllerStart { interval: config.start_interval, metrics, clock, work: work.clone() };
        let mut controllers = tokio::spawn(run_controllers(Arc::clone(&state), start));
        let unexpected_end = |ended| {
            if matches!(ended, Ok(Some(Election::Lost))) { ManagerOutcome::LeaseLost } else { ManagerOutcome::UnexpectedEnd }
        };

        let ended = tokio::select! {
            biased;
            () = stop.begun() => ManagerOutcome::Stopped,
            ended = &mut election => return unexpected_end(ended),
            _ = &mut controllers => return ManagerOutcome::UnexpectedEnd,
            reason = wait_until_refused(refusal) => {
                tracing::error!(reason, "the cloud provider refuses to lead this cluster");
                ManagerOutcome::ClusterRefused
            }
            reason = informer_watchdog::wait_until_stale(&state) => {
                tracing::error!(reason, "leading without a current view of the cluster: releasing the lease so that another replica can lead");
                ManagerOutcome::InformersStale
            }
        };
        tracing::info!("stopping: finishing running reconciles, then releasing the lease");
        work.begin();
        tokio::select! {
            biased;
            // Another replica may already lead, so running work must not continue.
            ended = &mut election => return unexpected_end(ended),
            () = drain(&mut controllers, config.shutdown_grace_period) => {}
        }
        election_shutdown.begin();
        let _ = election.await;
        ended
    }
}

/// Waits until the provider must not lead this cluster, and returns the reason.
async fn wait_until_refused(mut refusal: watch::Receiver<Option<String>>) -> String {
    if let Ok(Some(reason)) = refusal.wait_for(Option::is_some).await.as_deref() {
        return reason.clone();
    }
    std::future::pending().await
}

/// Starts the recorder of events, before the components that use it. Events of a dry run are discarded, because their actions
/// did not happen.
fn start_recorder(
    config: &ManagerConfig,
    clients: &dyn ClientSource,
    metrics: &Arc<Metrics>,
    clock: Clock,
    background: &Shutdown,
) -> StartResult<EventRecorder> {
    let (recorder, mut recorded) = EventRecorder::channel(COMPONENT);
    if config.dry_run {
        let shutdown = background.clone();
        background.spawn(async move { shutdown.run_until_begun(async { while recorded.recv().await.is_some() {} }).await });
    } else {
        events::start_sink(recorded, clients.component(COMPONENT)?, clock, Arc::clone(metrics), background);
    }
    Ok(recorder.with_discard_metric(metrics))
}

/// Prepares the elections and the leadership of each controller, before the wiring: the clients of controllers and provider
/// check leadership before they write.
fn prepare_elections(
    elections: &ElectionContext<'_>,
    config: &ManagerConfig,
) -> StartResult<(PendingElection, Option<SecondLease>, ControllerLeases)> {
    let main = match config.dry_run {
        true => election::abstain(),
        false => election::prepare(elections, &config.leader_election.resource_name)?,
    };
    let second = second_lease::prepare(elections, config)?;
    let leases = second_lease::leases(config, &main, second.as_ref());
    Ok((main, second, leases))
}

/// Serves the webhooks of the provider, before any other port, because invalid webhook flags end the process. A dry-run manager
/// serves none.
async fn start_webhooks(
    context: &wiring::WiringContext<'_>,
    provider: &Arc<dyn CloudProvider>,
    background: &Shutdown,
) -> StartResult<Option<RunningWebhooks>> {
    let Some(configured) = context.config.webhooks.as_ref().filter(|_| !context.config.dry_run) else { return Ok(None) };
    let client = context.clients.component("webhooks")?;
    webhooks::start(configured, provider.webhooks(), client, (context.metrics, context.clock), background).await
}

/// Creates the informers that start on request of the provider, after the wiring, which subscribes to `namespaces`. Only the
/// service controller uses their objects.
fn on_demand_informers(
    context: &wiring::WiringContext<'_>,
    namespaces: Informer<Namespace>,
    watches: &kube::Client,
    background: &Shutdown,
) -> (OnDemandInformer<Namespace>, OnDemandInformer<EndpointSlice>) {
    let slices = Informer::new(prune_endpoint_slice).with_clock(context.clock);
    let namespaces = namespaces.with_clock(context.clock);
    (
        OnDemandInformer::new(namespaces, watches.clone(), background, Arc::clone(context.metrics)),
        OnDemandInformer::new(slices, watches.clone(), background, Arc::clone(context.metrics)),
    )
}

/// Returns the provider's client, which acts as ServiceAccount `<name>-cloud-provider` if controllers have their own accounts.
///
/// Leadership is checked by the provider. Upstream: `pkg/provider/azure.go`, `Initialize`.
fn provider_client(clients: &dyn ClientSource, provider: &str) -> Result<kube::Client, kube::Error> {
    clients.controller(&format!("{provider}-cloud-provider"), &Leadership::unopposed())
}

/// Inputs of health checks and pages.
struct ServedState<'a> {
    state: &'a Arc<ManagerState>,
    webhooks: Option<RunningWebhooks>,
    reports: Option<&'a Arc<DryRunReports>>,
}

async fn serve(
    config: &ManagerConfig,
    shown: ServedState<'_>,
    reviews: ReviewClients,
    metrics: &Arc<Metrics>,
    clock: Clock,
    set_verbosity: Arc<dyn Fn(u8) + Send + Sync>,
    background: &Shutdown,
) -> StartResult<()> {
    if config.serving.port == 0 {
        return Ok(());
    }
    let state = shown.state;
    let (for_status, for_metrics) = (Arc::clone(state), Arc::clone(metrics));
    let health = health::checks(state);
    if let Some(webhooks) = shown.webhooks {
        health.add("webhooks", HealthEndpointSet::READYZ, move || webhooks.check());
    }
    let parts = ServingParts {
        metrics: Arc::clone(metrics),
        health,
        reviews: Some(reviews),
        configz: config.configz(),
        flagz: config.flagz(),
        status: Arc::new(move || status::status(&for_status)),
        planner: Some(page::planner(state, shown.reports)),
        before_metrics: Arc::new(move || for_metrics.observe()),
        set_verbosity,
        clock,
    };
    serving::serve(config.serving.clone(), parts, background.clone()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::fake::{FakeCloud, FakeConfig};

    /// Records the accounts whose clients were requested.
    #[derive(Default)]
    struct Accounts(parking_lot::Mutex<Vec<String>>);

    impl ClientSource for Accounts {
        fn component(&self, _: &str) -> Result<kube::Client, kube::Error> {
            let response = || http::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
            let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
                std::future::ready(Ok::<_, std::convert::Infallible>(response()))
            });
            Ok(kube::Client::new(service, "default"))
        }
        fn controller(&self, account: &str, _: &Leadership) -> Result<kube::Client, kube::Error> {
            self.0.lock().push(account.to_owned());
            self.component(account)
        }
        fn watches(&self) -> Result<kube::Client, kube::Error> {
            self.component("")
        }
    }

    fn parts(flags: &[&str], accounts: &Arc<Accounts>) -> ManagerDeps {
        let flags =
            ["ccm", "--cloud-provider=fake", "--secure-port=0", "--configure-cloud-routes=false"].iter().chain(flags);
        let Ok(crate::cli::CliCommand::Run(config)) = crate::cli::parse(flags.map(Into::into), &["fake"], &[]) else {
            panic!("expected the command to run a manager")
        };
        ManagerDeps {
            config: *config,
            clients: Arc::clone(accounts) as _,
            provider: Arc::new(FakeCloud::new(FakeConfig::any_node())),
            metrics: Arc::new(Metrics::new().unwrap()),
            clock: Clock::System,
            set_verbosity: Arc::new(|_| ()),
        }
    }

    #[tokio::test]
    async fn the_provider_has_its_own_account() {
        let accounts = Accounts::default();
        provider_client(&accounts, "azure").unwrap();
        assert_eq!(*accounts.0.lock(), ["azure-cloud-provider"]);
        let (accounts, background) = (Arc::new(Accounts::default()), Shutdown::new());
        let parts = parts(&[], &accounts);
        ControllerManager::build(parts, ElectionHost::CallersRuntime, &background).await.map(drop).unwrap();
        background.begin();
        let requested = accounts.0.lock();
        assert!(requested.iter().any(|account| account == "fake-cloud-provider"), "{requested:?}");
    }

    #[tokio::test]
    async fn a_dry_run_manager_starts_no_webhooks() {
        let (accounts, background) = (Arc::default(), Shutdown::new());
        // The start of webhooks would fail, because the provider has none of this name.
        let flags = ["--feature-gates=CloudControllerManagerWebhook=true", "--webhooks=missing"];
        let build = |dry_run: bool| {
            let mut parts = parts(&flags, &accounts);
            parts.config.dry_run = dry_run;
            ControllerManager::build(parts, ElectionHost::CallersRuntime, &background)
        };
        let error = build(false).await.map(drop).unwrap_err();
        assert!(error.to_string().contains("unknown webhook"), "{error}");
        build(true).await.map(drop).unwrap();
        watch_only(parts(&flags, &accounts), &background).await.map(drop).unwrap();
        background.begin();
    }
}
