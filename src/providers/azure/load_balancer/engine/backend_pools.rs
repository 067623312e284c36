//! The third stage: the nodes behind the load balancers, once for everybody who waits. It is also a duty of its own, for nobody's sake:
//! pools follow the Nodes when no Service can be ensured.
//!
//! In: the Nodes that the service controller gave last. Out: pools with the right members.

use std::collections::BTreeSet;

use async_trait::async_trait;
use parking_lot::MutexGuard;
use tokio::time::Instant;

use super::{
    planning::StagePlanRequest,
    pool_join_failure::{self, PoolJoinFailure},
    pool_sync_state::{PoolSyncRecord, PoolSyncState},
    stage_context::StageContext,
};
use crate::providers::azure::{
    arm::{
        ArmError, ArmResult, ResourceId, Urgency,
        network::{ArmLoadBalancer, BackendAddressPool},
    },
    inventory::LookupError,
    load_balancer::{
        backend_pools::{PoolSyncError, PoolSyncSummary, PoolWriter},
        events::ArmCallKind,
        observe::NetworkCacheKey,
    },
    planner::load_balancer::{
        desired::ServiceRequest, observed::ObservedNetwork, plan::PlanScope, pools::local_pools::LocalPools,
    },
};

/// Writes pools, counts those that Services have for themselves, and charges these to their namespaces.
struct MeteredPoolWriter<'a> {
    context: &'a StageContext,
    local: &'a LocalPools,
    observed: &'a ObservedNetwork,
}

#[async_trait]
impl PoolWriter for MeteredPoolWriter<'_> {
    async fn put_pool(&self, pool: &ResourceId, document: &BackendAddressPool, urgency: Urgency) -> ArmResult<bool> {
        let is_own = !self.context.settings.shares_pool(pool.name());
        let running = is_own.then(|| self.context.pool_metrics.update_own_pool());
        let owner = pool_join_failure::owner(pool, self.local, self.observed).filter(|_| is_own);
        let written = self.context.writer.caused_by(owner).put_pool(pool, document, urgency).await;
        running.into_iter().for_each(|one| one.end(written.is_ok()));
        written
    }

    async fn migrate_to_ip_based(&self, load_balancer: &ResourceId, pools: &[String], urgency: Urgency) -> ArmResult<()> {
        self.context.writer.migrate_to_ip_based(load_balancer, pools, urgency).await
    }
}

/// Brings the pools to the Nodes. Before the first call with Nodes there is nothing to go by.
pub(super) async fn join(
    world: &StageContext,
    requests: &[ServiceRequest],
    urgency: Urgency,
) -> Result<(), PoolJoinFailure> {
    let _round = world.pool_round.lock().await;
    let Some(nodes) = world.hosts() else { return Ok(()) };
    let urgency = join_urgency(world, nodes.len(), urgency);
    let since = world.invalidate_pool_sync();
    let fingerprint = world.node_fingerprint(&nodes);
    let (local, publications) = world.local_pools();
    let created = world.unfilled_pools().clone();
    let is_deleting = !world.lock_deleting().is_empty();
    let started = Instant::now();
    // With all that the asks need: what a look does not need may be forgotten, and with it addresses for somebody's status.
    let request = StagePlanRequest::write(PlanScope::Members, requests, urgency);
    let planned = world.plan(&request).await.map_err(PoolJoinFailure::All)?;
    let (plan, observed) = (planned.plan.pools, planned.input.observed);
    let doubtful = InvalidationGuard::all(world, &observed);
    let writer = MeteredPoolWriter { context: world, local: &local, observed: &observed };
    let synced = world.backend_pools.sync(&plan, started, &writer, urgency).await;
    doubtful.disarm();
    if let Some(error) = synced.as_ref().err().and_then(interface_error) {
        world.record_failed_call(requests, ArmCallKind::CreateOrUpdateInterface, error);
    }
    if let Err(error) = &synced {
        world.record_interface_limit(arm_errors(error));
        record_failed_pools(world, error, &local, &observed);
    }
    finish_sync(world, synced).map_err(|error| PoolJoinFailure::of_pools(error, &local, &observed))?;
    world.unfilled_pools().retain(|pool| !created.contains(pool));
    let due = world.backend_pools.resync_after().map(|after| Instant::now() + after);
    // Pools that were passed over may want members by now.
    if !is_deleting {
        world.lock_pool_sync().record(since, PoolSyncRecord { fingerprint, publications, due });
    }
    Ok(())
}

/// All Services on a pool that was just made wait for its machines, and whoever writes these keeps all others from it. Where machines
/// outnumber Services, their writes would hold up public IPs for long.
fn join_urgency(context: &StageContext, nodes: usize, urgency: Urgency) -> Urgency {
    let is_awaited = !context.unfilled_pools().is_empty() && nodes <= context.service_index.managed().len();
    if is_awaited { Urgency::Shared } else { urgency }
}

/// Load balancers whose members are being written: how they look is not known when that ends before it says so.
struct InvalidationGuard<'a> {
    context: &'a StageContext,
    load_balancers: Vec<ResourceId>,
}

