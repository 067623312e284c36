//! States with more than one correct result: leftovers that may be deleted, and failing Services. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::golden::case::{Oddities, State};

/// Tag with the Services of a public IP.
const SERVICES_TAG: &str = "k8s-azure-service";

/// Leftovers that were deleted earlier than by Go's controller, during a case.
#[derive(Debug, Default)]
pub(crate) struct Cleaned {
    /// Priorities of security rules that were deleted early. Other rules may use them.
    priorities: BTreeSet<u64>,
}

impl Cleaned {
    /// Returns `expected` without the listed leftovers that `found` does not have.
    pub(crate) fn adapt(&mut self, oddities: &Oddities, expected: &State, found: &State) -> State {
        let mut expected = expected.clone();
        for id in oddities.unused_managed_public_ips.iter().map(|id| id.to_ascii_lowercase()) {
            if !found.contains_key(&id) {
                expected.remove(&id);
            }
        }
        for (id, group) in expected.iter_mut().filter(|(_, document)| is_security_group(document)) {
            let Some(found) = found.get(id) else { continue };
            for (rule, address) in oddities.stale() {
                let is_retained =
                    rules(found).any(|found| found["name"] == rule && destinations(found).iter().any(|to| to == address));
                if !is_retained {
                    self.drop_destination(group, rule, address);
                }
            }
            self.adapt_priorities(group, found);
        }
        expected
    }

    fn drop_destination(&mut self, group: &mut Value, rule: &str, address: &str) {
        let Some(rules) = group["properties"]["securityRules"].as_array_mut() else { return };
        for rule in rules.iter_mut().filter(|found| found["name"] == rule) {
            remove_destinations(rule, |to| to == address);
        }
        let deleted = rules.extract_if(.., |rule| destinations(rule).is_empty());
        self.priorities.extend(deleted.filter_map(|rule| rule["properties"]["priority"].as_u64()));
    }

    /// Accepts priorities that an early deletion made free.
    fn adapt_priorities(&self, group: &mut Value, found: &Value) {
        if self.priorities.is_empty() {
            return;
        }
        let mut free = self.priorities.clone();
        free.extend(rules(group).filter_map(|rule| rule["properties"]["priority"].as_u64()));
        for rule in group["properties"]["securityRules"].as_array_mut().into_iter().flatten() {
            let same = rules(found).find(|found| found["name"] == rule["name"]);
            let priority = same.and_then(|found| found["properties"]["priority"].as_u64());
            if let Some(priority) = priority.filter(|priority| free.contains(priority)) {
                rule["properties"]["priority"] = json!(priority);
            }
        }
    }
}

/// Failing Service. The comparison ignores its resources.
#[derive(Debug, Clone)]
pub(crate) struct Failing {
    /// namespace/name.
    pub(crate) key: String,
    /// Prefix of the names of its frontends, rules and probes.
    pub(crate) base: String,
}

/// Returns both states without resources that belong only to these Services.
pub(crate) fn without(failing: &[Failing], (expected, found): (State, State)) -> (State, State) {
    if failing.is_empty() {
        return (expected, found);
    }
    let (mut expected, mut found) = (expected, found);
    let mut addresses = BTreeSet::new();
    [&mut expected, &mut found].into_iter().for_each(|state| remove_owned(failing, state, &mut addresses));
    [&mut expected, &mut found].into_iter().for_each(|state| remove_references(state, &addresses));
    (expected, found)
}

fn remove_owned(failing: &[Failing], state: &mut State, addresses: &mut BTreeSet<String>) {
    let owned =
        |name: &Value| name.as_str().is_some_and(|name| failing.iter().any(|service| name.starts_with(&service.base)));
    let is_theirs = |document: &Value| {
        let services = document["tags"][SERVICES_TAG].as_str().filter(|services| !services.is_empty());
        services
            .is_some_and(|services| services.split(',').all(|key| failing.iter().any(|service| service.key == key.trim())))
    };
    for document in state.values().filter(|document| is_theirs(document)) {
        addresses.extend(document["properties"]["ipAddress"].as_str().map(str::to_owned));
    }
    state.retain(|_, document| !is_theirs(document));
    for balancer in state.values_mut().filter(|document| !document["properties"]["frontendIPConfigurations"].is_null()) {
        for list in ["frontendIPConfigurations", "loadBalancingRules", "probes"] {
            let Some(parts) = balancer["properties"][list].as_array_mut() else { continue };
            let removed = parts.extract_if(.., |part| owned(&part["name"]));
            addresses.extend(removed.filter_map(|part| Some(part["properties"]["privateIPAddress"].as_str()?.to_owned())));
        }
    }
    state.retain(|_, document| document["properties"]["frontendIPConfigurations"] != json!([]));
}

fn remove_references(state: &mut State, addresses: &BTreeSet<String>) {
    let balancers: BTreeSet<String> = state.keys().filter(|id| id.contains("/loadbalancers/")).cloned().collect();
    for document in state.values_mut() {
        if let Some(rules) = document["properties"]["securityRules"].as_array_mut() {
            for rule in rules.iter_mut() {
                remove_destinations(rule, |to| addresses.contains(to));
            }
            rules.retain(|rule| !destinations(rule).is_empty());
        }
        leave_pools(document, &balancers);
    }
}

/// Removes references to pools of missing load balancers from machines and interfaces.
fn leave_pools(value: &mut Value, balancers: &BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| leave_pools(item, balancers)),
        Value::Object(fields) => {
            let exists = |pool: &Value| {
                let id = pool["id"].as_str().unwrap_or_default().to_ascii_lowercase();
                id.split_once("/backendaddresspools/").is_some_and(|(balancer, _)| balancers.contains(balancer))
            };
            if let Some(pools) = fields.get_mut("loadBalancerBackendAddressPools").and_then(Value::as_array_mut) {
                pools.retain(exists);
            }
            fields.values_mut().for_each(|field| leave_pools(field, balancers));
        }
        _ => {}
    }
}

fn is_security_group(document: &Value) -> bool {
    document["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("Microsoft.Network/networkSecurityGroups"))
}

fn rules(group: &Value) -> impl Iterator<Item = &Value> {
    group["properties"]["securityRules"].as_array().into_iter().flatten()
}

fn destinations(rule: &Value) -> Vec<String> {
    let properties = &rule["properties"];
    let many = properties["destinationAddressPrefixes"].as_array().into_iter().flatten();
    many.chain([&properties["destinationAddressPrefix"]]).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Removes the destinations that match. A single remaining destination is written as Go's controller writes it.
fn remove_destinations(rule: &mut Value, is_removed: impl Fn(&str) -> bool) {
    let before = destinations(rule);
    let remaining: Vec<&String> = before.iter().filter(|to| !is_removed(to)).collect();
    if remaining.len() == before.len() {
        return;
    }
    let mut none = Map::new();
    let properties = rule["properties"].as_object_mut().unwrap_or(&mut none);
    properties.remove("destinationAddressPrefix");
    if let [single] = remaining.as_slice() {
        properties.insert("destinationAddressPrefix".to_owned(), json!(single));
        properties.insert("destinationAddressPrefixes".to_owned(), json!([]));
    } else {
        properties.insert("destinationAddressPrefixes".to_owned(), json!(remaining));
    }
}
