use serde_json::{Value, json};

use super::*;
use crate::sandbox::azure::canonical;

const SUBNET: &str = "$NET/virtualNetworks/vnet/subnets/nodes";
const LB: &str = "$NET/loadBalancers/lb";

fn long(value: &Value) -> Value {
    serde_json::from_str(&canonical::expand(&value.to_string())).unwrap()
}

/// A network, a security group, a public IP that is in use, and one that is free.
fn store() -> Store {
    let ip = |name: &str| {
        json!({"id": format!("$NET/publicIPAddresses/{name}"), "sku": {"name": "Standard"}, "location": "eastus", "zones": ["1"],
               "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4",
                              "dnsSettings": {"fqdn": format!("{name}.eastus.cloudapp.azure.com")}}})
    };
    let documents = [
        json!({"id": "$NET/virtualNetworks/vnet", "location": "eastus", "properties": {"subnets": [
            {"name": "nodes", "properties": {"addressPrefix": "10.0.0.0/24"}}]}}),
        ip("used"),
        ip("free"),
        json!({"id": "$NET/loadBalancers/other", "sku": {"name": "Standard"}, "location": "eastus", "properties": {
            "backendAddressPools": [{"name": "pool"}],
            "frontendIPConfigurations": [{"name": "f", "properties": {"publicIPAddress": {"id": "$NET/publicIPAddresses/used"}}}]}}),
        json!({"id": "$NET/networkInterfaces/nic", "location": "eastus", "properties": {"ipConfigurations": [{"name": "c", "properties": {
            "privateIPAddress": "10.0.0.5", "subnet": {"id": SUBNET},
            "loadBalancerBackendAddressPools": [{"id": "$NET/loadBalancers/other/backendAddressPools/pool"}]}}]}}),
    ];
    let mut store = Store::default();
    documents.iter().for_each(|document| store.put_document(long(document)).unwrap());
    store
}

fn code(old: Option<&Value>, new: &Value) -> String {
    let complete = |value: &Value| {
        let mut value = long(value);
        let id = ResourceId::parse(value["id"].as_str().unwrap()).unwrap();
        shape::complete(&id, &mut value);
        (id, value)
    };
    let store = store();
    let (id, body) = complete(new);
    let old = old.map(|old| complete(old).1);
    let checked = references(&store, &id, &body).and_then(|()| document(&store, &id, old.as_ref(), &body));
    checked.map_or_else(|refusal| refusal.code, |()| "ok".to_owned())
}

fn balancer(change: impl FnOnce(&mut Value)) -> Value {
    let rule = |name: &str, port: u16| {
        json!({"name": name, "properties": {"protocol": "Tcp", "frontendPort": port, "backendPort": port, "enableFloatingIP": true,
            "frontendIPConfiguration": {"id": format!("{LB}/frontendIPConfigurations/f")},
            "backendAddressPool": {"id": format!("{LB}/backendAddressPools/p")}, "probe": {"id": format!("{LB}/probes/p")}}})
    };
    let mut body = json!({"id": LB, "location": "eastus", "sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": [{"name": "f", "properties": {"publicIPAddress": {"id": "$NET/publicIPAddresses/free"}}}],
        "backendAddressPools": [{"name": "p"}],
        "probes": [{"name": "p", "properties": {"protocol": "Tcp", "port": 30080}}],
        "loadBalancingRules": [rule("a", 80), rule("b", 81)]}});
    change(&mut body);
    body
}

