//! What is in the cloud of a [`Cluster`], so that two of them can be compared.

#[path = "../support/documents.rs"]
mod comparable;

pub(crate) use comparable::{State, differences, without_idle_pools};

use crate::azure_services::cluster::Cluster;

/// The cloud as it is, addresses and all.
pub(crate) fn exact(cluster: &Cluster) -> State {
    comparable::exact(cluster.azure().dump())
}

/// The cloud without what depends on the order of events.
pub(crate) fn unordered(cluster: &Cluster) -> State {
    comparable::unordered(cluster.azure().dump())
}
