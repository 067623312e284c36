//! What a manager would write if it led: for the command `plan`, and for a shadow manager (`--dry-run`) beside the one that leads.
//!
//! ```text
//! ManagerState ─► cluster_plan ─► ClusterPlan ─► print (text, JSON, differences of documents)
//!                                        └─► report (what changed, since when) ◄─ shadow (again and again)
//! ```
//! In: what a manager that leads nothing watches. Out: requests, never sent. Nothing here writes, and the clients under it refuse to.

pub mod cluster_plan;
pub mod command;
mod document_diff;
mod print;
mod report;
pub(super) mod shadow;

pub use cluster_plan::ClusterPlan;
pub use report::{ReadinessReport, ReportTracker};
