//! Services and public IPs that a message of ARM refers to: by the names of their parts, or by values that only few Services
//! request. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::providers::azure::{
    model::{ArmError, ResourceId, api},
    planner::load_balancer::{
        naming,
        spec::{ServiceIdentity, ServiceSpec},
    },
};

/// Fewest characters by which a truncated name is recognized: more than a group of a UUID has.
const MIN_CUT_LENGTH: usize = 13;

/// Most Services that can be suspected: each is retried alone, which takes a write.
const MAX_SUSPECTS: usize = 4;

/// Returns those of `identities` that the error names by their frontends, rules, probes or public IPs, sorted. The names of
/// these parts contain [`ServiceIdentity::name_prefix`].
pub fn named_services<'a>(error: &ArmError, identities: impl Iterator<Item = &'a ServiceIdentity>) -> Vec<ServiceIdentity> {
    let by_base: BTreeMap<&str, &ServiceIdentity> =
        identities.map(|identity| (identity.name_prefix.as_str(), identity)).collect();
    let named = [&error.message, &error.request].into_iter().flat_map(|text| {
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(|word| named_by(&word.to_ascii_lowercase(), &by_base))
    });
    named.collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

/// Returns the Service whose name prefix is `word`. Names of public IPs are truncated when the cluster's name is long, so an
/// unambiguous beginning of a prefix counts, too.
fn named_by<'a>(word: &str, by_base: &BTreeMap<&str, &'a ServiceIdentity>) -> Option<&'a ServiceIdentity> {
    if word.len() < MIN_CUT_LENGTH || word.len() > naming::NAME_PREFIX_LENGTH {
        return None;
    }
    let mut possible = by_base.range(word..).take_while(|(base, _)| base.starts_with(word));
    let (_, first) = possible.next()?;
    possible.next().is_none().then_some(*first)
}

/// Returns the Services that may have caused an error that names none of them, sorted; empty if too many match.
///
/// A Service is suspected if it requests a value that the message mentions and that at most `MAX_SUSPECTS` Services request,
/// such as a port, an address or a service tag.
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

/// Returns values that distinguish a Service from others in a document, in lower case.
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

/// Returns the words of a message without quotes, brackets and punctuation.
fn words(message: &str) -> impl Iterator<Item = &str> {
    let words = message.split(|c: char| c.is_whitespace() || "'\"`()[]<>,;".contains(c));
    words.map(|word| word.trim_end_matches(['.', ':']))
}

/// Returns `true` if Azure refused because a network interface would have had too many rules.
///
/// The error's code is not documented, but its message is known (MicrosoftDocs/azure-docs#47423).
pub fn is_interface_limit(error: &ArmError) -> bool {
    error.message.to_ascii_lowercase().contains("nat or load balancing rules combined")
}

/// Returns the unprovisioned public IP because of which a load balancer cannot be written, if ARM names one.
///
/// The caller writes that public IP again, unchanged, before the load balancer. Upstream:
/// `pkg/provider/azure_loadbalancer_repo.go`, `CreateOrUpdateLB`.
pub fn unprovisioned_public_ip(error: &ArmError) -> Option<ResourceId> {
    if !error.mentions("ReferencedResourceNotProvisioned") {
        return None;
    }
    let ids = words(&error.message).filter_map(|word| ResourceId::parse(word).ok());
    ids.into_iter().find(|id| id.is_type(api::PUBLIC_IPS.resource_type))
}
