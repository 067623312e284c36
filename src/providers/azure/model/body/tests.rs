use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::providers::azure::model::network::{ArmLoadBalancer, NetworkSecurityGroup};

fn body(kind: &ApiType, document: &Value) -> Value {
    serde_json::from_slice(&of(kind, document).unwrap()).unwrap()
}

/// Returns a load balancer as in Azure's documentation, shortened.
fn load_balancer() -> Value {
    let lb = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/lb";
    let nic = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/n/ipConfigurations/c";
    json!({
        "name": "lb", "id": lb, "type": "Microsoft.Network/loadBalancers", "location": "eastus", "etag": "W/\"1\"",
        "tags": {"name": "mine"}, "sku": {"name": "Standard", "tier": "Regional"},
        "properties": {
            "provisioningState": "Succeeded", "resourceGuid": "00000000", "scope": "Public",
            "frontendIPConfigurations": [{
                "name": "fe", "id": format!("{lb}/frontendIPConfigurations/fe"), "type": "x", "etag": "W/\"1\"", "zones": ["1"],
                "properties": {
                    "provisioningState": "Succeeded", "subnet": {"id": "/subnet"}, "ddosSettings": {"protectionMode": "Enabled"},
                    "loadBalancingRules": [{"id": "/rule"}], "inboundNatRules": [{"id": "/nat"}],
                    "inboundNatPools": [{"id": "/natpool"}], "outboundRules": [{"id": "/out"}],
                },
            }],
            "backendAddressPools": [{
                "name": "be", "id": format!("{lb}/backendAddressPools/be"), "etag": "W/\"1\"", "type": "x",
                "properties": {
                    "provisioningState": "Succeeded", "backendIPConfigurations": [{"id": nic}], "drainPeriodInSeconds": 5,
                    "loadBalancerBackendAddresses": [{"name": "g_nc", "properties": {"networkInterfaceIPConfiguration": {"id": nic}}}],
                    "loadBalancingRules": [{"id": "/rule"}],
                },
            }],
            "inboundNatRules": [{
                "name": "nat", "id": format!("{lb}/inboundNatRules/nat"), "etag": "W/\"1\"",
                "properties": {"frontendIPConfiguration": {"id": "/fe"}, "backendIPConfiguration": {"id": nic}, "backendPort": 22},
            }],
            "loadBalancingRules": [], "probes": null,
        },
    })
}

#[test]
fn a_load_balancer_is_sent_without_its_read_only_fields() {
    let document = load_balancer();
    let (lb, sent) = (document["id"].as_str().unwrap().to_owned(), body(&api::LOAD_BALANCERS, &document));
    let expected = json!({
        "id": lb, "location": "eastus", "tags": {"name": "mine"}, "sku": {"name": "Standard", "tier": "Regional"},
        "properties": {
            "scope": "Public",
            "frontendIPConfigurations": [{
                "name": "fe", "id": format!("{lb}/frontendIPConfigurations/fe"), "zones": ["1"],
                "properties": {"subnet": {"id": "/subnet"}, "ddosSettings": {"protectionMode": "Enabled"}},
            }],
            "backendAddressPools": [{
                "name": "be", "id": format!("{lb}/backendAddressPools/be"), "properties": {"drainPeriodInSeconds": 5},
            }],
            "inboundNatRules": [{
                "name": "nat", "id": format!("{lb}/inboundNatRules/nat"),
                "properties": {"frontendIPConfiguration": {"id": "/fe"}, "backendPort": 22},
            }],
            "loadBalancingRules": [], "probes": null,
        },
    });
    assert_eq!(sent, expected);
    assert_eq!(body(&api::LOAD_BALANCERS, &sent), sent, "no read-only field remains");
    let modelled: ArmLoadBalancer = serde_json::from_value(document).unwrap();
    let sent: Value = serde_json::from_slice(&of(&api::LOAD_BALANCERS, &modelled).unwrap()).unwrap();
    let mut expected = expected;
    expected["properties"].as_object_mut().unwrap().remove("probes");
    assert_eq!(sent, expected, "a modeled field that is null is absent");
}

