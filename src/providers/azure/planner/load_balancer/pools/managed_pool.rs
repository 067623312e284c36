//! Backend pools of the cluster, and their members. Pure.
//!
//! In: the load balancers as ARM last sent them. Out: one [`ManagedPool`] for each pool whose members this program manages.
//! Upstream: `pkg/provider/azure_loadbalancer_backendpool.go`, `azure_loadbalancer_repo.go`.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    endpoint_nodes::EndpointNodes,
    local_pools::{LocalPool, LocalPools},
    member_resource,
};
use crate::providers::azure::{
    config::LoadBalancerSku,
    model::{
        ResourceId,
        network::{ArmLoadBalancer, BackendAddressPool, BackendAddressPoolProperties},
        spelling,
    },
    planner::load_balancer::{
        desired::{RulesByPool, pool_members::PoolNode, pools_of},
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::IpFamily,
    },
};

/// Machines that may be in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolScope {
    /// Machines of all Nodes.
    All,
    /// Machines of one scale set or availability set.
    VmSet(String),
    /// Machines of the Nodes that are placed on the entry of this name.
    Entry(String),
    /// Machines of the Nodes with endpoints of one Service, which has the pool for itself.
    Service(EndpointNodes),
}

/// Pool whose members this program manages.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagedPool {
    pub id: ResourceId,
    /// Id of the load balancer that contains the pool.
    pub load_balancer: ResourceId,
    /// IP family of the members.
    pub family: IpFamily,
    /// Machines that may be members.
    pub scope: PoolScope,
    /// Keys of the member resources that list the pool (see [`super::member_resource`]).
    pub members: BTreeSet<String>,
    /// Pool as ARM last sent it.
    pub document: BackendAddressPool,
}

impl ManagedPool {
    /// Returns `true` if machines of the scale set or availability set `name` may be in the pool. The name is empty for
    /// machines without set.
    pub fn takes(&self, name: &str) -> bool {
        match &self.scope {
            PoolScope::VmSet(set) => spelling::same_name(set, name),
            PoolScope::All | PoolScope::Entry(_) | PoolScope::Service(_) => true,
        }
    }

    /// Returns `true` if some of the Nodes belongs into the pool and has an address of its family.
    pub fn will_have_members(&self, nodes: &[PoolNode], settings: &LoadBalancerSettings) -> bool {
        nodes.iter().any(|node| node.belongs(settings) && node.address(self.family).is_some())
    }

    /// Returns `true` if the pool lists addresses directly, not for an interface that lists the pool.
    pub fn has_addresses(&self) -> bool {
        let properties = self.document.properties.as_ref();
        let entries = properties.and_then(|properties| properties.load_balancer_backend_addresses.as_ref());
        entries.into_iter().flatten().filter_map(|entry| entry.properties.as_ref()).any(|entry| {
            entry.network_interface_ip_configuration.is_none()
                && entry.ip_address.as_deref().is_some_and(|ip| !ip.is_empty())
        })
    }
}

/// Returns the pool without listed addresses, so that interfaces can list it. `None` if it needs no change.
pub fn without_addresses(pool: &BackendAddressPool) -> Option<BackendAddressPool> {
    let mut changed = pool.clone();
    let properties = changed.properties.get_or_insert_default();
    properties.load_balancer_backend_addresses = Some(Vec::new());
    properties.virtual_network = None;
    (changed != *pool).then_some(changed)
}

/// Returns the pools whose members this program manages.
///
/// `local` has the pools of single Services. `created` has the ids of pools that were just created. They are filled even if
/// the cluster's pools are preconfigured.
pub fn managed_pools(
    observed: &ObservedNetwork,
    settings: &LoadBalancerSettings,
    local: &LocalPools,
    created: &[ResourceId],
) -> Vec<ManagedPool> {
    let kept = observed.load_balancers.iter().filter(|document| is_managed(document, settings));
    let pools = kept.flat_map(|document| of_load_balancer(document, settings, local));
    pools.filter(|target| !is_left_to_others(target, settings) || created.contains(&target.id)).collect()
}

