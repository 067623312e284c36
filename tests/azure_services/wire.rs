//! The connections of one process to ARM and to the API server. Cutting them simulates the end of a process: no request leaves it, and no
//! response reaches it.
//!
//! An [`Objection`] is a rule of ARM about the content of documents that the simulator does not model.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::{Future, pending},
    io,
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use cloud_controller_manager::{
    app::manager::ClientSource,
    cloud_provider::{PlannedWrite, WritePlan},
    providers::azure::transport::{ArmTransport, ArmTransportError, PlanWitness},
    runtime::leader_election::Leadership,
    sandbox::{
        api_server::ApiServer,
        azure::{Azure, Crash},
    },
};
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::azure_services::order_on_the_wire::WriteOrder;

/// Rule of ARM that refuses a PUT of a document of this type that contains this text.
#[derive(Debug, Clone)]
pub(crate) struct Objection {
    /// Last part of the type: `loadBalancers`.
    pub(crate) kind: &'static str,
    /// Text that must not be in the body.
    pub(crate) text: String,
    /// Code of the refusal.
    pub(crate) code: &'static str,
    /// Message of the refusal.
    pub(crate) message: String,
}

/// ARM's rules beyond the modeled ones, for all processes. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objections {
    rules: Arc<Mutex<Vec<Objection>>>,
    refused: Arc<Mutex<usize>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Objections {
    /// Adds a rule.
    pub(crate) fn add(&self, rule: Objection) {
        locked(&self.rules).push(rule);
    }

    /// Removes all rules.
    pub(crate) fn clear(&self) {
        locked(&self.rules).clear();
    }

    /// Returns the number of requests refused so far. The simulator does not see them.
    pub(crate) fn refused(&self) -> usize {
        *locked(&self.refused)
    }

    fn to(&self, request: &Request<Bytes>) -> Option<Response<Bytes>> {
        let path = request.uri().path().to_ascii_lowercase();
        let kind = path.rsplit('/').nth(1)?;
        let body = std::str::from_utf8(request.body()).unwrap_or_default();
        let rules = locked(&self.rules);
        let mut met = rules.iter().filter(|rule| rule.kind.eq_ignore_ascii_case(kind) && body.contains(&rule.text));
        let rule = met.next().filter(|_| request.method() == http::Method::PUT)?;
        *locked(&self.refused) += 1;
        let error = json!({"error": {"code": rule.code, "message": rule.message}}).to_string();
        let mut response = Response::new(Bytes::from(error));
        *response.status_mut() = http::StatusCode::BAD_REQUEST;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Some(response)
    }
}

/// False response in place of a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Lie {
    /// An empty list.
    Empty,
    /// The list without its first document.
    Partial,
    /// ARM's 404: there is no such resource group.
    NoGroup,
    /// A proxy's 404.
    Page,
}

/// Lists that get a false response.
#[derive(Debug, Clone, Copy)]
struct Deceit {
    /// Last part of the type: `loadBalancers`.
    list: &'static str,
    lie: Lie,
    /// Lists of the kind until the false response.
    remaining: usize,
    /// Whether later lists get it, too.
    lasting: bool,
    /// Whether a list has got it.
    has_lied: bool,
}

impl Lie {
    fn response(self, truth: &Response<Bytes>) -> Response<Bytes> {
        let (status, kind, body) = match self {
            Lie::Empty => (200, "application/json", json!({"value": []}).to_string()),
            Lie::Partial => {
                let mut list: Value = serde_json::from_slice(truth.body()).unwrap_or_default();
                if let Some(documents) = list["value"].as_array_mut().filter(|documents| !documents.is_empty()) {
                    documents.remove(0);
                }
                (truth.status().as_u16(), "application/json", list.to_string())
            }
            Lie::NoGroup => {
                let message = "Resource group 'rg-test' could not be found.";
                let error = json!({"error": {"code": "ResourceGroupNotFound", "message": message}});
                (404, "application/json", error.to_string())
            }
            Lie::Page => (404, "text/html", "<html><h1>404 Not Found</h1></html>".to_owned()),
        };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}

/// Kinds and bodies that plans contain for a write.
type PlannedBodies = Vec<(&'static str, Option<Value>)>;

/// Kinds of writes whose bodies depend on a read immediately before, so the plan has none.
const MADE_FROM_READS: [&str; 2] = ["backend_pool", "subnet"];

/// Planned writes that were not sent yet, and sent writes that no plan contained. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Witness {
    /// By target in lower case, then by method.
    planned: Arc<Mutex<BTreeMap<String, BTreeMap<String, PlannedBodies>>>>,
    unplanned: Arc<Mutex<Vec<String>>>,
    pub(crate) order: WriteOrder,
}

/// A write of the resources that Services need.
#[derive(Debug, Clone)]
pub(crate) struct ObservedWrite {
    pub(crate) method: String,
    /// In lower case; for a migration, the load balancer.
    pub(crate) target: String,
    /// `Null`: there is none.
    pub(crate) body: Value,
}

impl fmt::Display for ObservedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.target)
    }
}

