//! Ids of documents that may exist although no list shows them, from the names that the controller gives. Pure.
//!
//! In: requests, and the Services without a request. Out: ids to read one by one if the lists lack them.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use super::{ServiceRequest, context::ensured_spec};
use crate::providers::azure::{
    config::LoadBalancerSku,
    model::{ResourceId, api},
    planner::load_balancer::{
        naming,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceSpec},
    },
};

/// Returns the load balancers, of every entry, on which Services may have parts.
///
/// Services with an address need the load balancers of their kind, internal or external. A deleted Service needs both kinds, because it
/// may have parts on either. `others` are the Services without a request.
pub fn load_balancers<'a>(
    requests: &'a [ServiceRequest],
    others: impl Iterator<Item = &'a Arc<ServiceSpec>>,
    settings: &LoadBalancerSettings,
) -> BTreeSet<ResourceId> {
    let all = requests.iter().filter_map(ServiceRequest::spec).chain(others);
    let goes = requests.iter().any(|request| matches!(request, ServiceRequest::Delete(..)));
    let served: BTreeSet<bool> = all.filter(|spec| !spec.status_addresses.is_empty()).map(|spec| spec.internal).collect();
    let entries = settings.all_entries();
    let kinds = || [false, true].into_iter().filter(|internal| goes || served.contains(internal));
    entries.iter().flat_map(|entry| kinds().map(|internal| named(&entry.name, internal, settings))).collect()
}

/// Returns the load balancer on which all Services of a kind are, unless the basic SKU or several entries distribute them.
pub fn load_balancer(internal: bool, settings: &LoadBalancerSettings) -> ResourceId {
    named(settings.primary_name(), internal, settings)
}

fn named(external: &str, internal: bool, settings: &LoadBalancerSettings) -> ResourceId {
    let name = naming::load_balancer(external, internal);
    settings.load_balancer_group.resource(api::LOAD_BALANCERS.resource_type, &[&name])
}

/// Maximum number of simultaneous deletions for which the public IPs of each Service are read under every possible name.
const FEW: usize = 10;

/// Returns the public IPs that deleted Services may have: those that they name, and those with names that the controller gives.
///
/// The current spec of a Service does not prove which public IPs it has: earlier, it may have been external, had other families, or
/// neither named nor pinned an address. `going` is the number of Services that are being deleted. If there are many, the current spec and
/// private addresses are trusted, because reads of every name would take as long as all deletions. A name with a prefix that the spec no
/// longer contains cannot be derived.
pub fn public_ips(requests: &[ServiceRequest], going: usize, settings: &LoadBalancerSettings) -> BTreeSet<ResourceId> {
    let deleted = requests.iter().filter(|request| ensured_spec(request).is_none());
    let specs = || deleted.clone().filter_map(ServiceRequest::spec);
    if going.max(specs().count()) > FEW {
        return specs().filter(|spec| !is_inside(spec, settings)).flat_map(|spec| asked_for(spec, settings)).collect();
    }
    specs().flat_map(|spec| [asked_for(spec, settings), under_any_name(spec, settings)]).flatten().collect()
}

/// Returns the load balancers and public IPs that deleted Services may have under names from other settings.
///
/// `lost` has the deleted Services without parts on any load balancer, `vm_sets` the scale sets or availability sets of the cluster.
pub fn under_other_settings(
    lost: &[ServiceRequest],
    vm_sets: &[String],
    settings: &LoadBalancerSettings,
) -> (BTreeSet<ResourceId>, BTreeSet<ResourceId>) {
    if lost.is_empty() {
        return Default::default();
    }
    let sets = vm_sets.iter().filter(|_| settings.sku == LoadBalancerSku::Basic).map(String::as_str);
    let load_balancer_name = Some(settings.load_balancer_name.as_str()).filter(|name| !name.is_empty());
    let names = sets.chain([settings.cluster.as_str()]).chain(load_balancer_name);
    let names: Vec<&str> = names.chain(settings.entries.iter().map(|entry| entry.name.as_str())).collect();
    let both = names.into_iter().flat_map(|name| [false, true].map(|internal| named(name, internal, settings)));
    let specs = lost.iter().filter_map(ServiceRequest::spec);
    (both.collect(), specs.flat_map(|spec| under_any_name(spec, settings)).collect())
}

/// Returns the ids of all public IPs that the Service may have from a time when it had other families or no prefix.
fn under_any_name(spec: &ServiceSpec, settings: &LoadBalancerSettings) -> Vec<ResourceId> {
    let names = [IpFamily::V4, IpFamily::V6].into_iter().flat_map(|family| {
        let prefix = spec.public_ip.prefix.get(family).as_deref().and_then(|id| id.rsplit('/').next());
        let prefixes: BTreeSet<Option<&str>> = [None, prefix].into();
        prefixes.into_iter().flat_map(move |prefix| {
            let name = |family, dual| naming::public_ip(&settings.cluster, &spec.identity, prefix, family, dual);
            let of_family = naming::public_ip_of_family(&settings.cluster, &spec.identity, prefix, family);
            [name(family, true), name(IpFamily::V4, false), of_family]
        })
    });
    names.map(|name| spec.public_ip.group.resource(api::PUBLIC_IPS.resource_type, &[&name])).collect()
}

