//! Exec plugin: a program that prints credentials.
//!
//! In: its command. Out: a token, a client certificate, or both. It runs if there are no credentials, when they expire, and
//! when the server rejects them, at most once at a time for all requests of its clients. Every run ends after [`DEADLINE`],
//! with all processes of its group. Requests wait for it, but a cancelled request does not end it, because a slow plugin
//! would then never complete. Upstream: client-go `plugin/pkg/client/auth/exec/exec.go`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use serde::Deserialize;
use tokio::{process::Command, sync::Mutex, time::Instant};

use crate::runtime::{bearer::bearer_header, clock::Clock, yaml};

mod process_group;

/// Time limit of one run.
const DEADLINE: Duration = Duration::from_secs(30);
/// Shortest interval between two runs because of rejected credentials.
const MIN_REFUSAL_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest delay between a failure and the next run.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// Longest output. It is parsed on the thread that renews the lease.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// Exec plugin of a kubeconfig.
pub(crate) struct ExecPlugin(Arc<ExecPluginState>);

struct ExecPluginState {
    command: String,
    args: Vec<String>,
    env: HashMap<String, String>,
    version: String,
    /// Lock that permits one run at a time.
    run_lock: Mutex<()>,
    issued: ArcSwapOption<IssuedCredentials>,
    /// Time and reason of the last failure.
    last_failure: ArcSwapOption<(Instant, String)>,
}

/// Credentials from one run.
#[derive(Debug)]
struct IssuedCredentials {
    header: Option<HeaderValue>,
    certificate: Option<Arc<CertifiedKey>>,
    /// Certificate as PEM, for comparison.
    pem: String,
    expires_at: Option<Timestamp>,
    issued_at: Instant,
}

impl IssuedCredentials {
    fn is_valid_at(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires| now <= expires)
    }

    fn has_same_credentials(&self, other: &Self) -> bool {
        self.header == other.header && self.pem == other.pem
    }
}

impl ExecPlugin {
    /// Creates the plugin without running it.
    pub(super) fn new(config: &ExecConfig) -> Result<Self, String> {
        let about = |reason: &str| format!("exec plugin: {reason}");
        let command =
            config.command.clone().filter(|command| !command.is_empty()).ok_or_else(|| about("it has no command"))?;
        let version = config.api_version.clone().unwrap_or_default();
        if !VERSIONS.contains(&version.as_str()) {
            return Err(about(&format!("apiVersion {version:?}; accepted are {}", VERSIONS.join(" and "))));
        }
        if config.interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err(about("interactiveMode Always is not supported without a terminal"));
        }
        let mut spec = serde_json::json!({"interactive": false});
        if config.provide_cluster_info {
            spec["cluster"] = serde_json::to_value(&config.cluster).map_err(|error| about(&error.to_string()))?;
        }
        let info = serde_json::json!({"apiVersion": version, "kind": "ExecCredential", "spec": spec});
        let pair = |entry: &HashMap<String, String>| Some((entry.get("name")?.clone(), entry.get("value")?.clone()));
        let mut env: HashMap<String, String> = config.env.iter().flatten().filter_map(pair).collect();
        env.insert("KUBERNETES_EXEC_INFO".to_owned(), info.to_string());
        let args = config.args.clone().unwrap_or_default();
        let (run_lock, issued, failed) = (Mutex::default(), ArcSwapOption::empty(), ArcSwapOption::empty());
        Ok(Self(Arc::new(ExecPluginState { command, args, env, version, run_lock, issued, last_failure: failed })))
    }

    /// Returns the header of credentials that have not expired; `None` if they are a certificate alone.
    pub(super) async fn current(&self) -> Result<Option<HeaderValue>, String> {
        if let Some(issued) = self.0.issued.load_full().filter(|issued| issued.is_valid_at(Clock::System.wall())) {
            return Ok(issued.header.clone());
        }
        let began = Instant::now();
        // Expired credentials of a run during the wait suffice. Otherwise, each waiting request would run the program again.
        let issued = self.renew(move |issued| issued.issued_at >= began || issued.is_valid_at(Clock::System.wall())).await?;
        Ok(issued.header.clone())
    }

    /// Returns `true` if the header or the certificate differs from the refused one.
    pub(super) async fn renew_after_refusal(&self, refused: Option<&HeaderValue>) -> bool {
        let Some(before) = self.0.issued.load_full() else { return true };
        if before.header.as_ref() != refused {
            return true;
        }
        if before.issued_at.elapsed() < MIN_REFUSAL_INTERVAL {
            return false;
        }
        let old = Arc::clone(&before);
        match self.renew(move |issued| !std::ptr::eq(issued, Arc::as_ptr(&old))).await {
            Ok(issued) => !issued.has_same_credentials(&before),
            Err(reason) => {
                tracing::warn!(reason, "the API server rejects the credentials and no others are configured");
                false
            }
        }
    }

    /// Returns the certificate to connect with. The same `Arc` until it changes.
    pub(crate) fn certificate(&self) -> Option<Arc<CertifiedKey>> {
        self.0.issued.load().as_ref().and_then(|issued| issued.certificate.clone())
    }

    /// Runs the program, unless another caller did meanwhile and its result suffices, or it has just failed.
    async fn renew(
        &self,
        will_do: impl Fn(&IssuedCredentials) -> bool + Send + 'static,
    ) -> Result<Arc<IssuedCredentials>, String> {
        let shared = Arc::clone(&self.0);
        // The task continues after the request is cancelled.
        let run = tokio::spawn(async move {
            let _guard = shared.run_lock.lock().await;
            match shared.issued.load_full().filter(|issued| will_do(issued)) {
                Some(issued) => Ok(issued),
                None => shared.run_unless_just_failed().await,
            }
        });
        run.await.map_err(|error| format!("exec plugin: {error}"))?
    }
}

