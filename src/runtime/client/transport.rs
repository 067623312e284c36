//! Connections to the API server, with detection of dead connections.
//!
//! In: a [`Config`] and the [`KubeClientTls`] material. Out: a tower service that sends requests. HTTP/2 where the server
//! offers it, with pings, so that a dead peer is detected within [`PING_EVERY`] + [`PING_TIMEOUT`] whatever is in between;
//! below it TCP keepalive and `TCP_USER_TIMEOUT`, the only means of HTTP/1.1. Upstream: client-go pings after 30 s and waits
//! for 15 s (`k8s.io/apimachinery/pkg/util/net/http.go`).

mod erased;

use std::{io, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, Uri};
use hyper::{
    body::Incoming,
    rt::{Read, Write},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, MaybeHttpsStream, ResolveServerName};
use hyper_util::{
    client::{
        legacy::{
            Client,
            connect::{
                Connection, HttpConnector,
                proxy::{SocksV5, Tunnel},
            },
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{Config, client::Body};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tower::{BoxError, Service, ServiceExt, service_fn};

use self::erased::{Connector, ErasedConnection, erased};
use super::{rustls_config::rustls_config, tls::KubeClientTls};

/// Maximum buffer of an HTTP/1.1 connection, which grows with the largest response and does not shrink.
const HTTP1_BUFFER: usize = 64 * 1024;
/// Silence after which a connection is pinged.
const PING_EVERY: Duration = Duration::from_secs(15);
/// Time after which an unresponsive connection is closed, and its requests fail.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Silence before TCP's first keepalive probe, and the interval of the following ones.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_TRIES: u32 = 3;
/// Time for which sent data may remain unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// Port of a SOCKS proxy whose URL has none.
const SOCKS_PORT: u16 = 1080;
/// Time limit of a connection, with name lookup, proxy and TLS handshake.
const CONNECT: Duration = Duration::from_secs(15);

/// Error of a failed connection. It adds the server and the proxy to the cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {server}{through}")]
struct UnreachableServer {
    server: String,
    through: ThroughProxy,
    source: BoxError,
}

/// Part of a message about a failed connection: host and port of the proxy without its password, or nothing.
type ThroughProxy = Arc<str>;

/// Returns the part about `proxy`.
fn through(proxy: &Uri) -> ThroughProxy {
    let host = proxy.host().unwrap_or_default();
    let address = proxy.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    format!(" through the proxy {address} (check proxy-url of the kubeconfig, HTTPS_PROXY, HTTP_PROXY and NO_PROXY)").into()
}

type TlsNameResolver = Arc<dyn ResolveServerName + Send + Sync>;
type KubeResponseFuture = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;
type KubeConnectionFuture = BoxFuture<'static, Result<MaybeHttpsStream<ErasedConnection>, BoxError>>;
/// Function that sends a request over one pool of connections.
type SendRequestFn = dyn Fn(Request<Body>) -> KubeResponseFuture + Send + Sync;
type ConnectionPoolFactory = Arc<dyn Fn(Arc<rustls::ClientConfig>) -> Arc<SendRequestFn> + Send + Sync>;

/// Transport with a pool of connections.
///
/// When the certificates change, new requests use new connections, because a server checks the client certificate of a
/// connection at each request. The old connections close when their requests have ended.
#[derive(Clone)]
pub(super) struct KubeTransport {
    new_pool: ConnectionPoolFactory,
    tls: Arc<KubeClientTls>,
    pool: Arc<Mutex<ConnectionPool>>,
}

struct ConnectionPool {
    tls: Arc<rustls::ClientConfig>,
    send: Arc<SendRequestFn>,
}

impl KubeTransport {
    /// Creates the transport without connecting.
    pub(super) fn new(config: &Config, tls: KubeClientTls) -> Result<Self, kube::Error> {
        let names: TlsNameResolver = match &config.tls_server_name {
            None => Arc::new(hyper_rustls::DefaultServerNameResolver::default()),
            Some(name) => Arc::new(FixedServerNameResolver::new(
                ServerName::try_from(name.clone()).map_err(|error| kube::Error::Service(error.into()))?,
            )),
        };
        let make = pool_factory(config, names, tls.sharing.max_idle())?;
        let current = tls.current();
        let pool = ConnectionPool { send: make(Arc::clone(&current)), tls: current };
        Ok(Self { new_pool: make, tls: Arc::new(tls), pool: Arc::new(Mutex::new(pool)) })
    }

    /// Sends a request over the pool of the current certificates.
    pub(super) fn send(&self, request: Request<Body>) -> KubeResponseFuture {
        let tls = self.tls.current();
        let mut pool = self.pool.lock();
        if !Arc::ptr_eq(&pool.tls, &tls) {
            *pool = ConnectionPool { send: (self.new_pool)(Arc::clone(&tls)), tls };
        }
        let send = Arc::clone(&pool.send);
        drop(pool);
        send(request)
    }
}

/// Returns a factory of connection pools, which use the proxy if there is one.
fn pool_factory(config: &Config, names: TlsNameResolver, idle: usize) -> Result<ConnectionPoolFactory, kube::Error> {
    let tcp = tcp();
    let Some(proxy) = &config.proxy_url else { return Ok(pool_over(tcp, ThroughProxy::default(), names, idle)) };
    let through = through(proxy);
    let intercept = Matcher::builder().all(proxy.to_string()).build().intercept(&config.cluster_url);
    let auth = intercept.as_ref().and_then(|intercept| intercept.basic_auth().cloned());
    match proxy.scheme_str() {
        Some("http") => Ok(pool_over(tunnel(proxy, auth, tcp), through, names, idle)),
        Some("socks5" | "socks5h") => {
            let login = intercept.as_ref().and_then(Intercept::raw_auth);
            Ok(pool_over(socks(proxy, login, tcp), through, names, idle))
        }
        Some("https") => {
            let encrypted = HttpsConnector::new(tcp, Arc::new(rustls_config(config)?), false, Arc::clone(&names));
            Ok(pool_over(tunnel(proxy, auth, encrypted), through, names, idle))
        }
        _ => Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy.clone()) }),
    }
}

