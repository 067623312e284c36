//! The third stage: the nodes behind the load balancers, once for everybody who waits. It is also a duty of its own, for nobody's sake:
//! pools follow the Nodes when no Service can be ensured.
//!
//! In: the Nodes that the service controller gave last. Out: pools with the right members. Plans are made one after the other; their writes
//! continue next to later plans, which leave the documents in flight alone.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::{self, BoxFuture};
use tokio::{
    sync::{
        self,
        mpsc::{self, UnboundedReceiver},
        oneshot,
    },
    time::{Instant, timeout_at},
};

use super::{
    planning::{StagePlan, StagePlanRequest},
    pool_readiness::{self, EmptyPools},
    pool_sync_state::PoolSyncRecord,
    stage_context::StageContext,
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        load_balancer::{
            backend_pools::{
                PoolSyncError, PoolSyncFailure, PoolSyncOutcome, PoolSyncSummary, PoolWriteEnd, PoolWriteEnds, PoolWriter,
            },
            events::ArmCallKind,
            explain::cloud_error,
            lease::LeaseGuard,
            observe::NetworkCacheKey,
        },
        model::{
            ArmError, ArmResult, ResourceId,
            network::{ArmLoadBalancer, BackendAddressPool},
        },
        planner::load_balancer::{
            desired::ServiceRequest,
            observed::ObservedNetwork,
            plan::{
                PlanScope,
                pools::{POWERED_OFF_RESYNC, PoolPlan},
            },
            pools::local_pools::LocalPools,
        },
    },
};

/// Time in which ends of writes gather before the load balancers count as changed.
const GATHER_ENDS: Duration = Duration::from_secs(2);

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
        let owner = pool_readiness::owner(pool, self.local, self.observed).filter(|_| is_own);
        let written = self.context.writer.caused_by(owner).put_pool(pool, document, urgency).await;
        running.into_iter().for_each(|one| one.end(written.is_ok()));
        written
    }

    async fn migrate_to_ip_based(&self, load_balancer: &ResourceId, pools: &[String], urgency: Urgency) -> ArmResult<()> {
        self.context.writer.migrate_to_ip_based(load_balancer, pools, urgency).await
    }
}

/// The writes of one plan of members.
#[derive(Default)]
pub(super) struct PoolRound {
    /// Which Services wait for them.
    pub(super) pools: EmptyPools,
    /// Whether changes wait for writes of another round.
    pub(super) is_blocked: bool,
    /// Result of all writes; `None`: the Nodes are not listed yet.
    pub(super) result: Option<oneshot::Receiver<Result<PoolSyncSummary, PoolSyncError>>>,
}

/// Plans which Nodes are in the pools and begins to write. Before the first call with Nodes there is nothing to go by.
pub(super) async fn join(
    context: &Arc<StageContext>,
    requests: &[ServiceRequest],
    urgency: Urgency,
) -> CloudResult<PoolRound> {
    let lease = context.hold_lease().await?;
    let planning = context.pool_planning.lock().await;
    context.pool_sync.lock().is_plan_due = false;
    let Some(nodes) = context.hosts() else { return Ok(PoolRound::default()) };
    let urgency = join_urgency(context, nodes.len(), urgency);
    let since = context.invalidate_pool_sync();
    let fingerprint = context.node_fingerprint(&nodes);
    let (local, publications) = context.local_pools();
    let created = context.unfilled_pools.lock().clone();
    let is_deleting = !context.deleting.lock().is_empty();
    let (started, ends) = (Instant::now(), context.backend_pools.ends());
    // With all that the requests need: what a read does not need may be forgotten, and with it addresses for a status.
    let StagePlan { plan, input } = context.plan(&StagePlanRequest::write(PlanScope::Members, requests, urgency)).await?;
    if context.pool_sync.lock().is_retired {
        return Ok(PoolRound::default());
    }
    let (plan, observed) = (plan.pools, input.observed);
    let (context, requests) = (Arc::clone(context), requests.to_vec());
    let memory = context.backend_pools.memory();
    let pools = EmptyPools::new(&plan, &memory, &local, &observed);
    context.backend_pools.remember(&plan);
    let record = PoolSyncRecord { fingerprint, publications, due: None };
    // Pools that were left out may need members now, and the writes of other plans may end in anything.
    let is_whole = !is_deleting && memory.in_flight.is_empty() && context.backend_pools.ends() == ends;
    let goal = RoundGoal::Join { created, synced: is_whole.then_some((since, record)) };
    let is_blocked = !plan.blocked.is_empty();
    if is_blocked && context.backend_pools.ends() != ends {
        // What it waits for may have ended meanwhile.
        plan_again(&context);
    }
    let writes = PoolWrites { context, plan, observed, local, requests, started, urgency, goal, round: 0, _lease: lease };
    let result = writes.begin(planning).await;
    Ok(PoolRound { pools, is_blocked, result: Some(result) })
}

