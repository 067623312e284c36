//! Addresses that Azure chose, matched by the name of who has them: another order of creation leads to others. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::golden::{case::State, compare::Difference};

/// Who has which address, as expected and as found, in the course of a case.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    given: BTreeMap<String, (String, String)>,
    renames: BTreeMap<String, String>,
}

impl Addresses {
    /// Those of the state at the beginning.
    pub(crate) fn new(before: &State) -> Self {
        let given = given(before).into_iter().map(|(key, address)| (key, (address.clone(), address))).collect();
        Self { given, renames: BTreeMap::new() }
    }

    /// Takes the addresses of the next states. Answers who lost an address that it should have kept.
    pub(crate) fn advance(&mut self, expected: &State, found: &State) -> Vec<Difference> {
        let (expected, found) = (given(expected), given(found));
        let mut lost = Vec::new();
        for (key, expected) in &expected {
            let Some(found) = found.get(key) else { continue };
            if let Some((_, kept)) = self.given.get(key).filter(|(before, kept)| before == expected && kept != found) {
                let path = format!("{key}: its address should not change");
                lost.push(Difference { path, expected: Some(json!(kept)), found: Some(json!(found)) });
            }
            self.given.insert(key.clone(), (expected.clone(), found.clone()));
            self.renames.insert(found.clone(), expected.clone());
        }
        self.given.retain(|key, _| expected.contains_key(key));
        lost
    }

    /// The expected address for one that was found.
    pub(crate) fn rename<'a>(&'a self, found: &'a str) -> &'a str {
        self.renames.get(found).map_or(found, String::as_str)
    }

    /// `found` with the expected addresses.
    pub(crate) fn rename_all(&self, mut found: State) -> State {
        for document in found.values_mut().filter(|document| has_given_addresses(document)) {
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

fn has_given_addresses(document: &Value) -> bool {
    ["loadBalancers", "publicIPAddresses", "networkSecurityGroups"].iter().any(|kind| {
        document["type"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(&format!("Microsoft.Network/{kind}")))
    })
}

/// Addresses by the id of the public IP or internal frontend that has them.
fn given(state: &State) -> BTreeMap<String, String> {
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
