//! Gate that every request passes. The program uses the budget; tests use other implementations.

use async_trait::async_trait;
use http::HeaderMap;
use tokio::time::Instant;

use super::{charge::RequestCharge, delay::RequestDelay, urgency::Urgency};

/// Counts the Services of a namespace that have a load balancer now.
pub type ServiceCount<'a> = dyn Fn() -> usize + Send + Sync + 'a;

/// Admission of requests, with feedback from their responses.
#[async_trait]
pub trait RequestGate: Send + Sync {
    /// Waits until the request may be sent. Dropping the future leaves the queue.
    async fn acquire(&self, charge: &RequestCharge, urgency: Urgency);

    /// Waits for the write permit of a Service, if its namespace, which has `services()` Services, has used more than its share.
    ///
    /// Returns `true` if tokens for `charge` were taken, which count until they are given back.
    async fn enter(&self, _charge: &RequestCharge, _urgency: Urgency, _services: &ServiceCount<'_>) -> bool {
        false
    }

    /// Gives back the tokens of a request that was admitted at `_admitted` but not sent.
    fn give_back(&self, _charge: &RequestCharge, _admitted: Instant) {}

    /// Returns the quota that a new or changed Service in `_namespace` waits for, if any.
    fn delay(&self, _namespace: &str) -> Option<RequestDelay> {
        None
    }

    /// Corrects the quotas from a response. `code` is the most specific error code, empty if there is none.
    fn observe(&self, charge: &RequestCharge, status: u16, headers: &HeaderMap, code: &str);
}

/// Permit to send one request, or for a Service to write. If no request was sent, dropping it gives the tokens back.
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
