//! Handle of the server: requests in over [`ApiServer::client`] or a socket, responses out; and for tests the state itself.
//!
//! The pure modules of this folder decide what a request does. The in-process client involves no socket and no thread, so
//! that it is deterministic under tokio's paused clock.

use std::{collections::VecDeque, io, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use parking_lot::{Mutex, MutexGuard};
use tower::ServiceExt;

use super::{
    discovery::{self, Document},
    fault_handle::Faults,
    faults::{Crash, FaultTable, Manner, Outcome},
    handler::{self, Reply},
    http::{ResourceRequest, Review, Route, Verb, route},
    kinds, manners,
    partitions::Partitions,
    refusal::Refusal,
    render,
    reviews::{Authorizer, User, Users},
    storage::{Storage, Write},
    watch::{Signals, events},
};
use crate::{
    metrics::Metrics,
    runtime::{client, clock::Clock, store::ObjectKey, watch},
};

/// Header of a server with priority and fairness.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
/// Maximum number of recorded requests.
const MAX_RECORDS: usize = 100_000;

/// A request that the server has received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    pub verb: Verb,
    /// Plural name of the resource.
    pub resource: String,
    /// `status`, `token`; empty for the object itself.
    pub subresource: String,
    /// Namespace; empty for all and for kinds without.
    pub namespace: String,
    /// Name; empty for all, and at create.
    pub name: String,
    /// `User-Agent`.
    pub user_agent: String,
    /// HTTP code of the response; 0 if it was lost, or is pending.
    pub code: u16,
}

