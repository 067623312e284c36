//! Addresses that Azure assigned, matched by the name of their owner, because they depend on the order of creation. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::golden::{case::State, compare::Difference};

/// Expected and found addresses by owner, during a case.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    by_owner: BTreeMap<String, (String, String)>,
    renames: BTreeMap<String, String>,
}

impl Addresses {
    /// Records the addresses of the initial state.
    pub(crate) fn new(before: &State) -> Self {
        let by_owner =
            addresses_by_owner(before).into_iter().map(|(key, address)| (key, (address.clone(), address))).collect();
        Self { by_owner, renames: BTreeMap::new() }
    }

    /// Records the addresses of the next states. Returns a difference for each owner whose address changed unexpectedly.
    pub(crate) fn advance(&mut self, expected: &State, found: &State) -> Vec<Difference> {
        let (expected, found) = (addresses_by_owner(expected), addresses_by_owner(found));
        let mut lost = Vec::new();
        for (key, expected) in &expected {
            let Some(found) = found.get(key) else { continue };
            if let Some((_, previous)) =
                self.by_owner.get(key).filter(|(before, previous)| before == expected && previous != found)
            {
                let path = format!("{key}: its address should not change");
                lost.push(Difference { path, expected: Some(json!(previous)), found: Some(json!(found)) });
            }
            self.by_owner.insert(key.clone(), (expected.clone(), found.clone()));
            self.renames.insert(found.clone(), expected.clone());
        }
        self.by_owner.retain(|key, _| expected.contains_key(key));
        lost
    }

    /// Returns the expected address for a found address.
    pub(crate) fn rename<'a>(&'a self, found: &'a str) -> &'a str {
        self.renames.get(found).map_or(found, String::as_str)
    }

    /// Returns `found` with the expected addresses.
    pub(crate) fn rename_all(&self, mut found: State) -> State {
        for document in found.values_mut().filter(|document| has_assigned_addresses(document)) {
            self.rename_in(document);
        }
        found
    }

    fn rename_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.rename(text).to_owned(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.rename_in(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.rename_in(field)),
            _ => {}
        }
    }
}

fn has_assigned_addresses(document: &Value) -> bool {
    ["loadBalancers", "publicIPAddresses", "networkSecurityGroups"].iter().any(|kind| {
        document["type"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(&format!("Microsoft.Network/{kind}")))
    })
}

/// Returns addresses by the id of their public IP or internal frontend.
fn addresses_by_owner(state: &State) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (id, document) in state {
        if let Some(address) = document["properties"]["ipAddress"].as_str() {
            all.insert(id.clone(), address.to_owned());
        }
        for frontend in document["properties"]["frontendIPConfigurations"].as_array().into_iter().flatten() {
            let properties = &frontend["properties"];
            let dynamic = properties["privateIPAllocationMethod"] == "Dynamic";
            if let (Some(name), Some(address), true) =
                (frontend["name"].as_str(), properties["privateIPAddress"].as_str(), dynamic)
            {
                all.insert(format!("{id}/frontendipconfigurations/{name}"), address.to_owned());
            }
        }
    }
    all
}
