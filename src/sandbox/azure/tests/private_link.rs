//! Private link services, their connections, and the limits of load balancers.

use super::*;
use crate::sandbox::azure::LoadBalancerLimits;

const PLS: &str = "$NET/privateLinkServices/pls";
const SUBNET: &str = "$NET/virtualNetworks/vnet-test/subnets/subnet-nodes";
const INSTANCE: &str = "$COMPUTE/virtualMachineScaleSets/aks-pool1-vmss/virtualMachines/0";
const POLICY: &str = "PrivateLinkServiceNetworkPoliciesCannotBeEnabledOnPrivateLinkServiceSubnet";

fn service(change: impl FnOnce(&mut Value)) -> Value {
    let mut body = json!({"location": "eastus", "properties": {
        "loadBalancerFrontendIpConfigurations": [{"id": format!("{LB}/frontendIPConfigurations/front")}],
        "ipConfigurations": [{"name": "nat", "properties": {"primary": true, "subnet": {"id": SUBNET}}}],
        "visibility": {"subscriptions": ["*"]}, "autoApproval": {"subscriptions": []}}});
    change(&mut body["properties"]);
    body
}

async fn set_policy(client: &Client, policy: &str) -> Reply {
    let mut subnet = client.get(SUBNET).await.body;
    subnet["properties"]["privateLinkServiceNetworkPolicies"] = json!(policy);
    client.put(SUBNET, subnet).await
}

/// A load balancer, and a subnet that lets private link services in.
async fn prepared(options: AzureOptions) -> Client {
    let client = Client::new(options);
    client.put(PIP, public_ip()).await;
    assert_eq!(client.put(LB, load_balancer()).await.status, 201);
    assert_eq!(set_policy(&client, "Disabled").await.status, 200);
    client
}

#[tokio::test(start_paused = true)]
async fn refusals() {
    let client = prepared(limited(|limits| limits.private_link_needs_interfaces = true)).await;
    let mut other = load_balancer();
    other["sku"]["name"] = json!("Basic");
    other["properties"]["frontendIPConfigurations"][0]["properties"] = json!({"subnet": {"id": SUBNET}});
    let other: Value = serde_json::from_str(&other.to_string().replace(LB, "$NET/loadBalancers/basic")).unwrap();
    assert_eq!(client.put("$NET/loadBalancers/basic", other).await.status, 201);
    let nat = |properties: Value| json!([{"name": "a", "properties": properties}]);
    let fixed = |address: &str| {
        let mut properties = json!({"primary": true, "subnet": {"id": SUBNET}, "privateIPAllocationMethod": "Static"});
        properties["privateIPAddress"] = json!(address);
        nat(properties)
    };
    let front = "loadBalancerFrontendIpConfigurations";
    for (field, value, code) in [
        (front, json!([{"id": format!("{LB}/frontendIPConfigurations/none")}]), "InvalidResourceReference"),
        (
            front,
            json!([{"id": "$NET/loadBalancers/basic/frontendIPConfigurations/front"}]),
            "PrivateLinkServiceRequiresStandardLoadBalancer",
        ),
        ("ipConfigurations", nat(json!({"primary": true})), "SubnetRequired"),
        ("ipConfigurations", fixed("192.168.0.9"), "PrivateIPAddressNotInSubnet"),
        ("ipConfigurations", fixed("10.224.0.4"), "PrivateIPAddressIsAllocated"),
    ] {
        let refused = client.put(PLS, service(|properties| properties[field] = value)).await;
        assert_eq!((refused.status, refused.code()), (400, code), "{}", refused.body);
    }
    assert_eq!(client.put(PLS, service(|_| {})).await.status, 201);
    assert_eq!(set_policy(&client, "Enabled").await.code(), POLICY);
    let address = json!({"name": "n", "properties": {"ipAddress": "10.224.0.4"}});
    let members = json!({"properties": {"loadBalancerBackendAddresses": [address]}});
    assert_eq!(client.put(&format!("{LB}/backendAddressPools/pool"), members).await.status, 200);
    assert_eq!(client.put(PLS, service(|_| {})).await.code(), "PrivateLinkServiceIsNotSupportedForIPBasedLoadBalancer");
}

