//! Instances: Azure's information about the machines behind Nodes.
//!
//! In: Nodes and the inventory. Out: [`AzureInstances`], which implements [`crate::cloud_provider`]'s `InstancesV2` (in
//! `v2`). The decisions are made by pure functions of plain data: [`ownership`] (the owner of a Node), [`describe`] (its
//! metadata), [`existence`] (whether the machine exists and runs) and [`errors`].

pub mod describe;
pub mod errors;
pub mod existence;
#[cfg(test)]
pub(in crate::providers::azure) mod fixtures;
pub mod ownership;
#[cfg(all(test, feature = "sandbox"))]
#[expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]
mod tests;
mod v2;

use std::{sync::Arc, time::Duration};

use describe::TopologyRules;
use existence::SystemUuidEvidence;
use parking_lot::Mutex;

use super::{config::AzureConfig, inventory::Inventory};
use crate::runtime::clock::Clock;

/// Largest age of information about one machine's existence and power.
///
/// One read serves both requests that the node-lifecycle controller makes in a row, while two of its confirmations, five
/// seconds apart, are two reads.
const EXISTENCE_MAX_AGE: Duration = Duration::from_secs(3);

/// Largest age of the lists that a second look at missing machines uses.
const LIST_MAX_AGE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InstanceSettings {
    topology: TopologyRules,
    /// Value of `nodeInstanceNotFoundGracePeriodInSeconds`; zero for off.
    grace: Duration,
}

/// Instances of Azure. Clones share their state.
#[derive(Clone)]
pub struct AzureInstances {
    inventory: Arc<Inventory>,
    settings: InstanceSettings,
    clock: Clock,
    /// Evidence from all Nodes that were looked up.
    uuid_evidence: Arc<Mutex<SystemUuidEvidence>>,
}

impl AzureInstances {
    /// Creates the instances of `inventory`. `clock` is used for the age of Nodes.
    pub fn new(config: &AzureConfig, inventory: Arc<Inventory>, clock: Clock) -> Self {
        let topology = TopologyRules { vm_type: config.vm_type, fault_domain_label: config.fault_domain_label };
        let settings = InstanceSettings { topology, grace: config.node_instance_not_found_grace_period };
        Self { inventory, settings, clock, uuid_evidence: Arc::default() }
    }
}