/// What is right when all writes of a round succeed.
enum RoundGoal {
    /// The created pools are filled, and the pools have the members that the Nodes require.
    Join { created: BTreeSet<ResourceId>, synced: Option<(u64, PoolSyncRecord)> },
    /// The pools of some load balancers are empty.
    Leave,
}

/// Writes of members in flight. When they are dropped, the load balancers are read again.
struct PoolWrites {
    context: Arc<StageContext>,
    plan: PoolPlan,
    observed: Arc<ObservedNetwork>,
    local: LocalPools,
    requests: Vec<ServiceRequest>,
    started: Instant,
    urgency: Urgency,
    goal: RoundGoal,
    /// Number of the plan.
    round: u64,
    /// Held until all writes have ended.
    _lease: LeaseGuard,
}

impl PoolWrites {
    /// Sends the changes in a task. `planning`: held until they count as in flight.
    async fn begin(
        mut self,
        planning: sync::MutexGuard<'_, ()>,
    ) -> oneshot::Receiver<Result<PoolSyncSummary, PoolSyncError>> {
        self.round = self.context.backend_pools.begin(&self.plan);
        drop(planning);
        let (sender, result) = oneshot::channel();
        let has_changes = !self.plan.changes.is_empty();
        let work = async move { drop(sender.send(self.run().await)) };
        if has_changes {
            tokio::spawn(work);
        } else {
            work.await;
        }
        result
    }

    async fn run(self) -> Result<PoolSyncSummary, PoolSyncError> {
        let (sender, ends) = mpsc::unbounded_channel();
        let writer = MeteredPoolWriter { context: &self.context, local: &self.local, observed: &self.observed };
        let pools = &self.context.backend_pools;
        let writes = pools.write(&self.plan, self.started, &writer, self.urgency, PoolWriteEnds(sender));
        let ((), mut outcome) = future::join(writes, self.collect(ends)).await;
        outcome.merge(PoolSyncOutcome::planned(&self.plan));
        self.finish(&outcome);
        outcome.into_result()
    }

    /// Records ends as they come. What ends within a moment is one change, as each is a read of the load balancer.
    async fn collect(&self, mut ends: UnboundedReceiver<PoolWriteEnd>) -> PoolSyncOutcome {
        let mut outcome = PoolSyncOutcome::default();
        while let Some(first) = ends.recv().await {
            let (mut ended, until) = (vec![first], Instant::now() + GATHER_ENDS);
            while let Ok(Some(end)) = timeout_at(until, ends.recv()).await {
                ended.push(end);
            }
            self.record(&ended);
            ended.into_iter().for_each(|end| outcome.merge(end.outcome));
        }
        outcome
    }

    /// Records ends of writes. The load balancers of their pools have changed.
    fn record(&self, ended: &[PoolWriteEnd]) {
        let failures: Vec<&PoolSyncFailure> = ended.iter().flat_map(|end| &end.outcome.failures).collect();
        if let Some(error) = interface_error(&failures) {
            self.context.record_failed_call(&self.requests, ArmCallKind::CreateOrUpdateInterface, error);
        }
        self.context.record_interface_limit(arm_errors(&failures));
        record_failed_pools(&self.context, &failures, &self.local, &self.observed);
        let changed: BTreeSet<&ResourceId> = ended.iter().flat_map(|end| &end.outcome.summary.load_balancers).collect();
        self.context.note_changed_pools(changed);
        self.end(ended);
    }