fn tunnel<C>(proxy: &Uri, auth: Option<http::HeaderValue>, inner: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy.clone(), inner);
    match auth {
        Some(auth) => tunnel.with_auth(auth),
        None => tunnel,
    }
}

/// Creates the connector of a SOCKS proxy, which resolves names itself, as in Go.
fn socks(proxy: &Uri, login: Option<(&str, &str)>, inner: HttpConnector) -> SocksV5<HttpConnector> {
    let host = proxy.host().unwrap_or_default();
    let address = format!("socks5://{host}:{}", proxy.port_u16().unwrap_or(SOCKS_PORT));
    let socks = SocksV5::new(address.parse().unwrap_or_else(|_| proxy.clone()), inner);
    match login {
        Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
        None => socks,
    }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_EVERY));
    tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp
}

fn pool_over<H>(inner: H, through: ThroughProxy, names: TlsNameResolver, idle: usize) -> ConnectionPoolFactory
where
    H: Service<Uri> + Clone + Send + Sync + 'static,
    H::Response: Connection + Read + Write + Send + Unpin + 'static,
    H::Future: Send + 'static,
    H::Error: Into<BoxError>,
{
    let inner = erased(inner);
    Arc::new(move |tls| {
        let https = HttpsConnector::new(inner.clone(), tls, false, Arc::clone(&names));
        let through = through.clone();
        let connector = service_fn(move |server| connect(https.clone(), server, through.clone()));
        let client: Client<_, Body> = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(idle)
            .http1_max_buf_size(HTTP1_BUFFER)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .build(connector);
        Arc::new(move |request| {
            let pending = client.request(request);
            Box::pin(async move { pending.await.map_err(BoxError::from) })
        })
    })
}

/// Connects to `server` within [`CONNECT`]. The error names the server.
fn connect(https: HttpsConnector<Connector>, server: Uri, through: ThroughProxy) -> KubeConnectionFuture {
    let name = server.authority().map(ToString::to_string).unwrap_or_default();
    let connection = https.oneshot(server).boxed();
    Box::pin(async move {
        let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {CONNECT:?}")).into());
        let connected = tokio::time::timeout(CONNECT, connection).await.unwrap_or_else(late);
        connected.map_err(|source| UnreachableServer { server: name, through, source }.into())
    })
}

#[cfg(test)]
mod tests;
