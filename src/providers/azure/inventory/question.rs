//! What callers ask about machines, and what they are told.

use std::{sync::Arc, time::Duration};

use super::Machine;
use crate::providers::azure::arm::{ArmError, ResourceId};

/// A node whose machine is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Name of the Node.
    pub node_name: String,
    /// The machine, from `spec.providerID`; an id decides alone, the name is not compared then.
    pub id: Option<ResourceId>,
    /// Resource group from the label `kubernetes.azure.com/resource-group`; `None`: the cluster's.
    pub resource_group: Option<String>,
}

/// How old an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// As old as the configured cache times allow; older while ARM fails.
    Cached,
    /// Not older than this.
    Within(Duration),
}

/// Why there is no machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// It is in none of the places where it could be, read just now. Says where was looked. No evidence that it is gone.
    #[error("instance not found: {0}")]
    NotListed(String),
    /// ARM could not be asked.
    #[error(transparent)]
    Arm(#[from] ArmError),
}

/// Whether a machine exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// It does, and this is its state, power state included.
    Found(Arc<Machine>),
    /// ARM said of this very machine that it does not exist, and answers sanely about what surrounds it.
    Gone,
    /// Nobody knows, for this reason.
    Unknown(String),
}
