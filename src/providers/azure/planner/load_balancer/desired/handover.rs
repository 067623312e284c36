//! Transfer of a replaced frontend's other users to a frontend with the same address. Pure.
//!
//! In: load balancers that are being changed, and the replaced frontends ([`FrontendAssignment`]). Out: the same load balancers, on which
//! each reference of another user to a replaced frontend leads to the frontend that has its address from now on. All of it is one write.
//! Upstream changes the frontend in place: the other users get the new address, and then their old addresses back one by one.

use super::{
    context::{KnownServices, NameOwners, PlanContext},
    draft::{FrontendUse, LoadBalancerDraft, NAT_POOL, frontend_uses},
    frontend_assignment::FrontendAssignment,
    frontends::{self, FrontendAddress},
    types::DraftIdx,
};
use crate::providers::azure::{
    model::{
        network::{FrontendIpConfiguration, FrontendIpConfigurationProperties},
        spelling,
    },
    planner::load_balancer::naming,
};

/// Redirects the other users of each replaced frontend of the draft. `requests` owns the rules that move with their Services.
pub(super) fn hand_over(
    context: &PlanContext<'_>,
    (place, draft): (DraftIdx, &mut LoadBalancerDraft<'_>),
    seating: &FrontendAssignment,
    requests: &NameOwners,
    known: &KnownServices<'_>,
) {
    let replaced = seating.retired.iter().filter(|((at, _), mark)| *at == place && mark.replaced);
    for ((_, id), _) in replaced {
        let users = foreign_uses(draft, id, requests);
        // A pool of NAT ports cannot move while a scale set uses it.
        if users.is_empty() || users.iter().any(|user| user.kind == NAT_POOL) {
            continue;
        }
        let is_it = |part: &&FrontendIpConfiguration| spelling::same_id(&draft.frontend_id(part), id);
        let Some(former) = draft.frontends().iter().find(is_it).cloned() else { continue };
        let Some(address) = frontends::frontend_address(&former) else { continue };
        let heir = match added_frontend_with(seating, place, &address) {
            Some(heir) => heir,
            None => add_frontend(context, draft, &former, &address, &users, known),
        };
        redirect_references(draft, id, &heir, requests);
        for user in users {
            draft.reasons.push(format!("move {} {} to front end {}", user.kind, user.name, last(&heir)));
        }
    }
}

fn foreign_uses(draft: &LoadBalancerDraft<'_>, id: &str, requests: &NameOwners) -> Vec<FrontendUse> {
    let uses = frontend_uses(&draft.after).into_iter().filter(|(frontend, _)| frontend == id).map(|(_, user)| user);
    uses.filter(|user| !user.is_rule() || requests.of_rule(&user.name).is_none()).collect()
}

/// Returns the id of the frontend with this address that the plan adds to the load balancer in any case.
fn added_frontend_with(seating: &FrontendAssignment, place: DraftIdx, address: &FrontendAddress) -> Option<String> {
    let mut new = seating.added.iter().filter(|(at, _)| *at == place).map(|(_, part)| part);
    new.find(|part| frontends::frontend_address(part).as_ref() == Some(address))?.id.clone()
}

/// Adds a frontend for the address. Its name makes the first Service among the users its owner, so that it is removed with that Service.
fn add_frontend(
    context: &PlanContext<'_>,
    draft: &mut LoadBalancerDraft<'_>,
    former: &FrontendIpConfiguration,
    address: &FrontendAddress,
    users: &[FrontendUse],
    known: &KnownServices<'_>,
) -> String {
    let guests = users.iter().filter(|user| user.is_rule()).filter_map(|user| known.of_rule(&user.name));
    let own = guests.map(|spec| frontends::own_name(spec, frontends::family(context, spec, former)));
    let is_free = |name: &String| !draft.frontends().iter().any(|part| part.name_is(name));
    let name = own.into_iter().find(is_free).unwrap_or_else(|| unowned_name(address));
    let id = draft.id.child("frontendIPConfigurations", &name).as_str().to_owned();
    draft.reasons.push(format!("add front end {name} for the address of {}", former.name.as_deref().unwrap_or_default()));
    let frontend = FrontendIpConfiguration {
        id: Some(id.clone()),
        name: Some(name),
        zones: former.zones.clone(),
        properties: former.properties.as_ref().map(with_address),
        ..FrontendIpConfiguration::default()
    };
    draft.properties_mut().frontend_ip_configurations.get_or_insert_default().push(frontend);
    id
}

/// Returns the name of a frontend that no Service owns.
fn unowned_name(seat: &FrontendAddress) -> String {
    match seat {
        FrontendAddress::Public(id) => naming::unowned_frontend(last(id)),
        FrontendAddress::Private(address) => naming::unowned_frontend(&address.to_string()),
    }
}

/// Returns `true` if the frontend was created to keep an address for users other than its former owner.
pub(super) fn is_unowned(part: &FrontendIpConfiguration) -> bool {
    frontends::frontend_address(part).is_some_and(|address| part.name.as_deref() == Some(unowned_name(&address).as_str()))
}

fn last(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

/// Returns the properties of a frontend without the fields that only ARM sets.
pub(super) fn with_address(former: &FrontendIpConfigurationProperties) -> FrontendIpConfigurationProperties {
    let is_private = former.private_ip_address.is_some() && former.public_ip_address.is_none();
    FrontendIpConfigurationProperties {
        private_ip_address: former.private_ip_address.clone().filter(|_| is_private),
        private_ip_address_version: former.private_ip_address_version.clone().filter(|_| is_private),
        private_ip_allocation_method: is_private.then(|| "Static".to_owned()),
        public_ip_address: former.public_ip_address.clone(),
        subnet: former.subnet.clone(),
        gateway_load_balancer: former.gateway_load_balancer.clone(),
        ..FrontendIpConfigurationProperties::default()
    }
}

/// Changes each reference of another user to the frontend `from` into a reference to `to`.
fn redirect_references(draft: &mut LoadBalancerDraft<'_>, from: &str, to: &str, requests: &NameOwners) {
    let change = |id: &mut Option<String>| {
        if id.as_deref().is_some_and(|id| spelling::same_id(id, from)) {
            *id = Some(to.to_owned());
        }
    };
    let properties = draft.properties_mut();
    for rule in properties.load_balancing_rules.iter_mut().flatten() {
        let is_others = rule.name.as_deref().is_none_or(|name| requests.of_rule(name).is_none());
        let reference = rule.properties.as_mut().and_then(|properties| properties.frontend_ip_configuration.as_mut());
        reference.into_iter().filter(|_| is_others).for_each(|reference| change(&mut reference.id));
    }
    for rule in properties.outbound_rules.iter_mut().flatten() {
        let frontends = rule.properties.as_mut().and_then(|properties| properties.frontend_ip_configurations.as_mut());
        frontends.into_iter().flatten().for_each(|reference| change(&mut reference.id));
    }
    for rule in properties.inbound_nat_rules.iter_mut().flatten() {
        let reference = rule
            .pointer_mut("/properties/frontendIPConfiguration/id")
            .filter(|id| id.as_str().is_some_and(|id| spelling::same_id(id, from)));
        reference.into_iter().for_each(|id| *id = to.into());
    }
}
