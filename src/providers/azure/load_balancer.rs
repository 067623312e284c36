//! Load balancers for Services: the part of the provider that reads, writes and reports. The decisions are made in
//! [`planner`](super::planner::load_balancer).
//!
//! [`engine`] passes the service controller's calls through the stages. Only `observe` reads network documents; only `apply`
//! and [`backend_pools`] write. They are supported by [`lease`] (permission to write), [`zones`] (of the region),
//! [`explain`] and [`events`] (errors and notices for people).

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
