//! Private link services for the planned frontends. Pure. Upstream: `pkg/provider/azure_privatelinkservice.go`.
//!
//! In: the observed network, the requests, and the planned changes of load balancers. Out: a [`PrivateLinkPlan`]. A private link service
//! refers to its frontend by id, and to its cluster and its Service by tags. The program stores nothing else about it.
//!
//! Azure does not delete a frontend while a private link service is attached to it. Such private link services are deleted, with their
//! connections, before the load balancer is written. The others are written after it. A private link service that stops sending the proxy
//! header is also written first: until then, the new health probe of its Service would fail on the header.

mod context;
mod deletions;
mod document;
mod heir;
mod names;
pub mod reads;
mod types;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use self::{
    context::{LinkRequest, owner},
    names::NewNames,
    write::FrontendLink,
};
pub use self::{
    context::{PrivateLinkInput, PrivateLinkRefusals},
    types::{PrivateLinkChange, PrivateLinkDeletion, PrivateLinkNotice, PrivateLinkPlan, SubnetPolicyChange},
};
use super::context::ensured_spec;
use crate::providers::azure::{
    model::{ResourceId, spelling},
    planner::load_balancer::spec::ServiceIdentity,
};

/// Plans the private link services. A refused Service gets no change, and the caller must omit it from the next attempt.
pub fn plan_private_links(input: &PrivateLinkInput<'_>) -> (PrivateLinkPlan, PrivateLinkRefusals) {
    let asks = input.requests.iter().filter_map(ensured_spec).any(|spec| spec.private_link.is_some());
    if !asks && input.observed.private_links.services.is_empty() {
        return Default::default();
    }
    let (mut plan, mut refused) = deletions::plan(input);
    let links = frontend_links(input);
    let mut names = NewNames::new(input);
    let mut writes = Vec::new();
    for (frontend, requests) in links.values() {
        let link = FrontendLink { input, frontend, requests, sharers: input.sharers(frontend) };
        writes.extend(link.plan(&mut plan, &mut names, &mut refused));
    }
    plan.subnets = subnets(&writes);
    plan.writes = writes;
    plan.notices.extend(left_behind(input, &plan.deletions));
    (plan, refused)
}

/// Returns the requests for private link services by frontend.
///
/// Keys are ids of frontends in lower case. Values are the ids in their original spelling, and the requests in the order of their
/// Services.
fn frontend_links<'a>(input: &PrivateLinkInput<'a>) -> BTreeMap<String, (&'a str, Vec<LinkRequest<'a>>)> {
    let mut links: BTreeMap<String, (&'a str, Vec<LinkRequest<'a>>)> = BTreeMap::new();
    for spec in input.requests.iter().filter_map(ensured_spec) {
        let Some(link) = spec.private_link.as_ref() else { continue };
        let Some(frontend) = input.frontend_of(&spec.identity) else { continue };
        let (_, requests) = links.entry(frontend.to_ascii_lowercase()).or_insert((frontend, Vec::new()));
        requests.push(LinkRequest { spec, link });
    }
    links.values_mut().for_each(|(_, requests)| requests.sort_by(|a, b| a.spec.identity.cmp(&b.spec.identity)));
    links
}

/// Returns one change for each subnet, with all Services that need it.
fn subnets(writes: &[PrivateLinkChange]) -> Vec<SubnetPolicyChange> {
    let mut services: BTreeMap<&ResourceId, BTreeSet<&ServiceIdentity>> = BTreeMap::new();
    for change in writes {
        if let Some(subnet) = &change.policies_of {
            services.entry(subnet).or_default().extend(&change.services);
        }
    }
    let change = |(id, services): (&ResourceId, BTreeSet<&ServiceIdentity>)| SubnetPolicyChange {
        id: id.clone(),
        reasons: vec!["disable the network policies that keep private link services out".to_owned()],
        services: services.into_iter().cloned().collect(),
    };
    services.into_iter().map(change).collect()
}

/// Returns notices about private link services that their Services no longer request. The plan keeps them, because a deletion would cut
/// existing connections.
fn left_behind(
    input: &PrivateLinkInput<'_>,
    deletions: &[PrivateLinkDeletion],
) -> Vec<(ServiceIdentity, PrivateLinkNotice)> {
    let silent = input.requests.iter().filter_map(ensured_spec).filter(|spec| spec.private_link.is_none());
    let left = silent.filter_map(|spec| {
        let known = input.link_at(input.frontend_of(&spec.identity)?, deletions)?;
        let is_own =
            input.is_ours(known) && owner(known).is_some_and(|owner| spelling::same_name(owner, &spec.identity.key));
        let id = ResourceId::parse(known.id.as_deref()?).ok().filter(|_| is_own)?;
        Some((spec.identity.clone(), PrivateLinkNotice::LeftBehind(id)))
    });
    left.collect()
}

#[cfg(test)]
mod tests;
