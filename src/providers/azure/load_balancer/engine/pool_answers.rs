//! Whether the pools of a Service have members. Pure.
//!
//! In: the plan of members, and load balancers as they were observed. Out: the answer for each Service. A Service waits for pools without a
//! member alone: one that it has for itself, or those of the load balancers that have its rules. Without rules it waits for all shared pools.
//! What fails of a machine elsewhere is reported by the sync of hosts.

use std::collections::BTreeSet;

use crate::{
    cloud_provider::CloudResult,
    providers::azure::{
        arm::ResourceId,
        load_balancer::backend_pools::{PoolSyncError, PoolSyncFailure, PoolSyncOutcome, PoolSyncSummary},
        planner::load_balancer::{
            naming,
            observed::ObservedNetwork,
            plan::pools::{PoolMemory, PoolPlan},
            pools::local_pools::{LocalPools, RuleReferences},
            spec::ServiceIdentity,
        },
    },
};

/// State of the pools of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolAnswer {
    /// All have members, or nothing can join.
    Ready,
    /// Some have none, and a write that is to fill them has not ended.
    Filling,
}

/// Pools without a member. By default there is none.
#[derive(Debug, Default)]
pub(super) struct PoolAnswers {
    empty: Vec<EmptyPool>,
    /// Names of the rules of each load balancer.
    seats: Vec<(ResourceId, Vec<String>)>,
    /// What failed and is about no pool in particular.
    failures: Vec<PoolSyncFailure>,
}

#[derive(Debug)]
struct EmptyPool {
    id: ResourceId,
    /// The Service that has it for itself.
    owner: Option<ServiceIdentity>,
    is_filling: bool,
    failures: Vec<PoolSyncFailure>,
}

/// The Service that has this pool for itself.
pub(super) fn owner<'a>(
    pool: &ResourceId,
    local: &'a LocalPools,
    observed: &ObservedNetwork,
) -> Option<&'a ServiceIdentity> {
    let document = observed.load_balancer(&pool.parent()?)?;
    Some(&local.find(pool, &RuleReferences::of(document))?.service)
}

impl PoolAnswers {
    /// `memory`: that of the plan.
    pub(super) fn new(plan: &PoolPlan, memory: &PoolMemory, local: &LocalPools, observed: &ObservedNetwork) -> Self {
        if plan.empty.is_empty() {
            return Self::default();
        }
        let in_flight = || memory.in_flight.values().map(|write| write.change.as_ref());
        let empty = plan.empty.iter().map(|id| EmptyPool {
            id: id.clone(),
            owner: owner(id, local, observed).cloned(),
            is_filling: plan.changes.iter().chain(&plan.held).chain(in_flight()).any(|change| change.fills(id)),
            failures: (plan.failing.iter())
                .filter(|(change, _)| change.fills(id))
                .map(|(change, error)| PoolSyncFailure::of(change, error))
                .collect(),
        });
        let seats = observed.load_balancers.iter().filter_map(|balancer| {
            let rules = balancer.properties.iter().flat_map(|properties| properties.load_balancing_rules.iter().flatten());
            let names = rules.filter_map(|rule| rule.name.clone()).collect();
            Some((ResourceId::parse(balancer.id.as_deref()?).ok()?, names))
        });
        Self { empty: empty.collect(), seats: seats.collect(), failures: PoolSyncOutcome::unread(plan).failures }
    }

    /// Returns the answer for one Service.
    ///
    /// # Errors
    /// Nothing fills one of its pools, because something failed.
    pub(super) fn of(&self, service: &ServiceIdentity) -> CloudResult<PoolAnswer> {
        let is_there = |rules: &[String]| rules.iter().any(|rule| naming::owns_rule(service, rule));
        let balancers: BTreeSet<&ResourceId> =
            self.seats.iter().filter(|(_, rules)| is_there(rules)).map(|(balancer, _)| balancer).collect();
        let concerns = |pool: &&EmptyPool| match &pool.owner {
            Some(owner) => owner == service,
            None => balancers.is_empty() || pool.id.parent().is_some_and(|balancer| balancers.contains(&balancer)),
        };
        let own: Vec<&EmptyPool> = self.empty.iter().filter(concerns).collect();
        if own.iter().any(|pool| pool.is_filling) {
            return Ok(PoolAnswer::Filling);
        }
        let general = self.failures.iter().filter(|_| !own.is_empty());
        let failures: Vec<_> = own.iter().flat_map(|pool| &pool.failures).chain(general).cloned().collect();
        match failures.is_empty() {
            true => Ok(PoolAnswer::Ready),
            false => Err(PoolSyncError { summary: PoolSyncSummary::default(), failures }.into()),
        }
    }
}
