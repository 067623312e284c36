//! Fields that ARM adds to a document that is written: defaults, retained values, addresses. Pure.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::{
    addresses::{lowest_in_prefix, lowest_in_subnet},
    options::AzureOptions,
    private_link,
    refusal::Refusal,
    shape,
    store::Store,
};
use crate::providers::azure::model::ResourceId;

/// Completes the document `body` that replaces `old`.
pub fn document(
    store: &mut Store,
    options: &AzureOptions,
    id: &ResourceId,
    old: Option<&Value>,
    body: &mut Value,
) -> Result<(), Refusal> {
    let kind = id.resource_type().to_ascii_lowercase();
    if let Some(old) = old.filter(|_| kind.starts_with("microsoft.compute/")) {
        keep_absent(old, body);
    }
    let located = super::kinds::kind_of(&kind).is_some_and(|kind| kind.located);
    if located && body["location"].as_str().is_none_or(str::is_empty) {
        return Err(Refusal::invalid("LocationRequired", "The location property is required for this definition."));
    }
    match kind.as_str() {
        "microsoft.network/publicipaddresses" => public_ip(store, options, id, old, body),
        "microsoft.network/publicipprefixes" => prefix(store, old, body),
        "microsoft.network/loadbalancers" => load_balancer(store, id, old, body),
        "microsoft.network/networkinterfaces" => assign_all(store, id, "ipConfigurations", old, body),
        "microsoft.network/routetables" => {
            default(&mut body["properties"], &[("disableBgpRoutePropagation", json!(false)), ("routes", json!([]))]);
            for_each(body, "routes", |properties| default_in(properties, &[("hasBgpOverride", json!(false))]));
            Ok(())
        }
        "microsoft.network/virtualnetworks" => {
            let policies = [
                ("privateEndpointNetworkPolicies", json!("Disabled")),
                ("privateLinkServiceNetworkPolicies", json!("Enabled")),
            ];
            for_each(body, "subnets", |properties| default_in(properties, &policies));
            Ok(())
        }
        "microsoft.network/privatelinkservices" => {
            default(&mut body["properties"], &[("fqdns", json!([])), ("enableProxyProtocol", json!(false))]);
            let dynamic = [("privateIPAllocationMethod", json!("Dynamic")), ("privateIPAddressVersion", json!("IPv4"))];
            for_each(body, "ipConfigurations", |properties| default_in(properties, &dynamic));
            Ok(())
        }
        private_link::ENDPOINTS => {
            private_link::complete_endpoint(store, id, old, body);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Copies what a PUT omits from the document before, as compute does; lists are replaced as a whole.
fn keep_absent(old: &Value, new: &mut Value) {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object_mut()) else { return };
    for (name, value) in old {
        match new.get_mut(name) {
            Some(found) => keep_absent(value, found),
            None => drop(new.insert(name.clone(), value.clone())),
        }
    }
}

fn default(object: &mut Value, defaults: &[(&str, Value)]) {
    if let Some(fields) = object.as_object_mut() {
        default_in(fields, defaults);
    }
}

fn default_in(fields: &mut Map<String, Value>, defaults: &[(&str, Value)]) {
    for (name, value) in defaults {
        if fields.get(*name).is_none_or(Value::is_null) {
            fields.insert((*name).to_owned(), value.clone());
        }
    }
}

fn for_each(body: &mut Value, list: &str, mut change: impl FnMut(&mut Map<String, Value>)) {
    let parts = body["properties"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
    parts.filter_map(|part| part["properties"].as_object_mut()).for_each(&mut change);
}

fn sku(body: &mut Value) {
    if !body["sku"].is_object() {
        body["sku"] = json!({"name": "Basic"});
    }
    default(&mut body["sku"], &[("tier", json!("Regional"))]);
}

fn public_ip(
    store: &mut Store,
    options: &AzureOptions,
    id: &ResourceId,
    old: Option<&Value>,
    body: &mut Value,
) -> Result<(), Refusal> {
    sku(body);
    let properties = &mut body["properties"];
    let defaults = [
        ("publicIPAddressVersion", json!("IPv4")),
        ("publicIPAllocationMethod", json!("Dynamic")),
        ("idleTimeoutInMinutes", json!(4)),
        ("ddosSettings", json!({"protectionMode": "VirtualNetworkInherited"})),
        ("ipTags", json!([])),
    ];
    default(properties, &defaults);
    if let Some(label) = properties["dnsSettings"]["domainNameLabel"].as_str().map(str::to_ascii_lowercase) {
        properties["dnsSettings"]["fqdn"] = json!(format!("{label}.{}.cloudapp.azure.com", options.location));
    }
    let previous = old.map(|old| old["properties"]["ipAddress"].clone()).unwrap_or_default();
    let is_static = properties["publicIPAllocationMethod"].as_str().is_some_and(|how| how.eq_ignore_ascii_case("Static"));
    if !previous.is_null() {
        properties["ipAddress"] = previous;
    } else if !is_static {
        properties.as_object_mut().map(|properties| properties.remove("ipAddress"));
    } else {
        let address = new_public(store, id, properties)?;
        properties["ipAddress"] = json!(address.to_string());
    }
    Ok(())
}

fn new_public(store: &mut Store, id: &ResourceId, properties: &Value) -> Result<IpAddr, Refusal> {
    let Some(prefix) = properties["publicIPPrefix"]["id"].as_str() else {
        let ipv6 = properties["publicIPAddressVersion"].as_str().is_some_and(|version| version.eq_ignore_ascii_case("IPv6"));
        return Ok(if ipv6 { store.counters.ipv6() } else { store.counters.ipv4() });
    };
    let net = store.get(prefix).and_then(|document| document.body["properties"]["ipPrefix"].as_str()?.parse::<IpNet>().ok());
    let addresses = store.referrers(prefix).filter_map(|other| store.get(&other.document));
    let used = addresses.filter_map(|other| other.body["properties"]["ipAddress"].as_str()?.parse().ok()).collect();
    net.and_then(|net| lowest_in_prefix(&net, &used)).ok_or_else(|| {
        let message = format!("Cannot allocate a public IP address for {id} from prefix {prefix}: no address is free.");
        Refusal::invalid("PublicIPPrefixOutOfIpAddresses", message)
    })
}

fn prefix(store: &mut Store, old: Option<&Value>, body: &mut Value) -> Result<(), Refusal> {
    let properties = &mut body["properties"];
    default(properties, &[("publicIPAddressVersion", json!("IPv4"))]);
    let previous = old.map(|old| old["properties"]["ipPrefix"].clone()).unwrap_or_default();
    if !previous.is_null() {
        properties["ipPrefix"] = previous;
        return Ok(());
    }
    let length = properties["prefixLength"].as_u64().and_then(|length| u8::try_from(length).ok());
    let net = length
        .and_then(|length| store.counters.prefix(length))
        .ok_or_else(|| Refusal::invalid("InvalidPrefixLength", "prefixLength must be between 0 and 32."))?;
    properties["ipPrefix"] = json!(net.to_string());
    Ok(())
}

fn load_balancer(store: &Store, id: &ResourceId, old: Option<&Value>, body: &mut Value) -> Result<(), Refusal> {
    sku(body);
    for list in ["frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes"] {
        default(&mut body["properties"], &[(list, json!([]))]);
    }
    let rule = [
        ("disableOutboundSnat", json!(false)),
        ("enableFloatingIP", json!(false)),
        ("enableTcpReset", json!(false)),
        ("idleTimeoutInMinutes", json!(4)),
        ("loadDistribution", json!("Default")),
    ];
    for_each(body, "loadBalancingRules", |properties| default_in(properties, &rule));
    let probe = [("noHealthyBackendsBehavior", json!("AllProbedDown")), ("probeThreshold", json!(1))];
    for_each(body, "probes", |properties| default_in(properties, &probe));
    let outbound =
        [("allocatedOutboundPorts", json!(0)), ("enableTcpReset", json!(false)), ("idleTimeoutInMinutes", json!(4))];
    for_each(body, "outboundRules", |properties| default_in(properties, &outbound));
    assign_all(store, id, "frontendIPConfigurations", old, body)
}

/// Allocates a private address for every dynamic IP configuration in a list of a document: its previous one, or the lowest
/// free one.
fn assign_all(store: &Store, id: &ResourceId, list: &str, old: Option<&Value>, body: &mut Value) -> Result<(), Refusal> {
    let mut own: BTreeSet<IpAddr> =
        shape::parts(body, list).filter_map(|part| fixed(part, previous(old, list, part))).collect();
    let Some(parts) = body["properties"].get_mut(list).and_then(Value::as_array_mut) else { return Ok(()) };
    for part in parts {
        default(&mut part["properties"], &[("privateIPAllocationMethod", json!("Dynamic"))]);
        let Some(subnet) = part["properties"]["subnet"]["id"].as_str().map(str::to_owned) else { continue };
        default(&mut part["properties"], &[("privateIPAddressVersion", json!("IPv4"))]);
        let address = match fixed(part, previous(old, list, part)) {
            Some(address) => address,
            None if part["properties"]["privateIPAllocationMethod"] == "Static" => continue,
            None => lowest_free(store, &id.key(), &subnet, &part["properties"], &own)?,
        };
        own.insert(address);
        part["properties"]["privateIPAddress"] = json!(address.to_string());
    }
    Ok(())
}

fn previous<'a>(old: Option<&'a Value>, list: &str, part: &Value) -> Option<&'a Value> {
    shape::part(old?, list, part["name"].as_str()?)
}

/// Returns the address that an IP configuration already has: requested, or allocated before in the same subnet.
fn fixed(part: &Value, previous: Option<&Value>) -> Option<IpAddr> {
    let address = |part: &Value| part["properties"]["privateIPAddress"].as_str()?.parse().ok();
    if part["properties"]["privateIPAllocationMethod"].as_str().is_some_and(|how| how.eq_ignore_ascii_case("Static")) {
        return address(part);
    }
    let subnet = |part: &Value| part["properties"]["subnet"]["id"].as_str().map(str::to_ascii_lowercase);
    previous.filter(|previous| subnet(previous) == subnet(part)).and_then(address)
}

fn lowest_free(
    store: &Store,
    key: &str,
    subnet: &str,
    properties: &Value,
    own: &BTreeSet<IpAddr>,
) -> Result<IpAddr, Refusal> {
    let ipv6 = properties["privateIPAddressVersion"].as_str().is_some_and(|version| version.eq_ignore_ascii_case("IPv6"));
    let mut used = taken_in(store, subnet, key);
    used.extend(own);
    let net = prefixes_of(store, subnet).into_iter().find(|net| ipv6 == matches!(net, IpNet::V6(_)));
    net.and_then(|net| lowest_in_subnet(&net, &used)).ok_or_else(|| {
        Refusal::invalid("SubnetIsFull", format!("Subnet {subnet} does not have enough capacity for 1 IP addresses."))
    })
}

/// Returns the address ranges of a subnet.
pub fn prefixes_of(store: &Store, subnet: &str) -> Vec<IpNet> {
    let Ok(id) = ResourceId::parse(subnet) else { return Vec::new() };
    let Some(network) = id.parent().and_then(|parent| store.get(parent.as_str())) else { return Vec::new() };
    let Some(subnet) = shape::part(&network.body, "subnets", id.name()) else { return Vec::new() };
    let properties = &subnet["properties"];
    let many = properties["addressPrefixes"].as_array().into_iter().flatten();
    many.chain([&properties["addressPrefix"]]).filter_map(|prefix| prefix.as_str()?.parse().ok()).collect()
}

/// Returns the private addresses in a subnet that documents other than `except` (a key) have.
pub fn taken_in(store: &Store, subnet: &str, except: &str) -> BTreeSet<IpAddr> {
    let documents: BTreeSet<&str> = store.referrers(subnet).map(|referrer| referrer.document.as_str()).collect();
    let others = documents.into_iter().filter(|key| *key != except).filter_map(|key| store.get(key));
    others
        .flat_map(|other| ["ipConfigurations", "frontendIPConfigurations"].map(|list| shape::parts(&other.body, list)))
        .flatten()
        .filter(|part| part["properties"]["subnet"]["id"].as_str().is_some_and(|id| id.eq_ignore_ascii_case(subnet)))
        .filter_map(|part| part["properties"]["privateIPAddress"].as_str()?.parse().ok())
        .collect()
}
