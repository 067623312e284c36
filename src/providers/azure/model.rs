//! Plain data of Azure: ARM's ids, documents and errors, and the machines behind Nodes. Pure.
//!
//! The folder names no other part of the provider.
//!
//! In: ids and JSON in ARM's spelling. Out: [`ResourceId`]s, structs, and predicates on them: same resource, same name, IPv6, failed last
//! write. [`spelling`] has the comparisons; a test keeps raw ones out of every other file. [`api`] is the table of the kinds of resources,
//! [`body`] the body of a write.

pub mod api;
pub mod body;
pub mod compute;
pub mod document;
mod error;
mod machine;
pub mod names;
pub mod network;
pub mod provider_id;
mod resource_id;
pub mod spelling;

pub use api::{ApiType, Quota};
pub(super) use error::names_a_parent;
pub use error::{ArmError, ArmErrorClass, ArmResult, MissingPermission};
pub use machine::{LookupError, Machine, MachineInterface, MachineIpConfiguration, MachineKind, MachineQuery};
pub use resource_id::{InvalidResourceId, ResourceId};
