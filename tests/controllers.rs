//! The controllers on the in-memory API server, and with providers of every kind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests outside test functions")]

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

use std::sync::Arc;

use cloud_controller_manager::{
    app::manager::{ClientSource, ManagerDeps},
    cli,
    metrics::Metrics,
    providers::fake::FakeCloud,
    runtime::clock::Clock,
};

/// Returns the dependencies of a manager with the fake cloud and these flags. Its secure port is closed unless a flag opens it.
fn manager_deps(
    flags: &[&str],
    clients: Arc<dyn ClientSource>,
    cloud: FakeCloud,
    metrics: &Arc<Metrics>,
    clock: Clock,
) -> ManagerDeps {
    let words = ["ccm", "--cloud-provider=fake", "--secure-port=0"].iter().chain(flags).map(Into::into);
    let cli::CliCommand::Run(config) = cli::parse(words, &["fake"], &[]).unwrap() else {
        panic!("the flags start no manager")
    };
    ManagerDeps {
        config: *config,
        clients,
        provider: Arc::new(cloud),
        metrics: Arc::clone(metrics),
        clock,
        set_verbosity: Arc::new(|_| ()),
    }
}
