//! Members of backend pools. Pure.
//!
//! In: load balancers as ARM sent them, Nodes, and the cached state of their machines (`plan::pools::PoolReads`). Out: the
//! instances, interfaces and pools to write with their new content ([`member_updates`], `plan::pools::plan_pools`), and the
//! addresses of the machines behind a Service ([`member_addresses`]). The stages that write use the same functions on what
//! they have just read.

pub mod claims;
pub mod endpoint_nodes;
pub mod local_pools;
pub mod located;
pub mod managed_pool;
pub mod member_addresses;
pub mod member_resource;
pub mod member_updates;
pub mod node_placement;
pub mod nodes;
pub mod orphans;
pub mod stand_ins;