/// Returns all pools of one load balancer, whether or not this program manages them.
pub fn all_of(document: &ArmLoadBalancer) -> Vec<ManagedPool> {
    let Some(id) = document.id.as_deref().and_then(|id| ResourceId::parse(id).ok()) else { return Vec::new() };
    pools_of(document).iter().filter_map(|pool| managed_pool(&id, pool)).collect()
}

fn of_load_balancer(document: &ArmLoadBalancer, settings: &LoadBalancerSettings, local: &LocalPools) -> Vec<ManagedPool> {
    let scope = scope(document.name.as_deref().unwrap_or_default(), settings);
    let rules = RulesByPool::of(document);
    let managed = |target: ManagedPool| {
        if settings.shares_pool(target.id.name()) {
            return Some(ManagedPool { scope: scope.clone(), ..target });
        }
        let LocalPool { family, nodes, .. } = local.find(&target.id, &rules)?;
        Some(ManagedPool { family: *family, scope: PoolScope::Service(nodes.clone()), ..target })
    };
    all_of(document).into_iter().filter_map(managed).collect()
}

/// Returns the addresses that the shared pools of a load balancer list.
pub(super) fn cluster_addresses(document: &ArmLoadBalancer, settings: &LoadBalancerSettings) -> Vec<IpAddr> {
    let own = pools_of(document).iter().filter(|pool| pool.name.as_deref().is_some_and(|name| settings.shares_pool(name)));
    own.filter_map(|pool| pool.properties.as_ref()).flat_map(listed).collect()
}

/// Returns the addresses that a pool lists.
pub(super) fn listed(pool: &BackendAddressPoolProperties) -> impl Iterator<Item = IpAddr> {
    let entries = pool.load_balancer_backend_addresses.iter().flatten().filter_map(|entry| entry.properties.as_ref());
    entries.filter_map(|entry| entry.ip_address.as_deref()?.parse().ok())
}

fn managed_pool(load_balancer: &ResourceId, pool: &BackendAddressPool) -> Option<ManagedPool> {
    let id = load_balancer.child("backendAddressPools", pool.name.as_deref()?);
    let listed = pool.properties.as_ref().and_then(|properties| properties.backend_ip_configurations.as_ref());
    let members = listed.into_iter().flatten().filter_map(|entry| member_resource::key_of_entry(entry.id.as_deref()?));
    Some(ManagedPool {
        family: naming::pool_family(id.name()),
        members: members.collect(),
        load_balancer: load_balancer.clone(),
        scope: PoolScope::All,
        document: pool.clone(),
        id,
    })
}

/// Returns `true` if this program maintains the load balancer. Basic ones that remain on a standard cluster are emptied and
/// deleted instead.
pub fn is_managed(document: &ArmLoadBalancer, settings: &LoadBalancerSettings) -> bool {
    if settings.sku == LoadBalancerSku::Basic {
        return true;
    }
    let (external, _) = naming::split_load_balancer(document.name.as_deref().unwrap_or_default());
    !document.is_basic() && settings.manages(external)
}

/// Returns the scope of the pools of the load balancer `name`.
///
/// With entries, the pools have the Nodes of their entry. Otherwise, a basic load balancer has the machines of one set: the
/// primary set for the cluster's default load balancer, else the set in its name.
fn scope(name: &str, settings: &LoadBalancerSettings) -> PoolScope {
    let (external, _) = naming::split_load_balancer(name);
    if settings.has_entries() {
        return PoolScope::Entry(external.to_owned());
    }
    let is_primary = spelling::same_name(external, settings.primary_name());
    let set = if is_primary { settings.primary_vm_set.as_str() } else { external };
    match settings.sku == LoadBalancerSku::Basic && !set.is_empty() {
        true => PoolScope::VmSet(set.to_owned()),
        false => PoolScope::All,
    }
}

/// Returns `true` for the cluster's pools of a preconfigured kind. Pools of single Services are always managed.
fn is_left_to_others(target: &ManagedPool, settings: &LoadBalancerSettings) -> bool {
    if matches!(target.scope, PoolScope::Service(_)) {
        return false;
    }
    let (_, internal) = naming::split_load_balancer(target.load_balancer.name());
    if internal { settings.preconfigured.1 } else { settings.preconfigured.0 }
}
