//! HTTP/2 in memory, on a paused clock: a peer that responds to pings may be slow; the connection to a silent peer is
//! closed.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::ReadBufCursor;
use hyper_util::client::legacy::connect::Connected;
use parking_lot::Mutex;
use tokio::{
    io::DuplexStream,
    time::{Instant, timeout},
};

use super::*;

/// Connection that negotiated HTTP/2.
struct InMemory(TokioIo<DuplexStream>);

impl Connection for InMemory {
    fn connected(&self) -> Connected {
        Connected::new().negotiated_h2()
    }
}

impl Read for InMemory {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for InMemory {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Serves HTTP/2, including pings, and never responds to a request.
async fn respond_to_pings(peer: DuplexStream) {
    let never = |_: Request<Incoming>| std::future::pending::<Result<Response<Body>, Infallible>>();
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(peer), hyper::service::service_fn(never)).await;
}

/// Returns a sender to a peer that responds to pings if `is_alive`.
fn sender(is_alive: bool) -> Arc<SendRequestFn> {
    let silent = Arc::new(Mutex::new(Vec::new()));
    let connect = tower::service_fn(move |_: Uri| {
        let (near, far) = tokio::io::duplex(1 << 16);
        if is_alive {
            tokio::spawn(respond_to_pings(far));
        } else {
            silent.lock().push(far);
        }
        std::future::ready(Ok::<_, BoxError>(InMemory(TokioIo::new(near))))
    });
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let names = Arc::new(hyper_rustls::DefaultServerNameResolver::default());
    pool_over(connect, ThroughProxy::default(), names, 8)(tls.into())
}

#[tokio::test(start_paused = true)]
async fn a_request_to_a_peer_without_ping_responses_fails() {
    let hour = Duration::from_secs(3600);
    for is_alive in [true, false] {
        let (send, begun) = (sender(is_alive), Instant::now());
        let result = timeout(hour, send(Request::get("http://server/").body(Body::empty()).unwrap())).await;
        assert_eq!(result.is_err(), is_alive, "the request waits for a response that may come");
        assert!(result.is_err() || result.unwrap().is_err());
        assert_eq!(begun.elapsed().as_secs(), if is_alive { hour } else { PING_EVERY + PING_TIMEOUT }.as_secs());
    }
}
