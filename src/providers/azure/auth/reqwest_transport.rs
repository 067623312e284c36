//! Transport to ARM and to the identity services over TCP and TLS. Only this file builds HTTP clients for them.
//!
//! In: the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`, `SSL_CERT_DIR`, `IMDS_ENDPOINT`,
//! `IDENTITY_ENDPOINT`), requests. Out: responses of any status, or an error that says whether the request may have arrived.
//! Upstream: `pkg/azclient/utils/transport.go`.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use azure_core::http::Url;
use bytes::{Bytes, BytesMut};
use reqwest::{Client, ClientBuilder, NoProxy, Proxy, redirect::Policy};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::{AuthError, roots};
use crate::{
    providers::azure::transport::{ArmTransport, ArmTransportError, MaxBodySize},
    runtime::client::with_causes,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout from the connection to the last byte of the body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum buffer in bytes that is allocated before the body arrives, because a declared length is untrusted.
const MAX_INITIAL_BUFFER: usize = 1 << 20;
/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Time without data after which a connection is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Timeout of a ping, after which the connection is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Addresses that are never reached through a proxy.
///
/// The metadata service serves this machine only, and Go never sends loopback addresses to a proxy.
const DIRECT: &str = "169.254.169.254,localhost,127.0.0.0/8,::1";

/// [`ArmTransport`] over TCP and TLS. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct ReqwestTransport {
    client: Client,
    has_proxy: bool,
}

/// Server with a fixed address and its own certificate authorities. Its name is not resolved, and no proxy is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedHost {
    /// Name in the certificate and in the handshake.
    pub name: String,
    pub address: IpAddr,
    /// Certificate authorities as PEM.
    pub authorities: Vec<u8>,
}

impl ReqwestTransport {
    /// Creates a client for one server. Fails if its certificate authorities are not usable.
    pub fn pinned(host: &PinnedHost) -> Result<Self, AuthError> {
        let mut roots = RootCertStore::empty();
        let found = CertificateDer::pem_slice_iter(&host.authorities).filter_map(Result::ok);
        if roots.add_parsable_certificates(found).0 == 0 {
            return Err(AuthError::configuration("certificate authorities", "no certificate found"));
        }
        let builder = builder(tls(roots)?).resolve(&host.name, SocketAddr::new(host.address, 0));
        Ok(Self { client: build(builder)?, has_proxy: false })
    }

    /// Creates a client with the proxies and certificate authorities of the environment. Reads files, but does not connect.
    ///
    /// # Errors
    ///
    /// Fails if a variable is invalid, and names it.
    pub fn new(environment: &BTreeMap<String, String>) -> Result<Self, AuthError> {
        let mut builder = builder(tls(roots::load(environment))?);
        let proxies = proxies(environment)?;
        let has_proxy = !proxies.is_empty();
        for proxy in proxies {
            builder = builder.proxy(proxy);
        }
        Ok(Self { client: build(builder)?, has_proxy })
    }
}

/// Returns the common settings of all clients, without proxies.
fn builder(tls: ClientConfig) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .gzip(true)
        .redirect(Policy::none())
        .no_proxy()
}

fn build(builder: ClientBuilder) -> Result<Client, AuthError> {
    builder.build().map_err(|error| AuthError::configuration("HTTP client", with_causes(&error.without_url())))
}

/// Returns the configuration of TLS 1.2 and 1.3 with aws-lc-rs, whatever provider the process has installed.
fn tls(roots: RootCertStore) -> Result<ClientConfig, AuthError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| AuthError::configuration("TLS", error.to_string()))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn read<'a>(environment: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let lower = name.to_ascii_lowercase();
    let found = environment.get(name).filter(|value| !value.is_empty()).or_else(|| environment.get(&lower));
    found.map(String::as_str).filter(|value| !value.is_empty())
}

