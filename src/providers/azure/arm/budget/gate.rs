//! The gate that every request passes. In the program it is the budget; tests put others here.

use async_trait::async_trait;
use http::HeaderMap;
use tokio::time::Instant;

use super::{charge::RequestCharge, delay::RequestDelay, urgency::Urgency};

/// Counts the Services of a namespace that have a load balancer now.
pub type ServiceCount<'a> = dyn Fn() -> usize + Send + Sync + 'a;

/// Says when a request may be sent, and learns from its answer.
#[async_trait]
pub trait RequestGate: Send + Sync {
    /// Waits until the request may be sent. Dropping the future gives the place away.
    async fn acquire(&self, charge: &RequestCharge, urgency: Urgency);

    /// Waits for the permit of a Service whose namespace has used more than its share and has that many Services.
    ///
    /// Returns `true` if it took tokens for `charge`, which count until they are given back.
    async fn enter(&self, _charge: &RequestCharge, _urgency: Urgency, _services: &ServiceCount<'_>) -> bool {
        false
    }

    /// Returns the tokens of the request that was admitted at `_admitted` and was not sent after all.
    fn give_back(&self, _charge: &RequestCharge, _admitted: Instant) {}

    /// Returns what a new or changed Service in `_namespace` waits for; `None` if for no quota.
    fn delay(&self, _namespace: &str) -> Option<RequestDelay> {
        None
    }

    /// Learns from an answer. `code` is the telling error code, empty when there is none.
    fn observe(&self, charge: &RequestCharge, status: u16, headers: &HeaderMap, code: &str);
}

/// Permit to send one request, or for a Service to write. Dropped before a request is sent, it is given back.
pub struct SendPermit<'a> {
    gate: &'a dyn RequestGate,
    charge: RequestCharge,
    admitted: Instant,
    is_sent: bool,
}

impl<'a> SendPermit<'a> {
    pub(in super::super) fn new(gate: &'a dyn RequestGate, charge: RequestCharge, admitted: Instant) -> Self {
        Self { gate, charge, admitted, is_sent: false }
    }

    /// Records whether the request was sent.
    pub(in super::super) fn sent(&mut self, is_sent: bool) {
        self.is_sent = is_sent;
    }
}

impl Drop for SendPermit<'_> {
    fn drop(&mut self) {
        if !self.is_sent {
            self.gate.give_back(&self.charge, self.admitted);
        }
    }
}
