use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::{
        super::spec::{AccessControl, IpFamily, PortProbe, PortSpec, Protocol, ServiceSpec},
        samples,
    },
    *,
};
use crate::providers::azure::{config::AzureConfig, model::ResourceId};

mod properties;
mod quirks;
mod tables;

pub(super) fn settings() -> LoadBalancerSettings {
    LoadBalancerSettings::new(&AzureConfig::default(), "kubernetes")
}

pub(super) fn identity(key: &str) -> ServiceIdentity {
    ServiceIdentity { key: format!("default/{key}"), name_prefix: format!("a{key}") }
}

/// Returns an external Service with TCP port 80 and NodePort 30080.
pub(super) fn spec(key: &str) -> ServiceSpec {
    ServiceSpec { ports: vec![port(Protocol::Tcp, 80)], ..samples::bare(identity(key), ResourceId::group_of("s", "rg")) }
}

fn port(protocol: Protocol, port: i32) -> PortSpec {
    PortSpec { protocol, port, node_port: 30000 + port, rule: true, probe: PortProbe::None }
}

/// Returns an external Service with these TCP ports at one address.
fn service(key: &str, ports: &[i32], address: &str) -> ServiceRules {
    let ports = ports.iter().map(|number| port(Protocol::Tcp, *number)).collect();
    ServiceRules::wanted(&ServiceSpec { ports, ..spec(key) }, &[ip(address)], &[]).unwrap()
}

fn gone(reach: &ServiceRules) -> ServiceRules {
    ServiceRules { wanted: false, ..reach.clone() }
}

fn ip(text: &str) -> std::net::IpAddr {
    text.parse().unwrap()
}

fn ips(texts: &[&str]) -> BTreeSet<std::net::IpAddr> {
    texts.iter().map(|text| ip(text)).collect()
}

/// Returns a group that is on a subnet of the cluster's virtual network.
fn group(rules: impl Into<Value>) -> NetworkSecurityGroup {
    group_on(&settings().virtual_network, &rules.into())
}

fn group_on(network: &ResourceId, rules: &Value) -> NetworkSecurityGroup {
    let subnets = json!([{"id": network.child("subnets", "nodes")}]);
    let properties = json!({"securityRules": rules, "flushConnection": false, "subnets": subnets});
    serde_json::from_value(json!({"name": "nsg", "etag": "e", "properties": properties})).unwrap()
}

fn rules(group: &NetworkSecurityGroup) -> Vec<Value> {
    let rules = serde_json::to_value(group).unwrap()["properties"]["securityRules"].take();
    let mut rules: Vec<Value> = serde_json::from_value(rules).unwrap();
    rules.sort_by_key(|rule| (rule["properties"]["priority"].as_i64(), rule["name"].to_string()));
    rules
}

/// Returns the rules as `priority name-ending sources > destinations : ports`.
fn lines(group: &NetworkSecurityGroup) -> Vec<String> {
    let join = |rule: &Value, one: &str, several: &str| {
        let (one, several) = (rule[one].as_str(), rule[several].as_array().into_iter().flatten());
        one.into_iter().chain(several.filter_map(Value::as_str)).collect::<Vec<_>>().join(",")
    };
    let line = |rule: Value| {
        let (name, rule) = (rule["name"].as_str().unwrap_or_default(), &rule["properties"]);
        let sources = join(rule, "sourceAddressPrefix", "sourceAddressPrefixes");
        let destinations = join(rule, "destinationAddressPrefix", "destinationAddressPrefixes");
        let ports = join(rule, "destinationPortRange", "destinationPortRanges");
        let name = name.trim_start_matches("k8s-azure-lb_");
        format!("{} {name} {sources} > {destinations} : {ports}", rule["priority"])
    };
    rules(group).into_iter().map(line).collect()
}

fn run(group: &NetworkSecurityGroup, asks: &[ServiceRules], others: &[ServiceRules]) -> SecurityRulePlan {
    plan_security_rules(group, asks, others, &NodeAddresses::default(), &settings())
}

/// Returns the document after these requests, and asserts that none is refused and that a second plan changes nothing.
fn after(group: &NetworkSecurityGroup, asks: &[ServiceRules], others: &[ServiceRules]) -> NetworkSecurityGroup {
    let outcome = run(group, asks, others);
    assert!(outcome.services.values().all(Result::is_ok), "{:?}", outcome.services);
    let document = outcome.document.unwrap_or_else(|| group.clone());
    assert_eq!(run(&document, asks, others).document, None, "a second time");
    document
}
