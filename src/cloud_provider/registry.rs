//! Registry of the providers in this binary. The `main.rs` of a third party fills a [`Registry`] and passes it to
//! `app::run`.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Service},
    discovery::v1::EndpointSlice,
};

pub use super::config::{IdentityBindingConfig, ImageCredentialConfig, LocalConfig, ProviderConfig, SecretRef};
use super::{CloudProvider, CloudResult, diagnostics::ProviderDiagnostics};
use crate::{
    flags::{FlagSection, FlagSpec},
    metrics::{Metric, MetricTable, Metrics, RegistryError},
    runtime::{
        clock::Clock,
        events::{EventDescription, EventRecorder},
        informer::OnDemandInformer,
        leader_election::Leadership,
        shutdown::Shutdown,
        store::InformerStore,
    },
};

/// Dependencies of a provider.
#[derive(Clone)]
pub struct ProviderContext {
    /// Client of the API server. Its user agent names the provider.
    pub client: kube::Client,
    /// Leadership for writes to the cloud, except routes. It must be checked immediately before each write.
    pub leadership: Leadership,
    /// Leadership for writes of routes, whose controller may run under another lease. It must be checked before each write.
    pub route_leadership: Leadership,
    /// Shutdown of the process. Background tasks must be spawned on it, so that they end with it.
    pub shutdown: Shutdown,
    /// Source of the current time, which tests can pause.
    pub clock: Clock,
    /// Metrics of the process. [`Metrics::table`] returns those that the provider registered.
    pub metrics: Arc<Metrics>,
    /// Cached Nodes of the cluster, pruned and read-only. Empty until the first list.
    pub nodes: InformerStore<Node>,
    /// Cached Services of the cluster, pruned and read-only. Empty until the first list.
    pub services: InformerStore<Service>,
    /// Namespaces of the cluster with names and labels, which are listed and watched after the first demand.
    pub namespaces: OnDemandInformer<Namespace>,
    /// EndpointSlices of the cluster, pruned to the Service and to [digests](super::endpoint_digests) of the names of the
    /// Nodes.
    ///
    /// They are listed and watched after the first demand.
    pub endpoint_slices: OnDemandInformer<EndpointSlice>,
    /// Recorder of events. The provider sets its source component with [`EventRecorder::for_component`].
    pub events: EventRecorder,
}

/// Function that builds a provider. An error means that the configuration is invalid, and names the file and the field.
pub type ProviderFactory = dyn Fn(&ProviderConfig) -> CloudResult<Arc<dyn CloudProvider>> + Send + Sync;

/// Function that builds a provider for cloud-node-manager, which runs on one Node and initializes only that Node.
///
/// Of the provider, only `initialize`, `health`, `status` and the instances are used. An error means that the configuration
/// is invalid, and names the file and the field.
pub type LocalFactory = dyn Fn(&LocalConfig) -> CloudResult<Arc<dyn CloudProvider>> + Send + Sync;

/// Function that responds to a kubelet's request for credentials of one image, both as JSON.
///
/// The error is one line for the log of the kubelet.
pub type ImageCredentialProvider =
    dyn Fn(ImageCredentialConfig, Vec<u8>) -> BoxFuture<'static, Result<String, String>> + Send + Sync;

/// Registry of providers by their names in `--cloud-provider`.
#[derive(Clone, Default)]
pub struct Registry {
    factories: BTreeMap<String, Arc<ProviderFactory>>,
    diagnostics: BTreeMap<String, Arc<dyn ProviderDiagnostics>>,
    locals: BTreeMap<String, Arc<LocalFactory>>,
    image_credentials: BTreeMap<String, Arc<ImageCredentialProvider>>,
    flags: Vec<FlagSection>,
    metrics: Vec<ProviderMetricTable>,
    topics: Vec<fn() -> Vec<ReferenceTopic>>,
}

/// Name with an explanation, for `explain`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ReferenceTopic {
    /// Kind of the name: `annotation`, `metric`, ….
    pub kind: &'static str,
    /// Names that find the topic. The first is printed.
    pub names: Vec<String>,
    /// Meaning of the name, and advice.
    pub lines: Vec<String>,
}

impl ReferenceTopic {
    /// Creates the topic of a row of a table of events.
    pub fn event(row: &EventDescription) -> Self {
        let lines = vec![format!("{:?} event: {}", row.type_, row.when)];
        Self { kind: "event", names: vec![row.reason.to_owned()], lines }
    }

    /// Creates a topic for each row of the tables of `page` that starts with code. The first `name_cells` cells contain its
    /// names.
    pub fn rows(kind: &'static str, name_cells: usize, page: &str) -> Vec<Self> {
        let mut headings: Vec<&str> = Vec::new();
        let mut topics = Vec::new();
        for line in page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")) {
            let cells: Vec<&str> = line.split(" | ").collect();
            if line.starts_with('`') {
                let names = cells.iter().take(name_cells).flat_map(|cell| cell.split('`').skip(1).step_by(2));
                let facts = headings.iter().zip(&cells).skip(1).filter(|(_, cell)| !cell.is_empty());
                let plain = |cell: &str| cell.replace('`', "").replace("**", "").replace("\\|", "|");
                let lines = facts.map(|(heading, cell)| format!("{heading}: {}", plain(cell))).collect();
                topics.push(Self { kind, names: names.map(str::to_owned).collect(), lines });
            } else if !line.starts_with('-') {
                headings = cells;
            }
        }
        topics
    }

    /// Creates the topic of a label, taint, annotation or similar name of an object.
    ///
    /// The whole name and the part after the slash find it.
    pub fn object_name(kind: &'static str, name: &str, meaning: &str) -> Self {
        let short = name.rsplit_once('/').map(|(_, short)| short.to_owned());
        Self { kind, names: std::iter::once(name.to_owned()).chain(short).collect(), lines: vec![meaning.to_owned()] }
    }
}

