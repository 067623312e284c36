//! Plan of the public IPs: the public IP of each Service, the documents to write, and the public IPs to delete. Pure.
//!
//! In: the documents, the requests, the other Services of the cluster and the settings. Out: a [`PublicIpPlan`]. Public IPs are written
//! before the load balancer that refers to them, and deleted after the load balancer no longer refers to them.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `reconcilePublicIPs`. Differences: the plan covers both families, whatever families the
//! Service has now. A Service leaves the list of a public IP that it no longer uses. Each document is written in its own resource group. A
//! public IP that another Service still selects is not deleted.

mod causes;
mod claims;
mod decide;
mod dns_label;
mod document;
mod service_list;
mod target;
mod types;
mod upgrade;
mod usage;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

pub use self::types::{PublicIpChange, PublicIpPlan, PublicIpRelease};
pub use super::public_ip_ownership::address as address_of;
use super::{
    ServiceRequest,
    plan_index::PlanIndex,
    public_ip_ownership::{self as ownership, PublicIpOwner},
};
use crate::providers::azure::{
    model::{ResourceId, network::PublicIpAddress},
    planner::load_balancer::{observed::ObservedNetwork, settings::LoadBalancerSettings, spec::ServiceSpec},
};

/// Plans the public IPs of `requests`.
///
/// `others` are the other Services of the cluster. They are not changed, and their public IPs are not deleted.
pub fn plan_public_ips(
    observed: &ObservedNetwork,
    requests: &[ServiceRequest],
    others: &[Arc<ServiceSpec>],
    settings: &LoadBalancerSettings,
) -> PublicIpPlan {
    let context = target::PublicIpIndex::new(observed, settings);
    let wishes = claims::PublicIpClaims::new(requests, others, &context);
    let mut outcome = PublicIpPlan { services: wishes.results(), ..PublicIpPlan::default() };
    for claim in wishes.granted().filter(|claim| claim.requested || claim.target.existing.is_some()) {
        outcome.assigned.insert((claim.spec.identity.clone(), claim.family), claim.target.id.clone());
    }
    for (id, pip) in context.public_ips() {
        decide::decide(&id, pip, &wishes, &context, &mut outcome);
    }
    for claim in wishes.granted().filter(|claim| claim.requested && claim.target.existing.is_none()) {
        outcome.writes.push(PublicIpChange {
            id: claim.target.id.clone(),
            document: document::new(claim.spec, claim.family, &claim.target, &context),
            etag: None,
            reasons: vec![format!("{} has no public IP of {}", claim.spec.identity.key, claim.family)],
            services: vec![claim.spec.identity.clone()],
            causes: vec![claim.spec.identity.clone()],
        });
    }
    outcome.writes.sort_by(|a, b| a.id.cmp(&b.id));
    outcome
}

/// Plans a write of each public IP in `half_made` without a change: the write makes ARM complete it. Upstream:
/// `azure_loadbalancer_repo.go`.
pub fn finish_half_made(observed: &ObservedNetwork, half_made: &BTreeSet<ResourceId>) -> Vec<PublicIpChange> {
    if half_made.is_empty() {
        return Vec::new();
    }
    let id = |document: &PublicIpAddress| ResourceId::parse(document.id.as_deref()?).ok();
    let found = observed.public_ips.iter().filter_map(|document| Some((id(document)?, document)));
    let changes = found.filter(|(id, _)| half_made.contains(id)).map(|(id, document)| PublicIpChange {
        id,
        document: document.clone(),
        etag: document.etag.clone(),
        reasons: vec!["finish what ARM has left half made".to_owned()],
        services: Vec::new(),
        causes: Vec::new(),
    });
    changes.collect()
}

/// Returns the Services that a public IP of this cluster lists; none if another cluster or a user created it.
pub fn services_of_clusters<'a>(pip: &'a PublicIpAddress, cluster: &str) -> Vec<&'a str> {
    if ownership::owner(pip, cluster) == PublicIpOwner::Cluster { ownership::services(pip) } else { Vec::new() }
}

/// Returns the cluster in the tags of a public IP; `None` if it has no such tag or lists no Services.
pub fn cluster_of(pip: &PublicIpAddress) -> Option<&str> {
    ownership::tag(pip.tags.as_ref(), ownership::CLUSTER_TAG_KEYS).filter(|_| !ownership::services(pip).is_empty())
}

/// Returns the addresses of this cluster's public IPs that list the Service.
///
/// Clients can or could reach the Service at these addresses, whatever its status contains.
pub fn public_ip_addresses_of(index: &PlanIndex<'_>, service: &str, settings: &LoadBalancerSettings) -> Vec<IpAddr> {
    let is_clusters = |pip: &&PublicIpAddress| ownership::owner(pip, &settings.cluster) == PublicIpOwner::Cluster;
    index.public_ips_listing(service).into_iter().filter(is_clusters).filter_map(ownership::address).collect()
}

#[cfg(test)]
mod tests;
