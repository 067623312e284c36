//! TCP and TLS below the pages: listening, slots, handshakes, HTTP/1.1 and HTTP/2, and the limits of clients.
//!
//! In: the settings, a TLS configuration, and the router. Out: requests with their [`ConnectionPeer`]. A connection without
//! a slot is closed before anything is read from it. Time limits of handshake, head and idleness are those of upstream's
//! secure server (`k8s.io/apiserver/pkg/server/secure_serving.go`).

use std::{
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body};
use hyper::{Request, Response, StatusCode, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use rustls::{ServerConfig, pki_types::CertificateDer};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower::ServiceExt;

use super::{
    ServingError,
    activity::{ConnectionActivity, RequestInFlight},
    backpressure::BackpressureStream,
    chunked_body::ChunkedBody,
    config::SecureServingConfig,
    connections::{ConnectionSlot, ConnectionTracker},
    peer_network::{NetworkPermit, PeerNetwork},
};
use crate::runtime::{
    listen_socket::{self, ListenOptions},
    shutdown::Shutdown,
};

const HANDSHAKE: Duration = Duration::from_secs(10);
const READ_HEADER: Duration = Duration::from_secs(32);
/// Time from the end of a request's head to the start of the response. The longest waits are five reviews of 10 s, and a
/// plan.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for requests in flight on a connection that is being closed.
const CLOSE: Duration = Duration::from_secs(10);
/// Delay after a failed accept. Without file descriptors, an immediate retry would be a busy loop.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);
/// Maximum size of a request's head, in bytes. The largest valid part is a token of up to 16 KiB.
const HEAD_LIMIT: u32 = 64 * 1024;
/// Bytes of bodies that a client may send before they are read. The only body that is read has up to 64 bytes.
pub(super) const STREAM_WINDOW: u32 = 1024;
const CONNECTION_WINDOW: u32 = 64 * 1024;
/// Bytes of a response that one stream buffers.
const SEND_BUFFER: usize = 16 * 1024;
/// Number of reset streams at which the connection ends (CVE-2023-44487, CVE-2024-27316).
///
/// It counts streams that the client reset before they were processed, and streams that were reset because of the client's
/// errors.
const RESETS: usize = 20;
/// Interval of pings to a silent client, and their timeout.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);
/// Bytes that the kernel buffers per connection and direction. They count as memory of the container, and the default is
/// megabytes.
const SOCKET_BUFFER: usize = 64 * 1024;
const BACKLOG: i32 = 1024;

/// Limits of one HTTP/2 connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Http2Limits {
    /// Maximum number of concurrent streams.
    pub(super) streams: u32,
    /// Bytes of a body before it is read.
    pub(super) stream_window: u32,
}

