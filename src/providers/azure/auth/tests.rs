//! Tests of the whole module against identity services in memory.

pub(in crate::providers::azure::auth) mod certificates;
mod connections;
mod fake;
mod tokens;
mod wires;
