//! Pools that list addresses, and pools that change from one kind to the other.
//!
//! In: [`ManagedPool`]s and nodes. Out: pools written through the [`PoolWriter`]. Pools of one load balancer are written
//! one after the other, since ARM takes one write of it at a time. Nothing is taken out of a pool before it is known that
//! something comes in. Upstream: `pkg/provider/azure_loadbalancer_backendpool.go` (`backendPoolTypeNodeIP`,
//! `isBackendPoolPreConfigured` and neighbours).

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::{BackendPoolSyncer, PoolWriter, outcome::PoolSyncOutcome};
use crate::providers::azure::{
    arm::{ArmClient, ArmErrorClass, ArmResult, ResourceId, Urgency, api, network::BackendAddressPool},
    planner::load_balancer::{
        desired::pool_members::{PoolNode, node_ip::PoolUpdate},
        plan::{pools::PoolChange, print::PlannedChange},
        pools::{
            managed_pool::{ManagedPool, without_addresses},
            member_updates::LeaveReason,
            node_placement::NodePlacement,
        },
    },
};

/// How often a pool is read and written when somebody else writes it as well.
const TRIES: usize = 4;
/// How often a pool that ARM migrates is looked at, and for how long.
const POLL: Duration = Duration::from_secs(5);
const MIGRATION: Duration = Duration::from_secs(600);

type PoolsByLoadBalancer<'a> = BTreeMap<&'a ResourceId, Vec<&'a ManagedPool>>;

fn by_load_balancer<'a>(targets: impl IntoIterator<Item = &'a ManagedPool>) -> PoolsByLoadBalancer<'a> {
    let mut groups = PoolsByLoadBalancer::new();
    targets.into_iter().for_each(|target| groups.entry(&target.load_balancer).or_default().push(target));
    groups
}

/// Writes pools, one load balancer beside the other.
struct PoolUpdater<'a> {
    /// Where pools are read from after somebody else has written them.
    network: ArmClient,
    pools: &'a dyn PoolWriter,
    placement: &'a NodePlacement,
    urgency: Urgency,
}

impl PoolUpdater<'_> {
    /// Brings each pool to what `plan` says; `None`: it is as it has to be.
    async fn write(
        &self,
        targets: &[ManagedPool],
        plan: impl Fn(&ManagedPool, &BackendAddressPool) -> Option<BackendAddressPool> + Sync,
    ) -> PoolSyncOutcome {
        let plan = &plan;
        let groups = by_load_balancer(targets).into_values().map(|targets| async move {
            let mut outcome = PoolSyncOutcome::default();
            for target in targets {
                self.write_one(target, plan, &mut outcome).await;
            }
            outcome
        });
        let mut outcome = PoolSyncOutcome::default();
        join_all(groups).await.into_iter().for_each(|one| outcome.merge(one));
        outcome
    }

    async fn write_one(
        &self,
        target: &ManagedPool,
        plan: &(impl Fn(&ManagedPool, &BackendAddressPool) -> Option<BackendAddressPool> + Sync),
        outcome: &mut PoolSyncOutcome,
    ) {
        let (mut known, mut wanted) = (None, plan(target, &target.document));
        for tried in 1..=TRIES {
            let Some(document) = &wanted else { return };
            outcome.summary.load_balancers.insert(target.load_balancer.clone());
            let error = match self.pools.put_pool(&target.id, document, self.urgency).await {
                Ok(false) => return,
                Ok(true) => {
                    outcome.summary.pools += 1;
                    let before = known.as_ref().unwrap_or(&target.document);
                    let change = PoolChange::of_pool(target.id.clone(), before, document.clone());
                    let change = change.because(self.placement.reason(&target.scope));
                    info!(change = %PlannedChange::Pool(&change), "wrote back-end pool");
                    return;
                }
                Err(error) => error,
            };
            if error.class != ArmErrorClass::Conflict || tried == TRIES {
                return outcome.fail_pool(name(target), error, &target.id);
            }
            match read(&self.network, target).await {
                Ok(current) => (wanted, known) = (plan(target, &current), Some(current)),
                // It has gone, and whoever wanted members in it with it.
                Err(error) if error.class == ArmErrorClass::NotFound => return,
                Err(error) => return outcome.fail_pool(name(target), error, &target.id),
            }
        }
    }
}

fn name(target: &ManagedPool) -> String {
    format!("pool {} of {}", target.id.name(), target.load_balancer.name())
}

async fn read(network: &ArmClient, target: &ManagedPool) -> ArmResult<BackendAddressPool> {
    network.get(&api::BACKEND_POOLS, &target.id, &[]).await
}