fn proxies(environment: &BTreeMap<String, String>) -> Result<Vec<Proxy>, AuthError> {
    if read(environment, "NO_PROXY").is_some_and(|list| list.split(',').any(|entry| entry.trim() == "*")) {
        return Ok(Vec::new());
    }
    let direct = NoProxy::from_string(&direct(environment));
    let of = |name: &'static str, make: fn(&str) -> reqwest::Result<Proxy>| {
        let Some(url) = read(environment, name) else { return Ok(None) };
        let created = make(url).map_err(|_| AuthError::configuration(name, "not the URL of a proxy"))?;
        Ok(Some(created.no_proxy(direct.clone())))
    };
    let found = [of("HTTPS_PROXY", |url| Proxy::https(url))?, of("HTTP_PROXY", |url| Proxy::http(url))?];
    Ok(found.into_iter().flatten().collect())
}

/// Returns the hosts that are reached without a proxy, as a list for [`NoProxy`].
fn direct(environment: &BTreeMap<String, String>) -> String {
    let identity = ["IMDS_ENDPOINT", "IDENTITY_ENDPOINT"].into_iter().filter_map(|name| environment.get(name));
    let hosts = identity.filter_map(|url| Url::parse(url).ok()?.host_str().map(str::to_owned));
    let configured = read(environment, "NO_PROXY").map(str::to_owned);
    configured.into_iter().chain(hosts).chain([DIRECT.to_owned()]).collect::<Vec<_>>().join(",")
}

#[async_trait]
impl ArmTransport for ReqwestTransport {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ArmTransportError> {
        let unsendable = |error: reqwest::Error| ArmTransportError::NotSent(with_causes(&error.without_url()));
        let max_size = MaxBodySize::of(&request);
        let request = reqwest::Request::try_from(request).map_err(unsendable)?;
        let server = request.url().host_str().unwrap_or_default().to_owned();
        let connecting = |error| self.not_connected(&server, error);
        let received = self.client.execute(request).await.map_err(connecting)?;
        let (status, version, headers) = (received.status(), received.version(), received.headers().clone());
        let mut response = http::Response::new(body(received, max_size).await?);
        (*response.status_mut(), *response.version_mut(), *response.headers_mut()) = (status, version, headers);
        Ok(response)
    }
}

impl ReqwestTransport {
    /// Classifies the error like [`classify`]. For a failed connection, adds the name of the server, which the cause lacks, and
    /// the variables of a proxy.
    fn not_connected(&self, server: &str, error: reqwest::Error) -> ArmTransportError {
        match classify(error) {
            ArmTransportError::NotSent(reason) if self.has_proxy => ArmTransportError::NotSent(format!(
                "{server}: {reason} (if it is behind the proxy, check HTTPS_PROXY and NO_PROXY)"
            )),
            ArmTransportError::NotSent(reason) => ArmTransportError::NotSent(format!("{server}: {reason}")),
            other => other,
        }
    }
}

/// Reads the body in decompressed pieces, so that a body beyond `max_size` is never in memory as a whole.
async fn body(mut response: reqwest::Response, max_size: MaxBodySize) -> Result<Bytes, ArmTransportError> {
    let expected = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
    let mut body = BytesMut::with_capacity(expected.min(MAX_INITIAL_BUFFER));
    while let Some(piece) = response.chunk().await.map_err(classify)? {
        if piece.len() > max_size.0 - body.len() {
            return Err(ArmTransportError::TooLarge(max_size));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// Classifies an error: only without a connection is it certain that the request did not arrive.
fn classify(error: reqwest::Error) -> ArmTransportError {
    let (is_unconnected, is_timeout) = (error.is_connect() || error.is_builder(), error.is_timeout());
    let text = if is_timeout { "time limit reached".to_owned() } else { with_causes(&error.without_url()) };
    if is_unconnected { ArmTransportError::NotSent(text) } else { ArmTransportError::NoAnswer(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_endpoints_are_reached_without_a_proxy() {
        let variables = [("NO_PROXY", "a,b"), ("IMDS_ENDPOINT", "http://10.0.0.1:80"), ("IDENTITY_ENDPOINT", "http://id/x")];
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(direct(&environment), format!("a,b,10.0.0.1,id,{DIRECT}"));
        assert_eq!(direct(&BTreeMap::new()), DIRECT);
    }
}
