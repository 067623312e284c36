//! Drift: changes of another writer in Azure to documents that this process had found or made correct. Pure.
//!
//! [`findings`] reads from a plan which documents of which Services differ. [`repairs`] decides when they are repaired, so
//! that two programs with different desired states do not overwrite each other without end.

pub mod findings;
pub mod repairs;
