//! A small ARM with memory, behind an [`ArmTransport`].

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::providers::azure::arm::{
    ArmTransport, ArmTransportError, RequestGate, TokenError, TokenProvider, Urgency, budget::RequestCharge,
};

pub(super) const HOST: &str = "https://arm.example";

/// How writes are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Style {
    /// At once.
    #[default]
    Immediate,
    /// `Azure-AsyncOperation`.
    Status,
    /// `Location`.
    Location,
    /// `provisioningState` only.
    Body,
}

/// What happens to a request instead of its answer.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    NotSent,
    /// Carried out, but no answer.
    NoAnswer,
    /// Neither carried out nor answered.
    Hang,
    Answer(u16, Vec<(&'static str, &'static str)>, String),
}

#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: HeaderMap,
}

struct Running {
    until: Instant,
    path: String,
    /// What the document becomes; `None`: it goes.
    becomes: Option<Value>,
    style: Style,
    settled: bool,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) documents: BTreeMap<String, Value>,
    pub(super) style: Style,
    pub(super) takes: Duration,
    /// Operations end with this error.
    pub(super) fails_with: Option<Value>,
    /// Status and result URLs are unknown.
    pub(super) forgets_operations: bool,
    pub(super) page_size: usize,
    pub(super) next_link: Option<String>,
    /// Faults of the next requests whose URL contains the text.
    pub(super) faults: VecDeque<(&'static str, Fault)>,
    pub(super) log: Vec<Seen>,
    operations: Vec<Running>,
    revision: u64,
}

#[derive(Clone, Default)]
pub(super) struct Arm(pub(super) Arc<Mutex<State>>);

fn answer(status: u16, headers: &[(&str, String)], body: &Value) -> Response<Bytes> {
    let mut response = Response::builder().status(status).header("x-ms-correlation-request-id", "corr-1");
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    response.body(if body.is_null() { Bytes::new() } else { body.to_string().into() }).unwrap()
}

fn error(status: u16, code: &str) -> Response<Bytes> {
    answer(status, &[], &json!({"error": {"code": code, "message": format!("{code}.")}}))
}

impl State {
    /// Carries out what is due, once.
    fn settle(&mut self) {
        let failing = self.fails_with.is_some();
        for running in &mut self.operations {
            if running.settled || failing || running.until > Instant::now() {
                continue;
            }
            running.settled = true;
            match running.becomes.clone() {
                Some(document) => self.documents.insert(running.path.clone(), document),
                None => self.documents.remove(&running.path),
            };
        }
    }

    fn write(&mut self, request: &Request<Bytes>) -> Response<Bytes> {
        let path = request.uri().path().to_owned();
        let current = self.documents.get(&path);
        let etag = current.and_then(|document| document["etag"].as_str());
        if request.headers().get("if-match").is_some_and(|condition| condition.to_str().ok() != etag) {
            return error(412, "PreconditionFailed");
        }
        if request.method() == Method::DELETE && current.is_none() {
            return error(404, "ResourceNotFound");
        }
        self.revision += 1;
        let becomes = (*request.method() != Method::DELETE).then(|| {
            let mut document: Value = serde_json::from_slice(request.body()).unwrap();
            document["etag"] = format!("W/\"{}\"", self.revision).into();
            document["properties"]["provisioningState"] = "Succeeded".into();
            document
        });
        let mut meanwhile = becomes.clone().or_else(|| current.cloned()).unwrap_or_default();
        let immediate = self.style == Style::Immediate;
        if !immediate {
            let state = if becomes.is_some() { "Updating" } else { "Deleting" };
            meanwhile["properties"]["provisioningState"] = state.into();
        }
        self.documents.insert(path.clone(), meanwhile.clone());
        let takes = if immediate { Duration::ZERO } else { self.takes };
        let has_result = becomes.is_some();
        self.operations.push(Running { until: Instant::now() + takes, path, becomes, style: self.style, settled: false });
        self.settle();
        let operation = format!("{HOST}/operations/{}?t=secret", self.operations.len() - 1);
        match self.style {
            Style::Immediate => answer(200, &[], if has_result { &meanwhile } else { &Value::Null }),
            Style::Status => answer(201, &[("azure-asyncoperation", operation)], &meanwhile),
            Style::Location => answer(202, &[("location", operation)], &Value::Null),
            Style::Body if has_result => answer(201, &[], &meanwhile),
            Style::Body => answer(202, &[], &Value::Null),
        }
    }

    fn progress(&self, number: &str) -> Response<Bytes> {
        if self.forgets_operations {
            return error(404, "NotFound");
        }
        let Some(running) = number.parse().ok().and_then(|index: usize| self.operations.get(index)) else {
            return error(404, "NotFound");
        };
        let done = running.until <= Instant::now();
        match (running.style, &self.fails_with) {
            (Style::Location, _) if !done => answer(202, &[], &Value::Null),
            (Style::Location, Some(failure)) => answer(400, &[], &json!({"error": failure})),
            (Style::Location, None) => answer(200, &[], self.documents.get(&running.path).unwrap_or(&Value::Null)),
            (_, _) if !done => answer(200, &[], &json!({"status": "InProgress"})),
            (_, Some(failure)) => answer(200, &[], &json!({"status": "Failed", "error": failure})),
            (_, None) => answer(200, &[], &json!({"status": "Succeeded"})),
        }
    }

