//! Public IPs: which each Service shall have, what their documents have to become, and which can go. Pure.
//!
//! In: the documents, the asks, the other Services of the cluster and the settings. Out: an [`Outcome`]. Public IPs are written before
//! the load balancer that refers to them, and deleted after the one that does no more.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `reconcilePublicIPs`. Other than there: both families are looked at whatever the
//! Service has now; a Service leaves the list of a public IP that it has moved away from; each document is written in its own group;
//! nothing is deleted that another Service still selects.

mod decide;
mod document;
mod held;
mod ownership;
mod target;
mod upgrade;
mod wishes;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ownership::Maker;

use super::Ask;
use crate::providers::azure::{
    arm::{ResourceId, network::PublicIpAddress},
    load_balancer::{
        observed::Observed,
        settings::Settings,
        spec::{Family, Identity, Refusal, ServiceSpec},
    },
};

/// One document to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Where: in the public IP's own resource group.
    pub id: ResourceId,
    /// The whole document.
    pub document: PublicIpAddress,
    /// The version that it changes; `None`: it does not exist yet.
    pub etag: Option<String>,
    /// Why.
    pub reasons: Vec<String>,
    /// The Services that cause it, in order.
    pub services: Vec<Identity>,
}

/// One public IP that can go, or that would if something did not keep it.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    /// Which.
    pub id: ResourceId,
    /// The version that was looked at.
    pub etag: Option<String>,
    /// Why.
    pub reasons: Vec<String>,
    /// The Services that cause it, in order.
    pub services: Vec<Identity>,
}

/// What has to become of the public IPs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// To be written before the load balancers.
    pub put: Vec<Change>,
    /// To be deleted when no front end refers to them any more.
    pub release: Vec<Release>,
    /// What is not changed or deleted although a Service's wish would, and why not.
    pub kept: Vec<Release>,
    /// The public IP for each front end of an ask, and those that exist of the other Services.
    pub wanted: BTreeMap<(Identity, Family), ResourceId>,
    /// Front ends that have to go for a while: their public IP is in `release` and is made anew when it is gone, or it becomes a standard
    /// one when its basic load balancer is gone. Not in `wanted`.
    pub recreated: BTreeSet<(Identity, Family)>,
    /// For each ask whether it is possible. Nothing of a refused Service is changed; it has nothing in `wanted`.
    pub services: BTreeMap<Identity, Result<(), Refusal>>,
}

/// Brings the public IPs to what the asks want. `others`: the cluster's other Services, which are not touched, but whose public IPs are
/// not taken away from them.
pub fn reconcile(observed: &Observed, asks: &[Ask], others: &[Arc<ServiceSpec>], settings: &Settings) -> Outcome {
    let world = target::World::new(observed, settings);
    let wishes = wishes::Wishes::new(asks, others, &world);
    let mut outcome = Outcome { services: wishes.results(), ..Outcome::default() };
    for wish in wishes.granted().filter(|wish| wish.asked || wish.target.existing.is_some()) {
        outcome.wanted.insert((wish.spec.identity.clone(), wish.family), wish.target.id.clone());
    }
    for (id, pip) in world.public_ips() {
        decide::existing(id, pip, &wishes, &world, &mut outcome);
    }
    for wish in wishes.granted().filter(|wish| wish.asked && wish.target.existing.is_none()) {
        outcome.put.push(Change {
            id: wish.target.id.clone(),
            document: document::new(wish.spec, wish.family, &wish.target, &world),
            etag: None,
            reasons: vec![format!("{} has no public IP of {}", wish.spec.identity.key, wish.family)],
            services: vec![wish.spec.identity.clone()],
        });
    }
    outcome.put.sort_by(|a, b| a.id.cmp(&b.id));
    outcome
}

/// Addresses of this cluster's public IPs that list the Service: at them it is or was reached, whatever its status says.
pub fn listed_addresses(observed: &Observed, service: &str, settings: &Settings) -> Vec<IpAddr> {
    let is_its = |pip: &&PublicIpAddress| {
        ownership::maker(pip, &settings.cluster) == Maker::Cluster && ownership::position(pip, service).is_some()
    };
    observed.public_ips.iter().filter(is_its).filter_map(ownership::address).collect()
}

#[cfg(test)]
mod tests;