impl ExecPluginState {
    /// Runs the program, or returns its last failure, so that all waiting callers get the same one.
    async fn run_unless_just_failed(&self) -> Result<Arc<IssuedCredentials>, String> {
        let failed = self.last_failure.load_full().filter(|failed| failed.0.elapsed() < FAILURE_PAUSE);
        if let Some(failed) = failed {
            return Err(failed.1.clone());
        }
        let result = self.run().await;
        self.last_failure.store(result.as_ref().err().map(|reason| Arc::new((Instant::now(), reason.clone()))));
        result
    }

    async fn run(&self) -> Result<Arc<IssuedCredentials>, String> {
        let about = |reason: String| format!("exec plugin {}: {reason}", self.command);
        let output = self.output().await.map_err(about)?;
        let mut issued = parse_exec_credential(&output, &self.version, Instant::now()).map_err(about)?;
        // An unchanged certificate keeps its `Arc`, and so its connections.
        if let Some(cached) = self.issued.load_full().filter(|cached| cached.pem == issued.pem) {
            issued.certificate = cached.certificate.clone();
        }
        let issued = Arc::new(issued);
        self.issued.store(Some(Arc::clone(&issued)));
        Ok(issued)
    }

    async fn output(&self) -> Result<Vec<u8>, String> {
        let mut command = Command::new(&self.command);
        command.args(&self.args).envs(&self.env);
        process_group::output(command, DEADLINE, MAX_OUTPUT_BYTES).await
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    api_version: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialStatus {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Parses the output of a plugin, which is never shown.
fn parse_exec_credential(output: &[u8], version: &str, at: Instant) -> Result<IssuedCredentials, String> {
    let text = std::str::from_utf8(output).map_err(|_| "its output is not UTF-8".to_owned())?;
    // Upstream accepts YAML, too.
    let printed = serde_json::from_str(text).or_else(|_| yaml::parse(text));
    let printed: ExecCredential = printed.map_err(|_| "its output is not an ExecCredential".to_owned())?;
    if printed.api_version != version {
        return Err(format!("its apiVersion must be {version}, as in the kubeconfig, but is different"));
    }
    let status = printed.status.ok_or("its output has no status")?;
    let (token, expires) = (status.token.unwrap_or_default(), status.expiration_timestamp);
    let (pem, key) = (status.client_certificate_data.unwrap_or_default(), status.client_key_data.unwrap_or_default());
    if pem.is_empty() != key.is_empty() {
        return Err("it printed a certificate or a key, but not both".to_owned());
    }
    if token.is_empty() && pem.is_empty() {
        return Err("it printed neither a token nor a certificate".to_owned());
    }
    let header = match token.as_str() {
        "" => None,
        token => Some(bearer_header(token).ok_or("its token contains characters that are invalid in a header")?),
    };
    let certificate = if pem.is_empty() { None } else { Some(Arc::new(certificate(&pem, &key)?)) };
    let expires = expires.map(|text| text.parse()).transpose();
    let expires = expires.map_err(|_| "its expirationTimestamp is not a time".to_owned())?;
    Ok(IssuedCredentials { header, certificate, pem, expires_at: expires, issued_at: at })
}

fn certificate(pem: &str, key: &str) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let chain = chain.map_err(|_| "its certificate cannot be read".to_owned())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| "its key cannot be read".to_owned())?;
    let pair = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
    pair.map_err(|error| format!("its certificate and key: {error}"))
}

#[cfg(test)]
mod tests;
