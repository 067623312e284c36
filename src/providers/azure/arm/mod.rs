//! Azure Resource Manager (ARM): the one path on which requests leave, and the documents that travel on it.
//!
//! In: typed documents and [`ResourceId`]s. Out: typed documents, or an [`ArmError`] classed by the caller's next move. Knows no
//! Kubernetes. Every request passes the [`budget`], which knows what is left of ARM's quotas and who is more urgent.

pub mod api;
pub mod budget;
mod client;
pub mod compute;
pub mod document;
mod error;
pub mod network;
mod resource_id;
mod transport;

pub use api::{ApiType, Quota};
pub use budget::{Budget, BudgetSettings, Charge, Operation, Urgency, retry_after};
pub use client::ArmClient;
pub use error::{ArmError, ArmResult, ErrorClass};
pub use resource_id::{InvalidResourceId, ResourceId};
pub use transport::{Transport, TransportError};
