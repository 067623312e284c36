//! Test doubles of the budget and of Entra.

use async_trait::async_trait;
use http::HeaderMap;

use super::{RequestCharge, RequestGate, TokenError, TokenProvider, Urgency};

/// Lets every request pass at once, and has one token.
pub(in crate::providers::azure) struct Open;

#[async_trait]
impl RequestGate for Open {
    async fn acquire(&self, _: &RequestCharge, _: Urgency) {}
    fn observe(&self, _: &RequestCharge, _: u16, _: &HeaderMap, _: &str) {}
}

#[async_trait]
impl TokenProvider for Open {
    async fn bearer(&self) -> Result<String, TokenError> {
        Ok("token".to_owned())
    }
    fn rejected(&self, _: &str) {}
}
