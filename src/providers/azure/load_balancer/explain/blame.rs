//! What ARM's message names: Services, by the names of their parts or by what they ask for, and public IPs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::providers::azure::{
    model::{ArmError, ResourceId, api},
    planner::load_balancer::{
        naming,
        spec::{ServiceIdentity, ServiceSpec},
    },
};

/// Fewest characters by which a name that was cut is still recognised: more than a group of a UUID has.
const MIN_CUT_LENGTH: usize = 13;

/// Most Services that can be suspected: each is tried alone, which takes a write.
const MAX_SUSPECTS: usize = 4;

/// Which of `identities` the error names: by their front ends, rules, probes or public IPs, whose names hold
/// [`ServiceIdentity::name_prefix`]. Sorted.
pub fn named_services<'a>(error: &ArmError, identities: impl Iterator<Item = &'a ServiceIdentity>) -> Vec<ServiceIdentity> {
    let by_base: BTreeMap<&str, &ServiceIdentity> =
        identities.map(|identity| (identity.name_prefix.as_str(), identity)).collect();
    let named = [&error.message, &error.request].into_iter().flat_map(|text| {
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(|word| named_by(&word.to_ascii_lowercase(), &by_base))
    });
    named.collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

/// Whose base a word is. Names of public IPs are cut when the cluster's name is long.
fn named_by<'a>(word: &str, by_base: &BTreeMap<&str, &'a ServiceIdentity>) -> Option<&'a ServiceIdentity> {
    if word.len() < MIN_CUT_LENGTH || word.len() > naming::NAME_PREFIX_LENGTH {
        return None;
    }
    let mut possible = by_base.range(word..).take_while(|(base, _)| base.starts_with(word));
    let (_, first) = possible.next()?;
    possible.next().is_none().then_some(*first)
}

/// Who may be meant by an error that names nobody: those who ask for something that its message mentions and that only a few ask for,
/// such as a port, an address or a service tag. Nobody when that is true of many. Sorted.
pub fn suspected_services<'a>(error: &ArmError, specs: impl Iterator<Item = &'a ServiceSpec>) -> Vec<ServiceIdentity> {
    let mentioned: BTreeSet<String> = words(&error.message).map(str::to_ascii_lowercase).collect();
    let mut asking: BTreeMap<String, BTreeSet<&ServiceIdentity>> = BTreeMap::new();
    for spec in specs {
        for particular in distinguishing_values(spec).into_iter().filter(|particular| mentioned.contains(particular)) {
            asking.entry(particular).or_default().insert(&spec.identity);
        }
    }
    let few: BTreeSet<&ServiceIdentity> =
        asking.into_values().filter(|those| those.len() <= MAX_SUSPECTS).flatten().collect();
    if few.len() > MAX_SUSPECTS { Vec::new() } else { few.into_iter().cloned().collect() }
}

/// What tells a Service from others in a document, in lower case.
fn distinguishing_values(spec: &ServiceSpec) -> Vec<String> {
    let public_ip = &spec.public_ip;
    let ports = spec.ports.iter().flat_map(|port| [port.port, port.node_port]).map(|port| port.to_string());
    let addresses = [spec.pinned.v4, spec.pinned.v6].into_iter().flatten().chain(spec.additional_ips.iter().copied());
    let names = [&spec.subnet, &public_ip.dns_label, &public_ip.name.v4, &public_ip.name.v6].into_iter().flatten();
    let prefixes = [&public_ip.prefix.v4, &public_ip.prefix.v6].into_iter().flatten();
    let texts = names.chain(prefixes).chain(&spec.access.tags).map(|text| text.to_ascii_lowercase());
    let ranges = spec.access.ranges.iter().map(ToString::to_string);
    ports.chain(addresses.map(|address| address.to_string())).chain(texts).chain(ranges).collect()
}

/// The words of a message, without what sets them off.
fn words(message: &str) -> impl Iterator<Item = &str> {
    let words = message.split(|c: char| c.is_whitespace() || "'\"`()[]<>,;".contains(c));
    words.map(|word| word.trim_end_matches(['.', ':']))
}

/// Returns `true` if Azure refused because a network interface would have had too many rules. Its code is not documented, but its sentence is
/// known (MicrosoftDocs/azure-docs#47423).
pub fn is_interface_limit(error: &ArmError) -> bool {
    error.message.to_ascii_lowercase().contains("nat or load balancing rules combined")
}

/// The public IP that keeps a load balancer from being written because it is not provisioned, if ARM names one: to be written again as
/// it is, before the load balancer is. Upstream: `pkg/provider/azure_loadbalancer_repo.go`, `CreateOrUpdateLB`.
pub fn unprovisioned_public_ip(error: &ArmError) -> Option<ResourceId> {
    if !error.mentions("ReferencedResourceNotProvisioned") {
        return None;
    }
    let ids = words(&error.message).filter_map(|word| ResourceId::parse(word).ok());
    ids.into_iter().find(|id| id.is_type(api::PUBLIC_IPS.resource_type))
}