/// The server. Clones are the same server.
#[derive(Clone)]
pub struct ApiServer {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) clock: Clock,
    storage: Mutex<Storage>,
    pub(super) faults: Mutex<FaultTable>,
    pub(super) partitions: Partitions,
    users: Mutex<Users>,
    requests: Mutex<VecDeque<RequestRecord>>,
    /// The resourceVersion of the last write; watches wait on it.
    revision: watch::Sender<u64>,
    /// Counts up when open watches are to break.
    pub(super) dropped: watch::Sender<u64>,
    /// Counts up when open watches are to fall silent.
    pub(super) stalled: watch::Sender<u64>,
    /// Counts writes and requests; [`ApiServer::wait_until`] waits on it.
    activity: watch::Sender<u64>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl ApiServer {
    /// Creates a server with the namespaces of a new cluster. Timestamps are taken from `clock`.
    pub fn new(clock: Clock) -> Self {
        let storage = Storage::default();
        let revision = watch::Sender::new(storage.revision());
        let shared = Shared {
            clock,
            storage: Mutex::new(storage),
            faults: Mutex::default(),
            partitions: Partitions::default(),
            users: Mutex::default(),
            requests: Mutex::default(),
            revision,
            dropped: watch::Sender::new(0),
            stalled: watch::Sender::new(0),
            activity: watch::Sender::new(0),
        };
        let server = Self { shared: Arc::new(shared) };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            server.ensure_namespace(name);
        }
        server
    }

    /// Returns the handle that sets up faults.
    pub fn faults(&self) -> Faults {
        Faults::new(self.clone())
    }

    /// Registers a bearer token for TokenReviews.
    pub fn add_token(&self, token: &str, user: User) {
        locked(&self.shared.users).add(token, user);
    }

    /// Sets the rule for SubjectAccessReviews, which gets the spec. Without one, everything is allowed.
    pub fn authorize(&self, authorizer: Authorizer) {
        locked(&self.shared.users).authorize(authorizer);
    }

    /// Returns a client that calls this server in process.
    pub fn client(&self) -> kube::Client {
        self.client_as("")
    }

    /// Returns a client with a `User-Agent` that calls this server in process.
    pub fn client_as(&self, user_agent: &str) -> kube::Client {
        kube::Client::new(self.transport(user_agent), "default")
    }

    /// Returns a client whose waits end as on the network ([`client::client_over_service`]).
    pub fn client_with_deadlines_as(&self, user_agent: &str) -> kube::Client {
        client::client_over_service(self.transport(user_agent).map_err(Into::into), None)
    }

    /// Returns a client with a limit on its side ([`client::client_over_service`]).
    pub fn limited_client_as(&self, user_agent: &str, qps: f32, burst: u32, metrics: &Arc<Metrics>) -> kube::Client {
        client::client_over_service(self.transport(user_agent).map_err(Into::into), Some((qps, burst, metrics)))
    }

    fn transport(
        &self,
        user_agent: &str,
    ) -> impl tower::Service<
        Request<kube::client::Body>,
        Response = Response<Body>,
        Error = io::Error,
        Future = BoxFuture<'static, io::Result<Response<Body>>>,
    > + Clone
    + Send
    + use<> {
        let server = self.clone();
        let user_agent = HeaderValue::from_str(user_agent).ok().filter(|agent| !agent.is_empty());
        tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, user_agent) = (server.clone(), user_agent.clone());
            let response = async move {
                let (mut parts, body) = request.into_parts();
                if let Some(user_agent) = user_agent {
                    parts.headers.entry(header::USER_AGENT).or_insert(user_agent);
                }
                let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                server.respond(Request::from_parts(parts, body)).await
            };
            Box::pin(response) as BoxFuture<'static, _>
        })
    }

    /// Returns the requests for resources so far, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        locked(&self.shared.requests).iter().cloned().collect()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        locked(&self.shared.requests).clear();
    }

    /// Resolves when `condition` holds. It is evaluated after each write and each request, never by the clock.
    pub async fn wait_until(&self, condition: impl Fn(&ApiServer) -> bool) {
        let mut activity = self.shared.activity.subscribe();
        loop {
            activity.mark_unchanged();
            if condition(self) {
                return;
            }
            // The sender lives in `self`, so waiting cannot fail.
            let _ = activity.changed().await;
        }
    }

    /// Responds to one HTTP request. An error is a broken connection.
    pub async fn respond(&self, request: Request<Bytes>) -> io::Result<Response<Body>> {
        let mut response = self.respond_to(request).await?;
        response.headers_mut().insert(FLOW_SCHEMA, HeaderValue::from_static("sandbox"));
        Ok(response)
    }

    async fn respond_to(&self, request: Request<Bytes>) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let route = match route(&parts.method, &parts.uri, &parts.headers) {
            Ok(route) => route,
            Err(refusal) => return Ok(refused(&refusal)),
        };
        let body = handler::Body { content_type: text(&parts.headers, &header::CONTENT_TYPE), bytes: &body };
        match route {
            Route::Document(path) => Ok(document(&path)),
            Route::Review(review) => Ok(self.review(review, body).unwrap_or_else(|refusal| refused(&refusal))),
            Route::Resource(request) => self.resource(request, text(&parts.headers, &header::USER_AGENT), body).await,
        }
    }

    fn review(&self, review: Review, body: handler::Body<'_>) -> Result<Response<Body>, Refusal> {
        let response = locked(&self.shared.users).review(review, body.value()?, self.shared.clock.wall());
        Ok(json(201, render::bytes(&response)))
    }

    async fn resource(
        &self,
        request: ResourceRequest,
        user_agent: &str,
        body: handler::Body<'_>,
    ) -> io::Result<Response<Body>> {
        let partitions = &self.shared.partitions;
        partitions.request_arrives(user_agent).await;
        let mut record = record(&request, user_agent);
        let (delay, outcome) = locked(&self.shared.faults).decide(&record);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let response = match outcome {
            Outcome::Lose(Crash::BeforeEffect) => None,
            Outcome::Refuse(fault) => Some(refused_as(fault.code, fault.retry_after)),
            Outcome::Serve(Manner::Expired) if request.verb != Verb::Watch => Some(refused_as(410, None)),
            Outcome::Serve(manner) => {
                Some(manners::applied(manner, self.serve_resource(&request, user_agent, body, manner)).await)
            }
            Outcome::Hang => {
                self.remember(record);
                return std::future::pending().await;
            }
            Outcome::Lose(Crash::AfterEffect) => {
                self.serve_resource(&request, user_agent, body, Manner::Whole);
                None
            }
        };
        record.code = response.as_ref().map_or(0, |response| response.status().as_u16());
        self.remember(record);
        if matches!(outcome, Outcome::Lose(_)) {
            self.shared.dropped.send_modify(|count| *count += 1);
        }
        partitions.response_arrives(user_agent).await;
        response.ok_or_else(|| io::Error::new(io::ErrorKind::ConnectionReset, "connection lost by an injected fault"))
    }

    fn serve_resource(
        &self,
        request: &ResourceRequest,
        user_agent: &str,
        body: handler::Body<'_>,
        manner: Manner,
    ) -> Response<Body> {
        if request.subresource == "token" {
            return self.issue_token(request, body).unwrap_or_else(|refusal| refused(&refusal));
        }
        let write = self.write_now();
        match self.with_storage(|storage| handler::execute(storage, request, body, write)) {
            Ok(reply) => self.reply(request, user_agent, reply, manner),
            Err(refusal) => refused(&refusal),
        }
    }

    fn reply(&self, request: &ResourceRequest, user_agent: &str, reply: Reply, manner: Manner) -> Response<Body> {
        match reply {
            Reply::Object(code, object) => {
                json(code, render::bytes(&*render::object(request.kind, &object, request.representation)))
            }
            Reply::Document(value) => json(200, render::bytes(&value)),
            Reply::List(list) => json(200, render::list(request.kind, &list, request.representation)),
            Reply::Watch(watch) => {
                let server = self.clone();
                let read = move |reader: &mut dyn FnMut(&Storage)| reader(&locked(&server.shared.storage));
                let signals = Signals {
                    revision: self.shared.revision.subscribe(),
                    dropped: self.shared.dropped.subscribe(),
                    stalled: self.shared.stalled.subscribe(),
                    partitions: self.shared.partitions.clone(),
                    user_agent: user_agent.to_owned(),
                };
                let watch = watch.in_manner(manner);
                response(200, "application/json", Body::from_stream(events(watch, read, signals)))
            }
        }
    }

    fn issue_token(&self, request: &ResourceRequest, body: handler::Body<'_>) -> Result<Response<Body>, Refusal> {
        if request.verb != Verb::Create {
            return Err(Refusal::method_not_allowed());
        }
        let namespace = request.namespace.as_deref().unwrap_or_default();
        let key = ObjectKey::namespaced(namespace, request.name.as_deref().unwrap_or_default());
        let requested = body.value()?;
        self.with_storage(|storage| storage.get(&kinds::SERVICE_ACCOUNT, &key))?;
        self.shared.activity.send_modify(|count| *count += 1);
        let serial = *self.shared.activity.borrow();
        let issued = locked(&self.shared.users).issue(&key, requested, self.shared.clock.wall(), serial);
        Ok(json(201, render::bytes(&issued)))
    }

    pub(super) fn write_now(&self) -> Write {
        Write { now: self.shared.clock.wall(), dry_run: false }
    }

    /// Works on the state, then wakes the waiters for a change of it.
    pub(super) fn with_storage<T>(&self, work: impl FnOnce(&mut Storage) -> T) -> T {
        let mut storage = locked(&self.shared.storage);
        let result = work(&mut storage);
        let now = storage.revision();
        drop(storage);
        let changed = self.shared.revision.send_if_modified(|revision| {
            let changed = *revision < now;
            *revision = now.max(*revision);
            changed
        });
        if changed {
            self.shared.activity.send_modify(|count| *count += 1);
        }
        result
    }

    /// Replaces the state by an older one. Every connection for watches breaks.
    pub(super) fn replace_state(&self, older: &Storage) {
        let revision = {
            let mut storage = locked(&self.shared.storage);
            *storage = older.restored(storage.restores());
            storage.revision()
        };
        self.shared.revision.send_replace(revision);
        self.shared.dropped.send_modify(|count| *count += 1);
        self.shared.activity.send_modify(|count| *count += 1);
    }

    fn remember(&self, record: RequestRecord) {
        let mut requests = locked(&self.shared.requests);
        requests.push_back(record);
        if requests.len() > MAX_RECORDS {
            requests.pop_front();
        }
        drop(requests);
        self.shared.activity.send_modify(|count| *count += 1);
    }
}

fn record(request: &ResourceRequest, user_agent: &str) -> RequestRecord {
    RequestRecord {
        verb: request.verb,
        resource: request.kind.plural.to_owned(),
        subresource: request.subresource.clone(),
        namespace: request.namespace.clone().unwrap_or_default(),
        name: request.name.clone().unwrap_or_default(),
        user_agent: user_agent.to_owned(),
        code: 0,
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn document(path: &str) -> Response<Body> {
    match discovery::document(path) {
        Ok(Document::Json(value)) => json(200, render::bytes(&value)),
        Ok(Document::Text(text)) => response(200, "text/plain", Body::from(text)),
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = json(refusal.code, render::bytes(&refusal.body()));
    if let Some(seconds) = refusal.details["retryAfterSeconds"].as_u64() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn refused_as(code: u16, retry_after: Option<u32>) -> Response<Body> {
    let mut response = refused(&Refusal::of_code(code, "refused by an injected fault"));
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn json(code: u16, body: Vec<u8>) -> Response<Body> {
    response(code, "application/json", Body::from(body))
}

fn response(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests;
