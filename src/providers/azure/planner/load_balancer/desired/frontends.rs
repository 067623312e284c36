//! Frontends: the one that serves a Service, outdated ones, and the content of new ones. Pure.
//!
//! In: a Service and the existing frontends. Out: an action for each frontend that its name makes the Service's own, and documents of new
//! frontends. Upstream: `pkg/provider/azure_loadbalancer.go`, `reconcileFrontendIPConfigs`, `isFrontendIPChanged`. Unlike upstream,
//! addresses are compared in parsed form, and the family is read from the address and not guessed from the name.

use std::net::IpAddr;

pub(super) use super::frontend_address::{FrontendAddress, frontend_address};
use super::{context::PlanContext, frontend_address::parse_address};
use crate::providers::azure::{
    model::{
        ResourceId,
        document::SubResource,
        network::{FrontendIpConfiguration, FrontendIpConfigurationProperties, Subnet},
        spelling,
    },
    planner::load_balancer::{
        annotations::{INTERNAL_SUBNET, IPV4},
        naming,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceRefusal, ServiceSpec, refusal},
    },
};

/// Action for a frontend on the target load balancer of its Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrontendAction {
    /// Keep the frontend, which serves this family.
    Keep(IpFamily),
    /// Replace the frontend by a new one for its family.
    Replace,
    /// Remove the frontend, because the Service does not need its family.
    Drop,
}

/// Returns the address that a frontend must have to serve the Service.
///
/// Returns `None` for an internal Service without a pinned address, and for an external Service without a public IP.
pub(super) fn wanted_address(context: &PlanContext<'_>, spec: &ServiceSpec, family: IpFamily) -> Option<FrontendAddress> {
    if spec.internal {
        return (*spec.pinned.get(family)).map(FrontendAddress::Private);
    }
    context.public_ip(&spec.identity, family).map(|id| FrontendAddress::Public(id.key()))
}

/// Returns the name of the Service's own frontend.
pub(super) fn own_name(spec: &ServiceSpec, family: IpFamily) -> String {
    let subnet = spec.subnet.as_deref().filter(|_| spec.internal);
    naming::frontend(&spec.identity, subnet, family, spec.is_dual_stack())
}

/// Returns the family of a frontend that belongs to the Service.
pub(super) fn family(context: &PlanContext<'_>, spec: &ServiceSpec, frontend: &FrontendIpConfiguration) -> IpFamily {
    let by_name = || match spec.families[..] {
        [only] => only,
        _ => naming::pool_family(frontend.name.as_deref().unwrap_or_default()),
    };
    declared_family(context, frontend).or_else(|| family_by_address(context, spec, frontend)).unwrap_or_else(by_name)
}

fn declared_family(context: &PlanContext<'_>, frontend: &FrontendIpConfiguration) -> Option<IpFamily> {
    let properties = frontend.properties.as_ref()?;
    let (version, text) = match &properties.public_ip_address {
        Some(reference) => {
            let public = context.find_public_ip(reference)?.properties.as_ref()?;
            (&public.public_ip_address_version, &public.ip_address)
        }
        None => (&properties.private_ip_address_version, &properties.private_ip_address),
    };
    match version {
        Some(version) if spelling::same_word(version, "IPv6") => Some(IpFamily::V6),
        Some(_) => Some(IpFamily::V4),
        None => parse_address(text.as_ref()).map(IpFamily::of),
    }
}

/// Returns the family whose desired public IP the frontend already has, even if ARM's list does not have that public IP yet.
fn family_by_address(context: &PlanContext<'_>, spec: &ServiceSpec, frontend: &FrontendIpConfiguration) -> Option<IpFamily> {
    let member = frontend_address(frontend)?;
    spec.families.iter().copied().find(|family| wanted_address(context, spec, *family).as_ref() == Some(&member))
}

/// Returns the action for a frontend that its name makes the Service's own, on the Service's target load balancer.
pub(super) fn frontend_action(
    context: &PlanContext<'_>,
    spec: &ServiceSpec,
    frontend: &FrontendIpConfiguration,
) -> FrontendAction {
    let family = family(context, spec, frontend);
    if !spec.families.contains(&family) {
        return FrontendAction::Drop;
    }
    let name = frontend.name.as_deref().unwrap_or_default();
    let changed = !spelling::same_name(name, &own_name(spec, family))
        || match spec.internal {
            true => is_internal_changed(context, spec, family, frontend),
            false => frontend_address(frontend) != wanted_address(context, spec, family),
        };
    if changed { FrontendAction::Replace } else { FrontendAction::Keep(family) }
}

fn is_internal_changed(
    context: &PlanContext<'_>,
    spec: &ServiceSpec,
    family: IpFamily,
    frontend: &FrontendIpConfiguration,
) -> bool {
    let properties = frontend.properties.as_ref();
    // A new default subnet in the configuration does not move existing frontends.
    let other_subnet = spec.subnet.is_some()
        && subnet(context, spec).is_ok_and(|subnet| {
            let own = properties.and_then(|properties| properties.subnet.as_ref());
            !own.is_some_and(|own| own.refers_to(&subnet_id(subnet, context.settings)))
        });
    let own = parse_address(properties.and_then(|properties| properties.private_ip_address.as_ref()));
    other_subnet || spec.pinned.get(family).is_some_and(|pinned| own != Some(pinned))
}

