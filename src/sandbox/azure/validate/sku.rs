//! Basic and Standard do not mix: on a load balancer and its public IPs, and on a machine's interfaces.

use super::{Candidate, load_balancer::is_standard};
use crate::{
    providers::azure::model::ResourceId,
    sandbox::azure::{kinds, references::made_by, refusal::Refusal},
};

const PUBLIC_IPS: &str = "microsoft.network/publicipaddresses";
const LOAD_BALANCERS: &str = "microsoft.network/loadbalancers";

/// Checks that a load balancer and a public IP that it refers to have the same SKU.
pub(super) fn check_public(candidate: Candidate<'_>, address: &str) -> Result<(), Refusal> {
    let Some(public) = candidate.store.get(address) else { return Ok(()) };
    let (balancer, public) = (is_standard(candidate.body), is_standard(&public.body));
    if balancer == public {
        return Ok(());
    }
    let name = |standard| if standard { "Standard" } else { "Basic" };
    let message = format!(
        "{} sku load balancer {} cannot reference {} sku publicIP {address}.",
        name(balancer),
        candidate.id,
        name(public)
    );
    Err(Refusal::invalid("PublicIPAndLBSkuDoNotMatch", message))
}

/// Checks that the load balancers of the interfaces of a document, and their public IPs, have the same SKU.
pub(super) fn check_interfaces(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let targets = made_by(&candidate.id.key(), candidate.body).into_iter().filter_map(|(target, _)| with_sku(&target));
    let found: Vec<_> = targets.filter_map(|target| candidate.store.get(target.as_str())).collect();
    let mixed = found.split_first().and_then(|(first, others)| {
        let other = others.iter().find(|other| is_standard(&other.body) != is_standard(&first.body))?;
        Some((first, other))
    });
    let Some((first, other)) = mixed else { return Ok(()) };
    let of_set = candidate.id.is_type("Microsoft.Compute/virtualMachineScaleSets/virtualMachines");
    let (end, within) = if of_set { ("InVMSS", "VM scale set") } else { ("", "availability set") };
    let message = format!(
        "Different basic sku and standard sku load balancer or public Ip resources in {within} is not allowed {} and {}.",
        first.id, other.id
    );
    Err(Refusal::invalid(&format!("DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed{end}"), message))
}

/// Returns the resource whose SKU a reference requires: a public IP, or the load balancer of a pool.
fn with_sku(target: &str) -> Option<ResourceId> {
    let id = ResourceId::parse(target).ok()?;
    let kind = id.resource_type().to_ascii_lowercase();
    if kind == kinds::POOLS {
        return id.parent();
    }
    (kind == PUBLIC_IPS || kind == LOAD_BALANCERS).then_some(id)
}