    fn end(&self, ended: &[PoolWriteEnd]) {
        if self.context.backend_pools.end(self.round, ended) {
            plan_again(&self.context);
        }
    }

    fn finish(&self, outcome: &PoolSyncOutcome) {
        let RoundGoal::Join { created, synced } = &self.goal else { return };
        if !outcome.failures.is_empty() || !self.plan.blocked.is_empty() {
            return;
        }
        self.context.unfilled_pools.lock().retain(|pool| !created.contains(pool));
        if let Some((since, record)) = *synced {
            let deferred = outcome.deferred.then_some(POWERED_OFF_RESYNC);
            let due = deferred.into_iter().chain(self.plan.resync_after).min().map(|after| Instant::now() + after);
            self.context.pool_sync.lock().record(since, PoolSyncRecord { due, ..record });
        }
    }
}

impl Drop for PoolWrites {
    fn drop(&mut self) {
        let unreported = self.context.backend_pools.unreported(self.round, &self.plan);
        if unreported.is_empty() {
            return;
        }
        let ids = self.observed.load_balancers.iter().filter_map(|balancer| ResourceId::parse(balancer.id.as_deref()?).ok());
        self.context.note_changed_pools(ids.collect::<Vec<_>>().iter());
        self.end(&unreported);
    }
}

/// Begins another plan, unless one is about to begin.
fn plan_again(context: &Arc<StageContext>) {
    if !std::mem::replace(&mut context.pool_sync.lock().is_plan_due, true) {
        tokio::spawn(join_again(Arc::clone(context)));
    }
}

/// Plans again after a write that a plan waits for. Boxed, since a round may begin another one.
fn join_again(context: Arc<StageContext>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        if let Err(error) = self::join(&context, &[], Urgency::Node).await {
            context.pool_sync.lock().is_plan_due = false;
            tracing::warn!(%error, "some machines are not in their backend pools yet");
        }
    })
}

/// Returns the urgency of the writes of machines. Services on a new pool wait for them.
///
/// If there are more machines than Services, urgent writes would delay public IPs for long.
fn join_urgency(context: &StageContext, nodes: usize, urgency: Urgency) -> Urgency {
    let is_awaited = !context.unfilled_pools.lock().is_empty() && nodes <= context.service_index.managed().len();
    if is_awaited { Urgency::Shared } else { urgency }
}

/// Whether the pools were last brought to what they have to be now.
pub(super) fn is_synced(world: &StageContext) -> bool {
    let Some(followed) = world.pool_sync.lock().synced else { return false };
    world.unfilled_pools.lock().is_empty()
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
        self.context.deleting.lock().remove(&self.id);
        // What stays after all wants the members of its pools back; the Nodes of an entry that has gone belong elsewhere.
        if !self.is_gone || self.context.settings.has_entries() {
            self.context.invalidate_pool_sync();
        }
    }
}

fn arm_errors<'a>(failures: &'a [&PoolSyncFailure]) -> impl Iterator<Item = &'a ArmError> {
    failures.iter().filter_map(|failure| failure.arm())
}

/// The first failure of a network interface.
fn interface_error<'a>(failures: &'a [&PoolSyncFailure]) -> Option<&'a ArmError> {
    arm_errors(failures).find(|error| error.request.starts_with("PUT") && error.request.contains("/networkInterfaces/"))
}

/// Tells each Service whose own pool could not be written.
fn record_failed_pools(
    context: &StageContext,
    failures: &[&PoolSyncFailure],
    local: &LocalPools,
    observed: &ObservedNetwork,
) {
    for (pool, error) in failures.iter().filter_map(|failure| Some((failure.pool.as_ref()?, failure.arm()?))) {
        if let Some(service) = pool_readiness::owner(pool, local, observed) {
            context.record_failed_pool(service, error);
        }
    }
}

