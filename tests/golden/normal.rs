//! Normal form of documents: without the order of sets, the letter case of ids, empty values and ARM's documented defaults. Pure.

use cloud_controller_manager::sandbox::azure::canonical;
use serde_json::{Map, Value, json};

/// Returns values that are equivalent to a missing field: the list or type of the object, the field, the value.
/// Upstream: the reference pages of Microsoft.Network.
fn defaults() -> [(&'static str, &'static str, Value); 24] {
    [
        ("loadBalancingRules", "disableOutboundSnat", json!(false)),
        ("loadBalancingRules", "enableFloatingIP", json!(false)),
        ("loadBalancingRules", "enableTcpReset", json!(false)),
        ("loadBalancingRules", "idleTimeoutInMinutes", json!(4)),
        ("loadBalancingRules", "loadDistribution", json!("Default")),
        ("probes", "noHealthyBackendsBehavior", json!("AllProbedDown")),
        ("probes", "probeThreshold", json!(1)),
        ("outboundRules", "allocatedOutboundPorts", json!(0)),
        ("outboundRules", "enableTcpReset", json!(false)),
        ("outboundRules", "idleTimeoutInMinutes", json!(4)),
        ("frontendIPConfigurations", "privateIPAddressVersion", json!("IPv4")),
        ("ipConfigurations", "privateIPAddressVersion", json!("IPv4")),
        ("subnets", "privateEndpointNetworkPolicies", json!("Disabled")),
        ("subnets", "privateLinkServiceNetworkPolicies", json!("Enabled")),
        ("routes", "hasBgpOverride", json!(false)),
        ("Microsoft.Network/routeTables", "disableBgpRoutePropagation", json!(false)),
        ("Microsoft.Network/publicIPAddresses", "publicIPAddressVersion", json!("IPv4")),
        ("Microsoft.Network/publicIPAddresses", "publicIPAllocationMethod", json!("Dynamic")),
        ("Microsoft.Network/publicIPAddresses", "idleTimeoutInMinutes", json!(4)),
        ("ddosSettings", "protectionMode", json!("VirtualNetworkInherited")),
        ("Microsoft.Network/privateLinkServices", "enableProxyProtocol", json!(false)),
        ("Microsoft.Network/publicIPAddresses", "provisioningState", json!("Succeeded")),
        ("Microsoft.Network/loadBalancers", "provisioningState", json!("Succeeded")),
        ("sku", "tier", json!("Regional")),
    ]
}

/// Fields without meaning in any object.
const MEANINGLESS: [&str; 3] = ["etag", "resourceGuid", "description"];

/// Returns the normal form of a document.
pub(crate) fn normal(document: &Value) -> Value {
    let mut document = document.clone();
    let kind = document["type"].as_str().unwrap_or_default().to_owned();
    tidy(&kind, &mut document, &defaults());
    canonical::normalize(&mut document);
    document
}

fn tidy(within: &str, value: &mut Value, defaults: &[(&str, &str, Value)]) {
    match value {
        Value::String(text) if text.starts_with("/subscriptions/") => text.make_ascii_lowercase(),
        Value::Array(items) => items.iter_mut().for_each(|item| tidy(within, item, defaults)),
        Value::Object(fields) => tidy_fields(within, fields, defaults),
        _ => {}
    }
}

fn tidy_fields(within: &str, fields: &mut Map<String, Value>, defaults: &[(&str, &str, Value)]) {
    for (name, value) in fields.iter_mut() {
        tidy(if name == "properties" { within } else { name }, value, defaults);
    }
    if within == "frontendIPConfigurations" && fields.contains_key("publicIPAddress") {
        fields.remove("privateIPAllocationMethod");
    }
    let is_default = |name: &str, value: &Value| {
        defaults.iter().any(|(owner, field, default)| *owner == within && *field == name && default == value)
    };
    fields.retain(|name, value| !is_empty(value) && !MEANINGLESS.contains(&name.as_str()) && !is_default(name, value));
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
