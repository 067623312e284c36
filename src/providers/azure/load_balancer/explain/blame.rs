//! What ARM's message names: Services, by the names of their parts, and public IPs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::providers::azure::{
    arm::{ArmError, ResourceId, api},
    load_balancer::{naming, spec::Identity},
};

/// Fewest characters by which a name that was cut is still recognised: more than a group of a UUID has.
const CUT: usize = 13;

/// Which of `identities` the error names: by their front ends, rules, probes or public IPs, whose names hold [`Identity::base`]. Sorted.
pub fn blames<'a>(error: &ArmError, identities: impl Iterator<Item = &'a Identity>) -> Vec<Identity> {
    let by_base: BTreeMap<&str, &Identity> = identities.map(|identity| (identity.base.as_str(), identity)).collect();
    let named = [&error.message, &error.request].into_iter().flat_map(|text| {
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(|word| named_by(&word.to_ascii_lowercase(), &by_base))
    });
    named.collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

/// Whose base a word is. Names of public IPs are cut when the cluster's name is long.
fn named_by<'a>(word: &str, by_base: &BTreeMap<&str, &'a Identity>) -> Option<&'a Identity> {
    if word.len() < CUT || word.len() > naming::BASE_LENGTH {
        return None;
    }
    let mut possible = by_base.range(word..).take_while(|(base, _)| base.starts_with(word));
    let (_, first) = possible.next()?;
    possible.next().is_none().then_some(*first)
}

/// The public IP that keeps a load balancer from being written because it is not provisioned, if ARM names one: to be written again as
/// it is, before the load balancer is. Upstream: `pkg/provider/azure_loadbalancer_repo.go`, `CreateOrUpdateLB`.
pub fn unprovisioned_public_ip(error: &ArmError) -> Option<ResourceId> {
    if !error.mentions("ReferencedResourceNotProvisioned") {
        return None;
    }
    let words = error.message.split(|c: char| c.is_whitespace() || "'\"`()[]<>,;".contains(c));
    let ids = words.filter_map(|word| ResourceId::parse(word.trim_end_matches(['.', ':'])).ok());
    ids.into_iter().find(|id| id.is_type(api::PUBLIC_IPS.resource_type))
}
