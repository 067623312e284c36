//! What is in the cloud of a [`Cluster`], so that two of them can be compared.

#[path = "../support/documents.rs"]
mod comparable;

pub(crate) use comparable::{State, without_idle_pools};

use std::collections::BTreeSet;

use crate::{azure_services::cluster::Cluster, golden::compare::descend};

/// The cloud as it is, addresses and all.
pub(crate) fn exact(cluster: &Cluster) -> State {
    comparable::exact(cluster.azure().dump())
}

/// The cloud without what depends on the order of events.
pub(crate) fn unordered(cluster: &Cluster) -> State {
    comparable::unordered(cluster.azure().dump())
}

/// Documents that only one state has, or that differ, with the places where they do.
pub(crate) fn differences(expected: &State, found: &State) -> Vec<String> {
    let ids: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let describe = |id: &String| {
        let mut places = Vec::new();
        descend(id, expected.get(id), found.get(id), &mut places);
        let places: Vec<String> = places.iter().map(ToString::to_string).collect();
        format!("{id}, or the order of its parts: {}", places.join("\n"))
    };
    ids.into_iter().filter(|id| expected.get(*id) != found.get(*id)).map(describe).collect()
}
