//! The simulated Azure behind scripted faults, a credential, and a gate.

use std::{collections::VecDeque, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    providers::azure::{
        arm::{RequestGate, TokenProvider, Urgency, budget::RequestCharge},
        auth::AuthError,
        transport::{ArmTransport, ArmTransportError},
    },
    sandbox::azure::{Azure, AzureOptions},
};

pub(super) const HOST: &str = "https://arm.example";

/// Fault of a request, instead of its regular response.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    NotSent,
    /// Executed, but without a response.
    NoResponse,
    /// Neither executed nor answered.
    Hang,
    Response(u16, Vec<(&'static str, &'static str)>, String),
}

pub(super) struct Arm {
    pub(super) azure: Azure,
    /// Faults of the next requests whose URL contains the text.
    pub(super) faults: Mutex<VecDeque<(&'static str, Fault)>>,
    pub(super) log: Mutex<Vec<Request<Bytes>>>,
}

impl Default for Arm {
    fn default() -> Self {
        let azure = Azure::new(AzureOptions { subscriptions: vec!["s".to_owned()], ..AzureOptions::immediate() });
        azure.put_document(json!({"id": "/subscriptions/s/resourceGroups/g"})).unwrap();
        Self { azure, faults: Mutex::default(), log: Mutex::default() }
    }
}

impl Arm {
    /// Takes the next fault if it is for this URL.
    fn fault_of(&self, url: &str) -> Option<Fault> {
        let mut faults = self.faults.lock();
        let is_hit = faults.front().is_some_and(|(part, _)| url.contains(part));
        if is_hit { faults.pop_front().map(|(_, fault)| fault) } else { None }
    }
}

#[async_trait]
impl ArmTransport for Arm {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        let url = request.uri().to_string();
        assert!(url.starts_with(HOST), "sent to {url}");
        self.log.lock().push(request.clone());
        match self.fault_of(&url) {
            None => self.azure.respond(request).await,
            Some(Fault::NotSent) => Err(ArmTransportError::NotSent("refused".into())),
            Some(Fault::NoResponse) => {
                self.azure.respond(request).await?;
                Err(ArmTransportError::NoAnswer("reset".into()))
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Response(status, headers, body)) => {
                let response = Response::builder().status(status);
                let response = headers.into_iter().fold(response, |response, (name, value)| response.header(name, value));
                Ok(response.body(body.into()).unwrap())
            }
        }
    }
}

/// Credential that replaces each rejected token.
#[derive(Default)]
pub(super) struct Credential {
    pub(super) number: Mutex<u32>,
    pub(super) error: Mutex<Option<AuthError>>,
    pub(super) auxiliary: Mutex<Option<String>>,
    pub(super) rejected: Mutex<Vec<String>>,
}

#[async_trait]
impl TokenProvider for Credential {
    async fn bearer(&self) -> Result<String, AuthError> {
        match self.error.lock().clone() {
            Some(error) => Err(error),
            None => Ok(format!("token-{}", self.number.lock())),
        }
    }

    async fn auxiliary(&self) -> Result<Option<String>, AuthError> {
        Ok(self.auxiliary.lock().clone())
    }

    fn rejected(&self, token: &str) {
        self.rejected.lock().push(token.to_owned());
        let mut number = self.number.lock();
        if token == format!("token-{number}") {
            *number += 1;
        }
    }
}

/// Gate that a 429 closes for its `Retry-After`, and that records the admitted requests.
#[derive(Default)]
pub(super) struct Barrier {
    pub(super) closed: Mutex<Option<Instant>>,
    pub(super) passed: Mutex<Vec<(RequestCharge, Urgency)>>,
    pub(super) returned: Mutex<usize>,
}

#[async_trait]
impl RequestGate for Barrier {
    async fn acquire(&self, charge: &RequestCharge, urgency: Urgency) {
        let closed = *self.closed.lock();
        if let Some(until) = closed.filter(|until| *until > Instant::now()) {
            tokio::time::sleep_until(until).await;
        }
        self.passed.lock().push((charge.clone(), urgency));
    }

    fn give_back(&self, _: &RequestCharge, _: Instant) {
        *self.returned.lock() += 1;
    }

    fn observe(&self, _: &RequestCharge, status: u16, headers: &HeaderMap, code: &str) {
        if status == 429 && !code.starts_with("Retryable") {
            let seconds = headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(10);
            *self.closed.lock() = Some(Instant::now() + Duration::from_secs(seconds));
        }
    }
}
