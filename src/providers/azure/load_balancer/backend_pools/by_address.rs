//! Writes of pools that list addresses, and migrations of pools to addresses by ARM.
//!
//! In: changes of a [`PoolPlan`]. Out: pools written through the [`PoolWriter`]. Pools of one load balancer are written
//! sequentially, because ARM accepts only one write of a load balancer at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::join_all;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::outcome::{PoolSyncOutcome, PoolWriteEnds};
use crate::providers::azure::{
    arm::{ArmClient, Urgency},
    model::{ArmErrorClass, ArmResult, ResourceId, api, network::BackendAddressPool},
    planner::load_balancer::{
        plan::{
            pools::{PoolChange, PoolChangeKind, PoolPlan},
            print::PlannedChange,
        },
        settings::LoadBalancerSettings,
    },
};
#[cfg(feature = "sandbox")]
use crate::{cloud_provider::WritePlan, providers::azure::planner::load_balancer::plan::writes};

/// Largest number of attempts to read and write a pool while another writer changes it, too.
const TRIES: usize = 4;
/// Interval at which a pool that ARM migrates is read, and the longest wait for the migration.
const POLL: Duration = Duration::from_secs(5);
const MIGRATION: Duration = Duration::from_secs(600);

/// Writer of pools. An implementation records that the load balancers of the pools have changed.
#[async_trait]
pub trait PoolWriter: Send + Sync {
    /// Replaces the pool with this id, without a precondition. Returns `false` if the pool no longer exists; nothing was
    /// written then.
    async fn put_pool(&self, pool: &ResourceId, document: &BackendAddressPool, urgency: Urgency) -> ArmResult<bool>;
    /// Makes ARM replace interfaces with addresses in the named pools of one load balancer: `POST migrateToIpBased`.
    async fn migrate_to_ip_based(&self, load_balancer: &ResourceId, pools: &[String], urgency: Urgency) -> ArmResult<()>;
}

/// Execution of planned changes of pools; load balancers are written concurrently.
pub(super) struct PoolUpdater<'a> {
    /// Client that reads a pool again after another writer has changed it.
    pub(super) network: ArmClient,
    pub(super) writer: &'a dyn PoolWriter,
    pub(super) settings: &'a LoadBalancerSettings,
    pub(super) plan: &'a PoolPlan,
    pub(super) urgency: Urgency,
}

impl PoolUpdater<'_> {
    /// Sends the changes of pools, and reports the end of each.
    pub(super) async fn write(&self, changes: &[PoolChange], ends: &PoolWriteEnds) {
        let mut groups: BTreeMap<Option<ResourceId>, Vec<&PoolChange>> = BTreeMap::new();
        changes.iter().for_each(|change| groups.entry(change.id.parent()).or_default().push(change));
        let groups = groups.into_values().map(|changes| async move {
            for change in changes {
                let mut outcome = PoolSyncOutcome::default();
                self.write_one(change, &mut outcome).await;
                ends.send(change, outcome);
            }
        });
        join_all(groups).await;
    }

    async fn write_one(&self, planned: &PoolChange, outcome: &mut PoolSyncOutcome) {
        let id = &planned.id;
        let mut change = Some(planned.clone());
        if self.plan.rechecked.contains(id) {
            match self.planned_again(id).await {
                Ok(newer) => change = newer,
                Err(error) => return outcome.fail(name(id), error),
            }
        }
        for tried in 1..=TRIES {
            let Some(PoolChange { kind: PoolChangeKind::Pool(document), .. }) = &change else { return };
            outcome.summary.load_balancers.extend(id.parent());
            let error = match self.writer.put_pool(id, document, self.urgency).await {
                Ok(false) => return,
                Ok(true) => {
                    outcome.summary.pools += 1;
                    change.iter().for_each(|change| info!(change = %PlannedChange::Pool(change), "wrote backend pool"));
                    return;
                }
                Err(error) => error,
            };
            if error.class != ArmErrorClass::Conflict || tried == TRIES {
                return outcome.fail_at(name(id), error, id.parent(), Some(id));
            }
            match self.planned_again(id).await {
                Ok(newer) => change = newer,
                // The pool was deleted together with the load balancer that its members were for.
                Err(error) if error.class == ArmErrorClass::NotFound => return,
                Err(error) => return outcome.fail_at(name(id), error, id.parent(), Some(id)),
            }
        }
    }

    /// Returns the change of a pool as it now is in ARM; `None` if the pool needs no change.
    async fn planned_again(&self, id: &ResourceId) -> ArmResult<Option<PoolChange>> {
        let document = read(&self.network, id).await?;
        let change = self.plan.of_pool(id, &document, self.settings);
        #[cfg(feature = "sandbox")]
        if let (Some(change), Some(witness)) = (&change, self.network.witness()) {
            witness.planned(&WritePlan { writes: vec![writes::pool(change)], ..WritePlan::default() });
        }
        Ok(change)
    }

    /// Makes ARM migrate pools, one load balancer after the other; traffic continues meanwhile. Adds pools whose migration
    /// failed to `failed`.
    pub(super) async fn migrate(&self, changes: &[PoolChange], failed: &mut BTreeSet<ResourceId>, ends: &PoolWriteEnds) {
        let mut migrated = Vec::new();
        for change in changes {
            let PoolChangeKind::Migration(pools) = &change.kind else { continue };
            let (load_balancer, mut outcome) = (&change.id, PoolSyncOutcome::default());
            outcome.summary.load_balancers.insert(load_balancer.clone());
            let ids: Vec<_> = pools.iter().map(|name| load_balancer.child("backendAddressPools", name)).collect();
            match self.writer.migrate_to_ip_based(load_balancer, pools, self.urgency).await {
                Ok(()) => migrated.push((change, ids, outcome)),
                Err(error) => {
                    failed.extend(ids);
                    outcome.fail(format!("migration of {} to addresses", load_balancer.name()), error);
                    ends.send(change, outcome);
                }
            }
        }
        let waits = migrated.into_iter().map(|(change, ids, outcome)| async move {
            join_all(ids.iter().map(|pool| self.wait_for_migration(pool))).await;
            ends.send(change, outcome);
        });
        join_all(waits).await;
    }

    /// Waits until the pool has at least as many addresses as interfaces were its members.
    async fn wait_for_migration(&self, pool: &ResourceId) {
        let (members, until) = (self.plan.members_of(pool), Instant::now() + MIGRATION);
        while Instant::now() < until {
            let addresses = read(&self.network, pool).await.map(|pool| addresses(&pool));
            if addresses.is_ok_and(|addresses| addresses >= members) {
                return;
            }
            sleep(POLL).await;
        }
        warn!(%pool, "backend pool incomplete after its migration");
    }
}

fn name(pool: &ResourceId) -> String {
    let load_balancer = pool.parent();
    format!("pool {} of {}", pool.name(), load_balancer.as_ref().map(ResourceId::name).unwrap_or_default())
}

async fn read(network: &ArmClient, pool: &ResourceId) -> ArmResult<BackendAddressPool> {
    network.get(&api::BACKEND_POOLS, pool, &[]).await
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
