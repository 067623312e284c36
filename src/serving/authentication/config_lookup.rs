//! Refreshes the CA data: CA files, and ConfigMap `kube-system/extension-apiserver-authentication`.
//!
//! In: settings and a client. Out: [`CallerAuthorities`] that requests read without waiting. If a read fails, the previous
//! data is kept. Unlike upstream, a failed first lookup does not end the process: it is repeated, and until it succeeds,
//! `/readyz` fails with the reason (unless `--authentication-tolerate-lookup-failure`).

use std::{path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::{
    authorities::{CallerAuthorities, FrontProxy},
    ca_bundle::CaBundle,
};
use crate::{
    runtime::{client::with_causes, shutdown::Shutdown},
    serving::{
        HealthEndpointSet,
        config::{DelegatedAuthenticationConfig, SecureServingConfig},
        deps::ServingDeps,
        error::ServingError,
    },
};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before a failed lookup is repeated.
const RETRY: Duration = Duration::from_secs(5);

struct AuthenticationConfigLookup {
    settings: DelegatedAuthenticationConfig,
    api: Option<Api<ConfigMap>>,
    files: CallerAuthorities,
    cluster: CallerAuthorities,
    published: Arc<ArcSwap<CallerAuthorities>>,
    /// Reason why the first lookup has not succeeded yet.
    pending: Arc<ArcSwap<Option<String>>>,
}

/// Reads the files and starts the background task. An invalid file is an error here, and is only logged later.
pub(super) async fn start(
    config: &SecureServingConfig,
    parts: &ServingDeps,
    shutdown: &Shutdown,
) -> Result<Arc<ArcSwap<CallerAuthorities>>, ServingError> {
    let settings = config.authentication.clone();
    let files = read_files(&settings).await?;
    let published = Arc::new(ArcSwap::from_pointee(files.clone()));
    let pending = Arc::new(ArcSwap::from_pointee(None));
    let api = api(&settings, parts.reviews.as_ref().map(|reviews| reviews.authentication.clone()));
    if api.is_some() && !settings.tolerate_lookup_failure {
        pending.store(Arc::new(Some("not looked up yet".to_owned())));
        let state = Arc::clone(&pending);
        parts.health.add(NAME, HealthEndpointSet::READYZ, move || state.load().as_ref().clone().map_or(Ok(()), Err));
    }
    let lookup = AuthenticationConfigLookup {
        settings,
        api,
        files,
        cluster: CallerAuthorities::default(),
        published: Arc::clone(&published),
        pending,
    };
    shutdown.spawn(lookup.run(config.reload_interval, shutdown.clone()));
    Ok(published)
}

fn api(settings: &DelegatedAuthenticationConfig, client: Option<Client>) -> Option<Api<ConfigMap>> {
    if settings.skip_lookup {
        return None;
    }
    if client.is_none() {
        tracing::warn!("No API server configured: cluster CA data unavailable, tokens not reviewed");
    }
    client.map(|client| Api::namespaced(client, NAMESPACE))
}

impl AuthenticationConfigLookup {
    async fn run(mut self, interval: Duration, shutdown: Shutdown) {
        while let Some(succeeded) = shutdown.run_until_begun(self.refresh()).await {
            let wait = if succeeded { interval } else { interval.min(RETRY) };
            shutdown.run_until_begun(sleep(wait)).await;
        }
    }

    /// Reads the files and the cluster's data again. Returns `true` if the cluster's data could be read.
    async fn refresh(&mut self) -> bool {
        match read_files(&self.settings).await {
            Ok(files) => self.files = files,
            Err(error) => tracing::error!(%error, "New CA file unusable; previous CA file kept"),
        }
        let found = self.fetch().await;
        let succeeded = found.is_ok();
        match found {
            Ok(cluster) => {
                self.cluster = cluster;
                self.pending.store(Arc::new(None));
            }
            Err(error) => {
                tracing::warn!(%error, "Cannot look up the cluster's CA data; retrying");
                if self.pending.load().is_some() {
                    self.pending.store(Arc::new(Some(error)));
                }
            }
        }
        self.published.store(Arc::new(self.files.clone().or(self.cluster.clone())));
        succeeded
    }

    async fn fetch(&self) -> Result<CallerAuthorities, String> {
        let Some(api) = &self.api else { return Ok(CallerAuthorities::default()) };
        let object = match timeout(TIMEOUT, api.get(NAME)).await {
            Ok(Ok(object)) => object,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Ok(CallerAuthorities::default()),
            Ok(Err(error)) => return Err(explain(&error)),
            Err(_) => return Err(format!("no answer to get ConfigMap {NAMESPACE}/{NAME} within {} s", TIMEOUT.as_secs())),
        };
        let data = object.data.unwrap_or_default();
        CallerAuthorities::from_config_map(&data).map_err(|error| format!("ConfigMap {NAMESPACE}/{NAME}: {error}"))
    }
}

/// Returns a message with a remedy.
fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "forbidden to get configmaps in namespace {NAMESPACE} ({}): bind Role {NAME}-reader there to this user, or set \
             --authentication-skip-lookup or --authentication-tolerate-lookup-failure",
            status.message
        ),
        kube::Error::Api(status) => format!("cannot get ConfigMap {NAMESPACE}/{NAME}: {}", status.message),
        other => format!("cannot get ConfigMap {NAMESPACE}/{NAME}: {}", with_causes(other)),
    }
}

async fn read_files(settings: &DelegatedAuthenticationConfig) -> Result<CallerAuthorities, ServingError> {
    let client = read("client-ca-file", settings.client_ca_file.as_deref()).await?;
    let bundle = read("requestheader-client-ca-file", settings.requestheader_client_ca_file.as_deref()).await?;
    let front_proxy = bundle.map(|bundle| FrontProxy { bundle, names: settings.requestheader.clone() });
    Ok(CallerAuthorities { client, front_proxy })
}

async fn read(flag: &'static str, path: Option<&Path>) -> Result<Option<CaBundle>, ServingError> {
    let Some(path) = path else { return Ok(None) };
    let invalid_setting = |error: String| ServingError::setting(flag, format!("{}: {error}", path.display()));
    let pem = tokio::fs::read(path).await.map_err(|error| invalid_setting(format!("cannot read: {error}")))?;
    CaBundle::parse(&pem).map(Some).map_err(invalid_setting)
}
