//! Instances: what Azure knows of the machines behind Nodes.
//!
//! In: Nodes, names or provider ids, and the inventory. Out: [`AzureInstances`], which answers [`crate::cloud_provider`]'s
//! `InstancesV2` (in `v2`), `Instances` and `Zones` (in `v1`). What is answered is decided by pure functions of plain data:
//! [`ownership`] (whose is a Node), [`describe`] (what is it told), [`existence`] (is the machine there, does it run),
//! [`provider_id`] and [`errors`].

pub mod describe;
pub mod errors;
pub mod existence;
#[cfg(test)]
pub(in crate::providers::azure) mod fixtures;
pub mod ownership;
pub mod provider_id;
#[cfg(test)]
mod tests;
mod v1;
mod v2;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use describe::TopologyRules;
use existence::SystemUuidEvidence;

use super::{
    config::AzureConfig,
    inventory::{Freshness, Inventory, LookupError, Machine, MachineExistence, MachineQuery},
};
use crate::{
    cloud_provider::{CloudResult, SecondLook},
    runtime::clock::Clock,
};

/// How old the answer about one machine's existence and power may be. One read does for both questions that the node-lifecycle
/// controller asks in a row, while two of its confirmations, five seconds apart, are two reads.
const EXISTENCE_MAX_AGE: Duration = Duration::from_secs(3);

/// How old the lists may be that a second look at machines that are gone takes its answer from.
const LIST_MAX_AGE: Duration = Duration::from_secs(60);

/// Where machines are looked up: the inventory, or a stand-in in tests.
#[async_trait]
trait MachineLookup: Send + Sync {
    async fn look_up(&self, wanted: &[MachineQuery], freshness: Freshness) -> Vec<Result<Arc<Machine>, LookupError>>;
    async fn check_existence(&self, wanted: &MachineQuery, freshness: Duration) -> MachineExistence;
    /// The same from a read of this machine alone: a list may be behind.
    async fn check_existence_directly(&self, wanted: &MachineQuery, freshness: Duration) -> MachineExistence;
    /// What lists, not older than `freshness`, say of a machine that is gone.
    async fn second_look(&self, wanted: &MachineQuery, freshness: Duration) -> SecondLook;
    /// Whether no known resource group has a machine of this name, by reads not older than `freshness`.
    async fn is_unlisted(&self, wanted: &MachineQuery, freshness: Duration) -> Result<bool, String>;
}

#[async_trait]
impl MachineLookup for Inventory {
    async fn look_up(&self, wanted: &[MachineQuery], freshness: Freshness) -> Vec<Result<Arc<Machine>, LookupError>> {
        Inventory::look_up(self, wanted, freshness).await
    }
    async fn check_existence(&self, wanted: &MachineQuery, freshness: Duration) -> MachineExistence {
        Inventory::check_existence(self, wanted, freshness).await
    }
    async fn check_existence_directly(&self, wanted: &MachineQuery, freshness: Duration) -> MachineExistence {
        Inventory::check_existence_directly(self, wanted, freshness).await
    }
    async fn second_look(&self, wanted: &MachineQuery, freshness: Duration) -> SecondLook {
        Inventory::second_look(self, wanted, freshness).await
    }
    async fn is_unlisted(&self, wanted: &MachineQuery, freshness: Duration) -> Result<bool, String> {
        Inventory::is_unlisted(self, wanted, freshness).await
    }
}

/// What of the configuration matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InstanceSettings {
    topology: TopologyRules,
    /// `nodeInstanceNotFoundGracePeriodInSeconds`; zero: off.
    grace: Duration,
}

/// Instances of Azure. Clones are the same.
#[derive(Clone)]
pub struct AzureInstances {
    lookup: Arc<dyn MachineLookup>,
    settings: InstanceSettings,
    clock: Clock,
    /// Learnt from all Nodes asked about.
    uuid_evidence: Arc<Mutex<SystemUuidEvidence>>,
}

impl AzureInstances {
    /// Answers from `inventory`. `clock` tells the age of Nodes.
    pub fn new(config: &AzureConfig, inventory: Arc<Inventory>, clock: Clock) -> Self {
        let topology = TopologyRules { vm_type: config.vm_type, fault_domain_label: config.fault_domain_label };
        let settings = InstanceSettings { topology, grace: config.node_instance_not_found_grace_period };
        Self { lookup: inventory, settings, clock, uuid_evidence: Arc::default() }
    }

    fn uuid_evidence(&self) -> MutexGuard<'_, SystemUuidEvidence> {
        self.uuid_evidence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one machine asked for, as old as the caches allow.
    async fn machine(&self, wanted: MachineQuery) -> CloudResult<Arc<Machine>> {
        let found = self.lookup.look_up(&[wanted], Freshness::Cached).await.pop();
        let nothing = || LookupError::NotListed("the inventory did not answer".to_owned());
        found.unwrap_or_else(|| Err(nothing())).map_err(|error| errors::from_lookup(&error))
    }
}
