//! What a write does to other documents than its own, and what is doubtful when it failed. Pure.

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

/// Which front end of a load balancer each public IP is at.
pub(super) fn attachments(balancer: &ArmLoadBalancer) -> BTreeMap<ResourceId, SubResource> {
    let frontends = balancer.properties.iter().flat_map(|properties| properties.frontend_ip_configurations.iter().flatten());
    let attached = frontends.filter_map(|frontend| {
        let public_ip = frontend.properties.as_ref()?.public_ip_address.as_ref()?.resource_id()?;
        let of = SubResource { id: Some(frontend.id.clone()?), ..SubResource::default() };
        Some((public_ip, of))
    });
    attached.collect()
}

/// What a write of the load balancer `id`, after which it has these attachments, makes of a public IP: `None` when nothing, otherwise
/// its new `ipConfiguration`. ARM gives it a new etag then, even if that field stays as it was.
pub(super) fn on_public_ip(
    id: &ResourceId,
    attachments: &BTreeMap<ResourceId, SubResource>,
    public_ip: &PublicIpAddress,
) -> Option<Option<SubResource>> {
    let user = public_ip.properties.as_ref().and_then(|properties| properties.ip_configuration.as_ref()?.id.as_deref());
    let was = user.is_some_and(|user| is_below(user, id));
    // Most public IPs of a long list have nothing to do with it; their ids need not be parsed.
    if !was && attachments.is_empty() {
        return None;
    }
    let now = ResourceId::parse(public_ip.id.as_deref()?).ok().and_then(|id| attachments.get(&id));
    (was || now.is_some()).then(|| now.cloned())
}

/// Public IPs that front ends have and that show no address.
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

/// Puts a pool as ARM shows it into its load balancer.
pub(super) fn put_pool(balancer: &mut ArmLoadBalancer, name: &str, pool: BackendAddressPool) {
    let pools = balancer.properties_mut().backend_address_pools.get_or_insert_default();
    let is_it = |known: &&mut BackendAddressPool| known.name_is(name);
    match pools.iter_mut().find(is_it) {
        Some(known) => *known = pool,
        None => pools.push(pool),
    }
}

/// What is doubtful after a write of `target` failed. `references`: what its document refers to.
///
/// Nothing, when ARM refused before it looked at the document. Otherwise the document, since a failed operation changes it, too. Also
/// what it refers to, when ARM says that something does not exist.
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

/// What a load balancer refers to: public IPs, and subnets of the virtual network.
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
