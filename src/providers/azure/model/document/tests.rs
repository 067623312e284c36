use proptest::{
    collection::{btree_map, vec},
    prelude::*,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    super::{compute::*, network::*},
    *,
};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map("[a-zA-Z@._-]{1,8}", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Generates unknown fields, with names that no document models.
fn unknown_fields() -> impl Strategy<Value = Vec<(String, Value)>> {
    vec(("x-[a-zA-Z@._-]{0,6}", any_json()), 1..4)
}

/// Adds `fields` to every object inside `document`, including `document`, except maps of tags.
fn scatter(document: &mut Value, fields: &[(String, Value)]) {
    match document {
        Value::Object(map) => {
            map.iter_mut().filter(|(key, _)| *key != "tags").for_each(|(_, value)| scatter(value, fields));
            map.extend(fields.iter().cloned());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| scatter(item, fields)),
        _ => {}
    }
}

fn survives<D: Serialize + DeserializeOwned>(document: &Value) -> Result<(), TestCaseError> {
    let typed: D = serde_json::from_value(document.clone()).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&serde_json::to_value(&typed).unwrap(), document);
    Ok(())
}

const NET: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";

fn load_balancer() -> Value {
    json!({
        "id": format!("{NET}/loadBalancers/kubernetes"), "name": "kubernetes", "type": "Microsoft.Network/loadBalancers",
        "location": "eastus", "etag": "W/\"1\"", "sku": {"name": "Standard", "tier": "Regional"}, "tags": {"a": "b", "none": null},
        "properties": {
            "provisioningState": "Succeeded", "inboundNatRules": [], "inboundNatPools": [{"name": "n", "properties": {"frontendPort": 1}}],
            "frontendIPConfigurations": [{"name": "B", "zones": ["1"], "properties": {
                "privateIPAllocationMethod": "Dynamic", "publicIPAddress": {"id": format!("{NET}/publicIPAddresses/p")},
                "loadBalancingRules": [{"id": "r"}]}}],
            "backendAddressPools": [{"name": "kubernetes", "properties": {
                "backendIPConfigurations": [{"id": "i"}], "virtualNetwork": {"id": "v"},
                "loadBalancerBackendAddresses": [{"name": "n1", "properties": {"ipAddress": "10.0.0.4"}}]}}],
            "loadBalancingRules": [{"name": "B-TCP-80", "properties": {
                "protocol": "Tcp", "frontendPort": 80, "backendPort": 80, "enableFloatingIP": true, "enableTcpReset": true,
                "disableOutboundSnat": false, "idleTimeoutInMinutes": 4, "loadDistribution": "Default",
                "frontendIPConfiguration": {"id": "f"}, "backendAddressPool": {"id": "b"}, "probe": {"id": "p"}}}],
            "probes": [{"name": "B-TCP-80", "properties": {"protocol": "Tcp", "port": 30080, "intervalInSeconds": 5, "probeThreshold": 2}}],
            "outboundRules": [{"name": "o", "properties": {
                "protocol": "All", "allocatedOutboundPorts": 0, "frontendIPConfigurations": [{"id": "f"}]}}]
        }
    })
}

fn scale_set_vm() -> Value {
    json!({
        "id": "vm", "name": "pool_3", "instanceId": "3", "location": "eastus", "zones": ["1"], "sku": {"name": "D4", "capacity": 3},
        "properties": {
            "vmId": "u", "provisioningState": "Succeeded", "latestModelApplied": true,
            "hardwareProfile": {}, "osProfile": {"computerName": "pool000003"},
            "instanceView": {"platformFaultDomain": 0, "statuses": [{"code": "PowerState/running", "time": "2026-01-01T00:00:00+00:00"}]},
            "networkProfile": {"networkInterfaces": [{"id": "n", "properties": {"primary": true}}]},
            "networkProfileConfiguration": {"networkInterfaceConfigurations": [{"name": "pool", "properties": {
                "primary": true, "enableIPForwarding": true, "ipConfigurations": [{"name": "ipconfig1", "properties": {
                    "primary": true, "privateIPAddressVersion": "IPv4", "subnet": {"id": "s"},
                    "loadBalancerBackendAddressPools": [{"id": "b"}]}}]}}]}
        }
    })
}

