//! What ARM last said about machines, and how old it is.
//!
//! In: the ARM client. Out: [`Machine`]s by node name or ARM id, as fresh as the caller asks. Built from lists; one refresh answers
//! all who wait for it; writes and direct reads update it.

mod machine;
mod question;
mod settings;

use std::{sync::Arc, time::Duration};

pub use machine::{Interface, IpConfiguration, Machine, MachineKind};
pub use question::{Freshness, LookupError, Sighting, Wanted};
pub use settings::InventorySettings;

use super::arm::{ArmClient, ArmResult, ResourceId};
use crate::runtime::clock::Clock;

/// The machines of a cluster.
pub struct Inventory {}

impl Inventory {
    /// An inventory that knows nothing yet.
    pub fn new(arm: ArmClient, settings: InventorySettings, clock: Clock) -> Arc<Self> {
        let _ = (arm, settings, clock);
        Arc::new(Self {})
    }

    /// The machines of `wanted`, in its order. Concurrent calls share their reads.
    pub async fn look_up(&self, wanted: &[Wanted], freshness: Freshness) -> Vec<Result<Arc<Machine>, LookupError>> {
        let _ = freshness;
        wanted.iter().map(|wanted| Err(LookupError::NotListed(wanted.node_name.clone()))).collect()
    }

    /// Whether the machine exists and its power state, not older than `freshness`. Many at once are read with lists.
    pub async fn confirm(&self, wanted: &Wanted, freshness: Duration) -> Sighting {
        let _ = freshness;
        Sighting::Unknown(wanted.node_name.clone())
    }

    /// Reads what is older than the cache times allow: at start, and now and then by those who stand by.
    pub async fn warm(&self) -> ArmResult<()> {
        Ok(())
    }

    /// Notes a machine that a read or the answer of a write has shown just now.
    pub fn observe(&self, machine: Machine) {
        let _ = machine;
    }

    /// Notes that a machine has been removed.
    pub fn forget(&self, id: &ResourceId) {
        let _ = id;
    }

    /// Why the inventory cannot be trusted now.
    pub fn health(&self) -> Result<(), String> {
        Ok(())
    }

    /// Ages, counts, errors and reads, for the status page.
    pub fn status(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
