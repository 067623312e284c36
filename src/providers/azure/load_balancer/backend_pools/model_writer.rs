//! Models of scale sets: the cached models, and writes of the pools that they list.
//!
//! In: changes of a plan. Out: models written. A list of the cluster's scale sets is valid for `vmssCacheTTLInSeconds`. A
//! model is read again before it is written, unless the plan's reads have just listed it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info};

use super::outcome::{PoolSyncOutcome, PoolWriteEnds};
use crate::providers::azure::{
    arm::{ArmClient, Precondition},
    model::{ArmError, ArmErrorClass, ArmResult, ResourceId, api, compute::VirtualMachineScaleSet},
    planner::load_balancer::{
        desired::pool_members::node_ip_configuration::{self, PoolMembershipPatch},
        plan::{
            pools::{PoolChange, PoolChangeKind, PoolMemory, ScaleSetModels},
            print::PlannedChange,
        },
    },
};

/// Tag of a scale set that accepts as many concurrent writes of instances as the configuration says. The value of the tag is
/// ignored.
const COORDINATED: &str = "aks-managed-coordination";
/// Number of scale sets that are written concurrently.
const AT_ONCE: usize = 10;
/// Largest number of attempts to read and write a model while another writer changes it, too.
const TRIES: usize = 4;

/// Writer of scale-set models, with its cache of models.
pub(super) struct ScaleSetModelWriter {
    group: ResourceId,
    ttl: Duration,
    cache: Mutex<ScaleSetModelCache>,
    memory: Arc<Mutex<PoolMemory>>,
}

#[derive(Default)]
struct ScaleSetModelCache {
    listed_at: Option<Instant>,
    /// Number of changes that our writes have made to `sets`: a list that began before a change may lack it.
    changes: u64,
    sets: BTreeMap<ResourceId, Arc<VirtualMachineScaleSet>>,
}

impl ScaleSetModelWriter {
    /// Creates a writer with an empty cache. `group` is the cluster's resource group.
    pub(super) fn new(group: ResourceId, ttl: Duration, memory: Arc<Mutex<PoolMemory>>) -> Self {
        Self { group, ttl, cache: Mutex::default(), memory }
    }

    /// Returns the resource group whose scale sets are written.
    pub(super) fn group(&self) -> &ResourceId {
        &self.group
    }

    fn set_failed(&self, set: &ResourceId, has_failed: bool) {
        let mut memory = self.memory.lock();
        if has_failed {
            memory.failed_models.insert(set.clone());
        } else {
            memory.failed_models.remove(set);
        }
    }

