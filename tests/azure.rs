//! The provider for Azure on the simulated Azure.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

#[path = "support/promtool.rs"]
mod promtool;
#[path = "support/scraped.rs"]
mod scraped;
#[path = "support/seeds.rs"]
mod seeds;

mod azure_nodes;
mod azure_routes;
mod azure_scale_in;
mod azure_services;
mod golden;
mod hostile_services;
mod served_azure;
