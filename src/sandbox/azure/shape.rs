//! The shape in which documents are kept: parts have ids, nothing derived is in them. Pure functions on one document.

use serde_json::{Map, Value, json};

use super::{
    kinds::{self, Kind},
    private_link,
};
use crate::providers::azure::model::ResourceId;

/// Keys that ARM derives, in a document and in each of its parts.
const DERIVED: &[&str] = &["etag"];

/// Completes a document for the store: name, type, IDs of its parts, state; removes what is derived.
pub fn complete(id: &ResourceId, document: &mut Value) {
    let Some(fields) = document.as_object_mut() else { return };
    let kind = kinds::kind_of(&id.resource_type());
    fields.insert("id".to_owned(), json!(id.as_str()));
    fields.entry("name").or_insert_with(|| json!(name_of(id)));
    let type_name = kind.map_or_else(|| type_of(id), |kind| kind.name.to_owned());
    fields.insert("type".to_owned(), json!(type_name));
    DERIVED.iter().for_each(|key| drop(fields.remove(*key)));
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.entry("provisioningState").or_insert_with(|| json!("Succeeded"));
        strip(&type_name.to_ascii_lowercase(), properties);
    }
    if let Some(kind) = kind {
        complete_parts(id, kind, properties);
    }
}

/// Returns the name of a resource; an instance of a scale set is named after both.
fn name_of(id: &ResourceId) -> String {
    match id.parent() {
        Some(set) if id.is_type("Microsoft.Compute/virtualMachineScaleSets/virtualMachines") => {
            format!("{}_{}", set.name(), id.name())
        }
        _ => id.name().to_owned(),
    }
}

fn type_of(id: &ResourceId) -> String {
    let found = id.resource_type();
    if found.is_empty() { "Microsoft.Resources/resourceGroups".to_owned() } else { found }
}

fn complete_parts(id: &ResourceId, kind: &Kind, properties: &mut Value) {
    for list in kind.parts {
        let part_type = format!("{}/{list}", kind.name).to_ascii_lowercase();
        for part in properties.get_mut(*list).and_then(Value::as_array_mut).into_iter().flatten() {
            complete_part(id, list, &part_type, part);
        }
    }
}

fn complete_part(id: &ResourceId, list: &str, part_type: &str, part: &mut Value) {
    let Some(fields) = part.as_object_mut() else { return };
    let name = fields.get("name").and_then(Value::as_str).map(str::to_owned);
    let Some(name) = name.or_else(|| name_in_id(fields)) else { return };
    fields.insert("id".to_owned(), json!(id.child(list, &name).as_str()));
    fields.insert("name".to_owned(), json!(name));
    fields.remove("type");
    DERIVED.iter().for_each(|key| drop(fields.remove(*key)));
    if let Some(properties) = fields.entry("properties").or_insert_with(|| json!({})).as_object_mut() {
        properties.remove("provisioningState");
        strip(part_type, properties);
    }
}

fn name_in_id(fields: &Map<String, Value>) -> Option<String> {
    let id = fields.get("id")?.as_str()?;
    id.rsplit('/').next().map(str::to_owned)
}

/// Removes the lists of referrers, and the other values that are computed from them.
fn strip(type_name: &str, properties: &mut Map<String, Value>) {
    for reference in kinds::back_references(type_name) {
        properties.remove(reference.property);
    }
    properties.remove("resourceGuid");
    match type_name {
        kinds::POOLS => strip_pool(properties),
        "microsoft.network/loadbalancers/loadbalancingrules" => strip_rule(properties),
        "microsoft.network/privatelinkservices" => {
            private_link::READ_ONLY.iter().for_each(|name| drop(properties.remove(*name)));
        }
        "microsoft.network/networksecuritygroups" => drop(properties.remove("defaultSecurityRules")),
        _ => {}
    }
}

/// Removes the addresses of a pool that only repeat its IP configurations.
fn strip_pool(properties: &mut Map<String, Value>) {
    let Some(addresses) = properties.get_mut("loadBalancerBackendAddresses").and_then(Value::as_array_mut) else { return };
    addresses.retain(|address| address["properties"]["networkInterfaceIPConfiguration"].is_null());
    if addresses.is_empty() {
        properties.remove("loadBalancerBackendAddresses");
    }
}

/// Removes a rule's list of pools if it only repeats its pool; one with a single element is the pool.
fn strip_rule(properties: &mut Map<String, Value>) {
    let Some(pools) = properties.get("backendAddressPools").and_then(Value::as_array).cloned() else { return };
    if pools.len() > 1 {
        return;
    }
    properties.remove("backendAddressPools");
    if let Some(pool) = pools.into_iter().next() {
        properties.entry("backendAddressPool").or_insert(pool);
    }
}

/// Returns the part of this name in a list of a document, ignoring letter case.
pub fn part<'a>(document: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    parts(document, list).find(|part| part["name"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(name)))
}

/// Returns the parts in a list of a document.
pub fn parts<'a>(document: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    document["properties"][list].as_array().into_iter().flatten()
}

/// Puts a part in a list of a document, replacing the part of its name or at the end.
pub fn set_part(document: &mut Value, list: &str, part: Value) {
    if !document["properties"][list].is_array() {
        document["properties"][list] = json!([]);
    }
    let Some(parts) = document["properties"][list].as_array_mut() else { return };
    let same = |found: &&mut Value| match (found["name"].as_str(), part["name"].as_str()) {
        (Some(found), Some(name)) => found.eq_ignore_ascii_case(name),
        _ => false,
    };
    match parts.iter_mut().find(same) {
        Some(entry) => *entry = part,
        None => parts.push(part),
    }
}

/// Removes the part of this name from a list of a document.
pub fn remove_part(document: &mut Value, list: &str, name: &str) {
    if let Some(parts) = document["properties"][list].as_array_mut() {
        parts.retain(|part| !part["name"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(name)));
    }
}