/// Returns the subnet of an internal Service, or a refusal if the virtual network does not have it.
pub(super) fn subnet<'a>(context: &PlanContext<'a>, spec: &ServiceSpec) -> Result<&'a Subnet, ServiceRefusal> {
    let settings = context.settings;
    let (field, name) = match &spec.subnet {
        Some(name) => (INTERNAL_SUBNET.key, name),
        None => ("subnetName", &settings.subnet),
    };
    context
        .observed
        .subnets
        .get(&name.to_lowercase())
        .ok_or_else(|| refusal(field, format!("virtual network {} has no subnet {name}", settings.virtual_network.name())))
}

/// Returns ARM's id of a subnet of the virtual network.
pub(super) fn subnet_id(subnet: &Subnet, settings: &LoadBalancerSettings) -> ResourceId {
    let own = subnet.id.as_deref().and_then(|id| ResourceId::parse(id).ok());
    own.unwrap_or_else(|| settings.virtual_network.child("subnets", subnet.name.as_deref().unwrap_or_default()))
}

pub(super) fn is_in(subnet: &Subnet, address: IpAddr) -> bool {
    subnet.ranges().iter().any(|range| range.contains(&address))
}

pub(super) fn has_ranges(subnet: &Subnet) -> bool {
    !subnet.ranges().is_empty()
}

/// Properties that a new frontend inherits from the frontends that it replaces.
#[derive(Debug, Default)]
pub(super) struct InheritedFrontend {
    /// Zones of the last replaced frontend; `None` if no frontend is replaced, so that the region's zones apply.
    pub(super) zones: Option<Option<Vec<String>>>,
    pub(super) addresses: Vec<IpAddr>,
}

/// Returns a new frontend. `is_free` returns `true` if no frontend has an address.
pub(super) fn new(
    context: &PlanContext<'_>,
    spec: &ServiceSpec,
    family: IpFamily,
    heritage: &InheritedFrontend,
    is_free: impl Fn(IpAddr) -> bool,
) -> Result<FrontendIpConfiguration, ServiceRefusal> {
    let name = Some(own_name(spec, family));
    if spec.internal {
        let properties = Some(internal_properties(context, spec, family, heritage, is_free)?);
        return Ok(FrontendIpConfiguration { name, properties, zones: zones(context, heritage), ..Default::default() });
    }
    let public = context.public_ip(&spec.identity, family).ok_or_else(|| {
        let message = format!("no {family} public IP exists for the front end of {}", spec.identity.key);
        refusal("status.loadBalancer", message)
    })?;
    let properties =
        FrontendIpConfigurationProperties { public_ip_address: Some(SubResource::to(public)), ..Default::default() };
    Ok(FrontendIpConfiguration { name, properties: Some(properties), ..Default::default() })
}

fn zones(context: &PlanContext<'_>, heritage: &InheritedFrontend) -> Option<Vec<String>> {
    let region = &context.observed.zones;
    let has_zones = context.is_standard() && context.settings.extended_location.is_none() && !region.is_empty();
    heritage.zones.clone().unwrap_or_else(|| has_zones.then(|| region.clone()))
}

fn internal_properties(
    context: &PlanContext<'_>,
    spec: &ServiceSpec,
    family: IpFamily,
    heritage: &InheritedFrontend,
    is_free: impl Fn(IpAddr) -> bool,
) -> Result<FrontendIpConfigurationProperties, ServiceRefusal> {
    let subnet = subnet(context, spec)?;
    let fits = |address: &&IpAddr| IpFamily::of(**address) == family && is_in(subnet, **address) && is_free(**address);
    if let Some(pinned) = spec.pinned.get(family).filter(|pinned| has_ranges(subnet) && !is_in(subnet, *pinned)) {
        let message = format!("{pinned} is not in subnet {}", subnet.name.as_deref().unwrap_or_default());
        return Err(refusal(format!("{}, -ipv6 or spec.loadBalancerIP", IPV4.key), message));
    }
    let known = || heritage.addresses.iter().chain(&spec.status_addresses).find(fits).copied();
    let fixed = spec.pinned.get(family).or_else(known);
    let method = if fixed.is_some() { "Static" } else { "Dynamic" };
    Ok(FrontendIpConfigurationProperties {
        private_ip_address: fixed.map(|address| address.to_string()),
        private_ip_address_version: (family == IpFamily::V6).then(|| family.to_string()),
        private_ip_allocation_method: Some(method.to_owned()),
        subnet: Some(SubResource::to(&subnet_id(subnet, context.settings))),
        ..FrontendIpConfigurationProperties::default()
    })
}
