//! Addresses of a Service in the observed state. Pure.
//!
//! In: documents and a Service. Out: the entries of `status.loadBalancer.ingress`, as plain addresses.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `getServiceLoadBalancerStatus`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    context::{NameOwners, PlanContext},
    draft,
    frontend_address::parse_address,
    frontends::{self, FrontendAddress},
    load_balancers::PublicIpAssignment,
    plan_index::{PartPosition, PlanIndex},
};
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{ArmLoadBalancer, FrontendIpConfiguration},
    },
    planner::load_balancer::{
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceIdentity, ServiceSpec},
    },
};

impl<'a> PlanIndex<'a> {
    /// Returns the addresses of the Service's frontends, in the load balancer's order, then its additional ones. The list is empty if the
    /// Service has no frontend.
    pub fn status(&self, spec: &ServiceSpec, settings: &LoadBalancerSettings) -> Vec<IpAddr> {
        let found = ServingFrontends::of(self, spec, settings);
        let additional = spec.additional_ips.iter().copied().filter(|_| found.load_balancer.is_some());
        found.addresses().chain(additional).collect()
    }

    /// Returns the addresses of the Service's frontends, in the load balancer's order.
    pub fn frontend_addresses(&self, spec: &ServiceSpec, settings: &LoadBalancerSettings) -> Vec<IpAddr> {
        ServingFrontends::of(self, spec, settings).addresses().collect()
    }

    /// Returns a [`PendingAddress`] for each of the Service's frontends that has no address yet.
    pub fn pending_addresses(&self, spec: &ServiceSpec, settings: &LoadBalancerSettings) -> Vec<PendingAddress> {
        let found = ServingFrontends::of(self, spec, settings);
        let without = found.frontends.iter().filter(|(_, address)| address.is_none());
        let pending = without.map(|(frontend, _)| {
            let public = frontend.properties.as_ref().and_then(|it| it.public_ip_address.as_ref()?.resource_id());
            let private = || PendingAddress::Private(frontend.name.clone().unwrap_or_default());
            public.map_or_else(private, PendingAddress::PublicIp)
        });
        pending.collect()
    }

    /// Returns the load balancer with the Service's frontends, or with those that it shares.
    pub fn load_balancer_of(&self, spec: &ServiceSpec, settings: &LoadBalancerSettings) -> Option<&'a ArmLoadBalancer> {
        ServingFrontends::of(self, spec, settings).load_balancer
    }
}

/// Frontends that serve a Service, its own and those that it shares.
#[derive(Default)]
struct ServingFrontends<'a> {
    /// First load balancer of the Service's kind that has such a frontend.
    load_balancer: Option<&'a ArmLoadBalancer>,
    /// Frontends in the load balancer's order, with their addresses.
    frontends: Vec<(&'a FrontendIpConfiguration, Option<IpAddr>)>,
}

impl<'a> ServingFrontends<'a> {
    fn of(index: &PlanIndex<'a>, spec: &ServiceSpec, settings: &LoadBalancerSettings) -> Self {
        let shared = public_ips_by_pin(index, spec);
        let context = PlanContext::new(index, settings, &shared);
        let named = spec.families.iter().filter_map(|family| frontends::wanted_address(&context, spec, *family));
        let candidates = named.flat_map(|address| index.frontends_at(&address));
        let candidates: BTreeSet<PartPosition> = candidates.chain(index.frontends_of(&spec.identity)).collect();
        let (mut found, mut at) = (Self::default(), None);
        for position in candidates {
            let Some((document, frontend)) = index.frontend(position) else { continue };
            if at.is_some_and(|at| at != position.load_balancer) {
                break;
            }
            let (_, is_internal) = naming::split_load_balancer(document.name.as_deref().unwrap_or_default());
            if is_internal == spec.internal && serves(&context, spec, frontend) {
                at = Some(position.load_balancer);
                found.load_balancer = Some(document);
                found.frontends.push((frontend, address_of(&context, frontend)));
            }
        }
        found
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.frontends.iter().filter_map(|(_, address)| *address)
    }
}

