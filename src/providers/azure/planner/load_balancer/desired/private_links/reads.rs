//! Which private link services have to be known before front ends change. Pure.
//!
//! A front end does not say whether a private link service leads to it: only the lists of resource groups do. They are read for whoever
//! asks for one, and when front ends go.

use std::{collections::BTreeSet, sync::Arc};

use super::{deletions, names::wanted_id};
use crate::providers::azure::{
    arm::{ResourceId, api},
    planner::load_balancer::{
        desired::{ServiceRequest, context::ensured_spec, expected, frontends, load_balancers::LoadBalancerPlan},
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceSpec},
    },
};

/// Returns the resource groups that may hold private link services of these Services: the groups that they name and the configured one.
pub fn all_groups<'a>(
    specs: impl Iterator<Item = &'a Arc<ServiceSpec>>,
    settings: &LoadBalancerSettings,
) -> BTreeSet<ResourceId> {
    let named = specs.filter_map(|spec| spec.private_link.as_ref()).map(|link| link.group.clone());
    named.chain([settings.private_link_group.clone()]).collect()
}

/// Resource groups that those who ask for a private link service name; none when nobody does.
pub fn asked_groups(requests: &[ServiceRequest]) -> BTreeSet<ResourceId> {
    let links = requests.iter().filter_map(ServiceRequest::spec).filter_map(|spec| spec.private_link.as_ref());
    links.map(|link| link.group.clone()).collect()
}

/// Names of subnets in which those who ask want private link services.
pub fn subnets(requests: &[ServiceRequest], settings: &LoadBalancerSettings) -> BTreeSet<String> {
    let links = requests.iter().filter_map(ensured_spec).filter_map(|spec| spec.private_link.as_ref());
    links.map(|link| link.subnet.as_ref().map_or_else(|| settings.subnet.clone(), |(_, name)| name.clone())).collect()
}

/// Private link services that those who ask and had an address may have, under the names that they give. When a list lacks one, it is
/// read by itself.
pub fn expected_links(requests: &[ServiceRequest], settings: &LoadBalancerSettings) -> BTreeSet<ResourceId> {
    let served = requests.iter().filter_map(ServiceRequest::spec).filter(|spec| !spec.status_addresses.is_empty());
    let id = |spec: &Arc<ServiceSpec>| {
        let frontend = expected::load_balancer(spec.internal, settings)
            .child("frontendIPConfigurations", &frontends::own_name(spec, IpFamily::V4));
        Some(wanted_id(spec.private_link.as_ref()?, frontend.as_str()))
    };
    served.filter_map(id).filter(|id| id.is_type(api::PRIVATE_LINK_SERVICES.resource_type)).collect()
}

/// Whether front ends go, so that private link services may be in the way.
pub fn drops_frontends(observed: &ObservedNetwork, plan: &LoadBalancerPlan) -> bool {
    !deletions::dropped(observed, plan).is_empty()
}
