//! Whether the pools of a Service have members. Pure.
//!
//! In: the plan of members, and load balancers as they were observed. Out: the readiness of each Service. A Service waits for pools without a
//! member alone: one that it has for itself, or those of the load balancers that have its rules. Without rules it waits for all shared pools.
//! What fails of a machine elsewhere is reported by the sync of hosts.

use std::collections::{BTreeSet, HashMap};

use crate::{
    cloud_provider::CloudResult,
    providers::azure::{
        load_balancer::backend_pools::{PoolSyncError, PoolSyncFailure, PoolSyncOutcome, PoolSyncSummary},
        model::ResourceId,
        planner::load_balancer::{
            desired::RulesByPool,
            observed::ObservedNetwork,
            plan::pools::{PoolChange, PoolMemory, PoolPlan},
            pools::local_pools::LocalPools,
            spec::ServiceIdentity,
        },
    },
};

/// State of the pools of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolReadiness {
    /// All have members, or nothing can join.
    Ready,
    /// All have members, and more are joining.
    Joining,
    /// Some have none, and a write that is to fill them has not ended.
    Filling,
}

/// Pools without a member.
#[derive(Debug, Default)]
pub(super) struct EmptyPools {
    empty: Vec<EmptyPool>,
    /// Load balancers whose pools are being filled.
    joining: BTreeSet<ResourceId>,
    /// Load balancers with rules of a Service, by the beginning of its names in lower case.
    by_service: HashMap<String, BTreeSet<ResourceId>>,
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
    Some(&local.find(pool, &RulesByPool::of(document))?.service)
}

impl EmptyPools {
    /// `memory`: that of the plan.
    pub(super) fn new(plan: &PoolPlan, memory: &PoolMemory, local: &LocalPools, observed: &ObservedNetwork) -> Self {
        let in_flight = || memory.in_flight.values().map(|write| write.change.as_ref());
        let changes = || plan.changes.iter().chain(&plan.blocked).chain(in_flight());
        let joining: BTreeSet<ResourceId> = changes().flat_map(PoolChange::load_balancers).collect();
        if plan.empty.is_empty() && joining.is_empty() {
            return Self::default();
        }
        let empty = plan.empty.iter().map(|id| EmptyPool {
            id: id.clone(),
            owner: owner(id, local, observed).cloned(),
            is_filling: changes().any(|change| change.fills(id)),
            failures: (plan.failing.iter())
                .filter(|(change, _)| change.fills(id))
                .map(|(change, error)| PoolSyncFailure::of(change, error))
                .collect(),
        });
        let mut by_service: HashMap<String, BTreeSet<ResourceId>> = HashMap::new();
        for balancer in &observed.load_balancers {
            let Some(id) = balancer.id.as_deref().and_then(|id| ResourceId::parse(id).ok()) else { continue };
            let rules = balancer.properties.iter().flat_map(|properties| properties.load_balancing_rules.iter().flatten());
            // Only what follows the beginning has hyphens.
            for prefix in rules.filter_map(|rule| rule.name.as_deref()?.split('-').next()) {
                by_service.entry(prefix.to_ascii_lowercase()).or_default().insert(id.clone());
            }
        }
        Self { empty: empty.collect(), joining, by_service, failures: PoolSyncOutcome::unread(plan).failures }
    }

