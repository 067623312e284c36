//! The plan: what a manager would write now. One value, [`ClusterPlan`], for everything that shows it.
//!
//! ```text
//! ManagerState ─► cluster_plan ─► ClusterPlan ─► print (text, JSON, differences of documents) ─► command `plan`, page `/planz`
//!                                        └─► report (what changed, since when) ◄─ dry_run (again and again) ─► `/reportz`, gauge, log
//! ```
//! In: what a manager watches, leading or not. Out: writes, never sent. Nothing here writes, and with `--dry-run` the clients refuse to.

pub mod cluster_plan;
mod document_diff;
pub(crate) mod dry_run;
pub(crate) mod page;
pub mod print;
pub mod report;

pub use cluster_plan::ClusterPlan;
pub use report::{ReadinessReport, ReportTracker};
