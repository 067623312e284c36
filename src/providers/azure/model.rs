//! Plain data of Azure: ARM's IDs, documents and errors, and the machines behind Nodes. Pure.
//!
//! The folder depends on no other part of the provider.
//!
//! In: IDs and JSON in ARM's spelling. Out: [`ResourceId`]s, structs, and predicates on them: same resource, same name, IPv6, failed last
//! write. Only [`spelling`] compares text without case; a test finds such comparisons in other files. [`api`] is the table of the kinds
//! of resources, [`body`] builds the body of a write.

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
