//! ARM's documents and the names of its resources, typed. Pure: no `async`, no clock, no client, no lock; the rule holds for the folder.
//!
//! In: ids and JSON as ARM spells them. Out: [`ResourceId`]s, structs, and their answers to what the rest of the program asks of them:
//! is it this resource, has it this name, is it IPv6, did its last write fail. [`spelling`] has the comparisons; a test keeps raw ones
//! out of every other file. [`api`] is the table of the kinds of resources.

pub mod api;
pub mod compute;
pub mod document;
pub mod names;
pub mod network;
mod resource_id;
pub mod spelling;

pub use resource_id::{InvalidResourceId, ResourceId};
