//! Comparison of the clouds of two [`Cluster`]s.

#[path = "../support/documents.rs"]
mod comparable;

pub(crate) use comparable::{State, without_idle_pools};

use std::collections::BTreeSet;

use crate::{azure_services::cluster::Cluster, golden::compare::descend};

/// Returns the cloud with its addresses.
pub(crate) fn exact(cluster: &Cluster) -> State {
    comparable::exact(cluster.azure().dump())
}

/// Returns the cloud without values that depend on the order of events.
pub(crate) fn unordered(cluster: &Cluster) -> State {
    comparable::unordered(cluster.azure().dump())
}

/// Returns the documents that only one state has, or that differ, with the paths of the differences.
pub(crate) fn differences(expected: &State, found: &State) -> Vec<String> {
    let ids: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let describe = |id: &String| {
        let mut paths = Vec::new();
        descend(id, expected.get(id), found.get(id), &mut paths);
        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        format!("{id}, or the order of its parts: {}", paths.join("\n"))
    };
    ids.into_iter().filter(|id| expected.get(*id) != found.get(*id)).map(describe).collect()
}
