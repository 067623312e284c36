//! The provider as the controllers see it: hands out the parts, and swaps the session under them when the configuration changes.
//!
//! In: `--cloud-config` or a Secret. Out: [`AzureCloud`]. Before there is a session, calls return an error that says so;
//! afterwards each call uses the current session.

mod first_config;
mod label_keys;
mod scope;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;

pub(super) use self::first_config::{environment, has_fault_domain_label, source};
use self::{
    first_config::{load_to_cloud_error, log_findings, read_file, require_cluster_entry},
    label_keys::LabelKeys,
    scope::ProviderScope,
};
use super::{
    NAME,
    admission::{DiskLabeler, ServiceValidator},
    arm::{Budget, BudgetSettings},
    auth::ReqwestTransport,
    config::{AzureConfig, EnvironmentOverrides},
    config_source::{self, ConfigLoader},
    gauges,
    load_balancer::{
        cluster_watches::{self, ClusterWatches, SERVICE_LIST_LIMITS, node_labels_read, service_labels_read},
        engine::{self, AzureLoadBalancers},
        events::COMPONENT,
        lease::ResourceLocker,
    },
    metrics::AzureMetrics,
    node, out_of_service,
    session::{Session, SessionDeps},
    session_proxy,
    transport::{ArmTransport, ReadOnlyTransport},
};
use crate::{
    cloud_provider::{
        AdmissionWebhook, AnnotationUse, CloudError, CloudProvider, CloudResult, InstancesV2, LoadBalancer, PodCidrMasks,
        ProviderContext, ProviderDetails, PvLabelWebhook, Routes, ServiceListLimits, registry::ProviderConfig,
    },
    metrics::Metrics,
    runtime::{clock::Clock, patch::ObjectWriter, watch},
    status::SessionDetails,
};

/// Message while `disableCloudProvider` is set.
const DISABLED: &str = "disableCloudProvider is set in the provider's configuration; set it to false to go on";

/// Delay between attempts to apply a changed configuration that does not work.
const RETRY: Duration = Duration::from_secs(30);
/// Interval at which the caches are checked for entries to read again.
const WARM_PERIOD: Duration = Duration::from_secs(60);

/// Azure cloud. Clones share their state.
#[derive(Clone)]
pub struct AzureCloud {
    inner: Arc<AzureCloudState>,
}

struct AzureCloudState {
    settings: ProviderConfig,
    environment: BTreeMap<String, String>,
    transport: Arc<dyn ArmTransport>,
    /// Configuration that is read at startup if there is only a file, so that an invalid file ends the process at once.
    initial_config: Option<AzureConfig>,
    session: Arc<ArcSwapOption<Session>>,
    /// Notified when a session with another configuration replaces one.
    reconfigured: Arc<Notify>,
    /// Newest request budget, which is kept across attempts and sessions.
    budget: Mutex<Option<Budget>>,
    /// Reason why the newest configuration is not in use.
    apply_error: watch::Sender<Option<String>>,
    /// Reason why the current text is not a valid configuration.
    load_error: watch::Sender<Option<String>>,
    /// Flag that the background work has begun, which happens once.
    started: AtomicBool,
    /// Locker of the process, which outlives sessions.
    locker: OnceLock<ResourceLocker>,
    /// Metrics for the gauges, once the provider is initialized.
    observed: OnceLock<(Arc<Metrics>, Clock)>,
    /// Watches of the process, which outlive sessions.
    watches: ClusterWatches,
    node_labels: LabelKeys,
    service_labels: LabelKeys,
    scope: ProviderScope,
}

/// Builds the provider for the binary. An invalid file is an error here; a Secret is read when the provider is initialized.
pub fn factory(config: &ProviderConfig) -> CloudResult<Arc<dyn CloudProvider>> {
    let environment = environment();
    let transport = ReqwestTransport::new(&environment).map_err(|error| CloudError::invalid(error.to_string()))?;
    Ok(Arc::new(AzureCloud::new(config, environment, Arc::new(transport))?))
}

impl AzureCloud {
    /// Creates a provider with another transport and environment, for tests and the demo.
    pub fn new(
        config: &ProviderConfig,
        environment: BTreeMap<String, String>,
        transport: Arc<dyn ArmTransport>,
    ) -> CloudResult<Self> {
        Self::with_scope(config, environment, transport, ProviderScope::Cluster)
    }

