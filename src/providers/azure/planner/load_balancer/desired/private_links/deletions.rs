//! Deletions of private link services that block a frontend's removal or its change of address. Pure.
//!
//! In: load balancers before and after the plan. Out: private link services to delete, and refusals of Services whose frontend cannot
//! change because a private link service of another owner is attached to it. Upstream deletes that private link service, too.

use std::collections::{BTreeSet, HashMap};

use super::{
    context::{PrivateLinkInput, PrivateLinkRefusals},
    types::{PrivateLinkDeletion, PrivateLinkPlan},
};
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{ArmLoadBalancer, FrontendIpConfiguration, LoadBalancingRule, PrivateLinkService},
    },
    planner::load_balancer::{
        desired::{
            ServiceRequest,
            context::NameOwners,
            draft,
            load_balancers::{DELETING_FRONTEND, LoadBalancerPlan, LoadBalancerWrite},
            rules,
            types::RequestIdx,
        },
        observed::ObservedNetwork,
        spec::{ServiceIdentity, ServiceRefusal},
    },
};

/// Frontend that is removed, or whose address changes.
pub(super) struct DroppedFrontend<'a> {
    balancer: &'a ArmLoadBalancer,
    frontend: &'a FrontendIpConfiguration,
    /// Whether the planned document has a frontend of the same name.
    is_replaced: bool,
}

/// Returns the frontends that the plan removes, or to which it gives another address.
pub(super) fn dropped<'a>(observed: &'a ObservedNetwork, plan: &LoadBalancerPlan) -> Vec<DroppedFrontend<'a>> {
    let changed = plan.changes.iter().filter_map(|change| Some((observed.load_balancer(&change.id)?, &change.write)));
    let of_document = |(balancer, write): (&'a ArmLoadBalancer, &LoadBalancerWrite)| {
        let after = write.document().map(draft::frontends).unwrap_or_default();
        let mut heirs: HashMap<String, &FrontendIpConfiguration> = HashMap::new();
        for (name, part) in after.iter().filter_map(|part| Some((part.name.as_ref()?, part))) {
            heirs.entry(name.to_ascii_lowercase()).or_insert(part);
        }
        let drop = |frontend: &'a FrontendIpConfiguration| {
            let name = frontend.name.as_deref().unwrap_or_default();
            let heir = heirs.get(&name.to_ascii_lowercase()).copied();
            let is_same = heir.is_some_and(|heir| has_same_address(frontend, heir));
            (!is_same).then_some(DroppedFrontend { balancer, frontend, is_replaced: heir.is_some() })
        };
        draft::frontends(balancer).iter().filter_map(drop).collect::<Vec<_>>()
    };
    changed.flat_map(of_document).collect()
}

fn has_same_address(before: &FrontendIpConfiguration, after: &FrontendIpConfiguration) -> bool {
    let parts = |frontend: &FrontendIpConfiguration| {
        let properties = frontend.properties.clone().unwrap_or_default();
        let id = |reference: Option<crate::providers::azure::model::document::SubResource>| {
            reference.and_then(|reference| reference.id).map(|id| id.to_ascii_lowercase())
        };
        (id(properties.public_ip_address), id(properties.subnet), properties.private_ip_address)
    };
    parts(before) == parts(after)
}

/// Plans the deletions. Refuses Services whose frontend is blocked by a private link service that this cluster does not own.
pub(super) fn plan(input: &PrivateLinkInput<'_>) -> (PrivateLinkPlan, PrivateLinkRefusals) {
    let (mut plan, mut refused) = (PrivateLinkPlan::default(), PrivateLinkRefusals::new());
    let mut links: HashMap<String, Vec<&PrivateLinkService>> = HashMap::new();
    for link in &input.observed.private_links.services {
        let frontends: BTreeSet<String> = link.frontends().map(str::to_ascii_lowercase).collect();
        frontends.into_iter().for_each(|frontend| links.entry(frontend).or_default().push(link));
    }
    for dropped in dropped(input.observed, input.load_balancers) {
        let Some(frontend) = dropped.frontend.id.as_deref() else { continue };
        for link in links.get(&frontend.to_ascii_lowercase()).into_iter().flatten() {
            let services = concerned(input, &dropped);
            if input.is_ours(link) {
                let reason = dropped.reason();
                plan.deletions.extend(deletion(link, reason, services));
            } else {
                let refusal = held(input, link, &dropped);
                refused.extend(services.into_iter().map(|who| (who, refusal.clone())));
            }
        }
    }
    (plan, refused)
}

