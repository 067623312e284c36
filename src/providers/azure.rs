//! Azure provider: implements the cloud provider contract with the Azure Resource Manager (ARM).
//!
//! In: `azure.json` and the dependencies of the process. Out: [`factory`], which creates a `CloudProvider`, and
//! [`diagnostics`] for the commands. Calls follow this order, never the reverse: `load_balancer, routes → instances →
//! inventory → arm → auth → transport`; `planner` makes the decisions and depends only on `config`, `node` and [`model`],
//! the plain data that all modules share. A [`session::Session`] is built from one configuration; [`provider`] swaps
//! sessions.

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
