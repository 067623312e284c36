//! Test doubles of the budget, of Entra, and of services with one kind of response.

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};

use super::{RequestCharge, RequestGate, TokenProvider, Urgency};
use crate::providers::azure::{
    auth::AuthError,
    transport::{ArmTransport, ArmTransportError},
};

/// Transport whose responses all have the body that the function returns.
pub(in crate::providers::azure) struct FixedResponses<F>(pub(in crate::providers::azure) F);

#[async_trait]
impl<F: Fn() -> String + Send + Sync> ArmTransport for FixedResponses<F> {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        Ok(Response::new((self.0)().into()))
    }
}

/// Gate without limits, and provider of one token.
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
