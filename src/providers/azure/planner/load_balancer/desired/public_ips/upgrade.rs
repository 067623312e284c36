//! Public IPs of the basic SKU in a cluster that has standard load balancers by now. Pure.
//!
//! In: a public IP and the load balancers. Out: whether it can become a standard one, which keeps its address. ARM changes the SKU of a
//! public IP in place when nothing uses it; a basic load balancer that was left behind is deleted first,
//! and before that a dynamic address is made static.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `ensurePublicIPExists`; other than there, no other SKU is changed.

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

/// What has to be done before standard load balancers can use a public IP.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SkuUpgrade {
    NotNeeded,
    /// It becomes a standard one with its next write.
    Now,
    /// The same, when the basic load balancer that uses it is gone, which is deleted anyway.
    AfterDeletion,
    /// Somebody has to take it from this user.
    Blocked(String),
}

/// What has to be done with this one.
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

/// The document with which it keeps its address when one of `leftovers` goes, the basic load balancers that were left behind; `None`: it
/// keeps it anyway.
/// ARM makes an address static while it is in use.
pub(super) fn with_static_address(pip: &PublicIpAddress, leftovers: &[&ArmLoadBalancer]) -> Option<PublicIpAddress> {
    leftovers.iter().any(|document| placement::lends_address(document, pip)).then(|| {
        let mut document = pip.clone();
        document.properties.get_or_insert_default().public_ip_allocation_method = Some("Static".to_owned());
        document
    })
}

/// Makes it a standard one, with an address that stays: there are no others.
pub(super) fn apply(document: &mut PublicIpAddress) {
    document.sku = Some(ArmSku { name: Some("Standard".to_owned()), ..document.sku.take().unwrap_or_default() });
    document.properties.get_or_insert_default().public_ip_allocation_method = Some("Static".to_owned());
}
