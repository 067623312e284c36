//! Validation by Azure, by type. Pure: the new document, the other documents, and the document before.

mod interface;
mod limits;
mod load_balancer;
mod load_balancer_rules;
mod name;
mod private_link_service;
mod public_ip;
mod route_table;
mod scale_set;
mod security_group;
mod sku;
mod tags;

use serde_json::Value;

use super::{
    kinds,
    limits::LoadBalancerLimits,
    private_link,
    references::{self, Referrer},
    refusal::Refusal,
    shape,
    store::Store,
};
use crate::providers::azure::model::ResourceId;

/// Input of a check.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    /// Store of all documents, with the former state of this one.
    pub(super) store: &'a Store,
    pub(super) id: &'a ResourceId,
    /// Former body, unless the document is new.
    pub(super) old: Option<&'a Value>,
    /// Body as it would be stored.
    pub(super) body: &'a Value,
}

/// Checks that everything a document refers to exists: its own parts, and other documents or their parts.
pub fn references(store: &Store, id: &ResourceId, body: &Value) -> Result<(), Refusal> {
    let key = id.key();
    for (target, referrer) in references::made_by(&key, body) {
        let Ok(target) = ResourceId::parse(&target) else {
            let message = format!("Property id '{target}' at '{}' is invalid.", referrer.element);
            return Err(Refusal::invalid("LinkedInvalidPropertyId", message));
        };
        if is_modelled(&target) && !exists(store, &key, body, &target) {
            return Err(Refusal::dangling(&referrer.element, target.as_str()));
        }
    }
    Ok(())
}

fn is_modelled(target: &ResourceId) -> bool {
    let kind = target.resource_type();
    kinds::kind_of(&kind).is_some() || kinds::part_of(&kind).is_some()
}

fn exists(store: &Store, key: &str, body: &Value, target: &ResourceId) -> bool {
    let own = target.key().strip_prefix(key).is_some_and(|rest| rest.starts_with('/'));
    match kinds::part_of(&target.resource_type()) {
        Some((_, list)) if own => shape::part(body, list, target.name()).is_some(),
        _ => store.exists(target.as_str()),
    }
}

/// Checks a document by the rules of its type.
pub fn document(store: &Store, id: &ResourceId, old: Option<&Value>, body: &Value) -> Result<(), Refusal> {
    let candidate = Candidate { store, id, old, body };
    same_location(candidate)?;
    name::check(candidate)?;
    tags::check(candidate)?;
    match id.resource_type().to_ascii_lowercase().as_str() {
        "microsoft.network/loadbalancers" => load_balancer::check(candidate),
        "microsoft.network/publicipaddresses" => public_ip::check(candidate),
        "microsoft.network/networksecuritygroups" => security_group::check(candidate),
        "microsoft.network/routetables" => route_table::check(candidate),
        "microsoft.network/networkinterfaces" => interface::check(candidate),
        "microsoft.compute/virtualmachinescalesets" => scale_set::check(candidate),
        "microsoft.compute/virtualmachinescalesets/virtualmachines" => scale_set::check_instance(candidate),
        "microsoft.network/virtualnetworks" => {
            dropped_parts(candidate, "subnets", "InUseSubnetCannotBeDeleted")?;
            private_link_service::check_subnets(candidate)
        }
        "microsoft.network/privatelinkservices" => private_link_service::check(candidate),
        private_link::ENDPOINTS => private_link_service::check_endpoint(candidate),
        _ => Ok(()),
    }
}

/// Checks that a write keeps within the limits.
pub fn limits(
    store: &Store,
    limits: &LoadBalancerLimits,
    id: &ResourceId,
    old: Option<&Value>,
    body: &Value,
) -> Result<(), Refusal> {
    limits::check(Candidate { store, id, old, body }, limits)
}

/// Checks whether a document may be deleted.
pub fn deletion(store: &Store, id: &ResourceId, body: &Value) -> Result<(), Refusal> {
    let candidate = Candidate { store, id, old: Some(body), body: &Value::Null };
    match id.resource_type().to_ascii_lowercase().as_str() {
        "microsoft.network/publicipaddresses" => public_ip::check_deletion(candidate),
        "microsoft.network/loadbalancers" => load_balancer::check_dropped(candidate),
        "microsoft.network/networkinterfaces" => unreferenced(candidate, "NicInUse"),
        "microsoft.network/networksecuritygroups" => unreferenced(candidate, "InUseNetworkSecurityGroupCannotBeDeleted"),
        "microsoft.network/routetables" => unreferenced(candidate, "InUseRouteTableCannotBeDeleted"),
        "microsoft.network/privatelinkservices" => private_link_service::check_deletion(candidate),
        "microsoft.network/publicipprefixes" => unreferenced(candidate, "InUsePublicIpPrefixCannotBeDeleted"),
        "microsoft.network/virtualnetworks" => dropped_parts(candidate, "subnets", "InUseSubnetCannotBeDeleted"),
        _ => Ok(()),
    }
}

fn same_location(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let before = candidate.old.and_then(|old| old["location"].as_str());
    let now = candidate.body["location"].as_str().unwrap_or_default();
    let plain = |text: &str| text.replace(' ', "").to_ascii_lowercase();
    match before {
        Some(before) if plain(before) != plain(now) => {
            let message = format!(
                "The resource '{}' already exists in location '{before}'. A resource with the same name cannot be created in \
                 location '{now}'.",
                candidate.id.name()
            );
            Err(Refusal::new(409, "InvalidResourceLocation", message))
        }
        _ => Ok(()),
    }
}

fn in_use(code: &str, id: &str, by: &Referrer) -> Refusal {
    Refusal::invalid(code, format!("Resource {id} cannot be deleted because it is in use by {}.", by.element))
}

/// Checks that no other document refers to the document.
fn unreferenced(candidate: Candidate<'_>, code: &str) -> Result<(), Refusal> {
    let key = candidate.id.key();
    let other = candidate.store.referrers(&key).find(|referrer| referrer.document != key);
    other.map_or(Ok(()), |other| Err(in_use(code, candidate.id.as_str(), other)))
}

/// Checks that no other document refers to parts of a list that are in the old document only.
fn dropped_parts(candidate: Candidate<'_>, list: &str, code: &str) -> Result<(), Refusal> {
    match dropped(candidate, list).next() {
        Some((part, other)) => Err(in_use(code, &part, other)),
        None => Ok(()),
    }
}

/// Returns the ids of parts that are in the old document only, with others that refer to them.
fn dropped<'a>(candidate: Candidate<'a>, list: &'a str) -> impl Iterator<Item = (String, &'a Referrer)> {
    let key = candidate.id.key();
    let Candidate { store, body, old, .. } = candidate;
    old.into_iter()
        .flat_map(move |old| shape::parts(old, list))
        .filter(move |part| part["name"].as_str().is_some_and(|name| shape::part(body, list, name).is_none()))
        .filter_map(|part| part["id"].as_str())
        .flat_map(move |id| store.referrers(id).map(move |referrer| (id.to_owned(), referrer)))
        .filter(move |(_, referrer)| referrer.document != key)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn same(a: &Value, b: &Value) -> bool {
    match (a.as_str(), b.as_str()) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests;
