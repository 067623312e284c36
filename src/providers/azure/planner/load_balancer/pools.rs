//! Who is in which back-end pool. Pure.
//!
//! In: load balancers as ARM sent them, Nodes, and what is known of their machines (`plan::pools::PoolReads`). Out: which instances, interfaces
//! and pools have to be written and how ([`member_updates`], `plan::pools::plan_pools`), and at which addresses machines are behind a Service
//! ([`member_addresses`]). The stages that write use the same functions on what they have just read.

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
