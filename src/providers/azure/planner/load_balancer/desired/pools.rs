//! Backend pools that a load balancer needs. Pure.
//!
//! In: a load balancer and the Services on it. Out: a pool for each IP family that they need; other modules decide about the members. The
//! cluster's pools are never removed, because they exist as long as their load balancer. Pools of other clusters and users have other
//! names. Where there are several load balancers, a Service with policy `Local` has pools of its own ([`own_pools`](super::own_pools)).
//! Upstream: `pkg/provider/azure_loadbalancer_backendpool.go`.

use std::collections::{BTreeSet, HashMap};

use super::{
    super::naming,
    draft::{self, LoadBalancerDraft},
};
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{ArmLoadBalancer, BackendAddressPool, BackendAddressPoolProperties, LoadBalancingRule},
    },
    planner::load_balancer::{
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceSpec},
    },
};

/// Returns the name of the pool that receives the traffic of the Service's rules of `family`.
pub fn name(spec: &ServiceSpec, settings: &LoadBalancerSettings, family: IpFamily) -> String {
    if spec.own_pool { naming::own_pool(&spec.identity, family) } else { naming::pool(&settings.cluster, family) }
}

/// Returns the id of the pool called `name` of a load balancer.
pub(super) fn id(load_balancer: &ResourceId, name: &str) -> ResourceId {
    load_balancer.child("backendAddressPools", name)
}

/// Returns the pool that a rule leads to.
pub(super) fn pool_of(rule: &LoadBalancingRule) -> Option<ResourceId> {
    rule.properties.as_ref()?.backend_address_pool.as_ref()?.resource_id()
}

/// Load balancing rules by the pool that they lead to.
#[derive(Default)]
pub struct RulesByPool<'a>(HashMap<ResourceId, Vec<&'a LoadBalancingRule>>);

impl<'a> RulesByPool<'a> {
    /// Creates the table of one load balancer.
    pub fn of(document: &'a ArmLoadBalancer) -> Self {
        let mut found: HashMap<ResourceId, Vec<&LoadBalancingRule>> = HashMap::new();
        for (pool, rule) in draft::rules(document).iter().filter_map(|rule| Some((pool_of(rule)?, rule))) {
            found.entry(pool).or_default().push(rule);
        }
        Self(found)
    }

    /// Returns the rules that lead to a pool.
    pub fn leading_to(&self, pool: &ResourceId) -> &[&'a LoadBalancingRule] {
        self.0.get(pool).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Adds missing pools and returns the names of the added ones. Names are compared without case.
pub(super) fn ensure_all<'n>(
    draft: &mut LoadBalancerDraft<'_>,
    names: impl IntoIterator<Item = &'n String>,
) -> Vec<&'n String> {
    let keys = draft::pools(&draft.after).iter().filter_map(|pool| Some(pool.name.as_ref()?.to_ascii_lowercase()));
    let mut keys: BTreeSet<String> = keys.collect();
    let added: Vec<&String> = names.into_iter().filter(|name| keys.insert(name.to_ascii_lowercase())).collect();
    if added.is_empty() {
        return added;
    }
    draft.properties_mut().backend_address_pools.get_or_insert_default().extend(added.iter().map(|name| {
        BackendAddressPool {
            name: Some((*name).clone()),
            properties: Some(BackendAddressPoolProperties::default()),
            ..BackendAddressPool::default()
        }
    }));
    draft.reasons.extend(added.iter().map(|name| format!("add back-end pool {name}")));
    added
}