impl<'a> InvalidationGuard<'a> {
    fn all(world: &'a StageContext, observed: &ObservedNetwork) -> Self {
        let ids = observed.load_balancers.iter().filter_map(|balancer| ResourceId::parse(balancer.id.as_deref()?).ok());
        Self { context: world, load_balancers: ids.collect() }
    }

    /// What was written is known.
    fn disarm(mut self) {
        self.load_balancers.clear();
    }
}

impl Drop for InvalidationGuard<'_> {
    fn drop(&mut self) {
        if !self.load_balancers.is_empty() {
            self.context.lock_pool_sync().machine_rules.note_change();
        }
        self.load_balancers
            .drain(..)
            .for_each(|balancer| self.context.observer.invalidate(NetworkCacheKey::LoadBalancer(balancer)));
    }
}

/// Whether the pools were last brought to what they have to be now.
pub(super) fn is_synced(world: &StageContext) -> bool {
    let Some(followed) = world.lock_pool_sync().synced else { return false };
    world.unfilled_pools().is_empty()
        && followed.publications == world.watches.publications()
        && followed.due.is_none_or(|due| due > Instant::now())
        && world.hosts().is_some_and(|hosts| world.node_fingerprint(&hosts) == followed.fingerprint)
}

/// While it lives, nobody joins the pools of a load balancer.
pub(super) struct LoadBalancerDeletion<'a> {
    context: &'a StageContext,
    id: ResourceId,
    /// Whether it is deleted.
    pub(super) is_gone: bool,
}

impl Drop for LoadBalancerDeletion<'_> {
    fn drop(&mut self) {
        self.context.lock_deleting().remove(&self.id);
        // What stays after all wants the members of its pools back; the Nodes of an entry that has gone belong elsewhere.
        if !self.is_gone || self.context.settings.has_entries() {
            self.context.invalidate_pool_sync();
        }
    }
}

fn arm_errors(error: &PoolSyncError) -> impl Iterator<Item = &ArmError> {
    error.failures.iter().filter_map(|failure| match &failure.error {
        LookupError::Arm(error) => Some(error),
        LookupError::NotListed(_) | LookupError::NoAddress(_) => None,
    })
}

/// The first failure of a network interface.
fn interface_error(error: &PoolSyncError) -> Option<&ArmError> {
    arm_errors(error).find(|error| error.request.starts_with("PUT") && error.request.contains("/networkInterfaces/"))
}

/// Tells each Service whose own pool could not be written.
fn record_failed_pools(world: &StageContext, error: &PoolSyncError, local: &LocalPools, observed: &ObservedNetwork) {
    let failed = error.failures.iter().filter_map(|failure| match (&failure.pool, &failure.error) {
        (Some(pool), LookupError::Arm(error)) => Some((pool, error)),
        _ => None,
    });
    for (pool, error) in failed {
        if let Some(service) = pool_join_failure::owner(pool, local, observed) {
            world.record_failed_pool(service, error);
        }
    }
}

/// Takes everybody out of the pools of load balancers that are about to go.
pub(super) async fn leave(
    context: &StageContext,
    requests: &[ServiceRequest],
    balancers: &[&ArmLoadBalancer],
    urgency: Urgency,
) -> Result<(), PoolSyncError> {
    let running = context.pool_metrics.leave(requests);
    let _round = context.pool_round.lock().await;
    let started = Instant::now();
    context.backend_pools.expire_models();
    let left = match context.plan(&StagePlanRequest::write(PlanScope::Eviction(balancers), &[], urgency)).await {
        Ok(planned) => context.backend_pools.leave(&planned.plan.pools, started, urgency).await,
        Err(error) => Err(PoolSyncError::unplanned(&error)),
    };
    let left = finish_sync(context, left);
    running.into_iter().for_each(|one| one.end(left.is_ok()));
    left
}

/// Load balancers whose members have changed look different now.
fn finish_sync(context: &StageContext, result: Result<PoolSyncSummary, PoolSyncError>) -> Result<(), PoolSyncError> {
    let synced = result.as_ref().unwrap_or_else(|error| &error.summary);
    if !synced.load_balancers.is_empty() {
        context.lock_pool_sync().machine_rules.note_change();
    }
    for balancer in &synced.load_balancers {
        context.observer.invalidate(NetworkCacheKey::LoadBalancer(balancer.clone()));
    }
    result.map(drop)
}

impl StageContext {
    /// A load balancer is about to be deleted.
    pub(super) fn begin_deletion(&self, id: &ResourceId) -> LoadBalancerDeletion<'_> {
        self.lock_deleting().insert(id.clone());
        LoadBalancerDeletion { context: self, id: id.clone(), is_gone: false }
    }

    /// Pools are not where they have to be, whatever the Nodes say; as of what is answered.
    pub(super) fn invalidate_pool_sync(&self) -> u64 {
        self.lock_pool_sync().invalidate()
    }

    pub(super) fn lock_deleting(&self) -> MutexGuard<'_, BTreeSet<ResourceId>> {
        self.deleting.lock()
    }

    fn lock_pool_sync(&self) -> MutexGuard<'_, PoolSyncState> {
        self.pool_sync.lock()
    }

    /// Pools that were made and not filled yet.
    pub(super) fn unfilled_pools(&self) -> MutexGuard<'_, BTreeSet<ResourceId>> {
        self.unfilled_pools.lock()
    }
}
