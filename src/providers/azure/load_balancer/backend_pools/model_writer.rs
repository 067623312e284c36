//! The models of scale sets: what was last seen of them, and writing which pools they list.
//!
//! In: wishes by scale set. Out: models written. One list of the cluster's scale sets stands for as long as `vmssCacheTTLInSeconds` says;
//! a model is written only when the list says that it has to be, and read again before that unless it has just been listed.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use tokio::time::Instant;
use tracing::{debug, info};

use super::outcome::PoolSyncOutcome;
use crate::providers::azure::{
    arm::{ArmClient, ArmError, ArmErrorClass, ArmResult, Precondition, ResourceId, api, compute::VirtualMachineScaleSet},
    planner::load_balancer::{
        desired::pool_members::node_ip_configuration::{self, PoolMembershipPatch},
        plan::{pools::PoolChange, print::PlannedChange},
        pools::member_updates::LeaveReason,
    },
};

/// A set with this tag, of whatever value, takes as many writes of instances at once as the configuration says.
const COORDINATED: &str = "aks-managed-coordination";
/// Scale sets written at once.
const AT_ONCE: usize = 10;
/// How often a model is read and written when somebody else writes it as well.
const TRIES: usize = 4;

/// See the module.
pub(super) struct ScaleSetModelWriter {
    group: ResourceId,
    ttl: Duration,
    cache: Mutex<ScaleSetModelCache>,
    /// Sets that our last write may have left in a failed state.
    failed: Mutex<HashSet<ResourceId>>,
}

#[derive(Default)]
struct ScaleSetModelCache {
    listed_at: Option<Instant>,
    sets: HashMap<ResourceId, Arc<VirtualMachineScaleSet>>,
}

impl ScaleSetModelWriter {
    /// Nothing is seen yet. `group`: the cluster's.
    pub(super) fn new(group: ResourceId, ttl: Duration) -> Self {
        Self { group, ttl, cache: Mutex::default(), failed: Mutex::default() }
    }

    /// The group whose scale sets are written.
    pub(super) fn group(&self) -> &ResourceId {
        &self.group
    }

