//! Ports without a load balancing rule, of Services that are not requested. No document shows these ports. Pure.
//!
//! In: the Services, once for each plan. Out: the frontends that the Services use. A name or a rule proves that a Service uses a frontend;
//! the status proves it for a Service that has neither.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{
    context::{NameOwners, PlanContext},
    draft::LoadBalancerDraft,
    rules,
    status::address_of,
};
use crate::providers::azure::planner::load_balancer::spec::ServiceSpec;

/// Index of the Services with ports that have no load balancing rule.
pub(super) struct UnruledPorts<'k> {
    services: Vec<&'k ServiceSpec>,
    /// Owners of names, as positions in `services`.
    owners: NameOwners<usize>,
    by_address: BTreeMap<IpAddr, Vec<usize>>,
}

impl<'k> UnruledPorts<'k> {
    pub(super) fn new(others: &'k [Arc<ServiceSpec>]) -> Self {
        let services: Vec<&ServiceSpec> = others.iter().map(Arc::as_ref).filter(|spec| has_unruled(spec)).collect();
        let mut by_address: BTreeMap<IpAddr, Vec<usize>> = BTreeMap::new();
        for (position, spec) in services.iter().enumerate() {
            // Additional addresses are in the status as well, and lead to no frontend of the Service.
            let addresses = spec.status_addresses.iter().filter(|address| !spec.additional_ips.contains(address));
            addresses.for_each(|address| by_address.entry(*address).or_default().push(position));
        }
        let owners = services.iter().enumerate().map(|(position, spec)| (&spec.identity, position));
        Self { owners: NameOwners::new(owners), by_address, services }
    }

    /// Returns the Services on a load balancer, each with the id of a frontend in lower case.
    pub(super) fn on(&self, context: &PlanContext<'_>, draft: &LoadBalancerDraft<'_>) -> Vec<(&'k ServiceSpec, String)> {
        let mut found: BTreeSet<(usize, String)> = BTreeSet::new();
        if self.services.is_empty() {
            return Vec::new();
        }
        for frontend in draft.frontends() {
            let id = draft.frontend_id(frontend).to_ascii_lowercase();
            let owner = frontend.name.as_deref().and_then(|name| self.owners.of_frontend(name));
            let guests = address_of(context, frontend).and_then(|address| self.by_address.get(&address));
            let positions = owner.into_iter().chain(guests.into_iter().flatten().copied());
            found.extend(positions.map(|position| (position, id.clone())));
        }
        for rule in draft.rules() {
            let owner = rule.name.as_deref().and_then(|name| self.owners.of_rule(name));
            found.extend(owner.map(|position| (position, rules::frontend_key(rule))));
        }
        found.into_iter().filter_map(|(position, id)| Some((*self.services.get(position)?, id))).collect()
    }
}

/// Returns `true` if a Service has a port without a load balancing rule.
pub(super) fn has_unruled(spec: &ServiceSpec) -> bool {
    spec.ha_ports.is_none() && spec.ports.iter().any(|port| !port.rule)
}

/// Returns the addresses of the frontends of a load balancer, by id in lower case.
pub(super) fn frontend_addresses(context: &PlanContext<'_>, draft: &LoadBalancerDraft<'_>) -> BTreeMap<String, IpAddr> {
    let addressed = |frontend| Some((draft.frontend_id(frontend).to_ascii_lowercase(), address_of(context, frontend)?));
    draft.frontends().iter().filter_map(addressed).collect()
}
