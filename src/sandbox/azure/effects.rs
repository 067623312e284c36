//! Effects of a write on other documents: their etags, and the interfaces of scale-set instances. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{kinds, private_link, shape, store::Store};
use crate::providers::azure::model::ResourceId;

const LOAD_BALANCERS: &str = "microsoft.network/loadbalancers";
const PUBLIC_IPS: &str = "microsoft.network/publicipaddresses";
const INSTANCES: &str = "microsoft.compute/virtualmachinescalesets/virtualmachines";
const SCALE_SETS: &str = "microsoft.compute/virtualmachinescalesets";

/// Stores a document and gives a new etag to those that it changes.
pub fn insert(store: &mut Store, id: &ResourceId, body: Value) {
    let key = id.key();
    let before = referred(store, &key);
    let kind = id.resource_type().to_ascii_lowercase();
    if kind == INSTANCES {
        configure_interfaces(store, &key, &body);
    }
    let connected = connected(store, &key, Some(&body));
    store.insert(id, body);
    connected.iter().for_each(|service| store.touch(service));
    let after = referred(store, &key);
    touch(store, (&key, &kind), &before, &after);
}

/// Removes a document and what is below it, and gives a new etag to those that it changes.
pub fn remove(store: &mut Store, key: &str) {
    let Some(kind) = store.get(key).map(|document| document.kind.clone()) else { return };
    let before = referred(store, key);
    let interfaces: Vec<String> = store.below(key).map(|(key, _)| key.clone()).collect();
    let below: BTreeSet<String> = interfaces.iter().flat_map(|key| referred(store, key)).collect();
    let connected = connected(store, key, None);
    store.delete_document(key);
    connected.iter().for_each(|service| store.touch(service));
    touch(store, (key, &kind), &before, &BTreeSet::new());
    below.difference(&before).for_each(|changed| store.touch(changed));
}

/// Returns the private link services that a private endpoint is connected with, before or after its change.
fn connected(store: &Store, key: &str, after: Option<&Value>) -> BTreeSet<String> {
    let is_endpoint = ResourceId::parse(key).is_ok_and(|id| id.is_type("Microsoft.Network/privateEndpoints"));
    let before = store.get(key).map(|document| &*document.body);
    let bodies = before.into_iter().chain(after).filter(|_| is_endpoint);
    bodies.flat_map(|body| private_link::services_of(store, body)).collect()
}

fn referred(store: &Store, key: &str) -> BTreeSet<String> {
    store.get(key).map(|document| store.referred_documents(key, &document.body)).unwrap_or_default()
}

fn touch(store: &mut Store, (key, kind): (&str, &str), before: &BTreeSet<String>, after: &BTreeSet<String>) {
    let mut changed: BTreeSet<String> =
        before.symmetric_difference(after).filter(|other| shows_referrers(store, other)).cloned().collect();
    match kind {
        LOAD_BALANCERS => {
            let public = before.union(after).filter(|other| store.get(other).is_some_and(|other| other.kind == PUBLIC_IPS));
            changed.extend(public.cloned());
            changed.extend(members(store, key));
        }
        // Upstream: kubernetes-sigs/cloud-provider-azure#9108 and #9127.
        "microsoft.network/privatelinkservices" => {
            let is_balancer = |other: &&String| store.get(other).is_some_and(|other| other.kind == LOAD_BALANCERS);
            changed.extend(before.union(after).filter(is_balancer).cloned());
        }
        INSTANCES => changed.extend(key.rsplitn(3, '/').nth(2).map(str::to_owned)),
        "microsoft.compute/virtualmachines" => {
            changed.extend(
                before.union(after).filter(|other| store.get(other).is_some_and(|other| other.kind == SCALE_SETS)).cloned(),
            );
        }
        _ => {}
    }
    changed.iter().for_each(|other| store.touch(other));
}

/// Returns `true` if documents that refer to this one show in it.
fn shows_referrers(store: &Store, key: &str) -> bool {
    let Some(document) = store.get(key) else { return false };
    kinds::BACK_REFERENCES.iter().any(|reference| reference.target.starts_with(document.kind.as_str()))
}

/// Returns the documents of the interfaces and scale sets that are in pools of a load balancer.
fn members(store: &Store, key: &str) -> BTreeSet<String> {
    let Some(document) = store.get(key) else { return BTreeSet::new() };
    shape::parts(&document.body, "backendAddressPools")
        .filter_map(|pool| pool["id"].as_str())
        .flat_map(|pool| store.referrers(pool))
        .map(|referrer| referrer.document.clone())
        .filter(|member| member != key)
        .collect()
}

/// Adds an instance's interfaces to the pools that the instance's own network profile names.
fn configure_interfaces(store: &mut Store, key: &str, instance: &Value) {
    let profile = &instance["properties"]["networkProfileConfiguration"]["networkInterfaceConfigurations"];
    for configuration in profile.as_array().into_iter().flatten() {
        let Some(name) = configuration["name"].as_str() else { continue };
        let Some((id, mut body)) = interface(store, &format!("{key}/networkinterfaces/{name}")) else { continue };
        let desired = configuration["properties"]["ipConfigurations"].as_array();
        for desired in desired.into_iter().flatten() {
            set_pools(&mut body, desired);
        }
        insert(store, &id, body);
    }
}

fn interface(store: &Store, id: &str) -> Option<(ResourceId, Value)> {
    let document = store.get(id)?;
    Some((ResourceId::parse(&document.id).ok()?, (*document.body).clone()))
}

fn set_pools(interface: &mut Value, desired: &Value) {
    const POOLS: &str = "loadBalancerBackendAddressPools";
    let configurations = interface["properties"]["ipConfigurations"].as_array_mut();
    for configuration in
        configurations.into_iter().flatten().filter(|configuration| configuration["name"] == desired["name"])
    {
        let Some(properties) = configuration["properties"].as_object_mut() else { continue };
        match desired["properties"].get(POOLS).filter(|pools| pools.as_array().is_some_and(|pools| !pools.is_empty())) {
            Some(pools) => drop(properties.insert(POOLS.to_owned(), pools.clone())),
            None => drop(properties.remove(POOLS)),
        }
    }
}
