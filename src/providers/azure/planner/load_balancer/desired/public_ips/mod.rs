//! Public IPs: which each Service shall have, what their documents have to become, and which can go. Pure.
//!
//! In: the documents, the asks, the other Services of the cluster and the settings. Out: a [`PublicIpPlan`]. Public IPs are written before
//! the load balancer that refers to them, and deleted after the one that does no more.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `reconcilePublicIPs`. Other than there: both families are looked at whatever the
//! Service has now; a Service leaves the list of a public IP that it has moved away from; each document is written in its own group;
//! nothing is deleted that another Service still selects.

mod claims;
mod decide;
mod document;
mod ownership;
mod target;
mod upgrade;
mod usage;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ownership::PublicIpOwner;

use super::ServiceRequest;
use crate::providers::azure::{
    arm::{ResourceId, network::PublicIpAddress},
    planner::load_balancer::{
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceIdentity, ServiceRefusal, ServiceSpec},
    },
};

/// One document to write.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicIpChange {
    /// Where: in the public IP's own resource group.
    pub id: ResourceId,
    /// The whole document.
    pub document: PublicIpAddress,
    /// The version that it changes; `None`: it does not exist yet.
    pub etag: Option<String>,
    pub reasons: Vec<String>,
    /// The Services that cause it, in order.
    pub services: Vec<ServiceIdentity>,
}

/// One public IP that can go, or that would if something did not keep it.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicIpRelease {
    pub id: ResourceId,
    /// The version that was looked at.
    pub etag: Option<String>,
    pub reasons: Vec<String>,
    /// The Services that cause it, in order.
    pub services: Vec<ServiceIdentity>,
}

/// What has to become of the public IPs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PublicIpPlan {
    /// To be written before the load balancers.
    pub writes: Vec<PublicIpChange>,
    /// To be deleted when no front end refers to them any more.
    pub releases: Vec<PublicIpRelease>,
    /// What is not changed or deleted although a Service's wish would, and why not.
    pub retained: Vec<PublicIpRelease>,
    /// The public IP for each front end of an ask, and those that exist of the other Services.
    pub assigned: BTreeMap<(ServiceIdentity, IpFamily), ResourceId>,
    /// Front ends that have to go for a while: their public IP is in `release` and is made anew when it is gone, or it becomes a standard
    /// one when its basic load balancer is gone. Not in `wanted`.
    pub recreated: BTreeSet<(ServiceIdentity, IpFamily)>,
    /// For each ask whether it is possible. Nothing of a refused Service is changed; it has nothing in `wanted`.
    pub services: BTreeMap<ServiceIdentity, Result<(), ServiceRefusal>>,
}

/// Brings the public IPs to what the asks want. `others`: the cluster's other Services, which are not touched, but whose public IPs are
/// not taken away from them.
pub fn plan_public_ips(
    observed: &ObservedNetwork,
    asks: &[ServiceRequest],
    others: &[Arc<ServiceSpec>],
    settings: &LoadBalancerSettings,
) -> PublicIpPlan {
    let world = target::PublicIpIndex::new(observed, settings);
    let wishes = claims::PublicIpClaims::new(asks, others, &world);
    let mut outcome = PublicIpPlan { services: wishes.results(), ..PublicIpPlan::default() };
    for wish in wishes.granted().filter(|wish| wish.requested || wish.target.existing.is_some()) {
        outcome.assigned.insert((wish.spec.identity.clone(), wish.family), wish.target.id.clone());
    }
    for (id, pip) in world.public_ips() {
        decide::decide(id, pip, &wishes, &world, &mut outcome);
    }
    for wish in wishes.granted().filter(|wish| wish.requested && wish.target.existing.is_none()) {
        outcome.writes.push(PublicIpChange {
            id: wish.target.id.clone(),
            document: document::new(wish.spec, wish.family, &wish.target, &world),
            etag: None,
            reasons: vec![format!("{} has no public IP of {}", wish.spec.identity.key, wish.family)],
            services: vec![wish.spec.identity.clone()],
        });
    }
    outcome.writes.sort_by(|a, b| a.id.cmp(&b.id));
    outcome
}

/// Addresses of this cluster's public IPs that list the Service: at them it is or was reached, whatever its status says.
pub fn public_ip_addresses_of(observed: &ObservedNetwork, service: &str, settings: &LoadBalancerSettings) -> Vec<IpAddr> {
    let is_its = |pip: &&PublicIpAddress| {
        ownership::owner(pip, &settings.cluster) == PublicIpOwner::Cluster && ownership::position(pip, service).is_some()
    };
    observed.public_ips.iter().filter(is_its).filter_map(ownership::address).collect()
}

#[cfg(test)]
mod tests;