/// Other end of a connection.
#[derive(Clone)]
pub(super) struct ConnectionPeer {
    /// Certificate chain from the handshake, leaf first; empty without a certificate. The key is verified, the issuer is
    /// not.
    pub(super) certificates: Arc<[CertificateDer<'static>]>,
    pub(super) slot: Arc<ConnectionSlot>,
}

pub(super) struct BoundListener {
    pub(super) local: SocketAddr,
    listener: TcpListener,
}

/// Listens on the configured address.
pub(super) fn bind(config: &SecureServingConfig) -> Result<BoundListener, ServingError> {
    let address = SocketAddr::new(config.bind_address, config.port);
    let options =
        ListenOptions { only_v6: true, share_port: config.permit_port_sharing, buffer: SOCKET_BUFFER, backlog: BACKLOG };
    // As in Go, the unspecified address of either family serves both families.
    let listener = match address.ip().is_unspecified() {
        true => listen_socket::listen_everywhere(address.port(), options),
        false => listen_socket::listen(address, options),
    };
    let bound = listener.and_then(|listener| Ok(BoundListener { local: listener.local_addr()?, listener }));
    bound.map_err(|source| ServingError::Bind { address, source })
}

/// Accepts connections until the shutdown begins. A handshake does not block other handshakes.
pub(super) async fn run(
    bound: BoundListener,
    tls: Arc<ServerConfig>,
    router: Router,
    connections: ConnectionTracker,
    http2: Http2Limits,
    shutdown: Shutdown,
) {
    let server = ConnectionServer { acceptor: TlsAcceptor::from(tls), router, http2 };
    while let Some(accepted) = shutdown.run_until_begun(bound.listener.accept()).await {
        match accepted {
            Ok((stream, remote)) => {
                let Some(slot) = admit(&connections, &stream, remote.ip()) else { continue };
                let (server, until) = (server.clone(), shutdown.clone());
                shutdown.spawn(async move {
                    if let Err(error) = server.connection(stream, Arc::new(slot), until).await {
                        tracing::debug!(%remote, %error, "Connection ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "Cannot accept connections on the secure port; retrying");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Returns a slot for the connection. Without one it must be closed, with a reset: the kernel keeps nothing of it.
fn admit(connections: &ConnectionTracker, stream: &TcpStream, remote: IpAddr) -> Option<ConnectionSlot> {
    let slot = stream.local_addr().ok().and_then(|local| connections.admit(PeerNetwork::of(remote, local.ip())));
    if slot.is_none() {
        listen_socket::reset_when_dropped(stream);
    }
    slot
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

/// State that all connections share.
#[derive(Clone)]
struct ConnectionServer {
    acceptor: TlsAcceptor,
    router: Router,
    http2: Http2Limits,
}

impl ConnectionServer {
    async fn connection(
        self,
        stream: TcpStream,
        slot: Arc<ConnectionSlot>,
        shutdown: Shutdown,
    ) -> Result<(), ConnectionError> {
        let stream = tokio::select! {
            biased;
            () = shutdown.begun() => return Ok(()),
            () = slot.evicted() => return Err("another connection got its place".into()),
            stream = timeout(HANDSHAKE, self.acceptor.accept(stream)) => stream??,
        };
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default().into();
        let builder = builder(stream.get_ref().1.alpn_protocol() == Some(b"h2"), self.http2);
        http(stream, &builder, ConnectionPeer { certificates, slot }, self.router, shutdown).await
    }
}

fn builder(http2: bool, limits: Http2Limits) -> Builder<TokioExecutor> {
    let builder = Builder::new(TokioExecutor::new());
    let mut builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    builder.http1().timer(TokioTimer::new()).header_read_timeout(READ_HEADER).max_buf_size(HEAD_LIMIT as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(HEAD_LIMIT)
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(CONNECTION_WINDOW.max(limits.stream_window))
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(RESETS)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG);
    builder
}

/// Serves one connection until the client leaves or loses its place, one of the limits is reached, or the shutdown begins.
async fn http(
    stream: TlsStream<TcpStream>,
    builder: &Builder<TokioExecutor>,
    peer: ConnectionPeer,
    router: Router,
    shutdown: Shutdown,
) -> Result<(), ConnectionError> {
    let (activity, slot) = (ConnectionActivity::default(), Arc::clone(&peer.slot));
    let begun = activity.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        respond(router.clone(), request, begun.request())
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(BackpressureStream::new(stream)), service));
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        () = slot.evicted() => return Err("another connection got its place".into()),
        () = activity.response_stalled() => return Err("the answer was not taken in time".into()),
        () = activity.idle() => {}
        () = shutdown.begun() => {}
    }
    connection.as_mut().graceful_shutdown();
    timeout(CLOSE, connection).await?
}

/// Guards that are held while a response is sent.
type ResponseGuards = (RequestInFlight, Option<Arc<NetworkPermit>>);

async fn respond(
    router: Router,
    request: Request<Incoming>,
    mut in_flight: RequestInFlight,
) -> Result<Response<ChunkedBody<ResponseGuards>>, std::convert::Infallible> {
    // Yields after each request, so that a connection with many requests does not delay others.
    tokio::task::yield_now().await;
    let mut response = match timeout(RESPONSE_TIMEOUT, router.oneshot(request)).await {
        Ok(response) => response?,
        Err(_) => {
            let mut response = Response::new(Body::from("no response in time\n"));
            *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
            response
        }
    };
    in_flight.response_started();
    let share = response.extensions_mut().remove::<Arc<NetworkPermit>>();
    Ok(response.map(|body| ChunkedBody::new(body, (in_flight, share))))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[tokio::test]
    async fn a_taken_port_names_the_flags_unless_sharing_is_permitted() {
        let local = |port, permit_port_sharing| SecureServingConfig {
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

    #[tokio::test]
    async fn the_unspecified_address_of_either_family_serves_both() {
        let unspecified = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
        for bind_address in unspecified {
            let bound = bind(&SecureServingConfig { bind_address, port: 0, ..Default::default() }).unwrap();
            let port = bound.local.port();
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            // A machine without IPv6 serves IPv4 only.
            if bound.local.is_ipv6() && std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
                TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.unwrap();
            }
        }
    }
}