    fn known(&self, set: &ResourceId) -> Option<Arc<VirtualMachineScaleSet>> {
        self.cache.lock().sets.get(set).cloned()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<ResourceId, Arc<VirtualMachineScaleSet>>)) {
        let mut cache = self.cache.lock();
        cache.changes += 1;
        change(&mut cache.sets);
    }

    fn remember(&self, set: &ResourceId, document: VirtualMachineScaleSet) {
        self.change(|sets| drop(sets.insert(set.clone(), Arc::new(document))));
    }

    fn forget(&self, set: &ResourceId) {
        self.change(|sets| drop(sets.remove(set)));
        self.set_failed(set, false);
    }

    /// Returns `true` if this scale set accepts as many concurrent writes of instances as the configuration says.
    pub(super) fn is_coordinated(&self, set: &ResourceId) -> bool {
        let tags = |document: Arc<VirtualMachineScaleSet>| document.tags.clone();
        self.known(set).and_then(tags).is_some_and(|tags| tags.contains_key(COORDINATED))
    }

    /// Returns the cached number of instances of a scale set.
    pub(super) fn capacity(&self, set: &ResourceId) -> Option<usize> {
        usize::try_from(self.known(set)?.sku.as_ref()?.capacity?).ok()
    }

    /// Makes the next plan list the scale sets again.
    pub(super) fn expire(&self) {
        self.cache.lock().listed_at = None;
    }

    /// Returns the scale sets of the group, and lists them again if the last list is too old.
    pub(super) async fn models(&self, arm: &ArmClient) -> ArmResult<ScaleSetModels> {
        let (started, changes) = (Instant::now(), self.cache.lock().changes);
        if self.cache.lock().listed_at.is_none_or(|listed| started.saturating_duration_since(listed) >= self.ttl) {
            let path = format!("{}/providers/{}", self.group, api::SCALE_SETS.resource_type);
            let listed = arm.list::<VirtualMachineScaleSet>(&api::SCALE_SETS, &path, &[]).await?;
            let sets =
                listed.into_iter().filter_map(|set| Some((ResourceId::parse(set.id.as_deref()?).ok()?, Arc::new(set))));
            let mut cache = self.cache.lock();
            if cache.changes == changes {
                *cache = ScaleSetModelCache { listed_at: Some(started), changes, sets: sets.collect() };
            }
        }
        Ok(self.cache.lock().sets.iter().map(|(id, set)| (id.clone(), Arc::clone(set))).collect())
    }

    /// Sends changes of models. A model that was listed after `started` is written without another read.
    pub(super) async fn write(&self, arm: &ArmClient, changes: &[PoolChange], started: Instant, ends: &PoolWriteEnds) {
        let is_fresh = self.cache.lock().listed_at.is_some_and(|listed| listed >= started);
        let writes = changes.iter().filter_map(|change| {
            let PoolChangeKind::Model(patch) = &change.kind else { return None };
            let listed = self.known(&change.id).filter(|_| is_fresh);
            Some(async move { ends.send(change, self.write_one(arm, change, patch, listed).await) })
        });
        let writes: Vec<_> = writes.collect();
        futures::stream::iter(writes).buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    /// Writes one model. `listed` is the model if it has just been listed.
    async fn write_one(
        &self,
        arm: &ArmClient,
        change: &PoolChange,
        patch: &PoolMembershipPatch,
        mut listed: Option<Arc<VirtualMachineScaleSet>>,
    ) -> PoolSyncOutcome {
        let (set, mut outcome) = (&change.id, PoolSyncOutcome::default());
        for _ in 0..TRIES {
            outcome.failures.clear();
            match self.attempt(arm, set, patch, listed.take(), &mut outcome).await {
                Ok(true) => {
                    outcome.summary.models += 1;
                    info!(change = %PlannedChange::Pool(change), "wrote scale set model");
                    break;
                }
                Ok(false) => break,
                Err(error) if matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound) => {
                    debug!(scale_set = set.name(), "scale set gone; model not written");
                    self.forget(set);
                    break;
                }
                Err(error) => {
                    let again = error.class == ArmErrorClass::Conflict;
                    outcome.fail(format!("model of scale set {}", set.name()), error);
                    if !again {
                        break;
                    }
                }
            }
        }
        outcome
    }

    /// Attempts one write. Returns `true` if the model was written.
    async fn attempt(
        &self,
        arm: &ArmClient,
        set: &ResourceId,
        patch: &PoolMembershipPatch,
        listed: Option<Arc<VirtualMachineScaleSet>>,
        outcome: &mut PoolSyncOutcome,
    ) -> Result<bool, ArmError> {
        // Without a version, a concurrent change would not be detected.
        let is_versioned = |body: VirtualMachineScaleSet| body.etag.is_some_and(|etag| !etag.is_empty());
        let document = match listed.filter(|model| node_ip_configuration::model(model, patch).is_ok_and(is_versioned)) {
            Some(listed) => Arc::unwrap_or_clone(listed),
            None => arm.get(&api::SCALE_SETS, set, &[]).await?,
        };
        let body = match node_ip_configuration::model(&document, patch) {
            Ok(body) => body,
            Err(skip) => {
                debug!(scale_set = set.name(), reason = %skip, "model not written");
                self.set_failed(set, false);
                self.remember(set, document);
                return Ok(false);
            }
        };
        outcome.mark_outdated(patch);
        let unchanged = Precondition::unchanged_if_versioned(body.etag.as_deref());
        let stored = arm.put(&api::SCALE_SETS, set, unchanged, &body).await;
        self.set_failed(set, stored.is_err());
        match stored {
            Ok(stored) => self.remember(set, stored),
            Err(error) => {
                self.change(|sets| drop(sets.remove(set)));
                return Err(error);
            }
        }
        Ok(true)
    }
}
