//! Cases that no row of `tests/assumptions` has.

use serde_json::{Value, json};

use super::*;
use crate::sandbox::azure::canonical;

const LB: &str = "$NET/loadBalancers/lb";
const FREE: &str = "$NET/publicIPAddresses/free";

fn long(value: &Value) -> Value {
    serde_json::from_str(&canonical::expand(&value.to_string())).unwrap()
}

/// A public IP that is free.
fn store() -> Store {
    let mut store = Store::default();
    let properties = json!({"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"});
    let ip = json!({"id": FREE, "sku": {"name": "Standard"}, "location": "eastus", "properties": properties});
    store.put_document(long(&ip)).unwrap();
    store
}

fn balancer(change: impl FnOnce(&mut Value)) -> Value {
    let rule = |name: &str, port: u16| {
        json!({"name": name, "properties": {"protocol": "Tcp", "frontendPort": port, "backendPort": port, "enableFloatingIP": true,
            "frontendIPConfiguration": {"id": format!("{LB}/frontendIPConfigurations/f")},
            "backendAddressPool": {"id": format!("{LB}/backendAddressPools/p")}, "probe": {"id": format!("{LB}/probes/p")}}})
    };
    let mut body = json!({"id": LB, "location": "eastus", "sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": [{"name": "f", "properties": {"publicIPAddress": {"id": FREE}}}],
        "backendAddressPools": [{"name": "p"}],
        "probes": [{"name": "p", "properties": {"protocol": "Tcp", "port": 30080}}],
        "loadBalancingRules": [rule("a", 80), rule("b", 81)]}});
    change(&mut body);
    body
}

#[test]
fn load_balancers() {
    let name = "/properties/loadBalancingRules/1/name";
    for (path, value, expected) in [
        ("/location", json!("eastus"), "ok"),
        ("/sku/name", json!("Basic"), "PublicIPAndLBSkuDoNotMatch"),
        ("/properties/probes/0/properties/port", json!(65536), "InvalidProbePort"),
        ("/properties/loadBalancingRules/1/properties/protocol", json!("All"), "InvalidLoadBalancingRulePort"),
        ("/properties/loadBalancingRules/1/properties/backendPort", json!(0), "InvalidLoadBalancingRulePort"),
        (name, json!("b".repeat(81)), "InvalidResourceName"),
        (name, json!("b/c"), "InvalidResourceName"),
        (name, json!("b."), "InvalidResourceName"),
    ] {
        let mut body = long(&balancer(|body| *body.pointer_mut(path).unwrap() = value.clone()));
        let (store, id) = (store(), ResourceId::parse(body["id"].as_str().unwrap()).unwrap());
        shape::complete(&id, &mut body);
        let checked = references(&store, &id, &body).and_then(|()| document(&store, &id, None, &body));
        assert_eq!(checked.map_or_else(|refusal| refusal.code, |()| "ok".to_owned()), expected, "{path} {value}");
    }
}

#[test]
fn a_basic_public_ip_becomes_standard_unless_it_is_used() {
    let mut store = store();
    let id = ResourceId::parse(&canonical::expand(FREE)).unwrap();
    let standard = (*store.get(id.as_str()).unwrap().body).clone();
    let mut basic = standard.clone();
    basic["sku"]["name"] = json!("Basic");
    assert_eq!(document(&store, &id, Some(&basic), &standard), Ok(()));
    assert_eq!(document(&store, &id, Some(&standard), &basic).unwrap_err().code, "PublicIPAddressSkuCannotBeChanged");
    let balancer = json!({"id": canonical::expand("$NET/loadBalancers/basic"), "sku": {"name": "Basic"}, "location": "eastus",
        "properties": {"frontendIPConfigurations": [{"name": "f", "properties": {"publicIPAddress": {"id": id.as_str()}}}]}});
    store.put_document(balancer).unwrap();
    assert_eq!(document(&store, &id, Some(&basic), &standard).unwrap_err().code, "PublicIPAddressSkuCannotBeChanged");
    let mut labeled = standard.clone();
    for label in ["ab", "Abc", "1bc", "ab-", "a_c", &"a".repeat(64)] {
        labeled["properties"]["dnsSettings"] = json!({"domainNameLabel": label});
        assert_eq!(document(&store, &id, Some(&standard), &labeled).unwrap_err().code, "InvalidDomainNameLabel", "{label}");
    }
}

#[test]
fn documents_of_every_type_have_few_and_short_tags() {
    let tag = |name: usize, value: usize| json!({("n".repeat(name)): "v".repeat(value)});
    let many = |count: usize| -> Value { (0..count).map(|number| (format!("n{number}"), json!("v"))).collect() };
    for path in [FREE, LB, "$NET/routeTables/rt", "$NET/networkSecurityGroups/nsg", "$NET/privateLinkServices/pls"] {
        for (tags, expected) in [
            (tag(512, 256), "ok"),
            (tag(513, 0), "InvalidTagNameLength"),
            (tag(1, 257), "InvalidTagValueLength"),
            (many(50), "ok"),
            (many(51), "InvalidTags"),
        ] {
            let (store, id) = (store(), ResourceId::parse(&canonical::expand(path)).unwrap());
            let body = json!({"location": "eastus", "tags": tags});
            let checked = tags::check(Candidate { store: &store, id: &id, old: None, body: &body });
            assert_eq!(checked.map_or_else(|refusal| refusal.code, |()| "ok".to_owned()), expected, "{path}");
        }
    }
    let id = ResourceId::parse(&canonical::expand("$NET/routeTables/rt")).unwrap();
    let body = json!({"location": "eastus", "tags": tag(1, 257)});
    assert_eq!(document(&store(), &id, None, &body).unwrap_err().code, "InvalidTagValueLength");
}

#[test]
fn interfaces_are_in_pools_of_one_sku() {
    let mut store = store();
    for (name, sku) in [("standard", "Standard"), ("other", "Standard"), ("basic", "Basic")] {
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