#[test]
fn load_balancers() {
    let set = |path: &'static str, value: Value| {
        code(None, &balancer(|body| *body["properties"].pointer_mut(path).unwrap() = value))
    };
    let frontend = |properties: Value| set("/frontendIPConfigurations/0/properties", properties);
    let private = |address: &str| {
        frontend(json!({"privateIPAddress": address, "privateIPAllocationMethod": "Static", "subnet": {"id": SUBNET}}))
    };
    let b = "/loadBalancingRules/1/properties";
    let cases = [
        ("ok", code(None, &balancer(|_| {}))),
        ("ok", private("10.0.0.9")),
        ("PrivateIPAddressNotInSubnet", private("10.0.1.9")),
        ("PrivateIPAddressInReservedRange", private("10.0.0.3")),
        ("PrivateIPAddressIsAllocated", private("10.0.0.5")),
        ("InvalidResourceReference", frontend(json!({"subnet": {"id": "$NET/virtualNetworks/vnet/subnets/x"}}))),
        ("PublicIPAddressInUse", frontend(json!({"publicIPAddress": {"id": "$NET/publicIPAddresses/used"}}))),
        ("LoadBalancerFrontendIPConfigMustHaveSubnetOrPublicIP", frontend(json!({}))),
        ("InvalidResourceReference", set("/probes", json!([]))),
        ("InvalidProbePort", set("/probes/0/properties/port", json!(0))),
        ("InvalidProbePort", set("/probes/0/properties/port", json!(65536))),
        ("ProbeRequestPathMissing", set("/probes/0/properties/protocol", json!("Http"))),
        ("RulesUseSameFrontendPortProtocolAndIPConfig", set("/loadBalancingRules/1/properties/frontendPort", json!(80))),
        ("InvalidLoadBalancingRulePort", set("/loadBalancingRules/1/properties/protocol", json!("All"))),
        ("InvalidLoadBalancingRulePort", set("/loadBalancingRules/1/properties/backendPort", json!(0))),
        ("PublicIPAndLBSkuDoNotMatch", code(None, &balancer(|body| body["sku"]["name"] = json!("Basic")))),
        ("InvalidRequestFormat", set("/loadBalancingRules/1/name", json!("A"))),
        ("InvalidResourceName", set("/loadBalancingRules/1/name", json!("b".repeat(81)))),
        ("InvalidResourceName", set("/loadBalancingRules/1/name", json!("b/c"))),
        ("InvalidResourceName", set("/loadBalancingRules/1/name", json!("b."))),
        (
            "RulesUseSameBackendPortProtocolAndPool",
            code(
                None,
                &balancer(|body| {
                    for rule in body["properties"]["loadBalancingRules"].as_array_mut().unwrap() {
                        rule["properties"]["enableFloatingIP"] = json!(false);
                        rule["properties"]["backendPort"] = json!(80);
                    }
                }),
            ),
        ),
        ("ok", code(None, &balancer(|body| body["properties"].pointer_mut(b).unwrap()["protocol"] = json!("Udp")))),
    ];
    for (number, (expected, found)) in cases.into_iter().enumerate() {
        assert_eq!(found, expected, "case {number}");
    }
}

#[test]
fn a_load_balancer_keeps_a_frontend() {
    let without = balancer(|body| body["properties"] = json!({"backendAddressPools": [{"name": "p"}]}));
    assert_eq!(code(Some(&balancer(|_| {})), &without), "DeletingAllIpConfigsInLoadbalancerNotSupported");
    assert_eq!(code(Some(&without), &without), "ok");
    assert_eq!(code(None, &without), "ok");
}

#[test]
fn pools_in_use_stay() {
    let store = store();
    let other = ResourceId::parse(&canonical::expand("$NET/loadBalancers/other")).unwrap();
    let body = (*store.get(other.as_str()).unwrap().body).clone();
    assert_eq!(deletion(&store, &other, &body).unwrap_err().code, "InUseBackendAddressPoolCannotBeDeleted");
    let mut without = body.clone();
    shape::remove_part(&mut without, "backendAddressPools", "pool");
    assert!(document(&store, &other, Some(&body), &without).is_err());
    assert_eq!(document(&store, &other, Some(&body), &body), Ok(()));
}

