//! Transport that records the time in responses, and the error of the last request without a response.
//!
//! In: requests. Out: the responses of the wrapped transport, unchanged.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::DATE;
use jiff::fmt::rfc2822;
use parking_lot::Mutex;

use crate::{
    providers::azure::transport::{ArmTransport, ArmTransportError},
    runtime::clock::Clock,
};

/// Observations of the transport.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WireSightings {
    /// Seconds by which this machine's clock was ahead of that of the last server, with its host.
    pub(super) ahead: Option<(i64, String)>,
    /// Whether any server has responded.
    pub(super) has_response: bool,
    /// Last request without a response: its host, and the error.
    pub(super) failure: Option<(String, String)>,
}

pub(super) struct ObservedTransport {
    wire: Arc<dyn ArmTransport>,
    seen: Mutex<WireSightings>,
}

impl ObservedTransport {
    pub(super) fn new(wire: Arc<dyn ArmTransport>) -> Self {
        Self { wire, seen: Mutex::default() }
    }

    pub(super) fn seen(&self) -> WireSightings {
        self.seen.lock().clone()
    }
}

#[async_trait]
impl ArmTransport for ObservedTransport {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ArmTransportError> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let response = self.wire.send(request).await;
        let mut seen = self.seen.lock();
        match &response {
            Ok(response) => {
                let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
                let date = date.and_then(|date| rfc2822::parse(date).ok());
                let ahead = date.map(|date| Clock::System.wall().as_second() - date.timestamp().as_second());
                seen.ahead = ahead.map(|seconds| (seconds, host)).or_else(|| seen.ahead.take());
                (seen.failure, seen.has_response) = (None, true);
            }
            Err(error) => seen.failure = Some((host, error.to_string())),
        }
        response
    }
}