/// Takes everybody out of the pools of load balancers that are about to go.
pub(super) async fn leave(
    context: &Arc<StageContext>,
    requests: &[ServiceRequest],
    balancers: &[&ArmLoadBalancer],
    urgency: Urgency,
) -> Result<(), PoolSyncError> {
    let running = context.pool_metrics.leave(requests);
    let left = leave_all(context, balancers, urgency).await;
    running.into_iter().for_each(|one| one.end(left.is_ok()));
    left
}

async fn leave_all(
    context: &Arc<StageContext>,
    balancers: &[&ArmLoadBalancer],
    urgency: Urgency,
) -> Result<(), PoolSyncError> {
    let unplanned = |error: CloudError| PoolSyncError::unplanned(&error);
    context.backend_pools.expire_models();
    let mut observed: Vec<ArmLoadBalancer> = balancers.iter().copied().cloned().collect();
    loop {
        let ends = context.backend_pools.ends();
        let planning = context.pool_planning.lock().await;
        let started = Instant::now();
        let documents: Vec<&ArmLoadBalancer> = observed.iter().collect();
        let request = StagePlanRequest::write(PlanScope::Eviction(&documents), &[], urgency);
        let StagePlan { plan, input } = context.plan(&request).await.map_err(unplanned)?;
        let plan = plan.pools;
        if plan.blocked.is_empty() {
            let writes = PoolWrites {
                context: Arc::clone(context),
                plan,
                observed: input.observed,
                local: LocalPools::default(),
                requests: Vec::new(),
                started,
                urgency,
                goal: RoundGoal::Leave,
                round: 0,
                _lease: context.hold_lease().await.map_err(unplanned)?,
            };
            let result = writes.begin(planning).await;
            let abandoned = |_| unplanned(CloudError::failed("the writes of machines were abandoned"));
            return result.await.map_err(abandoned).and_then(|left| left).map(drop);
        }
        drop(planning);
        // Machines that are still joining leave when their writes have ended.
        context.backend_pools.wait_for_end(ends).await;
        while context.backend_pools.has_in_flight(&plan.blocked) {
            context.backend_pools.wait_for_end(context.backend_pools.ends()).await;
        }
        context.backend_pools.expire_models();
        observed = refreshed(context, &observed, urgency)
            .await
            .map_err(|error| unplanned(cloud_error("read a load balancer", error)))?;
    }
}

async fn refreshed(
    context: &StageContext,
    balancers: &[ArmLoadBalancer],
    urgency: Urgency,
) -> ArmResult<Vec<ArmLoadBalancer>> {
    let mut found = Vec::new();
    for id in balancers.iter().filter_map(|balancer| ResourceId::parse(balancer.id.as_deref()?).ok()) {
        context.observer.refresh(NetworkCacheKey::LoadBalancer(id.clone()), urgency).await?;
        found.extend(context.observer.document::<ArmLoadBalancer>(&id));
    }
    Ok(found)
}

impl StageContext {
    /// A load balancer is about to be deleted.
    pub(super) fn begin_deletion(&self, id: &ResourceId) -> LoadBalancerDeletion<'_> {
        self.deleting.lock().insert(id.clone());
        LoadBalancerDeletion { context: self, id: id.clone(), is_gone: false }
    }

    /// Pools are not where they have to be, whatever the Nodes say; as of what is answered.
    pub(super) fn invalidate_pool_sync(&self) -> u64 {
        self.pool_sync.lock().invalidate()
    }

    /// Records that members of pools of these load balancers have changed.
    fn note_changed_pools<'a>(&self, load_balancers: impl IntoIterator<Item = &'a ResourceId>) {
        for balancer in load_balancers {
            self.pool_sync.lock().machine_rules.note_change();
            self.observer.invalidate(NetworkCacheKey::LoadBalancer(balancer.clone()));
        }
    }
}
