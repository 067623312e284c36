//! A simulated Azure: the handle by which tests set it up and inspect it, and the only path of requests.
//!
//! In: HTTP requests, in process ([`Azure::transport`]) or from a socket ([`super::listen`]). Out: HTTP responses, or a
//! broken connection. [`super::handle`] and [`super::faults`] decide on the response; this module only waits, locks and
//! writes the log.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    delivery::{Delivery, Pace},
    faults::{Effect, Fault, FaultTable},
    handle::{self, Denial, State},
    log::{Log, RequestRecord},
    options::{AzureOptions, Class},
    private_link::{self, ConnectionStatus},
    refusal::Refusal,
    request::{self, Answer, ArmRequest},
    route::{self, Target},
    store::{InvalidDocument, Store},
    write,
};
use crate::providers::azure::transport::{ArmTransport, ArmTransportError};

/// Other service on the same listener: token endpoints, instance metadata.
#[async_trait]
pub trait Endpoint: Send + Sync {
    /// Returns `true` if it serves requests for this host (lower-case, without port) and path. Called before ARM is.
    fn serves(&self, host: &str, path: &str) -> bool;
    async fn respond(&self, request: Request<Bytes>) -> Response<Bytes>;
}

/// Returns the problem of a bearer token; `None` if it is valid.
pub type TokenCheck = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Returns the owner of a bearer token.
pub type TokenOwner = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A simulated Azure. Clones share their state.
#[derive(Clone)]
pub struct Azure {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    faults: Mutex<FaultTable>,
    log: Mutex<Log>,
    endpoints: Mutex<Vec<Arc<dyn Endpoint>>>,
    tokens: Mutex<Option<TokenCheck>>,
    owners: Mutex<Option<TokenOwner>>,
    requests: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Azure {
    /// Creates an Azure with these settings and no documents.
    pub fn new(options: AzureOptions) -> Self {
        let faults = Mutex::new(FaultTable::new(options.seed));
        let state = Mutex::new(State { options, ..State::default() });
        let shared = Shared {
            state,
            faults,
            log: Mutex::default(),
            endpoints: Mutex::default(),
            tokens: Mutex::default(),
            owners: Mutex::default(),
            requests: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns a transport for the ARM client that calls this in process.
    pub fn transport(&self) -> Arc<dyn ArmTransport> {
        Arc::new(self.clone())
    }

    /// Runs `work` on the documents, after the operations that are due have ended, without quotas, faults or log.
    pub fn with_store<T>(&self, work: impl FnOnce(&mut Store) -> T) -> T {
        let mut state = locked(&self.shared.state);
        write::settle(&mut state, Instant::now());
        work(&mut state.store)
    }

    /// Changes settings while the server runs.
    pub fn with_options<T>(&self, work: impl FnOnce(&mut AzureOptions) -> T) -> T {
        work(&mut locked(&self.shared.state).options)
    }

    pub fn put_document(&self, document: Value) -> Result<(), InvalidDocument> {
        self.with_store(|store| store.put_document(document))
    }

    pub fn delete_document(&self, id: &str) -> bool {
        self.with_store(|store| store.delete_document(id))
    }

    pub fn change_document(&self, id: &str, change: impl FnOnce(&mut Value)) -> bool {
        self.with_store(|store| store.change_document(id, change))
    }

    pub fn document(&self, id: &str) -> Option<Value> {
        self.with_store(|store| store.document(id))
    }

    pub fn documents_of(&self, resource_type: &str) -> Vec<Value> {
        self.with_store(|store| store.documents_of(resource_type))
    }

    pub fn load(&self, documents: Vec<Value>) -> Result<(), InvalidDocument> {
        self.with_store(|store| store.load(documents))
    }

    pub fn dump(&self) -> Vec<Value> {
        self.with_store(|store| store.dump())
    }

    /// Returns the id of the operation that runs on a document.
    pub fn running_operation(&self, document: &str) -> Option<String> {
        let mut state = locked(&self.shared.state);
        write::settle(&mut state, Instant::now());
        state.operations.running(&document.to_ascii_lowercase()).map(|operation| operation.id.clone())
    }

    /// Connects another consumer's private endpoint with a private link service, as [`private_link::connect`] does.
    pub fn connect_private_endpoint(
        &self,
        endpoint: &str,
        service: &str,
        status: ConnectionStatus,
    ) -> Result<String, InvalidDocument> {
        self.with_store(|store| private_link::connect(store, endpoint, service, status))
    }

    /// Serves another endpoint in addition to ARM.
    pub fn add_endpoint(&self, endpoint: Arc<dyn Endpoint>) {
        locked(&self.shared.endpoints).push(endpoint);
    }

    /// Accepts only tokens without a problem according to `check`. By default any token is accepted.
    pub fn check_tokens(&self, check: TokenCheck) {
        *locked(&self.shared.tokens) = Some(check);
    }

    /// Counts the tokens that have the same owner against the same quotas. By default each token is a principal of its own.
    pub fn know_owners(&self, owner: TokenOwner) {
        *locked(&self.shared.owners) = Some(owner);
    }

    /// Denies an action (`Microsoft.Network/*/write`; `*` matches any text) wherever the scope contains `scope`.
    pub fn deny(&self, action: &str, scope: &str) {
        let denial = Denial { action: action.to_ascii_lowercase(), scope: scope.to_ascii_lowercase() };
        locked(&self.shared.state).denials.push(denial);
    }

    /// Removes all denials of actions.
    pub fn allow_all(&self) {
        locked(&self.shared.state).denials.clear();
    }

    /// Returns the faults that are set up. Do not hold the guard over an `await`.
    pub fn faults(&self) -> MutexGuard<'_, FaultTable> {
        locked(&self.shared.faults)
    }

    /// Adds a fault to the table.
    pub fn add_fault(&self, fault: Fault) {
        self.faults().add(fault);
    }

    /// Returns the requests so far, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        locked(&self.shared.log).records().cloned().collect()
    }

    /// Returns the number of requests so far that satisfy `is_so`.
    pub fn count(&self, is_so: impl Fn(&RequestRecord) -> bool) -> usize {
        locked(&self.shared.log).records().filter(|record| is_so(record)).count()
    }

    /// Returns the read-only fields that bodies of writes have had so far, with the type of the document.
    pub fn read_only_sent(&self) -> Vec<String> {
        locked(&self.shared.state).read_only_sent.iter().cloned().collect()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        locked(&self.shared.log).clear();
    }

    /// Responds to a request, once the whole response has arrived. `NotSent` and `NoAnswer` are broken connections.
    pub async fn respond(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        self.deliver(request).await?.arrive().await
    }

    /// Responds to a request; the body is still to be delivered.
    pub async fn deliver(&self, request: Request<Bytes>) -> Result<Delivery, ArmTransportError> {
        let host = request::host(&request);
        let endpoints = locked(&self.shared.endpoints).clone();
        let endpoint = endpoints.into_iter().find(|endpoint| endpoint.serves(&host, request.uri().path()));
        let record = record(&request, host, endpoint.is_some());
        let verdict = self.faults().decide(&record);
        let number = locked(&self.shared.log).add(record);
        tokio::time::sleep(verdict.delay).await;
        let pace = Pace::of(verdict.effect.as_ref());
        let response = self.affected(request, endpoint, verdict.effect).await?;
        if !matches!(pace, Pace::Breaks | Pace::Stalls) {
            locked(&self.shared.log).record_response(number, response.status().as_u16(), response.body().len());
        }
        Ok(Delivery { response, pace })
    }

    async fn affected(
        &self,
        request: Request<Bytes>,
        endpoint: Option<Arc<dyn Endpoint>>,
        effect: Option<Effect>,
    ) -> Result<Response<Bytes>, ArmTransportError> {
        match effect {
            Some(Effect::NoConnection) => Err(ArmTransportError::NotSent("no connection, by an injected fault".to_owned())),
            Some(Effect::DropBefore) => Err(lost()),
            Some(Effect::Hang) => std::future::pending().await,
            Some(Effect::Refuse(status, code, retry_after)) => Ok(self.refused(status, &code, retry_after)),
            Some(Effect::DropAfter) => {
                self.serve_one(request, endpoint, None).await;
                Err(lost())
            }
            Some(Effect::Garbage) => {
                self.serve_one(request, endpoint, None).await;
                Ok(page(StatusCode::OK))
            }
            Some(Effect::ProxyPage(status)) => Ok(page(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY))),
            Some(Effect::Truncated) => Ok(truncated(self.serve_one(request, endpoint, None).await)),
            effect => Ok(self.serve_one(request, endpoint, effect.as_ref()).await),
        }
    }

