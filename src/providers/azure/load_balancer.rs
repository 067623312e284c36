//! Load balancers for Services, acting: what [`planner`](super::planner::load_balancer) decides is read for, written and told here.
//!
//! [`engine`] takes the service controller's calls through the stages; `observe` alone reads, `apply` and [`backend_pools`] alone write.
//! For those who act: [`lease`] (who may write), [`zones`] (of the region), [`explain`] and [`events`] (what went wrong, for people).

pub mod apply;
pub mod backend_pools;
pub mod cluster_watches;
pub mod engine;
pub mod events;
pub mod explain;
pub mod lease;
pub mod observe;
mod reconcile_metrics;
pub mod service_index;
mod subnet_ranges;
pub mod zones;