    fn list(&self, prefix: &str, query: &str) -> Response<Bytes> {
        let all: Vec<_> =
            self.documents.iter().filter(|(path, _)| path.starts_with(prefix)).map(|(_, document)| document).collect();
        let skip: usize = query.split_once("skip=").map_or(0, |(_, number)| number.parse().unwrap());
        let size = self.page_size.max(1);
        let more = skip + size < all.len();
        let next = more
            .then(|| self.next_link.clone().unwrap_or_else(|| format!("{HOST}{prefix}?api-version=1&skip={}", skip + size)));
        let page: Vec<_> = all.iter().skip(skip).take(size).collect();
        answer(200, &[], &json!({"value": page, "nextLink": next}))
    }

    fn handle(&mut self, request: &Request<Bytes>) -> Response<Bytes> {
        self.settle();
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        match (request.method(), path.strip_prefix("/operations/"), self.documents.get(path)) {
            (&Method::GET, Some(number), _) => self.progress(number),
            (&Method::GET, None, Some(document)) => answer(200, &[], document),
            (&Method::GET, None, None) if path.ends_with("machines") => self.list(path, query),
            (&Method::GET, None, None) => error(404, "ResourceNotFound"),
            _ => self.write(request),
        }
    }
}

#[async_trait]
impl ArmTransport for Arm {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        assert!(request.uri().to_string().starts_with(HOST), "sent to {}", request.uri());
        let outcome = {
            let mut state = self.0.lock().unwrap();
            state.log.push(Seen {
                method: request.method().clone(),
                url: request.uri().to_string(),
                headers: request.headers().clone(),
            });
            let url = request.uri().to_string();
            let fault = state.faults.front().filter(|(part, _)| url.contains(part)).map(|(_, fault)| fault.clone());
            if fault.is_some() {
                state.faults.pop_front();
            }
            match fault {
                None => Ok(Some(state.handle(&request))),
                Some(Fault::NotSent) => Err(ArmTransportError::NotSent("refused".into())),
                Some(Fault::NoAnswer) => {
                    state.handle(&request);
                    Err(ArmTransportError::NoAnswer("reset".into()))
                }
                Some(Fault::Hang) => Ok(None),
                Some(Fault::Answer(status, headers, body)) => {
                    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
                    let (parts, _) = answer(status, &headers, &Value::Null).into_parts();
                    Ok(Some(Response::from_parts(parts, body.into())))
                }
            }
        };
        match outcome? {
            Some(answer) => Ok(answer),
            None => std::future::pending().await,
        }
    }
}

/// A credential: each rejected token is followed by a new one.
#[derive(Default)]
pub(super) struct Credential {
    pub(super) number: Mutex<u32>,
    pub(super) error: Mutex<Option<TokenError>>,
    pub(super) auxiliary: Mutex<Option<String>>,
    pub(super) rejected: Mutex<Vec<String>>,
}

#[async_trait]
impl TokenProvider for Credential {
    async fn bearer(&self) -> Result<String, TokenError> {
        match self.error.lock().unwrap().clone() {
            Some(error) => Err(error),
            None => Ok(format!("token-{}", self.number.lock().unwrap())),
        }
    }

    async fn auxiliary(&self) -> Result<Option<String>, TokenError> {
        Ok(self.auxiliary.lock().unwrap().clone())
    }

    fn rejected(&self, token: &str) {
        self.rejected.lock().unwrap().push(token.to_owned());
        let mut number = self.number.lock().unwrap();
        if token == format!("token-{number}") {
            *number += 1;
        }
    }
}

/// A gate that a 429 closes for as long as it says, and that knows who passed.
#[derive(Default)]
pub(super) struct Barrier {
    pub(super) closed: Mutex<Option<Instant>>,
    pub(super) passed: Mutex<Vec<(RequestCharge, Urgency)>>,
    pub(super) returned: Mutex<usize>,
}

#[async_trait]
impl RequestGate for Barrier {
    async fn acquire(&self, charge: &RequestCharge, urgency: Urgency) {
        let closed = *self.closed.lock().unwrap();
        if let Some(until) = closed.filter(|until| *until > Instant::now()) {
            tokio::time::sleep_until(until).await;
        }
        self.passed.lock().unwrap().push((charge.clone(), urgency));
    }

    fn give_back(&self, _: &RequestCharge, _: Instant) {
        *self.returned.lock().unwrap() += 1;
    }

    fn observe(&self, _: &RequestCharge, status: u16, headers: &HeaderMap, code: &str) {
        if status == 429 && !code.starts_with("Retryable") {
            let seconds = headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(10);
            *self.closed.lock().unwrap() = Some(Instant::now() + Duration::from_secs(seconds));
        }
    }
}
