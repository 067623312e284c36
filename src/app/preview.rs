//! What a manager would write if it led: for the command `plan` (`plan_command`), and for a shadow manager (`--dry-run`) beside the one that leads.
//!
//! ```text
//! ManagerState ─► cluster_plan ─► ClusterPlan ─► print (text, JSON, differences of documents)
//!                                        └─► report (what changed, since when) ◄─ shadow (again and again)
//! ```
//! In: what a manager that leads nothing watches. Out: requests, never sent. Nothing here writes, and the clients under it refuse to.

pub mod cluster_plan;
mod document_diff;
pub(crate) mod print;
pub mod report;
pub(crate) mod shadow;

pub use cluster_plan::ClusterPlan;
pub use report::{ReadinessReport, ReportTracker};
