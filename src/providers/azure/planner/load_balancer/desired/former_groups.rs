//! Groups of frontends that must leave a former load balancer together, each with the Service that decides on its target. Pure.
//!
//! In: a load balancer that no entry names anymore, every Service, and the requests. Out: [`FormerGroup`]s. Frontends belong together if
//! a Service without a request has parts on both, because no request would move those parts later. A Service with a request is planned in
//! any case, and connects no frontends.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ServiceRequest,
    context::{KnownServices, PlanContext, ensured_spec},
    draft::{LoadBalancerDraft, frontend_uses},
    frontends,
};
use crate::providers::azure::{
    model::network::FrontendIpConfiguration,
    planner::load_balancer::spec::{ServiceIdentity, ServiceSpec},
};

/// Services with a request, by the kind of the request.
#[derive(Default)]
pub(super) struct AskingServices<'r> {
    ensured: BTreeSet<&'r ServiceIdentity>,
    leaving: BTreeSet<&'r ServiceIdentity>,
}

impl<'r> AskingServices<'r> {
    pub(super) fn new(requests: &[&'r ServiceRequest]) -> Self {
        let (ensured, leaving): (Vec<_>, Vec<_>) =
            requests.iter().copied().partition(|request| ensured_spec(request).is_some());
        let identities = |requests: Vec<&'r ServiceRequest>| requests.into_iter().map(ServiceRequest::identity).collect();
        Self { ensured: identities(ensured), leaving: identities(leaving) }
    }

    /// Returns `true` if the Service requests a load balancer.
    pub(super) fn ensures(&self, spec: &ServiceSpec) -> bool {
        self.ensured.contains(&spec.identity)
    }
}

/// Frontends that leave a load balancer together.
pub(super) struct FormerGroup<'k> {
    /// Names of the frontends, which are unique on the load balancer.
    pub(super) frontends: BTreeSet<String>,
    /// Service that decides on the target; `None` if no Service of the group may decide.
    pub(super) leader: Option<&'k ServiceSpec>,
    /// Other Services that move with the group.
    pub(super) followers: Vec<&'k ServiceSpec>,
}

/// Precedence of a Service among those of a frontend. The first one leads the group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TenantPrecedence {
    AskingOwner,
    Owner,
    Guest,
    /// Guest that requests another address, and so leaves the frontend.
    LeavingGuest,
}

/// Service with parts at a frontend.
struct Tenant<'k> {
    spec: &'k ServiceSpec,
    precedence: TenantPrecedence,
    /// Whether its other frontends belong to the same group.
    connects: bool,
}

/// Returns the groups of a load balancer, in the order of their first frontends.
pub(super) fn groups<'k>(
    context: &PlanContext<'_>,
    draft: &LoadBalancerDraft<'_>,
    known: &KnownServices<'k>,
    asking: &AskingServices<'_>,
) -> Vec<FormerGroup<'k>> {
    let mut rules: BTreeMap<String, Vec<&'k ServiceSpec>> = BTreeMap::new();
    for (id, user) in frontend_uses(&draft.after).into_iter().filter(|(_, user)| user.is_rule()) {
        rules.entry(id).or_default().extend(known.of_rule(&user.name));
    }
    let reader = TenantReader { context, known, asking };
    let mut found: Vec<(BTreeSet<String>, Vec<Tenant<'k>>)> = Vec::new();
    for part in draft.frontends() {
        let Some(name) = part.name.clone() else { continue };
        let guests = rules.remove(&draft.frontend_id(part).to_ascii_lowercase()).unwrap_or_default();
        add(&mut found, name, reader.tenants(part, guests));
    }
    found.into_iter().map(|(frontends, tenants)| group(draft, frontends, &tenants)).collect()
}

/// Adds a frontend, and joins all groups that it connects.
fn add<'k>(found: &mut Vec<(BTreeSet<String>, Vec<Tenant<'k>>)>, name: String, tenants: Vec<Tenant<'k>>) {
    let links: BTreeSet<&ServiceIdentity> =
        tenants.iter().filter(|tenant| tenant.connects).map(|tenant| &tenant.spec.identity).collect();
    let is_linked = |(_, others): &mut (BTreeSet<String>, Vec<Tenant<'k>>)| {
        others.iter().any(|tenant| tenant.connects && links.contains(&tenant.spec.identity))
    };
    let mut joined = (BTreeSet::new(), Vec::new());
    let place = found.iter_mut().position(is_linked).unwrap_or(found.len());
    for (names, others) in found.extract_if(.., is_linked) {
        joined.0.extend(names);
        joined.1.extend(others);
    }
    joined.0.insert(name);
    joined.1.extend(tenants);
    found.insert(place.min(found.len()), joined);
}

struct TenantReader<'r, 'a, 'k> {
    context: &'r PlanContext<'a>,
    known: &'r KnownServices<'k>,
    asking: &'r AskingServices<'r>,
}

impl<'k> TenantReader<'_, '_, 'k> {
    fn tenants(&self, part: &FrontendIpConfiguration, guests: Vec<&'k ServiceSpec>) -> Vec<Tenant<'k>> {
        let owner = part.name.as_deref().and_then(|name| self.known.owners.of_frontend(name)).flatten();
        let is_owner = |spec: &ServiceSpec| owner.is_some_and(|owner| owner.identity == spec.identity);
        let owned = owner.map(|spec| {
            (spec, if self.asking.ensures(spec) { TenantPrecedence::AskingOwner } else { TenantPrecedence::Owner })
        });
        let guests = guests.into_iter().filter(|spec| !is_owner(spec)).map(|spec| (spec, self.guest_precedence(spec, part)));
        let stays = owned.into_iter().chain(guests).filter(|(spec, _)| !self.asking.leaving.contains(&spec.identity));
        stays.map(|(spec, precedence)| Tenant { spec, precedence, connects: !self.asking.ensures(spec) }).collect()
    }

    fn guest_precedence(&self, spec: &ServiceSpec, part: &FrontendIpConfiguration) -> TenantPrecedence {
        let address = frontends::frontend_address(part);
        let mut wanted = spec.families.iter().map(|family| frontends::wanted_address(self.context, spec, *family));
        let stays = !self.asking.ensures(spec) || wanted.any(|wanted| wanted.is_some() && wanted == address);
        if stays { TenantPrecedence::Guest } else { TenantPrecedence::LeavingGuest }
    }
}

/// Returns the group of `frontends` with its leader and followers.
///
/// A Service whose kind (internal or external) differs from that of the load balancer decides nothing, and its parts move with the group.
fn group<'k>(draft: &LoadBalancerDraft<'_>, frontends: BTreeSet<String>, tenants: &[Tenant<'k>]) -> FormerGroup<'k> {
    let counts = || tenants.iter().filter(|tenant| tenant.spec.internal == draft.internal);
    let leader = counts().min_by_key(|tenant| tenant.precedence).map(|tenant| tenant.spec);
    let is_leader = |spec: &ServiceSpec| leader.is_some_and(|leader| leader.identity == spec.identity);
    let followers: BTreeMap<&ServiceIdentity, &'k ServiceSpec> = counts()
        .filter(|tenant| tenant.connects && !is_leader(tenant.spec))
        .map(|tenant| (&tenant.spec.identity, tenant.spec))
        .collect();
    FormerGroup { frontends, leader, followers: followers.into_values().collect() }
}