/// Returns the addresses of frontends that belong to Services by their names, each with its Service.
pub fn frontend_owners<'a>(
    index: &PlanIndex<'_>,
    settings: &LoadBalancerSettings,
    services: impl Iterator<Item = &'a ServiceIdentity>,
) -> BTreeMap<IpAddr, &'a ServiceIdentity> {
    let none = PublicIpAssignment::new();
    let context = PlanContext::new(index, settings, &none);
    let owners = NameOwners::new(services.map(|service| (service, service)));
    let owned = context
        .observed
        .load_balancers
        .iter()
        .flat_map(draft::frontends)
        .filter_map(|frontend| Some((address_of(&context, frontend)?, owners.of_frontend(frontend.name.as_deref()?)?)));
    owned.collect()
}

/// Missing address of a frontend that serves a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PendingAddress {
    /// Public IP that has no address yet.
    PublicIp(ResourceId),
    /// Name of a frontend to which Azure has not assigned a private address yet.
    Private(String),
}

/// Returns the resource groups of the public IPs at the Services' own frontends. The Services may name other groups now.
pub fn public_ip_groups<'a>(
    observed: &ObservedNetwork,
    services: impl Iterator<Item = &'a ServiceIdentity>,
) -> BTreeSet<ResourceId> {
    let owners = NameOwners::of_requests(services);
    let own = |frontend: &&FrontendIpConfiguration| {
        frontend.name.as_deref().is_some_and(|name| owners.of_frontend(name).is_some())
    };
    let groups = observed
        .load_balancers
        .iter()
        .flat_map(draft::frontends)
        .filter(own)
        .filter_map(|frontend| frontend.properties.as_ref()?.public_ip_address.as_ref()?.resource_id()?.parent());
    groups.collect()
}

/// Returns `true` if names show frontends or rules of the Service on a load balancer.
pub fn has_parts_of(document: &ArmLoadBalancer, service: &ServiceIdentity) -> bool {
    let mut frontends = draft::frontends(document).iter().filter_map(|part| part.name.as_deref());
    let mut rules = draft::rules(document).iter().filter_map(|part| part.name.as_deref());
    frontends.any(|name| naming::owns_frontend(service, name)) || rules.any(|name| naming::owns_rule(service, name))
}

fn serves(context: &PlanContext<'_>, spec: &ServiceSpec, frontend: &FrontendIpConfiguration) -> bool {
    let is_own = naming::owns_frontend(&spec.identity, frontend.name.as_deref().unwrap_or_default());
    let shares = |family: &IpFamily| {
        frontends::wanted_address(context, spec, *family)
            .is_some_and(|member| frontends::frontend_address(frontend).as_ref() == Some(&member))
    };
    (is_own && spec.families.contains(&frontends::family(context, spec, frontend))) || spec.families.iter().any(shares)
}

pub(super) fn address_of(context: &PlanContext<'_>, frontend: &FrontendIpConfiguration) -> Option<IpAddr> {
    match frontends::frontend_address(frontend)? {
        FrontendAddress::Private(address) => Some(address),
        FrontendAddress::Public(_) => {
            let reference = frontend.properties.as_ref()?.public_ip_address.as_ref()?;
            parse_address(context.find_public_ip(reference)?.properties.as_ref()?.ip_address.as_ref())
        }
    }
}

/// Returns the public IPs that the user selected by name or address. Only these can be shared.
fn public_ips_by_pin(index: &PlanIndex<'_>, spec: &ServiceSpec) -> PublicIpAssignment {
    let by_address = |pinned: IpAddr| {
        let mut ids =
            index.public_ips_at(pinned).into_iter().filter_map(|public| ResourceId::parse(public.id.as_deref()?).ok());
        ids.find(|id| id.parent().as_ref() == Some(&spec.public_ip.group))
    };
    let id = |family: IpFamily| match (spec.pinned.get(family), spec.public_ip.name.get(family)) {
        (Some(pinned), _) => by_address(*pinned),
        (None, Some(name)) => Some(spec.public_ip.group.resource("Microsoft.Network/publicIPAddresses", &[name])),
        (None, None) => None,
    };
    let found = spec.families.iter().filter_map(|family| Some(((spec.identity.clone(), *family), id(*family)?)));
    found.collect()
}