#[test]
fn addresses_of_a_pool_are_removed_if_they_are_default() {
    let shown = json!({"name": "a", "properties": {"networkInterfaceIPConfiguration": {"id": "/c"}, "adminState": "None"}});
    let drained =
        json!({"name": "b", "properties": {"networkInterfaceIPConfiguration": {"id": "/c"}, "adminState": "Down"}});
    let ip = json!({"name": "c", "properties": {"ipAddress": "10.0.0.4", "virtualNetwork": {"id": "/v"}}});
    let mut ip_shown = ip.clone();
    ip_shown["properties"]["networkInterfaceIPConfiguration"] = json!({"id": "/c"});
    for (listed, sent) in [
        (json!([]), Some(json!([]))),
        (json!([shown]), None),
        (json!([shown, drained]), Some(json!([shown, drained]))),
        (json!([ip_shown, ip]), Some(json!([ip, ip]))),
        (json!([shown, ip_shown]), Some(json!([shown, ip]))),
        (json!([{"name": "d"}]), Some(json!([{"name": "d"}]))),
    ] {
        let pool = json!({"name": "p", "properties": {"loadBalancerBackendAddresses": listed}});
        let alone = body(&api::BACKEND_POOLS, &pool);
        assert_eq!(alone["properties"].get("loadBalancerBackendAddresses"), sent.as_ref(), "{listed}");
        let within = body(&api::LOAD_BALANCERS, &json!({"properties": {"backendAddressPools": [pool]}}));
        assert_eq!(within["properties"]["backendAddressPools"][0], alone);
    }
}

#[test]
fn default_rules_are_removed_and_others_are_kept() {
    let rule =
        json!({"name": "r", "id": "/r", "properties": {"priority": 500, "provisioningState": "Succeeded", "new": [1]}});
    let group =
        json!({"location": "x", "properties": {"securityRules": [rule], "defaultSecurityRules": [rule], "subnets": []}});
    let group: NetworkSecurityGroup = serde_json::from_value(group).unwrap();
    let sent: Value = serde_json::from_slice(&of(&api::SECURITY_GROUPS, &group).unwrap()).unwrap();
    let rules = json!([{"name": "r", "id": "/r", "properties": {"priority": 500, "new": [1]}}]);
    assert_eq!(sent, json!({"location": "x", "properties": {"securityRules": rules}}));
}

/// Returns a document with a field at every path of the table, and an unknown field next to each of them.
fn full(paths: &[&str]) -> Value {
    let mut document = json!({});
    for path in paths {
        let mut target = &mut document;
        let mut steps = path.split('.').peekable();
        while let Some(step) = steps.next() {
            target["unknown"] = json!("kept");
            let inner = if steps.peek().is_some() { json!({}) } else { json!("read-only") };
            let fields = target.as_object_mut().unwrap();
            target = fields.entry(step).or_insert(inner);
        }
    }
    document
}

#[test]
fn only_the_fields_of_the_table_are_removed() {
    for fields in read_only::TABLE.iter() {
        let paths: Vec<&str> = fields.paths.iter().map(String::as_str).collect();
        let (document, mut stripped) = (full(&paths), full(&paths));
        let removed: BTreeSet<&str> = strip(fields, &mut stripped).into_iter().collect();
        assert_eq!(removed, paths.into_iter().collect(), "{}", fields.kind.resource_type);
        let count = |value: &Value, text: &str| value.to_string().matches(text).count();
        assert_eq!(count(&stripped, "read-only"), 0, "{stripped}");
        assert_eq!(count(&stripped, "kept"), count(&document, "kept"), "{stripped}");
    }
}

#[test]
fn a_type_without_a_row_is_sent_unchanged() {
    let document = json!({"etag": "1", "name": "n", "properties": {"provisioningState": "Succeeded"}});
    assert_eq!(body(&api::VIRTUAL_NETWORKS, &document), document);
}

#[test]
fn no_field_is_added() {
    let pool_only = json!({"location": "l", "properties": {"backendAddressPools": [{"name": "pool"}]}});
    for document in [json!({"location": "l"}), pool_only] {
        assert_eq!(body(&api::LOAD_BALANCERS, &document), document);
    }
    assert_eq!(body(&api::BACKEND_POOLS, &json!({"name": "pool"})), json!({"name": "pool"}));
}