    fn cache(&self) -> MutexGuard<'_, ScaleSetModelCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, HashSet<ResourceId>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, set: &ResourceId) -> Option<Arc<VirtualMachineScaleSet>> {
        self.cache().sets.get(set).cloned()
    }

    /// Every model as it was last seen, by key.
    pub(super) fn known_models(&self) -> BTreeMap<String, Arc<VirtualMachineScaleSet>> {
        self.cache().sets.iter().map(|(id, set)| (id.key(), Arc::clone(set))).collect()
    }

    fn remember(&self, set: &ResourceId, document: VirtualMachineScaleSet) {
        self.cache().sets.insert(set.clone(), Arc::new(document));
    }

    fn forget(&self, set: &ResourceId) {
        self.cache().sets.remove(set);
        self.failed().remove(set);
    }

    /// Whether this set takes as many writes of instances at once as the configuration says.
    pub(super) fn is_coordinated(&self, set: &ResourceId) -> bool {
        let tags = |document: Arc<VirtualMachineScaleSet>| document.tags.clone();
        self.known(set).and_then(tags).is_some_and(|tags| tags.contains_key(COORDINATED))
    }

    /// How many instances a set had when it was last seen.
    pub(super) fn capacity(&self, set: &ResourceId) -> Option<usize> {
        usize::try_from(self.known(set)?.sku.as_ref()?.capacity?).ok()
    }

    /// Sees to it that the models are known, as before a write.
    pub(super) async fn look(&self, arm: &ArmClient) -> ArmResult<()> {
        self.list(arm, self.ttl).await
    }

    /// Lists the scale sets unless that was done within `age`.
    async fn list(&self, arm: &ArmClient, age: Duration) -> ArmResult<()> {
        let started = Instant::now();
        if self.cache().listed_at.is_some_and(|listed| started.saturating_duration_since(listed) < age) {
            return Ok(());
        }
        let path = format!("{}/providers/{}", self.group, api::SCALE_SETS.resource_type);
        let listed = arm.list::<VirtualMachineScaleSet>(&api::SCALE_SETS, &path, &[]).await?;
        let sets = listed.into_iter().filter_map(|set| Some((ResourceId::parse(set.id.as_deref()?).ok()?, Arc::new(set))));
        *self.cache() = ScaleSetModelCache { listed_at: Some(started), sets: sets.collect() };
        Ok(())
    }

    /// Brings the models to the wishes, of which none is to leave.
    pub(super) async fn ensure(
        &self,
        arm: &ArmClient,
        claims: BTreeMap<ResourceId, PoolMembershipPatch>,
    ) -> PoolSyncOutcome {
        self.ensure_as_of(arm, claims, &LeaveReason::NotInPool, Instant::now()).await
    }

    /// The same; a list that was read after `started` is fresh enough to write on.
    async fn ensure_as_of(
        &self,
        arm: &ArmClient,
        claims: BTreeMap<ResourceId, PoolMembershipPatch>,
        why: &LeaveReason,
        started: Instant,
    ) -> PoolSyncOutcome {
        let mut outcome = PoolSyncOutcome::default();
        if claims.is_empty() {
            return outcome;
        }
        if let Err(error) = self.list(arm, self.ttl).await {
            outcome.fail("models of scale sets", error);
            return outcome;
        }
        let claims = claims.into_iter().map(|(set, claim)| {
            let again = self.failed().contains(&set);
            (set, PoolMembershipPatch { last_write_failed: again, ..claim })
        });
        let due = claims.filter(|(set, claim)| {
            // A set that is not listed is new.
            claim.last_write_failed
                || self.known(set).is_none_or(|known| node_ip_configuration::model(&known, claim).is_ok())
        });
        let is_fresh = self.cache().listed_at.is_some_and(|listed| listed >= started);
        let writes = due.map(|(set, claim)| {
            let listed = self.known(&set).filter(|_| is_fresh);
            self.write(arm, set, (claim, why), listed)
        });
        let mut written = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
        while let Some(one) = written.next().await {
            outcome.merge(one);
        }
        outcome
    }

    /// Takes pools out of all models of the group, and out of those of `others`. `fresh`: the list is read anew.
    pub(super) async fn evict(
        &self,
        arm: &ArmClient,
        (claim, why): (&PoolMembershipPatch, &LeaveReason),
        others: Vec<ResourceId>,
        fresh: bool,
    ) -> PoolSyncOutcome {
        let started = Instant::now();
        if let Err(error) = self.list(arm, if fresh { Duration::ZERO } else { self.ttl }).await {
            let mut outcome = PoolSyncOutcome::default();
            outcome.fail("models of scale sets", error);
            return outcome;
        }
        let listed: Vec<ResourceId> = self.cache().sets.keys().cloned().collect();
        let claims = listed.into_iter().chain(others).map(|set| (set, claim.clone())).collect();
        self.ensure_as_of(arm, claims, why, started).await
    }

    /// `listed`: the model as it has just been listed.
    async fn write(
        &self,
        arm: &ArmClient,
        set: ResourceId,
        (claim, why): (PoolMembershipPatch, &LeaveReason),
        mut listed: Option<Arc<VirtualMachineScaleSet>>,
    ) -> PoolSyncOutcome {
        let mut outcome = PoolSyncOutcome::default();
        for _ in 0..TRIES {
            outcome.failures.clear();
            match self.attempt(arm, &set, (&claim, why), listed.take(), &mut outcome).await {
                Ok(()) => break,
                Err(error) if matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound) => {
                    debug!(scale_set = set.name(), "scale set gone; model not written");
                    self.forget(&set);
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

    async fn attempt(
        &self,
        arm: &ArmClient,
        set: &ResourceId,
        (claim, why): (&PoolMembershipPatch, &LeaveReason),
        listed: Option<Arc<VirtualMachineScaleSet>>,
        outcome: &mut PoolSyncOutcome,
    ) -> Result<(), ArmError> {
        // Without a version nothing would show that it has changed since.
        let is_versioned = |body: VirtualMachineScaleSet| body.etag.is_some_and(|etag| !etag.is_empty());
        let document = match listed.filter(|known| node_ip_configuration::model(known, claim).is_ok_and(is_versioned)) {
            Some(listed) => Arc::unwrap_or_clone(listed),
            None => arm.get(&api::SCALE_SETS, set, &[]).await?,
        };
        let body = match node_ip_configuration::model(&document, claim) {
            Ok(body) => body,
            Err(skip) => {
                debug!(scale_set = set.name(), reason = %skip, "model not written");
                self.failed().remove(set);
                self.remember(set, document);
                return Ok(());
            }
        };
        outcome.mark_outdated(claim);
        let unchanged = Precondition::unchanged_if_versioned(body.etag.as_deref());
        let stored = arm.put(&api::SCALE_SETS, set, unchanged, &body).await;
        match stored {
            Ok(stored) => {
                self.failed().remove(set);
                self.remember(set, stored);
            }
            Err(error) => {
                self.forget(set);
                self.failed().insert(set.clone());
                return Err(error);
            }
        }
        outcome.summary.models += 1;
        let change = || PoolChange::of_model(set.clone(), claim, why);
        info!(change = %PlannedChange::Pool(&change()), "wrote scale set model");
        Ok(())
    }
}
