//! Test doubles of the budget, of Entra, and of services with one kind of answer.

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};

use super::{RequestCharge, RequestGate, TokenProvider, Urgency};
use crate::providers::azure::{
    auth::AuthError,
    transport::{ArmTransport, ArmTransportError},
};

/// Answers every request with what the function returns.
pub(in crate::providers::azure) struct Answers<F>(pub(in crate::providers::azure) F);

#[async_trait]
impl<F: Fn() -> String + Send + Sync> ArmTransport for Answers<F> {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        Ok(Response::new((self.0)().into()))
    }
}

/// Lets every request pass at once, and has one token.
pub(in crate::providers::azure) struct Open;

#[async_trait]
impl RequestGate for Open {
    async fn acquire(&self, _: &RequestCharge, _: Urgency) {}
    fn observe(&self, _: &RequestCharge, _: u16, _: &HeaderMap, _: &str) {}
}

#[async_trait]
impl TokenProvider for Open {
    async fn bearer(&self) -> Result<String, AuthError> {
        Ok("token".to_owned())
    }
    fn rejected(&self, _: &str) {}
}
