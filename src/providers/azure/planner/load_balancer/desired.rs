//! Desired documents: pure functions that change one document for many Services at once.
//!
//! Each function takes a document as ARM sent it and the requests, changes only the parts that belong to those Services (by names and
//! tags), and returns for each Service whether the change was possible. A second application changes nothing, and the order of the
//! requests does not matter.

pub mod arm_constraints;
mod attempt;
mod causes;
mod context;
mod desired_parts;
mod draft;
mod entry_choice;
pub mod expected;
mod former_groups;
mod former_names;
mod frontend_address;
mod frontend_assignment;
mod frontends;
mod handover;
pub mod interface_rules;
mod last_frontend;
pub mod load_balancers;
mod merge;
mod own_pools;
pub mod ownerless;
mod ownership_tags;
mod placement;
pub mod plan_index;
pub mod pool_members;
mod pools;
mod port_conflicts;
pub mod private_links;
mod probes;
mod public_ip_ownership;
pub mod public_ips;
pub mod ruled_ports;
mod rules;
#[cfg(test)]
pub(crate) mod samples;
pub mod security_rules;
mod sharing;
pub mod status;
mod targets;
pub mod traces;
mod types;
mod unruled_ports;
mod write_order;

pub use draft::pools as pools_of;
pub use pools::{RulesByPool, name as pool_name};
pub use types::{LAST_CHANGE_FAILED, ServiceRequest};