/// Returns `true` if a Service is internal and has been served as such.
///
/// A Service without an address may have been external, and so may a Service with an address outside the private ranges. On Azure Stack,
/// an address proves neither.
fn is_inside(spec: &ServiceSpec, settings: &LoadBalancerSettings) -> bool {
    let is_private = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    };
    let is_served = spec.internal && !spec.status_addresses.is_empty() && !settings.is_azure_stack;
    is_served && spec.status_addresses.iter().all(is_private)
}

/// Returns the public IPs that the Service has if its spec never changed.
pub fn asked_for(spec: &ServiceSpec, settings: &LoadBalancerSettings) -> Vec<ResourceId> {
    let name = |family| {
        let prefix = spec.public_ip.prefix.get(family).as_deref().and_then(|id| id.rsplit('/').next());
        let generated = || naming::public_ip(&settings.cluster, &spec.identity, prefix, family, spec.is_dual_stack());
        spec.public_ip.name.get(family).clone().unwrap_or_else(generated)
    };
    // An external Service with a pinned address has no public IP of its own. An internal Service pins a private address.
    let has_own = |family: &&IpFamily| {
        spec.internal || spec.pinned.get(**family).is_none() || spec.public_ip.name.get(**family).is_some()
    };
    let families = spec.families.iter().filter(has_own);
    families.map(|family| spec.public_ip.group.resource(api::PUBLIC_IPS.resource_type, &[&name(*family)])).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::samples::{ensure, service, settings},
        *,
    };

    fn names(ids: &BTreeSet<ResourceId>) -> Vec<&str> {
        ids.iter().map(ResourceId::name).collect()
    }

    fn gone(spec: &ServiceSpec) -> ServiceRequest {
        ServiceRequest::Delete(spec.identity.clone(), Some(Arc::new(spec.clone())))
    }

    #[test]
    fn whoever_goes_may_have_parts_anywhere() {
        let (web, settings) = (service("web"), settings());
        let none = || std::iter::empty::<&Arc<ServiceSpec>>();
        assert!(load_balancers(&[ensure(&web)], none(), &settings).is_empty(), "it never had an address");
        assert!(public_ips(&[ensure(&web)], 1, &settings).is_empty(), "its creation is conditional");
        let served = Arc::new(ServiceSpec { status_addresses: vec!["20.0.0.1".parse().unwrap()], ..web.clone() });
        assert_eq!(names(&load_balancers(&[], std::iter::once(&served), &settings)), ["kubernetes"]);
        assert_eq!(names(&load_balancers(&[gone(&web)], none(), &settings)), ["kubernetes", "kubernetes-internal"]);
        let own = format!("kubernetes-{}", web.identity.name_prefix);
        let any = [own.clone(), format!("{own}-IPv4"), format!("{own}-IPv6")];
        let inside = ServiceSpec { internal: true, ..web.clone() };
        for gone in [gone(&web), gone(&inside)] {
            assert_eq!(names(&public_ips(&[gone], 1, &settings)), any, "it may have been another kind");
        }
        let mut named = web;
        named.public_ip.name.v4 = Some("theirs".to_owned());
        assert_eq!(names(&public_ips(&[gone(&named)], FEW, &settings))[3], "theirs");
    }

    #[test]
    fn when_many_go_what_they_ask_for_is_believed() {
        let (web, settings) = (service("web"), settings());
        let own = format!("kubernetes-{}", web.identity.name_prefix);
        let many = |spec: &ServiceSpec| public_ips(&[gone(spec)], FEW + 1, &settings);
        assert_eq!(names(&many(&web)), [own.as_str()]);
        let inside = ServiceSpec { internal: true, ..web.clone() };
        assert_eq!(names(&many(&inside)), [own.as_str()], "it was never served, and may have been external");
        let served = ServiceSpec { status_addresses: vec!["10.0.0.4".parse().unwrap()], ..inside };
        assert!(many(&served).is_empty());
        let stack = LoadBalancerSettings { is_azure_stack: true, ..settings.clone() };
        assert_eq!(names(&public_ips(&[gone(&served)], FEW + 1, &stack)), [own.as_str()], "any address may be public there");
        assert!(public_ips(&vec![gone(&served); FEW + 1], 0, &settings).is_empty(), "so many ask");
        let mut named = web.clone();
        named.public_ip.name.v4 = Some("theirs".to_owned());
        assert_eq!(names(&many(&named)), ["theirs"]);
        let mut pinned = web;
        pinned.pinned.v4 = Some("20.0.0.1".parse().unwrap());
        assert!(many(&pinned).is_empty());
    }

    #[test]
    fn whoever_is_found_nowhere_may_have_parts_under_former_names() {
        let (web, sets) = (service("web"), ["Pool".to_owned()]);
        let settings = LoadBalancerSettings { load_balancer_name: "new".to_owned(), ..settings() };
        let (balancers, ips) = under_other_settings(&[gone(&web)], &sets, &settings);
        assert_eq!(names(&balancers), ["kubernetes", "kubernetes-internal", "new", "new-internal"]);
        let own = format!("kubernetes-{}", web.identity.name_prefix);
        assert_eq!(names(&ips), [own.clone(), format!("{own}-IPv4"), format!("{own}-IPv6")]);
        let basic = LoadBalancerSettings { sku: LoadBalancerSku::Basic, ..settings };
        let (balancers, _) = under_other_settings(&[gone(&web)], &sets, &basic);
        assert!(names(&balancers).contains(&"Pool") && names(&balancers).contains(&"Pool-internal"));
        assert!(under_other_settings(&[], &sets, &basic).0.is_empty());
    }
}
