//! Public IPs of the basic SKU in a cluster that has standard load balancers. Pure.
//!
//! In: a public IP and the load balancers. Out: a [`SkuUpgrade`]; an upgrade keeps the address. ARM changes the SKU of a public IP in place
//! if nothing uses it. A basic load balancer that remains is deleted first, and before that a dynamic address is made static.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `ensurePublicIPExists`. Difference: no other SKU is changed.

use super::usage;
use crate::providers::azure::{
    config::LoadBalancerSku,
    model::{
        ResourceId,
        document::ArmSku,
        network::{ArmLoadBalancer, PublicIpAddress},
    },
    planner::load_balancer::{desired::placement, observed::ObservedNetwork, settings::LoadBalancerSettings},
};

/// Step that lets standard load balancers use a public IP.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SkuUpgrade {
    NotNeeded,
    /// Upgrade to the standard SKU with the next write.
    Now,
    /// Upgrade after the deletion of the remaining basic load balancer that uses the public IP.
    AfterDeletion,
    /// Resource that uses the public IP and prevents the upgrade until an operator detaches it.
    Blocked(String),
}

/// Returns the step that the public IP needs.
pub(super) fn of(pip: &PublicIpAddress, observed: &ObservedNetwork, settings: &LoadBalancerSettings) -> SkuUpgrade {
    if settings.sku != LoadBalancerSku::Standard || !pip.is_basic() {
        return SkuUpgrade::NotNeeded;
    }
    let reference = pip.properties.as_ref().and_then(|properties| properties.ip_configuration.as_ref());
    let Some(user) = reference.and_then(|reference| reference.id.as_deref()) else { return SkuUpgrade::Now };
    match observed.load_balancers.iter().find(|document| placement::uses(document, pip)) {
        Some(balancer) if placement::is_leftover(settings, balancer) => SkuUpgrade::AfterDeletion,
        None if ResourceId::parse(user).is_ok_and(|id| usage::is_in_own_group(&id, settings)) => SkuUpgrade::Now,
        _ => SkuUpgrade::Blocked(user.to_owned()),
    }
}

/// Returns the document with a static address; `None` if the public IP keeps its address anyway.
///
/// `leftovers` are basic load balancers that will be deleted. A static address outlives them. ARM makes an address static while it is in
/// use.
pub(super) fn with_static_address(pip: &PublicIpAddress, leftovers: &[&ArmLoadBalancer]) -> Option<PublicIpAddress> {
    leftovers.iter().any(|document| placement::lends_address(document, pip)).then(|| {
        let mut document = pip.clone();
        document.properties.get_or_insert_default().public_ip_allocation_method = Some("Static".to_owned());
        document
    })
}

/// Changes the document to the standard SKU and a static address: standard public IPs cannot be dynamic.
pub(super) fn apply(document: &mut PublicIpAddress) {
    document.sku = Some(ArmSku { name: Some("Standard".to_owned()), ..document.sku.take().unwrap_or_default() });
    document.properties.get_or_insert_default().public_ip_allocation_method = Some("Static".to_owned());
}
