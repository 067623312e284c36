//! The provider as the controllers see it: hands out the parts, and swaps the session under them when the configuration changes.
//!
//! In: `--cloud-config` or a Secret. Out: [`AzureCloud`]. A part that is asked before there is a session says so; afterwards every
//! call works on the session of its moment.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    arm::Transport,
    auth::ReqwestTransport,
    config::{self, AzureConfig, Environment, LoadError, Loaded, Loader, SecretRef, Source, Texts},
    out_of_service, parts,
    session::{Session, Surroundings},
};
use crate::cloud_provider::{
    CloudError, CloudProvider, CloudResult, Instances, InstancesV2, ProviderContext, Zones, registry::ProviderConfig,
};

/// Name in `--cloud-provider`, and scheme of provider ids.
pub const NAME: &str = "azure";

/// How often the caches are looked at for what has to be read anew.
const WARM_PERIOD: Duration = Duration::from_secs(60);

/// The Azure cloud. Clones are the same.
#[derive(Clone)]
pub struct AzureCloud {
    inner: Arc<Inner>,
}

struct Inner {
    settings: ProviderConfig,
    environment: BTreeMap<String, String>,
    transport: Arc<dyn Transport>,
    /// Read at the start when there is only a file, so that a bad one ends the process at once.
    first: Option<AzureConfig>,
    session: Arc<ArcSwapOption<Session>>,
    /// Why the newest configuration is not at work.
    refused: Mutex<Option<String>>,
}

/// Builds the provider for the binary. A bad file is an error here; a Secret is read when the provider is initialised.
pub fn factory(config: &ProviderConfig) -> CloudResult<Arc<dyn CloudProvider>> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let transport = ReqwestTransport::new(&environment).map_err(|error| CloudError::invalid(error.to_string()))?;
    Ok(Arc::new(AzureCloud::new(config, environment, Arc::new(transport))?))
}

impl AzureCloud {
    /// The same with another wire and environment, for tests and the demo.
    pub fn new(
        config: &ProviderConfig,
        environment: BTreeMap<String, String>,
        transport: Arc<dyn Transport>,
    ) -> CloudResult<Self> {
        let first = match (&config.cloud_config, &config.cloud_config_secret) {
            (Some(path), None) => Some(read_file(path, &environment)?),
            (None, None) => {
                let advice = "the azure provider needs a configuration: set --cloud-config or --cloud-config-secret-name";
                return Err(CloudError::invalid(advice));
            }
            (_, Some(_)) => None,
        };
        let (settings, session, refused) = (config.clone(), Arc::default(), Mutex::default());
        Ok(Self { inner: Arc::new(Inner { settings, environment, transport, first, session, refused }) })
    }

    /// The session at work.
    pub fn session(&self) -> CloudResult<Arc<Session>> {
        parts::current(&self.inner.session)
    }

    fn loader(&self, client: kube::Client) -> Loader {
        Loader {
            source: source(&self.inner.settings),
            client: Some(client),
            environment: Environment::of(self.inner.environment.clone()),
            is_strict: false,
        }
    }

    async fn first_config(&self, client: kube::Client) -> CloudResult<AzureConfig> {
        if let Some(config) = &self.inner.first {
            return Ok(config.clone());
        }
        let loaded = self.loader(client).load().await.map_err(|error| of_load(&error))?;
        Ok(told(loaded))
    }

    async fn open(&self, config: Arc<AzureConfig>, context: &ProviderContext) -> CloudResult<Session> {
        if config.disable_cloud_provider {
            return Err(CloudError::invalid("disableCloudProvider is set in the provider's configuration"));
        }
        let surroundings = Surroundings {
            transport: Arc::clone(&self.inner.transport),
            environment: self.inner.environment.clone(),
            leadership: context.leadership.clone(),
            metrics: Arc::clone(&context.metrics),
            clock: context.clock,
        };
        let session = Session::open(config, &surroundings).await?;
        session.inventory.warm().await.map_err(CloudError::from)?;
        Ok(session)
    }

