//! Who may send when: token buckets that mirror ARM's own quotas, corrected by what ARM says is left.
//!
//! In: what a request counts against and how urgent it is; after it, the answer's status and headers. Out: permission, sooner for
//! the more urgent. Callers wait, they do not fail.

mod charge;

use std::{sync::Arc, time::Duration};

pub use charge::{Charge, Operation};

use crate::{metrics::Metrics, providers::azure::config::AzureConfig, runtime::clock::Clock};

/// How urgent a request is; the first goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A new or changed Service, or a new Node: somebody waits.
    Change,
    /// A deletion.
    Deletion,
    /// Nodes came, went or changed their state.
    Node,
    /// Looking again at what is believed to be unchanged.
    Resync,
}

/// What the configuration says about the budget.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BudgetSettings {}

impl From<&AzureConfig> for BudgetSettings {
    fn from(_: &AzureConfig) -> Self {
        Self {}
    }
}

/// The gate that every ARM request passes. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Budget {}

impl Budget {
    /// A budget with full buckets.
    pub fn new(settings: BudgetSettings, metrics: Arc<Metrics>, clock: Clock) -> Self {
        let _ = (settings, metrics, clock);
        Self {}
    }

    /// Waits until the request may be sent, and takes its tokens. Answers how long that took. Dropping the future gives the place
    /// in the queue away and takes nothing.
    pub async fn acquire(&self, charge: &Charge, urgency: Urgency) -> Duration {
        let _ = (charge, urgency);
        std::future::ready(Duration::ZERO).await
    }

    /// Learns from an answer. `code` is ARM's error code, empty when there is none. Call it for every answer that arrived.
    pub fn observe(&self, charge: &Charge, status: u16, headers: &http::HeaderMap, code: &str) {
        let _ = (charge, status, headers, code);
    }

    /// Every bucket for the status page: what is left, its refill, how long it is paused, who waits.
    pub fn status(&self) -> serde_json::Value {
        serde_json::Value::Array(Vec::new())
    }
}
