//! Decisions about the desired state of Azure. Pure: no `async`, no clock, no client, no lock; the rule applies to the
//! folder.
//!
//! In: requests of users, documents that ARM sent, and remembered state, all by value. Out: documents and plans. The folders
//! `azure::load_balancer` and `azure::routes` execute them.

pub mod load_balancer;
pub mod routes;
pub mod tags;