impl DroppedFrontend<'_> {
    fn name(&self) -> &str {
        self.frontend.name.as_deref().unwrap_or_default()
    }

    fn reason(&self) -> String {
        let why = if self.is_replaced { "gets another address" } else { "is removed" };
        format!("front end {} {why}", self.name())
    }
}

/// Returns the deletion of a private link service. `None` if its id is missing or invalid.
pub(super) fn deletion(
    link: &PrivateLinkService,
    reason: String,
    services: Vec<ServiceIdentity>,
) -> Option<PrivateLinkDeletion> {
    let id = ResourceId::parse(link.id.as_deref()?).ok()?;
    let mut deletion = PrivateLinkDeletion { id, document: link.clone(), reasons: vec![reason], services };
    let (all, approved) = (deletion.document.connections().len(), deletion.approved_connections());
    if all > 0 {
        let reason = format!("private endpoint connections that are deleted with it: {all}, approved: {approved}");
        deletion.reasons.push(reason);
    }
    Some(deletion)
}

fn held(input: &PrivateLinkInput<'_>, link: &PrivateLinkService, dropped: &DroppedFrontend<'_>) -> ServiceRefusal {
    let (id, maker) = (link.id.as_deref().unwrap_or_default(), input.maker(link));
    let message = format!(
        "front end {} cannot be removed or get another address: private link service {id}, which {maker} made, leads to it; delete that \
         first",
        dropped.name()
    );
    ServiceRefusal { field: DELETING_FRONTEND.to_owned(), message }
}

/// Returns the requesting Services that the dropped frontend concerns: the owners of its name and of its rules.
///
/// If it has none, all requesting Services count that have parts on the load balancer, now or after the plan.
fn concerned(input: &PrivateLinkInput<'_>, dropped: &DroppedFrontend<'_>) -> Vec<ServiceIdentity> {
    let requests = input.requests;
    let owners = NameOwners::of_requests(requests.iter().map(ServiceRequest::identity));
    let key = dropped.frontend.id.as_deref().unwrap_or_default().to_ascii_lowercase();
    let rules = draft::rules(dropped.balancer).iter();
    let by_rule = |rule: &LoadBalancingRule| owners.of_rule(rule.name.as_deref()?);
    let own = rules.clone().filter(|rule| !key.is_empty() && rules::frontend_key(rule) == key).filter_map(by_rule);
    let mut places: BTreeSet<RequestIdx> = owners.of_frontend(dropped.name()).into_iter().chain(own).collect();
    if places.is_empty() {
        let frontends = draft::frontends(dropped.balancer).iter();
        places.extend(frontends.filter_map(|part| owners.of_frontend(part.name.as_deref()?)));
        places.extend(rules.filter_map(by_rule));
        let will_be = |request: &ServiceRequest| {
            let placed = input.load_balancers.services.get(request.identity()).and_then(|placed| placed.as_ref().ok());
            let target = placed.and_then(|placed| placed.load_balancer.as_ref());
            target.is_some_and(|target| dropped.balancer.is(target))
        };
        places.extend(requests.iter().enumerate().filter(|(_, it)| will_be(it)).map(|(place, _)| RequestIdx(place)));
    }
    places.into_iter().map(|place| requests[place.0].identity().clone()).collect()
}