#[tokio::test(start_paused = true)]
async fn endpoints_ask_by_id_or_alias() {
    let client = prepared(AzureOptions::immediate()).await;
    let approved = [canonical::SUBSCRIPTION];
    client.put(PLS, service(|properties| properties["autoApproval"]["subscriptions"] = json!(approved))).await;
    let alias = client.get(PLS).await.body["properties"]["alias"].clone();
    let endpoint = |list: &str, service: Value| {
        let asked = json!([{"name": "c", "properties": {"privateLinkServiceId": service}}]);
        json!({"location": "eastus", "properties": {list: asked, "subnet": {"id": SUBNET}}})
    };
    let path = "$NET/privateEndpoints/mine";
    assert_eq!(
        client.put(path, endpoint("manualPrivateLinkServiceConnections", json!("no.such"))).await.code(),
        "InvalidResourceReference"
    );
    let made = client.put(path, endpoint("manualPrivateLinkServiceConnections", alias)).await;
    let state = "/properties/manualPrivateLinkServiceConnections/0/properties/privateLinkServiceConnectionState/status";
    assert_eq!((made.status, made.body.pointer(state)), (201, Some(&json!("Approved"))), "{}", made.body);
    assert_eq!(client.put(PLS, service(|properties| properties["fqdns"] = json!(["a.example"]))).await.status, 200);
    let connections = client.get(PLS).await.body["properties"]["privateEndpointConnections"].clone();
    assert_eq!(connections.as_array().map(Vec::len), Some(1), "a write keeps {connections}");
    assert_eq!(client.delete(path).await.status, 200);
    assert_eq!(client.get(PLS).await.body["properties"]["privateEndpointConnections"], json!([]));
}

fn limited(change: impl FnOnce(&mut LoadBalancerLimits)) -> AzureOptions {
    let mut limits = LoadBalancerLimits::default();
    change(&mut limits);
    AzureOptions { limits, ..AzureOptions::immediate() }
}

fn with_rules(count: usize) -> Value {
    let mut body = load_balancer();
    let rules = body["properties"]["loadBalancingRules"].as_array_mut().unwrap();
    for number in 1..count {
        let mut rule = rules[0].clone();
        rule["name"] = json!(format!("rule{number}"));
        rule["properties"]["frontendPort"] = json!(80 + number);
        rule["properties"]["backendPort"] = json!(80 + number);
        rules.push(rule);
    }
    body
}

async fn join(client: &Client, pools: &[&str]) -> Reply {
    let mut instance = client.get(INSTANCE).await.body;
    let pools: Vec<Value> = pools.iter().map(|pool| json!({"id": pool})).collect();
    let configurations =
        "/properties/networkProfileConfiguration/networkInterfaceConfigurations/0/properties/ipConfigurations";
    instance.pointer_mut(configurations).unwrap()[0]["properties"]["loadBalancerBackendAddressPools"] = json!(pools);
    client.put(INSTANCE, instance).await
}

#[tokio::test(start_paused = true)]
async fn an_interface_has_so_many_rules_over_all_load_balancers() {
    const CODE: &str = "LoadBalancingRulesPerNetworkInterfaceCountLimitReached";
    let client = prepared(limited(|limits| limits.rules_per_interface = Some(3))).await;
    let pool = format!("{LB}/backendAddressPools/pool");
    assert_eq!(join(&client, &[&pool]).await.status, 200);
    assert_eq!(client.put(LB, with_rules(3)).await.status, 200);
    assert_eq!(client.put(LB, with_rules(4)).await.code(), CODE);
    let mut internal = load_balancer();
    internal["properties"]["frontendIPConfigurations"][0]["properties"] = json!({"subnet": {"id": SUBNET}});
    let internal: Value = serde_json::from_str(&internal.to_string().replace(LB, "$NET/loadBalancers/internal")).unwrap();
    assert_eq!(client.put("$NET/loadBalancers/internal", internal).await.status, 201, "nobody is behind it");
    let other = "$NET/loadBalancers/internal/backendAddressPools/pool";
    let refused = join(&client, &[&pool, other]).await;
    assert_eq!((refused.status, refused.code()), (400, CODE), "{}", refused.body);
    let address = json!({"name": "n", "properties": {"ipAddress": "10.224.0.4"}});
    let members = json!({"properties": {"loadBalancerBackendAddresses": [address]}});
    assert_eq!(client.put(other, members.clone()).await.code(), CODE, "the same machine, by its address");
    assert_eq!(client.put(LB, with_rules(2)).await.status, 200);
    assert_eq!(client.put(other, members).await.status, 200);
}