#[test]
fn public_ips() {
    let store = store();
    let used = ResourceId::parse(&canonical::expand("$NET/publicIPAddresses/used")).unwrap();
    let free = ResourceId::parse(&canonical::expand("$NET/publicIPAddresses/free")).unwrap();
    let refused = deletion(&store, &used, &store.get(used.as_str()).unwrap().body).unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (400, "PublicIPAddressCannotBeDeleted"));
    assert_eq!(deletion(&store, &free, &store.get(free.as_str()).unwrap().body), Ok(()));
    let old = (*store.get(free.as_str()).unwrap().body).clone();
    let changed = |path: &str, value: Value| {
        let mut new = old.clone();
        *new.pointer_mut(path).unwrap() = value;
        document(&store, &free, Some(&old), &new).map_or_else(|refusal| refusal.code, |()| "ok".to_owned())
    };
    assert_eq!(changed("/name", json!("free")), "ok");
    assert_eq!(changed("/properties/publicIPAddressVersion", json!("IPv6")), "PublicIPAddressVersionCannotBeChanged");
    assert_eq!(changed("/sku/name", json!("Basic")), "PublicIPAddressSkuCannotBeChanged");
    assert_eq!(changed("/zones", json!([])), "ResourceAvailabilityZonesCannotBeModified");
    assert_eq!(changed("/location", json!("westus")), "InvalidResourceLocation");
    assert_eq!(changed("/properties/dnsSettings/fqdn", json!("used.eastus.cloudapp.azure.com")), "DnsRecordInUse");
    assert_eq!(changed("/properties/publicIPAllocationMethod", json!("Dynamic")), "StandardSkuPublicIPAddressMustBeStatic");
}

#[test]
fn a_basic_public_ip_becomes_standard_unless_it_is_used() {
    let mut store = store();
    let id = ResourceId::parse(&canonical::expand("$NET/publicIPAddresses/free")).unwrap();
    let standard = (*store.get(id.as_str()).unwrap().body).clone();
    let mut basic = standard.clone();
    basic["sku"]["name"] = json!("Basic");
    assert_eq!(document(&store, &id, Some(&basic), &standard), Ok(()));
    let balancer = json!({"id": canonical::expand("$NET/loadBalancers/basic"), "sku": {"name": "Basic"}, "location": "eastus",
        "properties": {"frontendIPConfigurations": [{"name": "f", "properties": {"publicIPAddress": {"id": id.as_str()}}}]}});
    store.put_document(balancer).unwrap();
    assert_eq!(document(&store, &id, Some(&basic), &standard).unwrap_err().code, "PublicIPAddressSkuCannotBeChanged");
    let mut labelled = standard.clone();
    for label in ["ab", "Abc", "1bc", "ab-", "a_c", &"a".repeat(64)] {
        labelled["properties"]["dnsSettings"] = json!({"domainNameLabel": label});
        assert_eq!(document(&store, &id, Some(&standard), &labelled).unwrap_err().code, "InvalidDomainNameLabel", "{label}");
    }
}

#[test]
fn interfaces_are_in_pools_of_one_sku() {
    let mut store = store();
    for (name, sku) in [("standard", "Standard"), ("basic", "Basic")] {
        let id = canonical::expand(&format!("$NET/loadBalancers/{name}"));
        let balancer = json!({"id": id, "sku": {"name": sku}, "location": "eastus",
            "properties": {"backendAddressPools": [{"name": "pool"}]}});
        store.put_document(balancer).unwrap();
    }
    let check = |path: &str, balancers: &[&str]| {
        let id = ResourceId::parse(&canonical::expand(path)).unwrap();
        let pool = |name: &&str| json!({"id": format!("$NET/loadBalancers/{name}/backendAddressPools/pool")});
        let pools: Vec<Value> = balancers.iter().map(pool).collect();
        let configuration = json!({"name": "c", "properties": {"loadBalancerBackendAddressPools": pools}});
        let body = json!({"id": path, "location": "eastus", "properties": {"ipConfigurations": [configuration]}});
        let body: Value = serde_json::from_str(&canonical::expand(&body.to_string())).unwrap();
        document(&store, &id, Some(&body), &body).map_or_else(|refusal| refusal.code, |()| "ok".to_owned())
    };
    let code = "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed";
    for (path, end) in
        [("$NET/networkInterfaces/nic", ""), ("$COMPUTE/virtualMachineScaleSets/s/virtualMachines/0", "InVMSS")]
    {
        assert_eq!(check(path, &["standard", "other"]), "ok");
        assert_eq!(check(path, &["basic"]), "ok");
        assert_eq!(check(path, &["standard", "basic"]), format!("{code}{end}"));
    }
}