    fn refused(&self, status: u16, code: &str, retry_after: Option<u64>) -> Response<Bytes> {
        let refusal = Refusal::new(status, code, "Refused by an injected fault.");
        Answer::refused(&Refusal { retry_after, ..refusal }).response(self.next_number())
    }

    fn next_number(&self) -> u64 {
        self.shared.requests.fetch_add(1, Ordering::Relaxed)
    }

    async fn serve_one(
        &self,
        request: Request<Bytes>,
        endpoint: Option<Arc<dyn Endpoint>>,
        effect: Option<&Effect>,
    ) -> Response<Bytes> {
        if let Some(endpoint) = endpoint {
            return endpoint.respond(request).await;
        }
        let (response, delay) = self.arm(&request, effect);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        response.response(self.next_number())
    }

    fn arm(&self, request: &Request<Bytes>, effect: Option<&Effect>) -> (Answer, Duration) {
        let mut request = ArmRequest::new(request);
        let owners = locked(&self.shared.owners).clone();
        if let Some(owner) = owners.zip(request.token.as_deref()).and_then(|(owner_of, token)| owner_of(token)) {
            request.principal = owner;
        }
        let check = locked(&self.shared.tokens).clone();
        let problem = match (&request.token, check) {
            (None, _) => Some(String::new()),
            (Some(token), Some(check)) => check(token),
            (Some(_), None) => None,
        };
        let mut state = locked(&self.shared.state);
        handle::handle(&mut state, &request, problem.as_deref(), effect, Instant::now())
    }
}

