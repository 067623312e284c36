//! The controllers on the in-memory API server, and with providers of every kind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

#[path = "support/mortal.rs"]
mod mortal;
#[path = "support/promtool.rs"]
mod promtool;
#[path = "support/scraped.rs"]
mod scraped;
#[path = "support/seeds.rs"]
mod seeds;

mod api_server_faults;
mod conformance;
mod controllers_node;
mod controllers_route;
mod controllers_service;
mod election_thread;
mod leader_migration;
mod node_filter;
mod node_ipam;
mod node_manager;
mod provider_outside;