/// Returns the path at which two documents differ, with both values.
fn difference(path: &str, planned: &Value, sent: &Value) -> Option<String> {
    match (planned, sent) {
        (Value::Object(planned_part), Value::Object(sent_part)) => {
            let names: BTreeSet<&String> = planned_part.keys().chain(sent_part.keys()).collect();
            names.into_iter().find_map(|name| difference(&format!("{path}/{name}"), &planned[name], &sent[name]))
        }
        (Value::Array(planned_part), Value::Array(sent_part)) if planned_part.len() == sent_part.len() => {
            let mut pairs = planned_part.iter().zip(sent_part).enumerate();
            pairs.find_map(|(index, (planned_part, sent_part))| {
                difference(&format!("{path}/{index}"), planned_part, sent_part)
            })
        }
        _ => (planned != sent).then(|| format!("{path}: planned {planned}, sent {sent}")),
    }
}

impl Witness {
    /// Writes that no plan contained, of those that were made since the last write of the same document.
    pub(crate) fn unplanned(&self) -> Vec<String> {
        locked(&self.unplanned).clone()
    }

    fn check(&self, write: &ObservedWrite) {
        let ObservedWrite { method, target, body } = write;
        let planned = locked(&self.planned);
        let bodies = planned.get(target).and_then(|methods| methods.get(method)).map_or(&[][..], Vec::as_slice);
        let differs = |(kind, planned): &(&str, Option<Value>)| match planned {
            Some(planned) => difference("", planned, body),
            None if body.is_null() || MADE_FROM_READS.contains(kind) => None,
            None => Some("the plan has no body".to_owned()),
        };
        if let Some(found) = bodies.last().filter(|_| bodies.iter().all(|planned| differs(planned).is_some())) {
            let difference = differs(found).unwrap_or_default();
            locked(&self.unplanned).push(format!("{method} {target}: not as in {} plans: {difference}", bodies.len()));
        } else if bodies.is_empty() {
            locked(&self.unplanned).push(format!("{method} {target}: in no plan"));
        }
    }

    fn written(&self, write: &ObservedWrite) {
        locked(&self.planned).remove(&write.target);
    }

    fn add(&self, write: &PlannedWrite) {
        let mut planned = locked(&self.planned);
        let methods = planned.entry(write.target.to_ascii_lowercase()).or_default();
        let bodies = methods.entry(write.method.to_owned()).or_default();
        let body = (write.kind, write.after.clone());
        if !bodies.contains(&body) {
            bodies.push(body);
        }
    }

    /// Returns a write of the resources that Services need; `None`: something else.
    pub(crate) fn write_of(request: &Request<Bytes>) -> Option<ObservedWrite> {
        let path = request.uri().path().to_ascii_lowercase();
        let target = path.strip_suffix("/migratetoipbased").unwrap_or(&path);
        let is_write = ![http::Method::GET, http::Method::HEAD].contains(request.method());
        let is_ours = ["/microsoft.network/", "/microsoft.compute/"].iter().any(|part| target.contains(part));
        let is_route = target.contains("/routetables/");
        let body = || serde_json::from_slice(request.body()).unwrap_or_default();
        let write = || ObservedWrite { method: request.method().to_string(), target: target.to_owned(), body: body() };
        (is_write && is_ours && !is_route).then(write)
    }
}

impl PlanWitness for Witness {
    fn planned(&self, plan: &WritePlan) {
        plan.writes.iter().for_each(|write| self.add(write));
    }
}

/// Connections of one process. Clones share them.
#[derive(Clone)]
pub(crate) struct Wire {
    azure: Azure,
    server: ApiServer,
    objections: Objections,
    /// Number of requests to ARM until the cut, and whether the last one takes effect.
    fuse: Arc<Mutex<Option<(usize, Crash)>>>,
    deceit: Arc<Mutex<Option<Deceit>>>,
    dead: CancellationToken,
    witness: Option<Witness>,
}

impl Wire {
    pub(crate) fn new(azure: &Azure, server: &ApiServer, objections: &Objections) -> Self {
        Self {
            azure: azure.clone(),
            server: server.clone(),
            objections: objections.clone(),
            fuse: Arc::default(),
            deceit: Arc::default(),
            dead: CancellationToken::new(),
            witness: None,
        }
    }

    pub(crate) fn witnessed_by(self, witness: Witness) -> Self {
        Self { witness: Some(witness), ..self }
    }

    /// Cuts all connections at the `nth` request to ARM from now, counted from 1: before or after it takes effect.
    pub(crate) fn cut_at(&self, nth: usize, when: Crash) {
        *locked(&self.fuse) = Some((nth, when));
    }

    /// Sends a false response to the `nth` list of this kind from now, counted from 1.
    pub(crate) fn deceive(&self, list: &'static str, lie: Lie, nth: usize, lasting: bool) {
        *locked(&self.deceit) = Some(Deceit { list, lie, remaining: nth, lasting, has_lied: false });
    }

