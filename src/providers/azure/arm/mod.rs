//! Azure Resource Manager (ARM): the one path on which requests leave, and the documents that travel on it.
//!
//! In: typed documents and [`ResourceId`]s. Out: typed documents, or an [`ArmError`] classed by the caller's next move. Knows no
//! Kubernetes. Every request passes the [`budget`], which knows what is left of ARM's quotas and who is more urgent.

pub mod api;
pub mod budget;
mod classify;
mod client;
pub mod compute;
pub mod document;
mod error;
mod error_body;
mod gate;
pub mod network;
mod observe;
mod operation;
mod precondition;
mod request;
mod resource_id;
mod retry;
mod retry_after;
mod send;
mod settings;
mod token;
mod transport;
mod url;
mod write;

pub use api::{ApiType, Quota};
pub use budget::{Budget, BudgetSettings, Charge, Operation, Urgency, retry_after};
pub use client::{ArmClient, ArmParts};
pub use error::{ArmError, ArmResult, ErrorClass, MissingPermission};
pub use gate::Gate;
pub use precondition::Precondition;
pub use resource_id::{InvalidResourceId, ResourceId};
pub use settings::{ArmSettings, Backoff, Limits, Polling};
pub use token::{SourceTokens, TokenError, TokenProvider};
pub use transport::{LargestBody, Transport, TransportError};
