//! Registry of the providers in this binary. A third party's `main.rs` fills a [`Registry`] and passes it to `app::run`.

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
    /// For reading and writing the cluster. Its user agent is the provider's own.
    pub client: kube::Client,
    /// Must be checked before every write to the cloud but those of routes: a replica that does not lead only reads.
    pub leadership: Leadership,
    /// Leadership for writes of routes, whose controller may run under another lease.
    pub route_leadership: Leadership,
    /// Signal that ends housekeeping tasks.
    pub shutdown: Shutdown,
    /// Source of the current time.
    pub clock: Clock,
    /// The process's metrics; [`Metrics::table`] has the provider's own.
    pub metrics: Arc<Metrics>,
    /// The cluster's Nodes as last seen, pruned. Empty until the first list; read only.
    pub nodes: InformerStore<Node>,
    /// The cluster's Services as last seen, pruned.
    pub services: InformerStore<Service>,
    /// The cluster's Namespaces, names and labels, for providers that need them: they are listed and watched from the first demand on.
    pub namespaces: OnDemandInformer<Namespace>,
    /// The cluster's EndpointSlices, pruned: each with its Service and [digests](super::endpoint_digests) of the names of
    /// its Nodes.
    pub endpoint_slices: OnDemandInformer<EndpointSlice>,
    /// Takes the provider's events; the source component is the provider's to set.
    pub events: EventRecorder,
}

/// Builds a provider. Errors are bad configuration: they name the file and the field.
pub type ProviderFactory = dyn Fn(&ProviderConfig) -> CloudResult<Arc<dyn CloudProvider>> + Send + Sync;

/// Builds a provider of which only `initialize`, `health`, `status` and the instances are used, and only about one Node. Errors are
/// bad configuration: they name the file and the field.
pub type LocalFactory = dyn Fn(&LocalConfig) -> CloudResult<Arc<dyn CloudProvider>> + Send + Sync;

/// Answers the kubelet's request for credentials of one image, both as JSON. The error is one line for the kubelet's log.
pub type ImageCredentialProvider =
    dyn Fn(ImageCredentialConfig, Vec<u8>) -> BoxFuture<'static, Result<String, String>> + Send + Sync;

/// Providers by the name given in `--cloud-provider`.
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
    /// Under which names it is found; the first is shown.
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

    /// Creates a topic for each row of a page's tables that begins with code. The first `name_cells` cells have its names.
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

    /// Creates the topic of a label, taint, annotation or the like of an object, found by its whole name and by the part
    /// behind the slash.
    pub fn object_name(kind: &'static str, name: &str, meaning: &str) -> Self {
        let short = name.rsplit_once('/').map(|(_, short)| short.to_owned());
        Self { kind, names: std::iter::once(name.to_owned()).chain(short).collect(), lines: vec![meaning.to_owned()] }
    }
}

/// A table of metrics, and how its handles are registered.
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

    /// Adds a provider; a later one with the same name replaces the earlier.
    pub fn register(
        mut self,
        name: impl Into<String>,
        factory: impl Fn(&ProviderConfig) -> CloudResult<Arc<dyn CloudProvider>> + Send + Sync + 'static,
    ) -> Self {
        self.factories.insert(name.into(), Arc::new(factory));
        self
    }

    /// Adds the diagnostics of the provider `name`, for the commands doctor, orphans, check-config and support-bundle.
    pub fn with_diagnostics(mut self, name: impl Into<String>, diagnostics: Arc<dyn ProviderDiagnostics>) -> Self {
        self.diagnostics.insert(name.into(), diagnostics);
        self
    }

    /// Returns the diagnostics of the provider called `name`.
    pub fn diagnostics(&self, name: &str) -> Option<Arc<dyn ProviderDiagnostics>> {
        self.diagnostics.get(name).cloned()
    }

    /// Returns the diagnostics of every provider, in the order of their names.
    pub fn all_diagnostics(&self) -> impl Iterator<Item = &Arc<dyn ProviderDiagnostics>> {
        self.diagnostics.values()
    }

    /// Adds what the provider called `name` is for the one machine it runs on, so that a cloud-node-manager can use it.
    pub fn with_local(
        mut self,
        name: impl Into<String>,
        factory: impl Fn(&LocalConfig) -> CloudResult<Arc<dyn CloudProvider>> + Send + Sync + 'static,
    ) -> Self {
        self.locals.insert(name.into(), Arc::new(factory));
        self
    }

    /// Adds what answers the kubelet when the program is called `program`.
    pub fn with_image_credentials(
        mut self,
        program: impl Into<String>,
        provide: impl Fn(ImageCredentialConfig, Vec<u8>) -> BoxFuture<'static, Result<String, String>> + Send + Sync + 'static,
    ) -> Self {
        self.image_credentials.insert(program.into(), Arc::new(provide));
        self
    }

    /// Returns the credential provider for the kubelet under that name of the program.
    pub fn image_credentials(&self, program: &str) -> Option<Arc<ImageCredentialProvider>> {
        self.image_credentials.get(program).cloned()
    }

    /// Adds a provider's own flags of the manager, under a heading of their own; [`ProviderConfig::flags`] has their values.
    ///
    /// Flags that all providers share follow below the first such heading. A name that another flag has ends the program at
    /// its start.
    pub fn with_flags(mut self, title: &'static str, flags: &'static [FlagSpec]) -> Self {
        self.flags.push(FlagSection::of(title, flags));
        self
    }

    /// Adds a provider's own metrics. [`Metrics::table`] of [`ProviderContext::metrics`] has their handles.
    pub fn with_metrics<T: MetricTable>(mut self) -> Self {
        self.metrics.push(ProviderMetricTable { rows: T::TABLE, register: Metrics::register::<T> });
        self
    }

    /// Adds what a provider has to explain.
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

    /// Registers the metrics of all providers; an error when two metrics have one name.
    pub fn register_metrics(&self, metrics: &Metrics) -> Result<(), RegistryError> {
        self.metrics.iter().try_for_each(|table| (table.register)(metrics))
    }

    /// Returns the flags that providers have registered.
    pub fn flags(&self) -> &[FlagSection] {
        &self.flags
    }

    /// Returns the names of the providers for cloud-node-manager, in order.
    pub fn local_names(&self) -> Vec<&str> {
        self.locals.keys().map(String::as_str).collect()
    }

    /// Returns the local factory of the provider called `name`.
    pub fn local(&self, name: &str) -> Option<Arc<LocalFactory>> {
        self.locals.get(name).cloned()
    }

    /// Returns the names of the providers whose configuration can be checked, in order.
    pub fn checkable(&self) -> Vec<&str> {
        self.diagnostics.keys().map(String::as_str).collect()
    }

    /// Returns the names in order, for messages.
    pub fn names(&self) -> Vec<&str> {
        self.factories.keys().map(String::as_str).collect()
    }

    /// Returns the factory called `name`.
    pub fn get(&self, name: &str) -> Option<Arc<ProviderFactory>> {
        self.factories.get(name).cloned()
    }
}

/// Compiles the guide's example.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guides/writing-a-provider.md")]
struct WritingAProvider;
