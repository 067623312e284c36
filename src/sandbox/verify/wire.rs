//! Transports of a run: one stops at an interruption between two requests and sends writes only for resources of the run,
//! the other records the exchanges of a step.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::{
    providers::azure::{
        model::spelling,
        transport::{ArmTransport, ArmTransportError},
    },
    runtime::{shutdown::Shutdown, watch},
};

/// Prefix of the names of all resources that runs create.
pub const PREFIX: &str = "ccmv-";

/// Control that ends a run between two requests. Clones share their state.
#[derive(Clone)]
pub struct RunControl {
    stop: Shutdown,
    sent: Arc<AtomicUsize>,
    last: Option<usize>,
    in_flight: watch::Sender<usize>,
}

impl RunControl {
    /// Creates a control that stops when `stop` begins; with `last`, after this number of requests.
    pub fn new(stop: &Shutdown, last: Option<usize>) -> Self {
        Self { stop: stop.child(), sent: Arc::default(), last, in_flight: watch::Sender::new(0) }
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.has_begun()
    }

    /// Returns the number of requests so far.
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Waits until the run is stopped and no request is in flight.
    pub async fn stopped(&self) {
        self.stop.begun().await;
        let mut in_flight = self.in_flight.subscribe();
        // The sender is a field of this value.
        let _ = in_flight.wait_for(|count| *count == 0).await;
    }

    fn enter(&self) -> Result<ControlledRequest, ArmTransportError> {
        if self.is_stopped() {
            return Err(ArmTransportError::NotSent("the run was interrupted".to_owned()));
        }
        self.in_flight.send_modify(|count| *count += 1);
        let sent = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(ControlledRequest { control: self.clone(), is_last: self.last.is_some_and(|last| sent >= last) })
    }
}

struct ControlledRequest {
    control: RunControl,
    is_last: bool,
}

impl Drop for ControlledRequest {
    fn drop(&mut self) {
        if self.is_last {
            self.control.stop.begin();
        }
        self.control.in_flight.send_modify(|count| *count -= 1);
    }
}

/// Returns `true` if a request reads, requests a token, or writes something in `group` whose name begins with `prefix`.
pub fn is_in_scope(method: &Method, path: &str, group: &str, prefix: &str) -> bool {
    let requests_token = *method == Method::POST && path.ends_with("/token");
    if requests_token || matches!(*method, Method::GET | Method::HEAD) {
        return true;
    }
    let rest = spelling::strip_start(path, group).and_then(|rest| spelling::strip_start(rest, "/providers/"));
    rest.and_then(|rest| rest.split('/').nth(2)).is_some_and(|name| spelling::starts_with(name, prefix))
}

/// Transport that forwards requests until the run is stopped.
pub struct VerifyTransport {
    pub wire: Arc<dyn ArmTransport>,
    pub control: RunControl,
    /// Id of the resource group.
    pub group: String,
    /// Prefix of the names of created resources.
    pub prefix: String,
}

#[async_trait]
impl ArmTransport for VerifyTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        if !is_in_scope(request.method(), request.uri().path(), &self.group, &self.prefix) {
            let line = format!("{} {}", request.method(), request.uri().path());
            return Err(ArmTransportError::NotSent(format!("a run writes only what it creates: {line} was not sent")));
        }
        let _in_flight = self.control.enter()?;
        self.wire.send(request).await
    }
}

/// A request and its response.
#[derive(Debug, Clone)]
pub struct VerifyExchange {
    pub method: Method,
    pub path: String,
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// JSON; null if it is none.
    pub body: Value,
}

impl VerifyExchange {
    fn of(method: Method, path: String, response: &Response<Bytes>) -> Self {
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Self {
            method,
            path,
            status: response.status().as_u16(),
            headers: response.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect(),
            body: serde_json::from_slice(response.body()).unwrap_or_default(),
        }
    }

    /// Returns `true` if this is the poll of an operation.
    pub fn is_poll(&self) -> bool {
        let path = self.path.to_ascii_lowercase();
        ["/operations/", "/operationresults/", "/diskoperations/"].iter().any(|part| path.contains(part))
    }
}

/// Transport that records the exchanges of one step.
pub struct RecordingTransport {
    wire: Arc<dyn ArmTransport>,
    exchanges: Mutex<Vec<VerifyExchange>>,
    count: watch::Sender<usize>,
}

impl RecordingTransport {
    pub fn new(wire: Arc<dyn ArmTransport>) -> Self {
        Self { wire, exchanges: Mutex::default(), count: watch::Sender::new(0) }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<VerifyExchange>> {
        self.exchanges.lock()
    }

    pub fn exchanges(&self) -> Vec<VerifyExchange> {
        self.locked().clone()
    }

    /// Waits for the response to the first request.
    pub async fn wait_for_response(&self) {
        let mut count = self.count.subscribe();
        // The sender is a field of this value.
        let _ = count.wait_for(|count| *count > 0).await;
    }
}

#[async_trait]
impl ArmTransport for RecordingTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.wire.send(request).await?;
        self.locked().push(VerifyExchange::of(method, path, &response));
        self.count.send_modify(|count| *count += 1);
        Ok(response)
    }
}
