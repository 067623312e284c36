//! Requests to the target, kube-proxy's health check on the loopback.
//!
//! In: a request and its client. Out: the target's response with status and body unchanged; 502 without a response, 504 after a
//! timeout, 413 for a request with a body, which no probe has. Each request has its own connection, because a reused one may
//! have been closed by the target and would fail a probe.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{
    body::{Body, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::forwarded::{add_client, origin_form, remove_hop_by_hop};
use crate::runtime::log_rate_limit::LogRateLimit;

/// Time from a request's head to the end of its response. Azure abandons a probe after its interval, at least 5 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes of a response's body; kube-proxy's has less than 200.
const BODY_LIMIT: usize = 64 * 1024;

type ForwardError = Box<dyn std::error::Error + Send + Sync>;

/// Target of the probes.
#[derive(Clone)]
pub(super) struct ProbeTarget {
    /// Addresses to connect to, in this order.
    addresses: [SocketAddr; 2],
    /// Rate limit of the log of probes without a response, because peers determine their number.
    log: Arc<LogRateLimit>,
}

impl ProbeTarget {
    pub(super) fn new(addresses: [SocketAddr; 2]) -> Self {
        Self { addresses, log: Arc::default() }
    }

    /// Returns the target's response, or one that reports its absence.
    pub(super) async fn respond(&self, request: Request<Incoming>, client: IpAddr) -> Response<Full<Bytes>> {
        if request.method() == Method::CONNECT {
            return plain_response(StatusCode::METHOD_NOT_ALLOWED);
        }
        if !request.body().is_end_stream() {
            return plain_response(StatusCode::PAYLOAD_TOO_LARGE);
        }
        match timeout(RESPONSE_TIMEOUT, self.forward(request, client)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                self.warn(&error);
                plain_response(StatusCode::BAD_GATEWAY)
            }
            Err(_) => {
                self.warn(&format!("no response within {RESPONSE_TIMEOUT:?}"));
                plain_response(StatusCode::GATEWAY_TIMEOUT)
            }
        }
    }

    fn warn(&self, error: &dyn fmt::Display) {
        if let Some(omitted) = self.log.permit() {
            tracing::warn!(%error, others = omitted, "the target did not respond to a probe");
        }
    }

    async fn forward(&self, request: Request<Incoming>, client: IpAddr) -> Result<Response<Full<Bytes>>, ForwardError> {
        let (mut head, _) = request.into_parts();
        remove_hop_by_hop(&mut head.headers);
        add_client(&mut head.headers, client);
        head.headers.entry(header::HOST).or_insert(HeaderValue::from_static("localhost"));
        head.uri = origin_form(&head.uri)?;
        head.version = http::Version::HTTP_11;
        self.exchange(Request::from_parts(head, Empty::new())).await
    }

    async fn exchange(&self, request: Request<Empty<Bytes>>) -> Result<Response<Full<Bytes>>, ForwardError> {
        let stream = TcpStream::connect(&self.addresses[..]).await?;
        let (mut sender, connection) = http1::Builder::new().handshake(TokioIo::new(stream)).await?;
        let exchanged = async {
            let (mut head, body) = sender.send_request(request).await?.into_parts();
            let body = read_body(body).await?;
            remove_hop_by_hop(&mut head.headers);
            head.version = http::Version::HTTP_11;
            Ok(Response::from_parts(head, Full::new(body)))
        };
        let mut exchanged = std::pin::pin!(exchanged);
        tokio::select! {
            biased;
            response = exchanged.as_mut() => response,
            // The response may have arrived together with the end of the connection.
            _ = connection => exchanged.await,
        }
    }
}

/// Copies the body, because each frame keeps a whole buffer allocated.
async fn read_body(mut body: Incoming) -> Result<Bytes, ForwardError> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if read.len() + data.len() > BODY_LIMIT {
            return Err(format!("its response has more than {BODY_LIMIT} bytes").into());
        }
        read.extend_from_slice(&data);
    }
    Ok(read.into())
}

fn plain_response(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