    /// Ends false responses. Returns `true` if there was one.
    pub(crate) fn truth(&self) -> bool {
        locked(&self.deceit).take().is_some_and(|deceit| deceit.has_lied)
    }

    /// Returns the false response to this request, if it is due.
    fn lie(&self, request: &Request<Bytes>) -> Option<Lie> {
        let mut deceit = locked(&self.deceit);
        let deceit = deceit.as_mut()?;
        let is_list = request.uri().path().rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(deceit.list));
        if request.method() != http::Method::GET || !is_list {
            return None;
        }
        let is_due = if deceit.lasting { deceit.remaining <= 1 } else { deceit.remaining == 1 };
        deceit.remaining = deceit.remaining.saturating_sub(1);
        deceit.has_lied |= is_due;
        is_due.then_some(deceit.lie)
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        self.dead.cancel();
    }

    /// Returns `true` if the connections are cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.dead.is_cancelled()
    }

    /// Runs `work`, and never completes once the connections are cut.
    async fn alive<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            () = self.dead.cancelled() => pending().await,
            result = work => result,
        }
    }

    fn burn(&self, request: &Request<Bytes>) -> Option<Crash> {
        if !request.uri().path().starts_with("/subscriptions/") {
            return None;
        }
        let mut fuse = locked(&self.fuse);
        let (remaining, when) = fuse.as_mut()?;
        *remaining = remaining.saturating_sub(1);
        if *remaining > 0 {
            return None;
        }
        let when = *when;
        *fuse = None;
        Some(when)
    }

    async fn to_arm(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        let (crash, lie) = (self.burn(&request), self.lie(&request));
        if crash == Some(Crash::Before) {
            self.cut();
            return pending().await;
        }
        let watched = self.witness.as_ref().and_then(|witness| Some((witness, Witness::write_of(&request)?)));
        watched.iter().for_each(|(witness, write)| witness.check(write));
        let response = match self.objections.to(&request) {
            Some(refusal) => Ok(refusal),
            None => self.azure.respond(request).await,
        };
        if let (Some((witness, write)), Ok(true)) =
            (&watched, response.as_ref().map(|response| response.status().is_success()))
        {
            witness.written(write);
        }
        let response = match lie {
            Some(lie) => response.map(|truth| lie.response(&truth)),
            None => response,
        };
        if crash == Some(Crash::After) {
            self.cut();
            return pending().await;
        }
        response
    }

    async fn to_server(&self, request: Request<kube::client::Body>) -> io::Result<Response<axum::body::Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        self.server.respond(Request::from_parts(parts, body)).await
    }
}

#[async_trait]
impl ArmTransport for Wire {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        let witness = self.witness.as_ref().filter(|_| !self.is_cut());
        let sent = witness.map(|witness| witness.order.begin(&request, &self.azure, &self.server));
        let response = self.alive(self.to_arm(request)).await;
        if let Some(sent) = sent {
            sent.end(&response);
        }
        response
    }

    fn witness(&self) -> Option<&dyn PlanWitness> {
        self.witness.as_ref().map(|witness| witness as &dyn PlanWitness)
    }
}

impl ClientSource for Wire {
    fn component(&self, _: &str) -> Result<kube::Client, kube::Error> {
        let wire = self.clone();
        let service = tower::service_fn(move |request| {
            let wire = wire.clone();
            async move { wire.alive(wire.to_server(request)).await }
        });
        Ok(kube::Client::new(service, "default"))
    }
    fn controller(&self, account: &str, _: &Leadership) -> Result<kube::Client, kube::Error> {
        self.component(account)
    }
    fn watches(&self) -> Result<kube::Client, kube::Error> {
        self.component("")
    }
}

#[test]
fn a_write_counts_as_planned_once_and_with_its_body() {
    let target = "/subscriptions/S/x/Y";
    let write =
        |body: &Value| ObservedWrite { method: "PUT".to_owned(), target: target.to_ascii_lowercase(), body: body.clone() };
    let witness = Witness::default();
    let (sent_body, other_body) = (json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]}));
    let plan = |kind: &'static str, after: Option<&Value>| {
        let write = PlannedWrite::patch(kind, target.to_owned(), "reason", Value::Null);
        let write = PlannedWrite { method: "PUT", after: after.cloned(), ..write };
        witness.planned(&WritePlan { writes: vec![write], ..WritePlan::default() });
    };
    let is_planned = |body: &Value| {
        let before = witness.unplanned().len();
        witness.check(&write(body));
        witness.unplanned().len() == before
    };
    assert!(!is_planned(&sent_body), "no plan contained it");
    plan("load_balancer", Some(&sent_body));
    assert!(is_planned(&sent_body));
    assert!(!is_planned(&other_body), "another body");
    assert!(witness.unplanned()[1].ends_with("/a/1/b: planned 2, sent 3"), "{:?}", witness.unplanned());
    witness.written(&write(&sent_body));
    assert!(!is_planned(&sent_body), "the plan is older than the first write");
    plan("load_balancer", None);
    assert!(!is_planned(&sent_body), "the plan must have a body");
    plan("backend_pool", None);
    assert!(is_planned(&sent_body));
}
