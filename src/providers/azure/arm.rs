//! Client of Azure Resource Manager (ARM): the only path for requests to Azure's management API.
//!
//! In: typed documents and IDs of [`super::model`]. Out: typed documents, or an `ArmError` whose class selects the caller's next step.
//! Independent of Kubernetes. Every request passes the [`budget`], which tracks the remaining quotas of ARM and orders requests by urgency.

mod answer;
pub mod batch;
pub mod budget;
mod classify;
mod client;
mod error_body;
mod error_codes;
mod operation;
mod operation_length;
mod operation_watch;
mod precondition;
mod request;
mod request_metrics;
mod retry;
mod retry_after;
mod send;
mod settings;
#[cfg(test)]
pub(in crate::providers::azure) mod test_doubles;
mod token;
mod url;
mod write;

pub use budget::{
    Budget, BudgetSettings, Causes, ChargedOperation, RequestCharge, RequestDelay, RequestGate, SendPermit, ServiceCount,
    Urgency,
};
pub use client::{AcceptedDocument, ArmClient, ArmClientDeps, WriteCheck};
pub use error_codes::{ArmErrorEntry, CODES, ErrorRecovery};
pub use precondition::Precondition;
pub use retry_after::retry_after;
pub use settings::{ArmBackoff, ArmSettings, ArmTimeouts, PollingPace, configured_groups};
pub use token::{CredentialTokens, TokenProvider};