/// Table of metrics, with the function that registers its handles.
#[derive(Clone, Copy)]
struct ProviderMetricTable {
    rows: &'static [Metric],
    register: fn(&Metrics) -> Result<(), RegistryError>,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider under the name in `--cloud-provider`. It replaces an earlier provider of the same name.
    pub fn register(
        mut self,
        name: impl Into<String>,
        factory: impl Fn(&ProviderConfig) -> CloudResult<Arc<dyn CloudProvider>> + Send + Sync + 'static,
    ) -> Self {
        self.factories.insert(name.into(), Arc::new(factory));
        self
    }

    /// Adds the diagnostics of the provider `name`, for the commands doctor, orphans, check-config and
    /// support-bundle.
    pub fn with_diagnostics(mut self, name: impl Into<String>, diagnostics: Arc<dyn ProviderDiagnostics>) -> Self {
        self.diagnostics.insert(name.into(), diagnostics);
        self
    }

    /// Returns the diagnostics of the provider `name`.
    pub fn diagnostics(&self, name: &str) -> Option<Arc<dyn ProviderDiagnostics>> {
        self.diagnostics.get(name).cloned()
    }

    /// Returns the diagnostics of all providers, sorted by their names.
    pub fn all_diagnostics(&self) -> impl Iterator<Item = &Arc<dyn ProviderDiagnostics>> {
        self.diagnostics.values()
    }

    /// Adds the factory with which cloud-node-manager builds the provider `name` for its own Node.
    pub fn with_local(
        mut self,
        name: impl Into<String>,
        factory: impl Fn(&LocalConfig) -> CloudResult<Arc<dyn CloudProvider>> + Send + Sync + 'static,
    ) -> Self {
        self.locals.insert(name.into(), Arc::new(factory));
        self
    }

    /// Adds a credential provider for the kubelet. It runs if the name of the executable is `program`.
    pub fn with_image_credentials(
        mut self,
        program: impl Into<String>,
        provide: impl Fn(ImageCredentialConfig, Vec<u8>) -> BoxFuture<'static, Result<String, String>> + Send + Sync + 'static,
    ) -> Self {
        self.image_credentials.insert(program.into(), Arc::new(provide));
        self
    }

    /// Returns the credential provider for the kubelet that runs under the name `program`.
    pub fn image_credentials(&self, program: &str) -> Option<Arc<ImageCredentialProvider>> {
        self.image_credentials.get(program).cloned()
    }

    /// Adds flags of a provider to the manager, under the heading `title`. [`ProviderConfig::flags`] has their values.
    ///
    /// The first such section also contains the flags that all providers share. If another flag has the same name, the
    /// program ends at its start.
    pub fn with_flags(mut self, title: &'static str, flags: &'static [FlagSpec]) -> Self {
        self.flags.push(FlagSection::of(title, flags));
        self
    }

    /// Adds metrics of a provider. [`Metrics::table`] of [`ProviderContext::metrics`] returns their handles.
    pub fn with_metrics<T: MetricTable>(mut self) -> Self {
        self.metrics.push(ProviderMetricTable { rows: T::TABLE, register: Metrics::register::<T> });
        self
    }

    /// Adds topics of a provider, which `cloud-controller-manager explain` prints.
    pub fn with_topics(mut self, topics: fn() -> Vec<ReferenceTopic>) -> Self {
        self.topics.push(topics);
        self
    }

    /// Returns the topics of all providers.
    pub fn topics(&self) -> Vec<ReferenceTopic> {
        self.topics.iter().flat_map(|topics| topics()).collect()
    }

    /// Returns the metrics that providers have registered.
    pub fn metrics(&self) -> Vec<Metric> {
        self.metrics.iter().flat_map(|table| table.rows).copied().collect()
    }

    /// Registers the metrics of all providers.
    ///
    /// # Errors
    ///
    /// Two metrics have the same name.
    pub fn register_metrics(&self, metrics: &Metrics) -> Result<(), RegistryError> {
        self.metrics.iter().try_for_each(|table| (table.register)(metrics))
    }

    /// Returns the flags that providers have registered.
    pub fn flags(&self) -> &[FlagSection] {
        &self.flags
    }

    /// Returns the names of the providers for cloud-node-manager, sorted.
    pub fn local_names(&self) -> Vec<&str> {
        self.locals.keys().map(String::as_str).collect()
    }

    /// Returns the factory of the provider `name` for cloud-node-manager.
    pub fn local(&self, name: &str) -> Option<Arc<LocalFactory>> {
        self.locals.get(name).cloned()
    }

    /// Returns the names of the providers whose configuration `check-config` can check, sorted.
    pub fn checkable(&self) -> Vec<&str> {
        self.diagnostics.keys().map(String::as_str).collect()
    }

    /// Returns the names of all providers, sorted.
    pub fn names(&self) -> Vec<&str> {
        self.factories.keys().map(String::as_str).collect()
    }

    /// Returns the factory of the provider `name`.
    pub fn get(&self, name: &str) -> Option<Arc<ProviderFactory>> {
        self.factories.get(name).cloned()
    }
}

/// Compiles the guide's example.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guides/writing-a-provider.md")]
struct WritingAProvider;
