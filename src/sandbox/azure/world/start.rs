//! What a topology decides of how the simulator behaves.

use crate::sandbox::azure::{AzureOptions, topology::Topology};

/// Why a world cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Azure would not have such a cluster.
    #[error("the topology: {0}")]
    Topology(String),
}

/// Settings with what a topology decides.
pub(super) fn options_for(topology: &Topology, options: AzureOptions) -> AzureOptions {
    AzureOptions {
        subscriptions: vec![topology.subscription.clone()],
        location: topology.location.clone(),
        zones: topology.region_zones.clone(),
        seed: topology.seed,
        ..options
    }
}