    /// Returns the readiness of one Service.
    ///
    /// # Errors
    /// Nothing fills one of its pools, because something failed.
    pub(super) fn of(&self, service: &ServiceIdentity) -> CloudResult<PoolReadiness> {
        let none = BTreeSet::new();
        let balancers = self.by_service.get(&service.name_prefix.to_ascii_lowercase()).unwrap_or(&none);
        let concerns = |pool: &&EmptyPool| match &pool.owner {
            Some(owner) => owner == service,
            None => balancers.is_empty() || pool.id.parent().is_some_and(|balancer| balancers.contains(&balancer)),
        };
        let own: Vec<&EmptyPool> = self.empty.iter().filter(concerns).collect();
        if own.iter().any(|pool| pool.is_filling) {
            return Ok(PoolReadiness::Filling);
        }
        let general = self.failures.iter().filter(|_| !own.is_empty());
        let failures: Vec<_> = own.iter().flat_map(|pool| &pool.failures).chain(general).cloned().collect();
        match failures.is_empty() {
            true if !self.joining.is_disjoint(balancers) => Ok(PoolReadiness::Joining),
            true => Ok(PoolReadiness::Ready),
            false => Err(PoolSyncError { summary: PoolSyncSummary::default(), failures }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::providers::azure::{
        model::{ArmError, ArmErrorClass, LookupError},
        planner::load_balancer::{
            desired::{pool_members::node_ip_configuration::PoolMembershipPatch, samples},
            plan::pools::WriteInFlight,
            pools::{
                member_resource::PoolMemberResource,
                member_updates::{LeaveReason, PoolMemberUpdate},
            },
        },
        samples::arm_error,
    };

    fn id(path: &str) -> ResourceId {
        ResourceId::parse(&samples::network(path)).unwrap()
    }

    fn pool(load_balancer: &str) -> ResourceId {
        id(&format!("loadBalancers/{load_balancer}")).child("backendAddressPools", "kubernetes")
    }

    /// A machine that joins the pool of a load balancer.
    fn join(load_balancer: &str) -> PoolChange {
        let patch = PoolMembershipPatch { join: vec![pool(load_balancer)], ..PoolMembershipPatch::default() };
        let (resource, leave_reason) = (PoolMemberResource::Interface(id("networkInterfaces/n")), LeaveReason::NotInPool);
        PoolChange::of_member(PoolMemberUpdate { resource, node: "n".to_owned(), patch, leave_reason })
    }

    /// Adds a change to a plan with an empty pool.
    type EditPlan = fn(&mut PoolPlan, PoolChange);

    fn refused() -> ArmError {
        arm_error(ArmErrorClass::Invalid, "", "refused")
    }

    fn unlocated() -> (String, LookupError) {
        ("n".to_owned(), LookupError::NoAddress("n".to_owned()))
    }

    #[test]
    fn a_service_waits_only_for_its_pools_without_a_member() {
        let (web, api) = (samples::service("web").identity, samples::service("api").identity);
        let balancer = |name: &str, service: &ServiceIdentity| {
            let rule = json!({"name": format!("{}-TCP-80", service.name_prefix)});
            let document = json!({"id": samples::network(&format!("loadBalancers/{name}")), "name": name,
                "properties": {"loadBalancingRules": [rule], "backendAddressPools": [{"name": "kubernetes"}]}});
            samples::load_balancer(document)
        };
        let observed = samples::observed(vec![balancer("a", &web), balancer("b", &api)]);
        let (ready, joining, filling, failed) = ("Ready", "Joining", "Filling", "failed");
        let change = Arc::new(join("a"));
        let in_flight = BTreeMap::from([(
            change.id.clone(),
            WriteInFlight { change, since: Instant::now(), round: 0, is_awaited: false },
        )]);
        let flying = PoolMemory { in_flight, ..PoolMemory::default() };
        let none = PoolMemory::default;
        let cases: [(EditPlan, PoolMemory, &str); 7] = [
            (|_, _| {}, none(), ready),
            (|plan, change| plan.changes.push(change), none(), filling),
            (|plan, change| plan.blocked.push(change), none(), filling),
            (|_, _| {}, flying, filling),
            (|plan, change| plan.failing.push((change, refused())), none(), failed),
            (|plan, _| plan.unlocated.push(unlocated()), none(), failed),
            (
                |plan, change| {
                    plan.empty.clear();
                    plan.changes.push(change);
                },
                none(),
                joining,
            ),
        ];
        for (edit, memory, expected) in cases {
            let mut plan = PoolPlan::default();
            plan.empty.insert(pool("a"));
            edit(&mut plan, join("a"));
            let pools = EmptyPools::new(&plan, &memory, &LocalPools::default(), &observed);
            let text = |service| pools.of(service).map_or_else(|error| error.class().to_owned(), |it| format!("{it:?}"));
            assert_eq!((text(&web).as_str(), text(&api).as_str()), (expected, ready), "{plan:?}");
        }
    }
}
