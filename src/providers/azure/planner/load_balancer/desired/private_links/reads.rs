//! Private link services that must be read before frontends change. Pure.
//!
//! A frontend does not show the private link services that are attached to it. Only the lists of resource groups show them. These lists
//! are read for Services that request a private link service, and when frontends are removed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{deletions, names::wanted_id};
use crate::providers::azure::{
    model::{
        ResourceId, api,
        network::{ArmLoadBalancer, FrontendIpConfiguration},
    },
    planner::load_balancer::{
        desired::{
            ServiceRequest,
            context::ensured_spec,
            draft, expected, frontends,
            load_balancers::{LoadBalancerPlan, LoadBalancerWrite},
            rules,
        },
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceSpec},
    },
};

/// Returns the resource groups that may contain private link services of these Services: the groups that they name, and the configured
/// group.
pub fn all_groups<'a>(
    specs: impl Iterator<Item = &'a Arc<ServiceSpec>>,
    settings: &LoadBalancerSettings,
) -> BTreeSet<ResourceId> {
    let named = specs.filter_map(|spec| spec.private_link.as_ref()).map(|link| link.group.clone());
    named.chain([settings.private_link_group.clone()]).collect()
}

/// Returns the resource groups that requests for private link services name. Empty without such requests.
pub fn asked_groups(requests: &[ServiceRequest]) -> BTreeSet<ResourceId> {
    let links = requests.iter().filter_map(ServiceRequest::spec).filter_map(|spec| spec.private_link.as_ref());
    links.map(|link| link.group.clone()).collect()
}

/// Returns the names of the subnets in which private link services are requested.
pub fn subnets(requests: &[ServiceRequest], settings: &LoadBalancerSettings) -> BTreeSet<String> {
    let links = requests.iter().filter_map(ensured_spec).filter_map(|spec| spec.private_link.as_ref());
    links.map(|link| link.subnet.as_ref().map_or_else(|| settings.subnet.clone(), |(_, name)| name.clone())).collect()
}

/// Returns the ids of private link services that may exist: those of Services that request one and have an address.
///
/// A private link service that the lists lack is read directly.
pub fn expected_links(requests: &[ServiceRequest], settings: &LoadBalancerSettings) -> BTreeSet<ResourceId> {
    let served = requests.iter().filter_map(ServiceRequest::spec).filter(|spec| !spec.status_addresses.is_empty());
    let id = |spec: &Arc<ServiceSpec>| {
        let frontend = expected::load_balancer(spec.internal, settings)
            .child("frontendIPConfigurations", &frontends::own_name(spec, IpFamily::V4));
        Some(wanted_id(spec.private_link.as_ref()?, frontend.as_str()))
    };
    served.filter_map(id).filter(|id| id.is_type(api::PRIVATE_LINK_SERVICES.resource_type)).collect()
}

/// Returns `true` if the plan removes frontends or changes their addresses. Attached private link services block such changes.
pub fn drops_frontends(observed: &ObservedNetwork, plan: &LoadBalancerPlan) -> bool {
    !deletions::dropped(observed, plan).is_empty()
}

/// Returns the ids, in lower case, of the frontends that a plan removes or changes, or whose rules it removes or changes.
///
/// The caller waits for writes of private link services at these frontends: only a completed write shows whether one exists.
pub fn touched_frontends(observed: &ObservedNetwork, plan: &LoadBalancerPlan) -> BTreeSet<String> {
    let known = plan.changes.iter().filter_map(|change| Some((observed.load_balancer(&change.id)?, &change.write)));
    let of_document = |(before, write): (&ArmLoadBalancer, &LoadBalancerWrite)| match write {
        LoadBalancerWrite::Put(after) => {
            let changed = missing(draft::frontends(before), draft::frontends(after), |part| part.name.as_deref());
            let rules = missing(draft::rules(before), draft::rules(after), |rule| rule.name.as_deref());
            changed.filter_map(id).chain(rules.map(rules::frontend_key)).collect::<Vec<_>>()
        }
        LoadBalancerWrite::Delete => draft::frontends(before).iter().filter_map(id).collect(),
    };
    known.flat_map(of_document).collect()
}

/// Returns the parts that `after` lacks or has with other content. Only parts with the same name can be equal.
fn missing<'a, T: PartialEq>(before: &'a [T], after: &'a [T], name: fn(&T) -> Option<&str>) -> impl Iterator<Item = &'a T> {
    let mut by_name: HashMap<Option<&str>, Vec<&T>> = HashMap::new();
    after.iter().for_each(|part| by_name.entry(name(part)).or_default().push(part));
    before.iter().filter(move |part| !by_name.get(&name(part)).is_some_and(|parts| parts.contains(part)))
}

fn id(part: &FrontendIpConfiguration) -> Option<String> {
    Some(part.id.as_ref()?.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::azure::planner::load_balancer::desired::{
        load_balancers::LoadBalancerChange,
        samples::{load_balancer, network, observed},
    };

    fn balancer(frontends: &[(&str, &str)], rules: &[(&str, &str, i32)]) -> ArmLoadBalancer {
        let id = |name: &str| network(&format!("loadBalancers/lb/frontendIPConfigurations/{name}"));
        let part = |(name, address): &(&str, &str)| json!({"name": name, "id": id(name), "properties": {"privateIPAddress": address}});
        let rule = |(name, frontend, port): &(&str, &str, i32)| json!({"name": name, "properties": {"frontendPort": port, "frontendIPConfiguration": {"id": id(frontend)}}});
        load_balancer(json!({"id": network("loadBalancers/lb"), "name": "lb", "properties": {
            "frontendIPConfigurations": frontends.iter().map(part).collect::<Vec<_>>(),
            "loadBalancingRules": rules.iter().map(rule).collect::<Vec<_>>()}}))
    }

    fn touched(write: LoadBalancerWrite) -> Vec<String> {
        let before = balancer(&[("a", "10.0.0.1"), ("b", "10.0.0.2")], &[("ra", "a", 80), ("rb", "b", 80)]);
        let id = ResourceId::parse(&network("loadBalancers/lb")).unwrap();
        let change = LoadBalancerChange { id, write, reasons: Vec::new(), wave: 1 };
        let plan = LoadBalancerPlan { changes: vec![change], ..LoadBalancerPlan::default() };
        let found = touched_frontends(&observed(vec![before]), &plan);
        found.into_iter().map(|id| id.rsplit('/').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn what_goes_or_changes_counts_and_what_is_added_does_not() {
        let put = |frontends: &[(&str, &str)], rules: &[(&str, &str, i32)]| {
            touched(LoadBalancerWrite::Put(Box::new(balancer(frontends, rules))))
        };
        let (both, rules) = ([("a", "10.0.0.1"), ("b", "10.0.0.2")], [("ra", "a", 80), ("rb", "b", 80)]);
        assert_eq!(put(&both, &rules), [""; 0]);
        assert_eq!(put(&[both[0], both[1], ("c", "")], &[rules[0], rules[1], ("rc", "a", 81)]), [""; 0]);
        assert_eq!(put(&both[..1], &rules[..1]), ["b"]);
        assert_eq!(put(&[both[0], ("b", "10.0.0.9")], &rules), ["b"]);
        assert_eq!(put(&both, &[("ra", "a", 8080), rules[1]]), ["a"]);
        assert_eq!(touched(LoadBalancerWrite::Delete), ["a", "b"]);
    }
}