impl BackendPoolSyncer {
    fn pool_updater<'a>(
        &self,
        pools: &'a dyn PoolWriter,
        placement: &'a NodePlacement,
        urgency: Urgency,
    ) -> PoolUpdater<'a> {
        PoolUpdater { network: self.network.with_urgency(urgency), pools, placement, urgency }
    }

    /// Empties pools that list addresses where interfaces shall list pools.
    pub(super) async fn clear(&self, targets: &[ManagedPool], pools: &dyn PoolWriter, urgency: Urgency) -> PoolSyncOutcome {
        let with_addresses: Vec<ManagedPool> = targets.iter().filter(|target| target.has_addresses()).cloned().collect();
        let placement = NodePlacement::default();
        let updater = self.pool_updater(pools, &placement, urgency);
        updater.write(&with_addresses, |_, pool| without_addresses(pool)).await
    }

    /// Brings the addresses in the pools to the nodes: those that join, and those that stay when they are in.
    pub(super) async fn fill(
        &self,
        targets: &[ManagedPool],
        (joining, staying): (&[PoolNode], &[PoolNode]),
        placement: &NodePlacement,
        pools: &dyn PoolWriter,
        urgency: Urgency,
    ) -> PoolSyncOutcome {
        let plan = |target: &ManagedPool, pool: &BackendAddressPool| match placement.update(
            target,
            pool,
            (joining, staying),
            &self.settings,
        ) {
            PoolUpdate::Changed(changed) => Some(*changed),
            PoolUpdate::Unchanged | PoolUpdate::HasInterfaces | PoolUpdate::WouldBeEmpty => None,
        };
        self.pool_updater(pools, placement, urgency).write(targets, plan).await
    }

    /// Turns pools that interfaces list into pools that list addresses, and takes them out of models. Answers the pools as they are then,
    /// without those for which that failed.
    pub(super) async fn migrate(
        &self,
        targets: Vec<ManagedPool>,
        nodes: &[PoolNode],
        pools: &dyn PoolWriter,
        urgency: Urgency,
    ) -> (Vec<ManagedPool>, PoolSyncOutcome) {
        let mut outcome = PoolSyncOutcome::default();
        let (mut listed, mut ready): (Vec<_>, Vec<_>) = targets.into_iter().partition(|target| !target.members.is_empty());
        // With nobody to put into it, a pool would be emptied.
        listed.retain(|target| target.will_have_members(nodes, &self.settings));
        if self.migrate_api {
            listed = self.migrate_by_api(listed, pools, urgency, &mut outcome).await;
        }
        let all: Vec<ManagedPool> = ready.iter().chain(&listed).cloned().collect();
        outcome.merge(self.evict(&all, &LeaveReason::ByAddress, false, urgency).await);
        let network = self.network.with_urgency(urgency);
        for mut target in listed {
            match read(&network, &target).await {
                Ok(document) => {
                    target.document = document;
                    ready.push(target);
                }
                Err(error) => outcome.fail(name(&target), error),
            }
        }
        (ready, outcome)
    }

    /// Those whose load balancer ARM has migrated. Traffic goes on meanwhile.
    async fn migrate_by_api(
        &self,
        listed: Vec<ManagedPool>,
        pools: &dyn PoolWriter,
        urgency: Urgency,
        outcome: &mut PoolSyncOutcome,
    ) -> Vec<ManagedPool> {
        let network = self.network.with_urgency(urgency);
        let mut migrated = Vec::new();
        for (load_balancer, targets) in by_load_balancer(&listed) {
            let names: Vec<String> = targets.iter().map(|target| target.id.name().to_owned()).collect();
            outcome.summary.load_balancers.insert(load_balancer.clone());
            match pools.migrate_to_ip_based(load_balancer, &names, urgency).await {
                Ok(()) => migrated.extend(targets.into_iter().cloned()),
                Err(error) => outcome.fail(format!("migration of {} to addresses", load_balancer.name()), error),
            }
        }
        join_all(migrated.iter().map(|target| wait_for_migration(&network, target))).await;
        migrated
    }
}

/// Waits until ARM has as many addresses in the pool as interfaces listed it.
async fn wait_for_migration(network: &ArmClient, target: &ManagedPool) {
    let until = Instant::now() + MIGRATION;
    while Instant::now() < until {
        let addresses = read(network, target).await.map(|pool| addresses(&pool));
        if addresses.is_ok_and(|addresses| addresses >= target.members.len()) {
            return;
        }
        sleep(POLL).await;
    }
    warn!(pool = %target.id, "back-end pool incomplete after its migration");
}

fn addresses(pool: &BackendAddressPool) -> usize {
    let properties = pool.properties.as_ref();
    let entries =
        properties.and_then(|properties| properties.load_balancer_backend_addresses.as_ref()).into_iter().flatten();
    let has_address = |address: &str| !address.is_empty();
    entries
        .filter(|entry| entry.properties.as_ref().and_then(|it| it.ip_address.as_deref()).is_some_and(has_address))
        .count()
}
