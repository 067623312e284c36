//! `check-config` for Azure: can this configuration be used, and if not, what has to be changed?
//!
//! In: a [`CheckRequest`](crate::cloud_provider::registry::CheckRequest). Out: a report. Offline it reads and validates; online it
//! also gets a token and asks ARM which actions the identity may do, which sends no write.

mod permissions;

pub use permissions::{Grant, Need, Purpose, allowed, needs};
