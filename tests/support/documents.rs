//! Comparable form of the documents of a cloud.
//!
//! In: the documents of a simulated Azure. Out: a [`State`] without empty lists and without names, which ids contain. [`unordered`] also
//! removes what the order of requests decides: it replaces public addresses by the name of their public IP, and removes the priorities of
//! security rules.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Documents in comparable form, by id.
pub(crate) type State = BTreeMap<String, Value>;

/// Returns the cloud with its addresses.
pub(crate) fn exact(documents: Vec<Value>) -> State {
    documents.into_iter().map(|document| (id(&document), plain(document))).collect()
}

fn plain(mut document: Value) -> Value {
    document.as_object_mut().map(|fields| fields.remove("name"));
    drop_empty(&mut document);
    document
}

fn drop_empty(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty()));
        }
        _ => {}
    }
}

/// Returns the cloud without values that depend on the order of events.
pub(crate) fn unordered(documents: Vec<Value>) -> State {
    let mut state = exact(documents);
    let names = names(&state);
    state.values_mut().for_each(|document| rename(document, &names));
    for document in state.values_mut() {
        for rule in document["properties"]["securityRules"].as_array_mut().into_iter().flatten() {
            rule["properties"]["priority"] = Value::Null;
        }
    }
    state
}

fn id(document: &Value) -> String {
    document["id"].as_str().unwrap_or_default().to_ascii_lowercase()
}

/// Returns addresses with the names of their owners: public IPs, and frontends with an address of a subnet.
fn names(state: &State) -> BTreeMap<String, String> {
    let public = state.iter().filter_map(|(id, document)| pair(document, "ipAddress", id));
    let frontends = state.values().filter_map(|document| document["properties"]["frontendIPConfigurations"].as_array());
    let private = frontends.flatten().filter_map(|front| pair(front, "privateIPAddress", front["name"].as_str()?));
    public.chain(private).collect()
}

fn pair(owner: &Value, field: &str, name: &str) -> Option<(String, String)> {
    Some((owner["properties"][field].as_str()?.to_owned(), format!("address of {name}")))
}

fn rename(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(name) = names.get(text) {
                text.clone_from(name);
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| rename(item, names));
            if items.iter().all(Value::is_string) {
                items.sort_by_key(Value::to_string);
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| rename(field, names)),
        _ => {}
    }
}

/// Returns the cloud without pools that no rule uses: they remain until their load balancer is deleted, as with Go.
pub(crate) fn without_idle_pools(mut state: State) -> State {
    let id = |part: &Value| part["id"].as_str().map(str::to_owned);
    let parts =
        |list: &'static str| state.values().filter_map(move |document| document["properties"][list].as_array()).flatten();
    let rules = parts("loadBalancingRules").chain(parts("outboundRules"));
    let used: BTreeSet<_> = rules.filter_map(|rule| id(&rule["properties"]["backendAddressPool"])).collect();
    let idle: BTreeSet<_> = parts("backendAddressPools").filter_map(id).filter(|pool| !used.contains(pool)).collect();
    state.values_mut().for_each(|document| remove_parts(document, &idle));
    state
}

fn remove_parts(value: &mut Value, ids: &BTreeSet<String>) {
    match value {
        Value::Array(items) => {
            items.retain(|item| !item["id"].as_str().is_some_and(|id| ids.contains(id)));
            items.iter_mut().for_each(|item| remove_parts(item, ids));
        }
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| remove_parts(field, ids));
            fields.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
        }
        _ => {}
    }
}
