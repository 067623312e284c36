//! Load balancers for Services: what is asked, what there is, and the documents that bring the one to the other.
//!
//! The pure core: [`spec`] (a Service with its [`annotations`], read and validated) and [`observed`] (ARM's documents) go through [`desired`], which changes
//! documents for a set of Services at once and says for each Service whether that was possible. [`naming`] has every name.
//! The acting part: [`engine`] takes the service controller's calls through the stages; `observe` alone reads, `apply` and [`members`]
//! alone write.
//! For those who act: [`lease`] (who may write), [`zones`] (of the region), [`explain`] and [`events`] (what went wrong, for people).

pub mod annotations;
pub mod apply;
pub mod backend_pools;
pub mod batch;
pub mod desired;
pub mod engine;
pub mod events;
pub mod explain;
pub mod lease;
pub mod naming;
pub mod observe;
pub mod observed;
pub mod plan;
mod reconcile_metrics;
pub mod service_index;
pub mod settings;
pub mod spec;
pub mod zones;