    fn refuse(&self, reason: Option<String>) {
        *self.inner.refused.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    fn refused(&self) -> Option<String> {
        self.inner.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts each changed configuration to work; the old one stays until the new one has proved itself.
    async fn follow(self, config: Arc<AzureConfig>, context: ProviderContext) {
        let (sender, mut receiver) = watch::channel(config);
        let loader = self.loader(context.client.clone());
        let looking = config::follow(loader, context.shutdown.clone(), sender);
        let applying = async {
            while receiver.changed().await.is_ok() {
                let config = Arc::clone(&receiver.borrow_and_update());
                self.apply(&config, &context, &receiver).await;
            }
        };
        tokio::join!(looking, applying);
    }

    /// Tries until the configuration works or a newer one is there.
    async fn apply(&self, config: &Arc<AzureConfig>, context: &ProviderContext, newer: &watch::Receiver<Arc<AzureConfig>>) {
        const RETRY: Duration = Duration::from_secs(30);
        loop {
            match self.open(Arc::clone(config), context).await {
                Ok(session) => {
                    self.inner.session.store(Some(Arc::new(session)));
                    tracing::info!("the changed provider configuration is at work");
                    return self.refuse(None);
                }
                Err(error) => {
                    tracing::error!(%error, "the changed provider configuration does not work, the one before stays");
                    self.refuse(Some(error.to_string()));
                }
            }
            tokio::select! {
                () = context.shutdown.begun() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
            if newer.has_changed().unwrap_or(true) {
                return;
            }
        }
    }

    /// Keeps what is known of the machines fresh: the lists on every replica, and on those that stand by also what the controllers
    /// ask for, so that whoever takes over need not read.
    async fn stay_warm(self, context: ProviderContext) {
        loop {
            tokio::select! {
                () = context.shutdown.begun() => return,
                () = tokio::time::sleep(WARM_PERIOD) => {}
            }
            let Ok(session) = self.session() else { continue };
            if let Err(error) = session.inventory.warm().await {
                tracing::warn!(%error, "the machines could not be listed; what was known before stays in use");
            } else if !context.leadership.is_leading() {
                session.instances.instance_metadata_batch(&context.nodes.list()).await;
            }
        }
    }
}

/// Where a configuration is read from.
pub(super) fn source(settings: &ProviderConfig) -> Source {
    let secret = settings.cloud_config_secret.clone();
    let secret = secret.map(|secret| SecretRef { namespace: secret.namespace, name: secret.name, key: secret.key });
    Source { file: settings.cloud_config.clone(), secret }
}

fn of_load(error: &LoadError) -> CloudError {
    match error {
        LoadError::Unavailable(_) => CloudError::failed(error.to_string()),
        LoadError::Unusable(_) | LoadError::Invalid(_) => CloudError::invalid(error.to_string()),
    }
}

fn read_file(path: &Path, environment: &BTreeMap<String, String>) -> CloudResult<AzureConfig> {
    let invalid = |problem: String| CloudError::invalid(format!("--cloud-config {}: {problem}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
    let texts = Texts { file: Some(text), secret: None };
    let loaded = config::merge(&texts, &Environment::of(environment.clone()), false);
    let loaded = loaded.map_err(|findings| invalid(LoadError::Invalid(findings).to_string()))?;
    Ok(told(loaded))
}

/// The configuration, after what is strange about it has been told.
fn told(loaded: Loaded) -> AzureConfig {
    for finding in &loaded.findings {
        tracing::warn!(%finding, "the provider configuration is strange");
    }
    loaded.config
}

#[async_trait]
impl CloudProvider for AzureCloud {
    fn provider_name(&self) -> &str {
        NAME
    }

    async fn initialize(&self, context: ProviderContext) -> CloudResult<()> {
        let config = Arc::new(self.first_config(context.client.clone()).await?);
        let session = self.open(Arc::clone(&config), &context).await?;
        self.inner.session.store(Some(Arc::new(session)));
        out_of_service::start(&context);
        context.shutdown.spawn(self.clone().stay_warm(context.clone()));
        if self.inner.settings.reload {
            context.shutdown.spawn(self.clone().follow(config, context.clone()));
        }
        Ok(())
    }

    fn health(&self) -> Result<(), String> {
        if let Some(reason) = self.refused() {
            return Err(format!("the changed configuration does not work, the one before stays in use: {reason}"));
        }
        self.session().map_err(|error| error.to_string())?.inventory.health()
    }

    fn status(&self) -> Value {
        match self.session() {
            Ok(session) => json!({"refusedConfiguration": self.refused(), "session": session.status()}),
            Err(error) => json!({"problem": error.to_string()}),
        }
    }

    fn instances(&self) -> Option<Arc<dyn Instances>> {
        Some(Arc::new(parts::Parts(Arc::clone(&self.inner.session))))
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(parts::Parts(Arc::clone(&self.inner.session))))
    }

    fn zones(&self) -> Option<Arc<dyn Zones>> {
        Some(Arc::new(parts::Parts(Arc::clone(&self.inner.session))))
    }
}
