//! Back-end pools of a load balancer: that they exist. Who is in them is decided elsewhere. Pure.
//!
//! In: a load balancer and the families it serves. Out: a pool for each. Pools are never removed: other clusters' and users' pools
//! have names of their own, and the cluster's lives as long as its load balancer.
//! Upstream: `pkg/provider/azure_loadbalancer_backendpool.go`.

use super::{super::naming, draft::LoadBalancerDraft};
use crate::providers::azure::{
    arm::{
        ResourceId,
        network::{BackendAddressPool, BackendAddressPoolProperties},
    },
    planner::load_balancer::{settings::LoadBalancerSettings, spec::IpFamily},
};

/// The pool that rules of `family` send their traffic to.
pub(super) fn id(load_balancer: &ResourceId, settings: &LoadBalancerSettings, family: IpFamily) -> ResourceId {
    load_balancer.child("backendAddressPools", &naming::pool(&settings.cluster, family))
}

/// Adds the pool of `family` when there is none. Names are equal in any letter case.
pub(super) fn ensure(draft: &mut LoadBalancerDraft<'_>, settings: &LoadBalancerSettings, family: IpFamily) {
    let name = naming::pool(&settings.cluster, family);
    let pools = draft.properties_mut().backend_address_pools.get_or_insert_default();
    if !pools.iter().any(|pool| pool.name_is(&name)) {
        let properties = Some(BackendAddressPoolProperties::default());
        pools.push(BackendAddressPool { name: Some(name.clone()), properties, ..BackendAddressPool::default() });
        draft.reasons.push(format!("add back-end pool {name}"));
    }
}