fn scale_set() -> Value {
    json!({
        "name": "pool", "zones": [], "sku": {"name": "D4", "tier": "Standard", "capacity": 5},
        "properties": {"orchestrationMode": "Uniform", "platformFaultDomainCount": 1, "virtualMachineProfile": {
            "osProfile": {"computerNamePrefix": "pool"}, "networkProfile": {"networkApiVersion": "2020-11-01",
                "networkInterfaceConfigurations": [{"name": "pool", "properties": {"networkSecurityGroup": {"id": "g"}}}]}}}
    })
}

fn others() -> [Value; 4] {
    [
        json!({"name": "p", "properties": {"ipAddress": "20.0.0.1", "publicIPAddressVersion": "IPv4", "publicIPPrefix": {"id": "x"},
            "dnsSettings": {"domainNameLabel": "l"}, "ipTags": [{"ipTagType": "RoutingPreference", "tag": "Internet"}],
            "ipConfiguration": {"id": "f"}}}),
        json!({"name": "nsg", "properties": {"securityRules": [{"name": "r", "properties": {"priority": 500, "access": "Allow",
            "destinationAddressPrefixes": ["a", "b"], "sourceApplicationSecurityGroups": [{"id": "x"}]}}]}}),
        json!({"name": "rt", "properties": {"disableBgpRoutePropagation": false,
            "routes": [{"name": "r", "properties": {"addressPrefix": "10.0.0.0/24", "nextHopIpAddress": "10.0.0.4"}}]}}),
        json!({"name": "nic", "properties": {"primary": true, "virtualMachine": {"id": "vm"}, "ipConfigurations": [{"name": "i",
            "properties": {"primary": true, "privateIPAddress": "10.0.0.4", "publicIPAddress": {"id": "p"}}}]}}),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn unknown_fields_are_preserved_at_every_level(fields in unknown_fields()) {
        let scattered = |mut document: Value| { scatter(&mut document, &fields); document };
        survives::<ArmLoadBalancer>(&scattered(load_balancer()))?;
        survives::<VirtualMachineScaleSetVm>(&scattered(scale_set_vm()))?;
        survives::<VirtualMachineScaleSet>(&scattered(scale_set()))?;
        let [address, group, table, interface] = others().map(scattered);
        survives::<PublicIpAddress>(&address)?;
        survives::<NetworkSecurityGroup>(&group)?;
        survives::<RouteTable>(&table)?;
        survives::<NetworkInterface>(&interface)?;
    }
}

#[test]
fn modeled_fields_are_read() {
    let document: ArmLoadBalancer = serde_json::from_value(load_balancer()).unwrap();
    let properties = document.properties.unwrap();
    assert!(properties.extra.is_empty(), "{:?}", properties.extra);
    let rule = properties.load_balancing_rules.as_ref().unwrap()[0].properties.clone().unwrap();
    assert!(rule.extra.is_empty(), "{:?}", rule.extra);
    assert_eq!((rule.enable_floating_ip, rule.frontend_port), (Some(true), Some(80)));
    let vm: VirtualMachineScaleSetVm = serde_json::from_value(scale_set_vm()).unwrap();
    let view = vm.properties.unwrap().instance_view.unwrap();
    assert_eq!(view.power_state(), Some("running"));
}

#[test]
fn absent_and_empty_are_preserved_and_null_is_absent() {
    let empty = json!({"name": "", "tags": {"k": null}, "properties": {}});
    let cases = [
        (json!({}), json!({})),
        (json!({"zones": []}), json!({"zones": []})),
        (json!({"zones": null, "unknown": null}), json!({"unknown": null})),
        (empty.clone(), empty),
    ];
    for (document, expected) in cases {
        let typed: PublicIpAddress = serde_json::from_value(document).unwrap();
        assert_eq!(serde_json::to_value(typed).unwrap(), expected);
    }
}

#[test]
fn references_ignore_letter_case() {
    let id = ResourceId::group_of("S", "g").resource("Microsoft.Network/loadBalancers", &["kubernetes"]);
    let reference: SubResource = serde_json::from_value(json!({"id": id.as_str().to_uppercase()})).unwrap();
    assert!(reference.refers_to(&id));
    assert_eq!(reference.resource_id(), Some(id.clone()));
    assert!(!SubResource::default().refers_to(&id));
    assert_eq!(SubResource::to(&id).id.as_deref(), Some(id.as_str()));
}
