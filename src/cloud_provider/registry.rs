//! Which providers this binary knows. A third party's `main.rs` fills a [`Registry`] and hands it to `app::run`.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use super::{CloudProvider, CloudResult};
use crate::runtime::{clock::Clock, leader_election::Leadership, shutdown::Shutdown};

/// What a provider gets at start.
#[derive(Clone)]
pub struct ProviderContext {
    /// For reading and writing the cluster. Its user agent is the provider's own.
    pub client: kube::Client,
    /// Must be asked before every write to the cloud: a replica that does not lead only reads.
    pub leadership: Leadership,
    /// Ends housekeeping tasks.
    pub shutdown: Shutdown,
    /// Time.
    pub clock: Clock,
}

/// What a provider is built from.
#[derive(Debug, Clone, Default)]
pub struct ProviderConfig {
    /// `--cloud-config`: path of the provider's own configuration, `None` when not given.
    pub cloud_config: Option<PathBuf>,
    /// `--cluster-name`.
    pub cluster_name: String,
}

/// Builds a provider. Errors are bad configuration: they name the file and the field.
pub type ProviderFactory = dyn Fn(&ProviderConfig) -> CloudResult<Arc<dyn CloudProvider>> + Send + Sync;

/// Providers by the name given in `--cloud-provider`.
#[derive(Clone, Default)]
pub struct Registry {
    factories: BTreeMap<String, Arc<ProviderFactory>>,
}

impl Registry {
    /// An empty registry.
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

    /// Names in order, for messages.
    pub fn names(&self) -> Vec<&str> {
        self.factories.keys().map(String::as_str).collect()
    }

    /// The factory called `name`.
    pub fn get(&self, name: &str) -> Option<Arc<ProviderFactory>> {
        self.factories.get(name).cloned()
    }
}

/// Compiles the guide's example.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guides/writing-a-provider.md")]
struct WritingAProvider;
