//! The gate that every request passes. In the program it is the [`Budget`]; tests put others here.

use async_trait::async_trait;
use http::HeaderMap;

use super::{
    Urgency,
    budget::{Budget, RequestCharge},
};

/// Says when a request may be sent, and learns from its answer.
#[async_trait]
pub trait RequestGate: Send + Sync {
    /// Waits until the request may be sent. Dropping the future gives the place away.
    async fn acquire(&self, charge: &RequestCharge, urgency: Urgency);

    /// Learns from an answer. `code` is the telling error code, empty when there is none.
    fn observe(&self, charge: &RequestCharge, status: u16, headers: &HeaderMap, code: &str);
}

#[async_trait]
impl RequestGate for Budget {
    async fn acquire(&self, charge: &RequestCharge, urgency: Urgency) {
        Budget::acquire(self, charge, urgency).await;
    }

    fn observe(&self, charge: &RequestCharge, status: u16, headers: &HeaderMap, code: &str) {
        Budget::observe(self, charge, status, headers, code);
    }
}