#[async_trait]
impl ArmTransport for Azure {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        self.respond(request).await
    }
}

fn record(request: &Request<Bytes>, host: String, other: bool) -> RequestRecord {
    let path = request.uri().path();
    let target = route::target(path);
    let class = if other { Class::Other } else { request::class(request.method().as_str(), target.as_ref()) };
    let agent = request.headers().get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    RequestRecord {
        method: request.method().as_str().to_owned(),
        host,
        path: path.to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        class,
        resource_type: target.as_ref().map(Target::kind).unwrap_or_default(),
        list: target.as_ref().is_some_and(Target::is_list),
        sent: request.body().len(),
        status: 0,
        bytes: 0,
        at: Instant::now(),
        user_agent: agent.unwrap_or_default().to_owned(),
    }
}

fn lost() -> ArmTransportError {
    ArmTransportError::NoAnswer("connection lost by an injected fault".to_owned())
}

/// Returns the page of a proxy.
fn page(status: StatusCode) -> Response<Bytes> {
    let mut response =
        Response::new(Bytes::from_static(b"<html><body>Our services aren't available right now</body></html>"));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/html"));
    *response.status_mut() = status;
    response
}

fn truncated(response: Response<Bytes>) -> Response<Bytes> {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let half = body.len() / 2;
    Response::from_parts(parts, body.slice(..half))
}
