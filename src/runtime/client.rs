//! Clients of the API server: one per component, so that audit logs and priority levels can distinguish them.
//!
//! In: `--kubeconfig`, `--master`, `--kube-api-qps`, `--kube-api-burst`. Out: [`kube::Client`]s that carry a user agent,
//! wait for the client-side rate limit, limit concurrency, record metrics, end every wait, and retry nothing (the caller
//! owns the backoff) but requests that were rejected because of outdated credentials. Certificates and tokens that a
//! kubeconfig or the pod names by path are read again when they change, and exec plugins run again.

mod credentials;
pub(super) mod deadline;
mod error_text;
mod fence;
mod list;
mod mount_point;
mod proxy;
mod rate_limit;
mod read_only;
mod request_metrics;
mod requests;
mod rustls_config;
pub(super) mod throttle;
mod tls;
mod transport;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use http::{
    HeaderValue,
    header::{AUTHORIZATION, USER_AGENT},
};
use hyper::body::Incoming;
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer, service_fn, util::BoxService};

pub use self::error_text::with_causes;
pub use self::list::list_all;
pub use self::read_only::{ReadOnlyRefusal, read_only};
use self::{
    credentials::{KubeCredentials, send_with, static_login},
    fence::check_write,
    rate_limit::{RateLimit, ServerFairness},
    request_metrics::RequestMetrics,
    requests::{RequestService, RequestSteps},
    throttle::RetryAfterThrottle,
    tls::{ConnectionSharing, KubeClientTls},
    transport::KubeTransport,
};
use super::{leader_election::Leadership, service_account::ServiceAccountToken};
use crate::metrics::Metrics;

/// Maximum number of concurrent requests of one client. On HTTP/1.1, each has its own connection, with buffers on both
/// sides.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// Connection to the API server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KubeClientConfig {
    /// `--kubeconfig`; `None` uses the ServiceAccount of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: replaces the server's address.
    pub master: Option<String>,
    /// `--kube-api-qps`: requests per second and client; 0 or less: no limit.
    pub qps: f32,
    /// `--kube-api-burst`: number of requests that may be sent at once before the limit applies.
    pub burst: u32,
    /// Whether the limit applies only while the server has no priority and fairness.
    pub limit_unless_fair: bool,
    /// Prefix of user agents: `program/version (os/arch)`.
    pub user_agent_base: String,
}

/// Error of the configuration of the connection. The message names the flag.
#[derive(Debug, thiserror::Error)]
pub enum KubeClientError {
    /// The kubeconfig cannot be read or used.
    #[error("--{flag} {path}: {reason}")]
    Kubeconfig { flag: &'static str, path: String, reason: String },
    /// There is no kubeconfig, and the process does not run in a pod.
    #[error("no --kubeconfig was given and this is not a pod ({0}): give --kubeconfig=FILE")]
    NotInCluster(String),
    /// The value of `--master` is not a URL.
    #[error("--master {value:?}: {reason}; accepted is a URL such as https://10.0.0.1:6443")]
    Master { value: String, reason: String },
}

impl KubeClientError {
    /// Returns the error for the file of another flag.
    pub fn of_flag(self, flag: &'static str) -> Self {
        match self {
            Self::Kubeconfig { path, reason, .. } => Self::Kubeconfig { flag, path, reason },
            other => other,
        }
    }
}

const KUBECONFIG: &str = "kubeconfig";

#[derive(Clone)]
pub struct KubeClients {
    settings: KubeClientConfig,
    /// Configuration without the credentials that [`KubeCredentials`] handles.
    base: Config,
    credentials: KubeCredentials,
    /// User of the kubeconfig.
    user: AuthInfo,
    /// File with the certificate authorities of the API server, if there is one.
    authorities: Option<PathBuf>,
    fairness: ServerFairness,
    metrics: Arc<Metrics>,
}

/// Service that sends a client's requests to the server.
type KubeHttpService = BoxService<http::Request<Body>, http::Response<Incoming>, BoxError>;

impl KubeClients {
    /// Reads the configuration without contacting the server.
    pub async fn load(settings: KubeClientConfig, metrics: Arc<Metrics>) -> Result<Self, KubeClientError> {
        let master = settings.master.as_deref().filter(|master| !master.is_empty()).map(parse_master_url).transpose()?;
        let (mut base, authorities) = match (&settings.kubeconfig, &master) {
            (Some(path), _) => from_kubeconfig(path, master.as_ref()).await?,
            (None, Some(master)) => (Config::new(master.clone()), None),
            (None, None) => {
                let config = Config::incluster().map_err(|error| KubeClientError::NotInCluster(error.to_string()))?;
                let authorities = config.root_cert_file.clone();
                (config, authorities)
            }
        };
        if let Some(master) = master {
            base.cluster_url = master;
        }
        let kubeconfig = settings.kubeconfig.clone();
        Self::assembled(settings, base, authorities, metrics).map_err(|reason| match kubeconfig {
            Some(path) => KubeClientError::Kubeconfig { flag: KUBECONFIG, path: path.display().to_string(), reason },
            None => KubeClientError::NotInCluster(reason),
        })
    }

