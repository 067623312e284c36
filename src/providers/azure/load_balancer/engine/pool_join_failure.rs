//! Whose Service waits for a pool that could not be written. Pure.
//!
//! In: what failed of the pools, and load balancers as they were looked at. Out: the answer for each Service. A pool that a Service has for
//! itself holds up that Service alone, any other pool those with rules on its load balancer, and what is about nothing in particular
//! everybody.

use std::collections::BTreeSet;

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::ResourceId,
        load_balancer::backend_pools::{PoolSyncError, PoolSyncFailure},
        planner::load_balancer::{
            naming,
            observed::ObservedNetwork,
            pools::local_pools::{LocalPools, RuleReferences},
            spec::ServiceIdentity,
        },
    },
};

/// Why pools are not where they have to be.
#[derive(Debug)]
pub(super) enum PoolJoinFailure {
    /// Nothing was attempted.
    All(CloudError),
    Pools {
        error: PoolSyncError,
        owners: Vec<Option<ServiceIdentity>>,
        seats: Vec<(ResourceId, Vec<String>)>,
    },
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

impl PoolJoinFailure {
    /// Some pools or machines could not be written.
    pub(super) fn of_pools(error: PoolSyncError, local: &LocalPools, observed: &ObservedNetwork) -> Self {
        let owner = |failure: &PoolSyncFailure| owner(failure.pool.as_ref()?, local, observed).cloned();
        let seats = observed.load_balancers.iter().filter_map(|balancer| {
            let rules = balancer.properties.iter().flat_map(|properties| properties.load_balancing_rules.iter().flatten());
            let names = rules.filter_map(|rule| rule.name.clone()).collect();
            Some((ResourceId::parse(balancer.id.as_deref()?).ok()?, names))
        });
        let (owners, seats) = (error.failures.iter().map(owner).collect(), seats.collect());
        Self::Pools { error, owners, seats }
    }

    /// All of it.
    pub(super) fn whole(self) -> CloudError {
        match self {
            Self::All(error) => error,
            Self::Pools { error, .. } => error.into(),
        }
    }

    /// What this Service is told. One without rules anywhere waits for all shared pools.
    pub(super) fn answer(&self, service: &ServiceIdentity) -> CloudResult<()> {
        let (error, owners, seats) = match self {
            Self::All(error) => return Err(error.clone()),
            Self::Pools { error, owners, seats } => (error, owners, seats),
        };
        let is_there = |rules: &[String]| rules.iter().any(|rule| naming::owns_rule(service, rule));
        let balancers: BTreeSet<&ResourceId> =
            seats.iter().filter(|(_, rules)| is_there(rules)).map(|(balancer, _)| balancer).collect();
        let concerns = |failure: &PoolSyncFailure, owner: Option<&ServiceIdentity>| match owner {
            Some(owner) => owner == service,
            None => balancers.is_empty() || balancers.iter().any(|balancer| failure.concerns(balancer)),
        };
        let failures = error.failures.iter().zip(owners);
        let own = failures.filter(|(failure, owner)| concerns(failure, owner.as_ref())).map(|(failure, _)| failure.clone());
        let failures: Vec<PoolSyncFailure> = own.collect();
        match failures.is_empty() {
            true => Ok(()),
            false => Err(PoolSyncError { summary: error.summary.clone(), failures }.into()),
        }
    }
}
