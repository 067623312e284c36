//! TCP and TLS below the pages: binding, handshakes, HTTP/1.1 and HTTP/2, and the limits that keep a stalled client harmless.
//!
//! In: the settings, a TLS configuration, the router. Out: requests that carry the [`Peer`] they came from. Time limits are those
//! of upstream's secure server (`k8s.io/apiserver/pkg/server/secure_serving.go`).

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use rustls::{ServerConfig, pki_types::CertificateDer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower::ServiceExt;

use super::{ServingError, config::ServingConfig};
use crate::runtime::shutdown::Shutdown;

const HANDSHAKE: Duration = Duration::from_secs(10);
const READ_HEADER: Duration = Duration::from_secs(32);
const IDLE: Duration = Duration::from_secs(90);
/// How long requests in flight may take once a connection is to close.
const CLOSE: Duration = Duration::from_secs(10);
/// Accepting fails when the process is out of file descriptors; trying again at once would only spin.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);
const HEADER_LIMIT: u32 = 1 << 20;
const DEFAULT_STREAMS: u32 = 100;
const BACKLOG: i32 = 1024;

/// Who is on the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The certificate chain shown in the handshake, leaf first; empty if none. Its key is proven, its issuer is not.
    pub(super) certificates: Arc<[CertificateDer<'static>]>,
}

/// A bound socket.
pub(super) struct Bound {
    pub(super) local: SocketAddr,
    listener: TcpListener,
}

/// Limits of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    streams: u32,
}

impl Limits {
    pub(super) fn new(config: &ServingConfig) -> Self {
        Self { streams: if config.http2_max_streams == 0 { DEFAULT_STREAMS } else { config.http2_max_streams } }
    }
}

/// Listens on the configured address.
pub(super) fn bind(config: &ServingConfig) -> Result<Bound, ServingError> {
    let address = SocketAddr::new(config.bind_address, config.port);
    let bound = || -> std::io::Result<Bound> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            // As Go: the unspecified IPv6 address serves IPv4 as well.
            socket.set_only_v6(!address.ip().is_unspecified())?;
        }
        // On Linux Go sets this always, so that a restart need not wait for old connections to time out; a second listener
        // on the same port stays impossible without SO_REUSEPORT. --permit-address-sharing therefore adds nothing.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(config.permit_port_sharing)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        Ok(Bound { local: listener.local_addr()?, listener })
    };
    bound().map_err(|source| ServingError::Bind { address, source })
}

/// Accepts connections until the shutdown begins. A handshake never holds up the next one.
pub(super) async fn run(bound: Bound, tls: Arc<ServerConfig>, router: Router, limits: Limits, shutdown: Shutdown) {
    let acceptor = TlsAcceptor::from(tls);
    loop {
        let accepted = tokio::select! {
            () = shutdown.begun() => return,
            accepted = bound.listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, remote)) => {
                let connection = connection(stream, acceptor.clone(), router.clone(), limits, shutdown.clone());
                shutdown.spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%remote, %error, "Connection ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "Cannot accept connections on the secure port; trying again");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    limits: Limits,
    shutdown: Shutdown,
) -> Result<(), ConnectionError> {
    let stream = tokio::select! {
        () = shutdown.begun() => return Ok(()),
        stream = timeout(HANDSHAKE, acceptor.accept(stream)) => stream??,
    };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default().into();
    let builder = builder(stream.get_ref().1.alpn_protocol() == Some(b"h2"), limits);
    http(stream, &builder, Peer { certificates }, router, shutdown).await
}

fn builder(http2: bool, limits: Limits) -> Builder<TokioExecutor> {
    let builder = Builder::new(TokioExecutor::new());
    let mut builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    builder.http1().timer(TokioTimer::new()).header_read_timeout(READ_HEADER).max_buf_size(HEADER_LIMIT as usize);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(limits.streams).max_header_list_size(HEADER_LIMIT);
    builder
}

/// Serves one connection until the client leaves, it was idle too long, or the shutdown begins.
async fn http(
    stream: TlsStream<TcpStream>,
    builder: &Builder<TokioExecutor>,
    peer: Peer,
    router: Router,
    shutdown: Shutdown,
) -> Result<(), ConnectionError> {
    let in_flight = Arc::new(watch::Sender::new(0_usize));
    let watched = in_flight.subscribe();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let guard = InFlight::begin(Arc::clone(&in_flight));
        let response = router.clone().oneshot(request);
        async move {
            let response = response.await;
            drop(guard);
            response
        }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = idle(watched) => {}
        () = shutdown.begun() => {}
    }
    connection.as_mut().graceful_shutdown();
    timeout(CLOSE, connection).await?
}

/// Counts a request for as long as it lives.
struct InFlight(Arc<watch::Sender<usize>>);

impl InFlight {
    fn begin(count: Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Resolves once there was no request for [`IDLE`].
async fn idle(mut in_flight: watch::Receiver<usize>) {
    loop {
        if in_flight.wait_for(|count| *count == 0).await.is_err() {
            return;
        }
        tokio::select! {
            _ = in_flight.changed() => {}
            () = sleep(IDLE) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_requests() {
        let count = Arc::new(watch::Sender::new(0));
        let start = Instant::now();
        let waiting = tokio::spawn(idle(count.subscribe()));
        sleep(Duration::from_secs(60)).await;
        let guard = InFlight::begin(Arc::clone(&count));
        sleep(Duration::from_secs(200)).await;
        drop(guard);
        waiting.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 60 + 200 + 90);
    }

    #[tokio::test]
    async fn a_taken_port_names_the_flags_unless_sharing_is_permitted() {
        let local = |port, permit_port_sharing| ServingConfig {
            bind_address: [127, 0, 0, 1].into(),
            port,
            permit_port_sharing,
            ..Default::default()
        };
        let first = bind(&local(0, true)).unwrap();
        let error = bind(&local(first.local.port(), false)).err().unwrap().to_string();
        assert!(error.starts_with("--bind-address, --secure-port: cannot listen on 127.0.0.1:"), "{error}");
        assert_eq!(bind(&local(first.local.port(), true)).unwrap().local, first.local);
    }

    #[test]
    fn zero_streams_means_a_hundred() {
        assert_eq!(Limits::new(&ServingConfig::default()).streams, 100);
        assert_eq!(Limits::new(&ServingConfig { http2_max_streams: 7, ..Default::default() }).streams, 7);
    }
}
