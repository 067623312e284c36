//! Effects of a write on other documents, and invalidations after a failed write. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::providers::azure::planner::load_balancer::network_query::NetworkCacheKey;
use crate::providers::azure::{
    model::{
        ArmError, ArmErrorClass, ResourceId,
        document::SubResource,
        network::{ArmLoadBalancer, BackendAddressPool, PublicIpAddress},
        spelling,
    },
    planner::load_balancer::observed::ObservedNetwork,
};

/// Returns the frontend of a load balancer that each public IP is attached to.
pub(super) fn attachments(balancer: &ArmLoadBalancer) -> BTreeMap<ResourceId, SubResource> {
    let frontends = balancer.properties.iter().flat_map(|properties| properties.frontend_ip_configurations.iter().flatten());
    let attached = frontends.filter_map(|frontend| {
        let public_ip = frontend.properties.as_ref()?.public_ip_address.as_ref()?.resource_id()?;
        let of = SubResource { id: Some(frontend.id.clone()?), ..SubResource::default() };
        Some((public_ip, of))
    });
    attached.collect()
}

/// Returns the new `ipConfiguration` of a public IP after a write of the load balancer `id`, which now has these
/// attachments; `None` if it is unaffected.
///
/// ARM also changes the public IP's etag then, even if that field is unchanged.
pub(super) fn on_public_ip(
    id: &ResourceId,
    attachments: &BTreeMap<ResourceId, SubResource>,
    public_ip: &PublicIpAddress,
) -> Option<Option<SubResource>> {
    let user = public_ip.properties.as_ref().and_then(|properties| properties.ip_configuration.as_ref()?.id.as_deref());
    let was = user.is_some_and(|user| is_below(user, id));
    // Most public IPs of a long list are unrelated to the load balancer; this avoids parsing their ids.
    if !was && attachments.is_empty() {
        return None;
    }
    let now = ResourceId::parse(public_ip.id.as_deref()?).ok().and_then(|id| attachments.get(&id));
    (was || now.is_some()).then(|| now.cloned())
}

/// Returns the public IPs that are attached to frontends and show no address.
pub(super) fn attached_without_address(observed: &ObservedNetwork) -> Vec<ResourceId> {
    let has_address =
        |known: &PublicIpAddress| known.properties.as_ref().is_some_and(|properties| properties.ip_address.is_some());
    let without = observed.public_ips.iter().filter(|known| !has_address(known));
    let mut ids: Vec<ResourceId> = without.filter_map(|known| ResourceId::parse(known.id.as_deref()?).ok()).collect();
    if ids.is_empty() {
        return ids;
    }
    let attached: BTreeSet<ResourceId> =
        observed.load_balancers.iter().flat_map(|balancer| attachments(balancer).into_keys()).collect();
    ids.retain(|id| attached.contains(id));
    ids
}

fn is_below(part: &str, id: &ResourceId) -> bool {
    spelling::strip_start(part, id.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

/// Replaces a pool in its load balancer, or adds it.
pub(super) fn put_pool(balancer: &mut ArmLoadBalancer, name: &str, pool: BackendAddressPool) {
    let pools = balancer.properties_mut().backend_address_pools.get_or_insert_default();
    let is_it = |known: &&mut BackendAddressPool| known.name_is(name);
    match pools.iter_mut().find(is_it) {
        Some(known) => *known = pool,
        None => pools.push(pool),
    }
}

/// Returns the keys to invalidate after a write of `target` failed. `references` returns the keys that its document refers
/// to.
///
/// The result is empty if ARM refused before it processed the document. Otherwise it has `target`, because a failed
/// operation changes the document, too. It also has the references if ARM says that a resource does not exist.
pub(in crate::providers::azure::load_balancer) fn invalidated_by(
    error: &ArmError,
    target: &NetworkCacheKey,
    references: impl FnOnce() -> Vec<NetworkCacheKey>,
) -> Vec<NetworkCacheKey> {
    use ArmErrorClass::{Forbidden, NotFound, NotLeader, ParentNotFound, Throttled, Unauthorized};
    if matches!(error.class, Throttled | Unauthorized | Forbidden | NotLeader) {
        return Vec::new();
    }
    let is_missing = matches!(error.class, NotFound | ParentNotFound) || error.mentions("InvalidResourceReference");
    let references = if is_missing { references() } else { Vec::new() };
    std::iter::once(target.clone()).chain(references).collect()
}

/// Returns the resources that a load balancer refers to: public IPs, and subnets of the virtual network.
pub(in crate::providers::azure::load_balancer) fn referenced_keys(
    balancer: &ArmLoadBalancer,
    virtual_network: &ResourceId,
) -> Vec<NetworkCacheKey> {
    let frontends = balancer.properties.iter().flat_map(|properties| properties.frontend_ip_configurations.iter().flatten());
    let referred = |reference: &Option<SubResource>| reference.as_ref().and_then(SubResource::resource_id);
    let mut found = Vec::new();
    for properties in frontends.filter_map(|frontend| frontend.properties.as_ref()) {
        found.extend(referred(&properties.public_ip_address).map(NetworkCacheKey::PublicIp));
        let subnet = referred(&properties.subnet).filter(|subnet| subnet.parent().as_ref() == Some(virtual_network));
        found.extend(subnet.map(|subnet| NetworkCacheKey::Subnet(subnet.name().to_owned())));
    }
    found
}

#[cfg(test)]
mod tests;