#[test]
fn security_groups() {
    let rule = |name: &str, priority: u64| {
        json!({"name": name, "properties": {"priority": priority, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
            "sourceAddressPrefix": "Internet", "sourcePortRange": "*", "destinationAddressPrefix": "20.0.0.1",
            "destinationPortRanges": ["80"]}})
    };
    let document = |rules: Vec<Value>| json!({"id": "$NET/networkSecurityGroups/g", "location": "eastus", "properties": {"securityRules": rules}});
    let group = |rules: Vec<Value>| code(None, &document(rules));
    let mut outbound = rule("b", 500);
    outbound["properties"]["direction"] = json!("Outbound");
    let mut both = rule("a", 500);
    both["properties"]["destinationPortRange"] = json!("81");
    let mut wide = rule("a", 500);
    wide["properties"]["sourceAddressPrefix"] = Value::Null;
    wide["properties"]["sourceAddressPrefixes"] =
        (0..4_001).map(|n| json!(format!("10.{}.{}.0/24", n / 256, n % 256))).collect();
    assert_eq!(group(vec![rule("a", 500), rule("b", 501), outbound]), "ok");
    assert_eq!(group(vec![rule("a", 500), rule("b", 500)]), "SecurityRuleConflict");
    assert_eq!(group(vec![rule("a", 99)]), "SecurityRuleInvalidPriority");
    assert_eq!(group(vec![both]), "SecurityRuleParameterConflict");
    assert_eq!(group((0..1_001).map(|n| rule(&format!("r{n}"), 100 + n)).collect()), "SecurityRuleCountLimitReached");
    assert_eq!(group(vec![wide.clone()]), "ok");
    let (id, body) = (ResourceId::parse(&canonical::expand("$NET/networkSecurityGroups/g")).unwrap(), document(vec![wide]));
    let allowed = |security_group_addresses: usize| {
        let most = LoadBalancerLimits { security_group_addresses, ..LoadBalancerLimits::default() };
        limits(&store(), &most, &id, None, &body).map_or_else(|refusal| refusal.code, |()| "ok".to_owned())
    };
    assert_eq!(allowed(4_000), "SecurityRuleAddressesOrPortsPerSecurityGroupLimitReached");
    assert_eq!(allowed(4_001), "ok");
}

#[test]
fn route_tables() {
    let table = |routes: &[(&str, &str, &str)]| {
        let routes: Vec<Value> = routes
            .iter()
            .map(|(name, prefix, hop)| {
                json!({"name": name, "properties": {"addressPrefix": prefix, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop}})
            })
            .collect();
        code(None, &json!({"id": "$NET/routeTables/t", "location": "eastus", "properties": {"routes": routes}}))
    };
    assert_eq!(table(&[("a", "10.0.0.0/24", "10.1.0.4"), ("b", "fd00::/64", "fd00::4")]), "ok");
    assert_eq!(table(&[("a", "10.0.0.0/24", "10.1.0.4"), ("b", "10.0.0.0/24", "10.1.0.5")]), "RouteConflict");
    assert_eq!(table(&[("a", "10.0.0.0/240", "10.1.0.4")]), "InvalidAddressPrefixFormat");
    assert_eq!(table(&[("a", "10.0.0.0/24", "")]), "RouteNextHopIpAddressInvalid");
}

#[test]
fn instances_are_not_made_by_writing_them() {
    let set = json!({"id": "$COMPUTE/virtualMachineScaleSets/s", "location": "eastus", "properties": {"orchestrationMode": "Uniform"}});
    let mut other = set.clone();
    other["properties"]["orchestrationMode"] = json!("Flexible");
    assert_eq!(code(Some(&set), &set), "ok");
    assert_eq!(code(Some(&set), &other), "PropertyChangeNotAllowed");
    let instance = json!({"id": "$COMPUTE/virtualMachineScaleSets/s/virtualMachines/9", "location": "eastus"});
    assert_eq!(code(None, &instance), "InvalidParameter");
}