    /// Creates a provider for one Node: no list is read ahead, no Node is watched, and information about the machine is not
    /// older than `max_age`, whatever the configuration allows.
    pub fn for_one_node(
        config: &ProviderConfig,
        environment: BTreeMap<String, String>,
        transport: Arc<dyn ArmTransport>,
        max_age: Duration,
    ) -> CloudResult<Self> {
        Self::with_scope(config, environment, transport, ProviderScope::OneNode(max_age))
    }

    fn with_scope(
        config: &ProviderConfig,
        environment: BTreeMap<String, String>,
        transport: Arc<dyn ArmTransport>,
        scope: ProviderScope,
    ) -> CloudResult<Self> {
        let first = match (&config.cloud_config, &config.cloud_config_secret) {
            (Some(path), None) => {
                let read = read_file(path, &environment)?;
                require_cluster_entry(&read, config)?;
                Some(read)
            }
            (None, None) => {
                let advice = "the azure provider needs a configuration: set --cloud-config or --cloud-config-secret-name";
                return Err(CloudError::invalid(advice));
            }
            (_, Some(_)) => None,
        };
        // Without one, the labels that every configuration reads.
        let initial = first.clone().unwrap_or_default();
        let inner = AzureCloudState {
            node_labels: LabelKeys::new("Nodes with the labels that nodeSelector", node_labels_read(&initial)),
            service_labels: LabelKeys::new(
                "Services with the labels that serviceLabelSelector",
                service_labels_read(&initial),
            ),
            settings: config.clone(),
            environment,
            transport: if config.read_only { Arc::new(ReadOnlyTransport(transport)) } else { transport },
            initial_config: first,
            session: Arc::default(),
            reconfigured: Arc::default(),
            budget: Mutex::default(),
            apply_error: watch::Sender::default(),
            load_error: watch::Sender::default(),
            started: AtomicBool::default(),
            locker: OnceLock::new(),
            observed: OnceLock::new(),
            watches: ClusterWatches::default(),
            scope,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the current session.
    pub fn session(&self) -> CloudResult<Arc<Session>> {
        session_proxy::current_session(&self.inner.session)
    }

    fn loader(&self, client: kube::Client) -> ConfigLoader {
        ConfigLoader {
            source: source(&self.inner.settings),
            client: Some(client),
            environment: EnvironmentOverrides::of(self.inner.environment.clone()),
            is_strict: false,
        }
    }

    /// Reads the first configuration. With reloading it is read again at each attempt, so that a correction takes effect.
    async fn first_config(&self, client: kube::Client) -> CloudResult<AzureConfig> {
        if let Some(config) = self.inner.initial_config.as_ref().filter(|_| !self.inner.settings.reload) {
            return Ok(config.clone());
        }
        let loaded = self.loader(client).load().await.map_err(|error| load_to_cloud_error(&error))?;
        Ok(log_findings(loaded))
    }

    async fn open(&self, config: Arc<AzureConfig>, context: &ProviderContext) -> CloudResult<Session> {
        require_cluster_entry(&config, &self.inner.settings)?;
        if self.inner.scope == ProviderScope::Cluster {
            self.inner.node_labels.demand(&node_labels_read(&config), &context.nodes).await?;
            self.inner.service_labels.demand(&service_labels_read(&config), &context.services).await?;
        }
        let surroundings = SessionDeps {
            transport: Arc::clone(&self.inner.transport),
            environment: self.inner.environment.clone(),
            budget: self.budget(&config, context),
            leadership: context.leadership.clone(),
            route_leadership: context.route_leadership.clone(),
            metrics: Arc::clone(&context.metrics),
            clock: context.clock,
            nodes: context.nodes.clone(),
        };
        let mut session = Session::open(config, &surroundings).await?;
        session.load_balancers = Some(Arc::new(self.load_balancers(&session, context)));
        if self.inner.scope == ProviderScope::Cluster {
            session.inventory.warm().await.map_err(CloudError::from)?;
        }
        Ok(session)
    }

    fn load_balancers(&self, session: &Session, context: &ProviderContext) -> AzureLoadBalancers {
        let ProviderContext { client, leadership, shutdown, clock, .. } = context;
        let locker =
            self.inner.locker.get_or_init(|| ResourceLocker::new(client.clone(), leadership.clone(), *clock, shutdown));
        let check = locker.fence().write_check();
        AzureLoadBalancers::new(engine::LoadBalancerDeps {
            config: &session.config,
            cluster: &self.inner.settings.cluster_name,
            classes: &self.inner.settings.load_balancer_classes,
            networks: &self.inner.settings.networks,
            azure_stack: session.cloud.azure_stack,
            compute: session.compute.with_write_check(Arc::clone(&check)),
            network: session.network.with_write_check(check),
            inventory: Arc::clone(&session.inventory),
            services: context.services.clone(),
            nodes: context.nodes.clone(),
            on_demand: (&context.namespaces, &context.endpoint_slices),
            watches: self.inner.watches.clone(),
            locker: locker.clone(),
            writer: ObjectWriter::new(client.clone(), leadership.clone()),
            events: context.events.clone(),
            metrics: Arc::clone(&context.metrics),
            clock: *clock,
        })
    }

    fn budget(&self, config: &AzureConfig, context: &ProviderContext) -> Budget {
        let mut newest = self.inner.budget.lock();
        let budget = Budget::renewed(newest.as_ref(), BudgetSettings::from(config), &context.metrics, context.clock);
        *newest = Some(budget.clone());
        budget
    }

    /// Returns `true` if the provider is disabled. As upstream, the field counts only with reloading.
    fn is_disabled(&self, config: &AzureConfig) -> bool {
        self.inner.settings.reload && config.disable_cloud_provider
    }

    /// Returns the reason why the configuration in use, if any, is not the latest one.
    fn problem(&self) -> Option<String> {
        self.inner.load_error.borrow().clone().or_else(|| self.inner.apply_error.borrow().clone())
    }

    /// Applies each changed configuration; the previous session remains until the new one works. A newer configuration ends
    /// the attempts.
    async fn follow(self, config: Arc<AzureConfig>, context: ProviderContext) {
        let (sender, mut receiver) = watch::channel(config);
        let loader = self.loader(context.client.clone());
        let looking = config_source::follow(loader, context.shutdown.clone(), sender, &self.inner.load_error);
        let applying = async {
            while receiver.changed().await.is_ok() {
                let config = Arc::clone(&receiver.borrow_and_update());
                let mut newer = receiver.clone();
                tokio::select! {
                    biased;
                    () = self.apply(&config, &context) => {}
                    _ = newer.changed() => {}
                }
            }
        };
        tokio::join!(looking, applying);
    }

    /// Retries until the configuration works.
    async fn apply(&self, config: &Arc<AzureConfig>, context: &ProviderContext) {
        if self.is_disabled(config) {
            tracing::warn!("{DISABLED}");
            self.inner.session.store(None);
            self.inner.apply_error.send_replace(Some(DISABLED.to_owned()));
            return;
        }
        // After a reverted change, the current session already has this configuration.
        while !self.session().is_ok_and(|session| session.config == *config) {
            match self.open(Arc::clone(config), context).await {
                Ok(session) => {
                    self.inner.session.store(Some(Arc::new(session)));
                    self.inner.reconfigured.notify_one();
                    tracing::info!("changed provider configuration in use");
                }
                Err(error) => {
                    tracing::error!(%error, "changed provider configuration does not work, previous configuration kept");
                    self.inner.apply_error.send_replace(Some(error.to_string()));
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        self.inner.apply_error.send_replace(None);
    }

    /// Keeps the information about machines current: the lists on every replica, and on standbys also what the controllers
    /// request, so that a new leader does not have to read it.
    async fn keep_warm(self, context: ProviderContext) {
        while context.shutdown.run_until_begun(tokio::time::sleep(WARM_PERIOD)).await.is_some() {
            context.shutdown.run_until_begun(self.warm_up(&context)).await;
        }
    }

    async fn warm_up(&self, context: &ProviderContext) {
        let Ok(session) = self.session() else { return };
        if let Err(error) = session.inventory.warm().await {
            tracing::warn!(%error, "cannot list the machines; previous inventory kept");
        } else if !context.leadership.is_leading() {
            session.instances.instance_metadata_batch(&context.nodes.list()).await;
        }
    }
}

#[async_trait]
impl CloudProvider for AzureCloud {
    fn provider_name(&self) -> &str {
        NAME
    }

    fn is_foreign(&self, node: &Node) -> bool {
        node::is_foreign(node)
    }

    fn needs_provider_id(&self, node: &Node) -> bool {
        !node::is_unmanaged(node)
    }

    fn observe(&self) {
        let Some((metrics, clock)) = self.inner.observed.get() else { return };
        let Some(metrics) = metrics.table::<AzureMetrics>() else { return };
        gauges::publish(&metrics, *clock, self.session().ok().as_deref(), self.problem().is_some());
    }

    async fn initialize(&self, context: ProviderContext) -> CloudResult<()> {
        // A further attempt sets the same values.
        let _ = self.inner.observed.set((Arc::clone(&context.metrics), context.clock));
        let config = Arc::new(self.inner.scope.limit(self.first_config(context.client.clone()).await?));
        if self.is_disabled(&config) {
            return Err(CloudError::invalid(DISABLED));
        }
        let session = self.open(Arc::clone(&config), &context).await?;
        self.inner.session.store(Some(Arc::new(session)));
        if self.inner.scope != ProviderScope::Cluster || self.inner.started.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let events = context.events.for_component(COMPONENT);
        out_of_service::start(&context, Arc::new(session_proxy::SessionProxy(Arc::clone(&self.inner.session))), events);
        context.shutdown.spawn(self.clone().keep_warm(context.clone()));
        if self.inner.settings.reload {
            context.shutdown.spawn(self.clone().follow(config, context.clone()));
        }
        Ok(())
    }

    fn health(&self) -> Result<(), String> {
        match (self.session(), self.problem()) {
            (Ok(_), Some(reason)) => {
                Err(format!("the new configuration was rejected, the previous one is still in use: {reason}"))
            }
            (Ok(session), None) => session.inventory.health(),
            (Err(_), Some(reason)) => Err(reason),
            (Err(error), None) => Err(error.to_string()),
        }
    }

    fn status(&self) -> Option<ProviderDetails> {
        let problem = self.problem();
        Some(match self.session() {
            Ok(session) => {
                let details = SessionDetails { refused_configuration: problem, session: session.status() };
                ProviderDetails::Session(Box::new(details))
            }
            Err(error) => ProviderDetails::Other(json!({"problem": problem.unwrap_or_else(|| error.to_string())})),
        })
    }

    fn reads_node_label(&self, key: &str) -> bool {
        self.inner.node_labels.contains(key)
    }
    fn reads_service_label(&self, key: &str) -> bool {
        self.inner.service_labels.contains(key)
    }
    fn service_list_limits(&self) -> ServiceListLimits {
        SERVICE_LIST_LIMITS
    }

    fn cache_age(&self) -> Duration {
        self.session().map_or(Duration::ZERO, |session| session.longest_cache_ttl())
    }

    fn service_annotation(&self, key: &str, service: Option<&Service>) -> AnnotationUse {
        cluster_watches::service_annotation_use(key, service)
    }

    fn webhooks(&self) -> Vec<Arc<dyn AdmissionWebhook>> {
        let ProviderConfig { cluster_name: cluster, load_balancer_classes: classes, .. } = self.inner.settings.clone();
        let session = Arc::clone(&self.inner.session);
        let labeler = Arc::new(DiskLabeler::new(Arc::clone(&session)));
        vec![Arc::new(ServiceValidator { session, cluster, classes }), Arc::new(PvLabelWebhook::new(labeler))]
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(session_proxy::LoadBalancerProxy {
            session: session_proxy::SessionProxy(Arc::clone(&self.inner.session)),
            watches: self.inner.watches.clone(),
            reconfigured: Arc::clone(&self.inner.reconfigured),
        }))
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(session_proxy::SessionProxy(Arc::clone(&self.inner.session))))
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(Arc::new(session_proxy::SessionProxy(Arc::clone(&self.inner.session))))
    }

    fn pod_cidr_masks(&self) -> Option<Arc<dyn PodCidrMasks>> {
        Some(Arc::new(session_proxy::SessionProxy(Arc::clone(&self.inner.session))))
    }
}

#[cfg(all(test, feature = "sandbox"))]
#[expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]
mod tests;
