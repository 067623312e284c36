//! Azure Resource Manager (ARM): the one path on which requests leave, and the documents that travel on it.
//!
//! In: typed documents and [`ResourceId`]s. Out: typed documents, or an [`ArmError`] classed by the caller's next move. Knows no
//! Kubernetes. Every request passes the [`budget`], which knows what is left of ARM's quotas and who is more urgent.

mod answer;
pub mod batch;
pub mod body;
pub mod budget;
mod classify;
mod client;
pub mod documents;
mod error;
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
pub use documents::{
    InvalidResourceId, ResourceId, api,
    api::{ApiType, Quota},
    compute, document, network, spelling,
};
pub use error::{ArmError, ArmErrorClass, ArmResult, MissingPermission};
pub use error_codes::{ArmErrorEntry, CODES, ErrorRecovery};
pub use precondition::Precondition;
pub use retry_after::retry_after;
pub use settings::{ArmBackoff, ArmSettings, ArmTimeouts, PollingPace, configured_groups};
pub use token::{CredentialTokens, TokenProvider};

#[cfg(feature = "sandbox")]
pub use super::transport::PlanWitness;
pub use super::transport::{ArmTransport, ArmTransportError, MaxBodySize};
