//! A cloud-controller-manager for one cloud: the provider in `provider.rs`, the fake provider, and everything else from the crate.

#[allow(unreachable_pub, reason = "the tests of the crate use the same file as a module")]
mod provider;

use std::process::ExitCode;

use cloud_controller_manager::{app, cloud_provider::Registry, providers::fake};

fn main() -> ExitCode {
    let registry = provider::register(Registry::new()).register(fake::PROVIDER_NAME, fake::factory);
    app::run(&registry)
}
