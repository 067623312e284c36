//! Documents as ARM shows them: with etags and with fields derived from references to them. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    kinds::{self, EtagStyle, Kind},
    private_link, read_only,
    store::{Document, Store},
};
use crate::providers::azure::model::ResourceId;

/// Extent of a shown document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expand {
    /// Without the instance view.
    Nothing,
    InstanceView,
}

/// Back-references that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Derived {
    All,
    /// Only those that recorded documents have.
    Canonical,
}

/// Returns the etag of a document, as in its body and its `ETag` header.
pub fn etag(document: &Document) -> Option<String> {
    let revision = document.revision;
    match kinds::kind_of(&document.kind).map_or(EtagStyle::Weak, |kind| kind.etag) {
        EtagStyle::Weak => Some(format!("W/\"{:08x}-0000-4000-8000-{:012x}\"", revision >> 32, revision & 0xffff_ffff)),
        EtagStyle::Number => Some(format!("\"{revision}\"")),
        EtagStyle::None => None,
    }
}

/// Returns `true` if two etags name the same revision. Azure compares weakly: its network provider has only weak etags.
pub fn same_etag(a: &str, other: &str) -> bool {
    let plain = |etag: &str| etag.strip_prefix("W/").unwrap_or(etag).to_owned();
    plain(a) == plain(other)
}

/// Returns a document as a GET shows it.
pub fn document(store: &Store, document: &Document, expand: Expand) -> Value {
    let mut value = derived(store, document, Derived::All);
    if expand == Expand::Nothing
        && let Some(properties) = value["properties"].as_object_mut()
    {
        properties.remove("instanceView");
    }
    if document.unfinished
        && let Some(properties) = value["properties"].as_object_mut()
    {
        kinds::manner_of(&document.kind).until_done.iter().for_each(|name| drop(properties.remove(*name)));
    }
    let Some(etag) = etag(document) else { return value };
    value["etag"] = json!(etag);
    if let Some(kind) = kinds::kind_of(&document.kind) {
        if let Some(properties) = value["properties"].as_object_mut() {
            read_only::show(kind.name, &document.id, properties);
        }
        decorate_parts(kind, &etag, &mut value["properties"]);
    }
    value
}

/// Returns a document with back-references, without etags.
pub fn derived(store: &Store, document: &Document, selection: Derived) -> Value {
    let mut value = (*document.body).clone();
    refer_back(store, &document.kind, &document.id, selection, &mut value["properties"]);
    if document.kind == "microsoft.network/privatelinkservices"
        && let Some(properties) = value["properties"].as_object_mut()
    {
        private_link::show(store, document, selection == Derived::All, properties);
    }
    let Some(kind) = kinds::kind_of(&document.kind) else { return value };
    for list in kind.parts {
        let part_type = format!("{}/{list}", document.kind).to_ascii_lowercase();
        for part in value["properties"].get_mut(*list).and_then(Value::as_array_mut).into_iter().flatten() {
            let id = part["id"].as_str().unwrap_or_default().to_owned();
            refer_back(store, &part_type, &id, selection, &mut part["properties"]);
        }
    }
    value
}

fn decorate_parts(kind: &Kind, etag: &str, properties: &mut Value) {
    for list in kind.parts {
        for part in properties.get_mut(*list).and_then(Value::as_array_mut).into_iter().flatten() {
            part["etag"] = json!(etag);
            part["type"] = json!(format!("{}/{list}", kind.name));
            part["properties"]["provisioningState"] = json!("Succeeded");
        }
    }
}

fn refer_back(store: &Store, type_name: &str, id: &str, selection: Derived, properties: &mut Value) {
    let Some(properties) = properties.as_object_mut() else { return };
    for reference in kinds::back_references(type_name).filter(|reference| selection == Derived::All || reference.canonical) {
        let ids: BTreeSet<&str> = store
            .referrers(id)
            .filter(|referrer| type_ends_with(&referrer.element_key, reference.source))
            .map(|referrer| referrer.element.as_str())
            .collect();
        let Some(first) = ids.first() else { continue };
        let shown = if reference.many { ids.iter().map(|id| json!({"id": id})).collect() } else { json!({"id": first}) };
        properties.insert(reference.property.to_owned(), shown);
    }
    if type_name == kinds::POOLS {
        show_addresses(properties);
    } else if selection == Derived::All && type_name == "microsoft.network/loadbalancers/loadbalancingrules" {
        repeat_pool(properties);
    }
}

fn type_ends_with(key: &str, end: &str) -> bool {
    ResourceId::parse(key).is_ok_and(|id| id.resource_type().ends_with(end))
}

/// Adds the addresses of a pool: those stored, and one for each IP configuration, named `{group}_{interface}{ip
/// configuration}`.
fn show_addresses(properties: &mut Map<String, Value>) {
    let members = properties.get("backendIPConfigurations").and_then(Value::as_array).into_iter().flatten();
    let addresses: Vec<Value> = members.filter_map(|member| address(member["id"].as_str()?)).collect();
    let shown = properties.entry("loadBalancerBackendAddresses").or_insert_with(|| json!([]));
    if let Some(shown) = shown.as_array_mut() {
        shown.extend(addresses);
    }
}

fn address(configuration: &str) -> Option<Value> {
    let id = ResourceId::parse(configuration).ok()?;
    let (group, interface) = (id.resource_group()?, id.name_of("networkInterfaces")?);
    let properties = json!({"networkInterfaceIPConfiguration": {"id": configuration}});
    Some(json!({"name": format!("{group}_{interface}{}", id.name()), "properties": properties}))
}

fn repeat_pool(properties: &mut Map<String, Value>) {
    if let Some(pool) = properties.get("backendAddressPool").cloned() {
        properties.entry("backendAddressPools").or_insert_with(|| json!([pool]));
    }
}
