//! Private link services, planned for the front ends that there will be. Pure. Upstream: `pkg/provider/azure_privatelinkservice.go`.
//!
//! In: what there is, the requests, and what becomes of load balancers. Out: a [`PrivateLinkPlan`]. A private link service belongs to
//! its front end by the front end's id, to a cluster and a Service by tags; nothing else is remembered of it.
//!
//! Azure lets no front end go while a private link service leads to it: those go before the load balancer is written, with their
//! connections. The others are written when it has been. One that stops sending the proxy header is written first, too: until then its
//! Service's new health probe would meet the header.

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

/// Plans. Who is refused gets nothing, and has to be left out of the next try.
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

/// Who asks for a private link service, by the front end that it leads to: ids in lower case, and as they are spelled.
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

/// One write of each subnet, for all who need it.
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

/// Private link services of Services that ask for none any more: to delete them would cut off whoever is connected.
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
