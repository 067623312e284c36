//! The Azure provider.
//!
//! In: `azure.json` and the process's parts. Out: [`factory`], which makes a `CloudProvider`, and [`diagnostics`] for the commands.
//! Reads go down this list and never come back: `load_balancer, routes → instances → inventory → arm → auth → transport`;
//! `planner`, which decides, names only `config`, `node` and [`model`], the plain data below all of them. A [`session::Session`] is one
//! configuration at work; [`provider`] swaps sessions.

pub mod acr;
mod admission;
pub mod arm;
pub mod auth;
pub mod check;
pub mod config;
pub mod config_source;
pub mod diagnostics;
mod gauges;
pub mod instances;
pub mod inventory;
pub mod load_balancer;
mod local;
pub mod metadata;
pub mod metrics;
pub mod model;
pub mod node;
pub mod operation_metrics;
pub mod out_of_service;
pub mod planner;
pub mod pod_cidr_masks;
pub mod provider;
pub mod routes;
#[cfg(test)]
mod samples;
pub mod session;
mod session_proxy;
pub mod topics;
pub mod transport;

pub use admission::{SERVICE_VALIDATOR, SERVICE_VALIDATOR_PATH};
pub use local::local_factory;
pub use provider::{AzureCloud, factory};

/// Name in `--cloud-provider`, and scheme of provider ids.
pub const NAME: &str = "azure";