    /// Creates clients for a server that is not an API server, such as a manager. No rate limit applies.
    pub fn for_server(base: Config, user_agent_base: &str, metrics: Arc<Metrics>) -> Result<Self, String> {
        let user_agent_base = user_agent_base.to_owned();
        let settings = KubeClientConfig { qps: -1.0, user_agent_base, ..KubeClientConfig::default() };
        Self::assembled(settings, base, None, metrics)
    }

    fn assembled(
        settings: KubeClientConfig,
        mut base: Config,
        authorities: Option<PathBuf>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, String> {
        base.default_retry = false;
        let user = base.auth_info.clone();
        let credentials = KubeCredentials::take_from(&mut base.auth_info)?;
        Ok(Self { settings, base, credentials, user, authorities, fairness: ServerFairness::default(), metrics })
    }

    /// Returns the API server's address.
    pub fn cluster_url(&self) -> &http::Uri {
        &self.base.cluster_url
    }

    /// Creates a client for reads and writes whose user agent ends with `component`.
    pub fn for_component(&self, component: &str) -> Result<Client, kube::Error> {
        self.rate_limited_client(self.config(component), self.credentials.clone(), RequestSteps::default())
    }

    /// Creates a client that writes only while `leadership` holds, which is checked when the request leaves.
    pub fn for_writer(&self, component: &str, leadership: Leadership) -> Result<Client, kube::Error> {
        let steps = RequestSteps { leadership: Some(leadership), ..RequestSteps::default() };
        self.rate_limited_client(self.config(component), self.credentials.clone(), steps)
    }

    /// Creates a client for watches, without a rate limit. Informers apply deadlines and count expirations.
    pub fn for_watches(&self) -> Result<Client, kube::Error> {
        let (config, credentials) = (self.config("shared-informers"), self.credentials.clone());
        Ok(self.builder(config, credentials, ConnectionSharing::Shared, RequestSteps::default())?.build())
    }

    /// Creates a client for the leader election, without rate limit or queue.
    ///
    /// A dead connection fails only one request. Call it on the runtime of the election, where the tasks of the client and
    /// its connections then run.
    pub fn for_election(&self) -> Result<Client, kube::Error> {
        // Other users of a plugin must not delay the election.
        let credentials =
            KubeCredentials::take_from(&mut self.user.clone()).map_err(|reason| kube::Error::Service(reason.into()))?;
        let config = self.config("leader-election");
        Ok(self.builder(config, credentials, ConnectionSharing::Exclusive, RequestSteps::with_deadlines())?.build())
    }

    /// Creates a client that sends `token` instead of the credentials of the process (`--use-service-account-credentials`).
    ///
    /// It writes only while `leadership` holds.
    pub fn with_token(
        &self,
        component: &str,
        token: ServiceAccountToken,
        leadership: Leadership,
    ) -> Result<Client, kube::Error> {
        let mut config = self.config(component);
        config.auth_info = AuthInfo::default();
        let steps = RequestSteps { leadership: Some(leadership), token: Some(token), ..RequestSteps::default() };
        self.rate_limited_client(config, KubeCredentials::Static, steps)
    }

    /// Creates a client for the reviews of the secure port, which limits them itself: unauthenticated callers may delay only
    /// each other.
    pub fn for_reviews(&self) -> Result<Client, kube::Error> {
        let (config, credentials) = (self.config("secure-port"), self.credentials.clone());
        Ok(self.builder(config, credentials, ConnectionSharing::Shared, RequestSteps::with_deadlines())?.build())
    }

    fn config(&self, component: &str) -> Config {
        let mut config = self.base.clone();
        let agent = format!("{}/{component}", self.settings.user_agent_base);
        // A name with control characters is the only possible error. Then no user agent is sent.
        config.headers.extend(HeaderValue::try_from(agent).ok().map(|value| (USER_AGENT, value)));
        config
    }

    /// Builds a client that takes `steps` and counts its requests.
    fn builder(
        &self,
        config: Config,
        credentials: KubeCredentials,
        sharing: ConnectionSharing,
        steps: RequestSteps,
    ) -> Result<ClientBuilder<RequestService<KubeHttpService>>, kube::Error> {
        let metrics = RequestMetrics::new(server_host(&config), Arc::clone(&self.metrics));
        let tls = KubeClientTls::load(config.clone(), self.authorities.clone(), credentials.exec_plugin(), sharing)?;
        let transport = KubeTransport::new(&config, tls)?;
        let login = static_login(&config.auth_info).map_err(|reason| kube::Error::Service(reason.into()))?;
        let leadership = steps.leadership.clone();
        let fenced = ServiceBuilder::new()
            // Leadership is checked again, because a plugin may have run for long.
            .filter(move |request: http::Request<Body>| check_write(leadership.as_ref(), request.method()).map(|()| request))
            .service(service_fn(move |request: http::Request<Body>| transport.send(request)));
        let retries = metrics.clone();
        let service: KubeHttpService = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .map_request(move |mut request: http::Request<Body>| {
                request.headers_mut().extend(login.clone().map(|value| (AUTHORIZATION, value)));
                request
            })
            .layer(config.extra_headers_layer()?)
            .service(service_fn(move |request: http::Request<Body>| {
                send_with(credentials.clone(), retries.clone(), fenced.clone(), request)
            }))
            .boxed();
        let steps = RequestSteps { metrics: Some(metrics), ..steps };
        Ok(ClientBuilder::new(service, config.default_namespace).with_layer(&steps))
    }

    fn rate_limited_client(
        &self,
        config: Config,
        credentials: KubeCredentials,
        steps: RequestSteps,
    ) -> Result<Client, kube::Error> {
        let KubeClientConfig { qps, burst, limit_unless_fair, .. } = self.settings;
        let fairness = limit_unless_fair.then(|| self.fairness.clone());
        let limit = RateLimit::new(qps, burst, fairness, server_host(&config), Arc::clone(&self.metrics));
        let throttle = Some(RetryAfterThrottle::default());
        let steps = RequestSteps { limit: Some(limit), throttle, has_deadlines: true, ..steps };
        let builder = self.builder(config, credentials, ConnectionSharing::Shared, steps)?;
        Ok(builder.with_layer(&ConcurrencyLimitLayer::new(MAX_CONCURRENT_REQUESTS)).build())
    }
}

/// Creates a client over `service` with the deadlines of [`KubeClients`], for servers in the same process.
///
/// Requests wait for a `limit` of queries per second and a burst, whatever limits the server reports.
pub fn client_over_service<S, B>(service: S, limit: Option<(f32, u32, &Arc<Metrics>)>) -> Client
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error = BoxError> + Send + Clone + 'static,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let limit =
        limit.map(|(qps, burst, metrics)| RateLimit::new(qps, burst, None, "in-process".to_owned(), Arc::clone(metrics)));
    let steps = RequestSteps { limit, ..RequestSteps::with_deadlines() };
    ClientBuilder::new(service, "default").with_layer(&steps).build()
}

fn parse_master_url(value: &str) -> Result<http::Uri, KubeClientError> {
    let about =
        |reason: &dyn std::fmt::Display| KubeClientError::Master { value: value.to_owned(), reason: reason.to_string() };
    let url: http::Uri = value.parse().map_err(|error| about(&error))?;
    match (url.scheme(), url.host()) {
        (None, _) => Err(about(&"it has no scheme")),
        (_, None) => Err(about(&"it names no host")),
        _ => Ok(url),
    }
}

fn server_host(config: &Config) -> String {
    config.cluster_url.authority().map(ToString::to_string).unwrap_or_default()
}

async fn from_kubeconfig(path: &Path, master: Option<&http::Uri>) -> Result<(Config, Option<PathBuf>), KubeClientError> {
    // The message has only the first line, because other lines quote the file, which may contain a token.
    let about = |error: &dyn std::fmt::Display| KubeClientError::Kubeconfig {
        flag: KUBECONFIG,
        path: path.display().to_string(),
        reason: error.to_string().lines().next().unwrap_or_default().to_owned(),
    };
    let mount_point = std::env::var_os(mount_point::VARIABLE);
    let located = mount_point::locate(path, mount_point.as_ref());
    let mut parsed = Kubeconfig::read_from(located).map_err(|error| about(&error))?;
    mount_point::locate_files(&mut parsed, mount_point.as_ref());
    let loaded = Config::from_custom_kubeconfig(parsed.clone(), &KubeConfigOptions::default()).await;
    let mut config = loaded.map_err(|error| about(&error))?;
    // kube compares NO_PROXY with the proxy instead of the server.
    let proxy = proxy::of(master.unwrap_or(&config.cluster_url), &parsed, |name| std::env::var(name).ok());
    config.proxy_url = proxy.map_err(|name| about(&format!("{name} is not the URL of a proxy")))?;
    let cluster = proxy::cluster(&parsed).filter(|cluster| cluster.certificate_authority_data.is_none());
    Ok((config, cluster.and_then(|cluster| cluster.certificate_authority.as_ref()).map(PathBuf::from)))
}

#[cfg(test)]
mod tests;
