//! Plan of the writes that a manager would send now, as one value, [`ClusterPlan`], for all outputs.
//!
//! ```text
//! ManagerState ─► cluster_plan ─► ClusterPlan ─► print (text, JSON, differences of documents) ─► command `plan`, page `/planz`
//!                                        └─► report (changes, with times) ◄─ dry_run (periodically) ─► `/reportz`, gauge, log
//! ```
//! In: the state of a manager, leading or not. Out: planned writes, which are never sent. With `--dry-run`, the clients refuse
//! writes as well.

pub mod cluster_plan;
mod document_diff;
pub(crate) mod dry_run;
pub(crate) mod page;
pub mod print;
pub mod report;

pub use cluster_plan::ClusterPlan;
pub use report::{ReadinessReport, ReportTracker};
