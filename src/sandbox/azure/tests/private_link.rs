//! Private link services, their connections, and the limits of load balancers.

use std::time::Duration;

use super::*;
use crate::sandbox::azure::{ConnectionStatus, LoadBalancerLimits, SkuLimits};

const PLS: &str = "$NET/privateLinkServices/pls";
const ENDPOINT: &str = "/subscriptions/consumer/resourceGroups/rg/providers/Microsoft.Network/privateEndpoints/app";
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

/// When operations have ended, on a paused clock.
const SOON: Duration = Duration::from_secs(1);

/// A load balancer, and a subnet that lets private link services in.
async fn prepared(options: AzureOptions) -> Client {
    let client = Client::new(options);
    client.put(PIP, public_ip()).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(client.put(LB, load_balancer()).await.status, 201);
    assert_eq!(set_policy(&client, "Disabled").await.status, 200);
    client
}

#[tokio::test(start_paused = true)]
async fn a_service_shows_what_azure_adds() {
    let client = prepared(AzureOptions::immediate()).await;
    let balancer = client.etag(LB).await;
    let sent = service(|properties| {
        properties["alias"] = json!("mine");
        properties["privateEndpointConnections"] = json!([{"name": "made-up"}]);
    });
    let created = client.put(PLS, sent).await;
    let properties = &created.body["properties"];
    assert_eq!((created.status, &properties["provisioningState"]), (201, &json!("Succeeded")), "{}", created.body);
    let alias = properties["alias"].as_str().unwrap();
    assert!(alias.starts_with("pls.") && alias.ends_with(".eastus.azure.privatelinkservice"), "{alias}");
    assert_eq!(properties["networkInterfaces"].as_array().map(Vec::len), Some(1));
    for (name, value) in
        [("privateEndpointConnections", json!([])), ("fqdns", json!([])), ("enableProxyProtocol", json!(false))]
    {
        assert_eq!(properties[name], value, "{name}");
    }
    assert_eq!(properties["ipConfigurations"][0]["properties"]["privateIPAllocationMethod"], "Dynamic");
    assert_ne!(client.etag(LB).await, balancer, "its load balancer is another one now");
    let seen = client.get(PLS).await.body;
    assert_eq!(client.get("$NET/privateLinkServices").await.body["value"], json!([seen]));
    let stale = client.put_if(PLS, service(|_| {}), &[("if-match", "W/\"0\"")]).await;
    assert_eq!((stale.status, stale.code()), (412, "PreconditionFailed"));
    let changed = client.put(PLS, service(|properties| properties["fqdns"] = json!(["a.example"]))).await;
    assert_eq!((changed.status, &changed.body["properties"]["alias"]), (200, &json!(alias)));
    let dumped = client.azure.dump();
    let kept = dumped.iter().find(|document| document["name"] == "pls").unwrap();
    assert_eq!((&kept["properties"]["alias"], &kept["properties"]["networkInterfaces"]), (&Value::Null, &json!([])));
}

#[tokio::test(start_paused = true)]
async fn a_service_is_made_by_an_operation() {
    let client = prepared(AzureOptions::default()).await;
    tokio::time::sleep(SOON).await;
    let created = client.put(PLS, service(|_| {})).await;
    assert_eq!((created.status, &created.body["properties"]["provisioningState"]), (201, &json!("Updating")));
    assert!(created.header("azure-asyncoperation").contains("/operations/"));
    assert_eq!(client.delete(PLS).await.status, 429);
    tokio::time::sleep(SOON).await;
    assert_eq!(client.get(PLS).await.body["properties"]["provisioningState"], "Succeeded");
    assert_eq!(client.delete(PLS).await.status, 202);
    tokio::time::sleep(SOON).await;
    assert_eq!(client.get(PLS).await.code(), "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn refusals() {
    let client = prepared(AzureOptions::immediate()).await;
    let basic = |body: &mut Value| body["sku"]["name"] = json!("Basic");
    let mut other = load_balancer();
    basic(&mut other);
    other["properties"]["frontendIPConfigurations"][0]["properties"] = json!({"subnet": {"id": SUBNET}});
    let other: Value = serde_json::from_str(&other.to_string().replace(LB, "$NET/loadBalancers/basic")).unwrap();
    assert_eq!(client.put("$NET/loadBalancers/basic", other).await.status, 201);
    let nat = |name: &str, properties: Value| json!({"name": name, "properties": properties});
    let primary = json!({"primary": true, "subnet": {"id": SUBNET}});
    let fixed = |address: &str| json!({"primary": true, "subnet": {"id": SUBNET}, "privateIPAddress": address, "privateIPAllocationMethod": "Static"});
    let frontend = |of: &str| json!([{"id": format!("{of}/frontendIPConfigurations/front")}]);
    let front = "loadBalancerFrontendIpConfigurations";
    let missing = json!([{"id": format!("{LB}/frontendIPConfigurations/none")}]);
    let many: Vec<Value> =
        (0..9).map(|n| nat(&format!("n{n}"), json!({"primary": n == 0, "subnet": {"id": SUBNET}}))).collect();
    for (field, value, code) in [
        (front, missing, "InvalidResourceReference"),
        (front, json!([]), "PrivateLinkServiceMustHaveLoadBalancerFrontendIpConfiguration"),
        (front, frontend("$NET/loadBalancers/basic"), "PrivateLinkServiceRequiresStandardLoadBalancer"),
        ("ipConfigurations", json!([]), "PrivateLinkServiceIpConfigurationCountInvalid"),
        ("ipConfigurations", json!(many), "PrivateLinkServiceIpConfigurationCountInvalid"),
        (
            "ipConfigurations",
            json!([nat("a", json!({"subnet": {"id": SUBNET}}))]),
            "PrivateLinkServiceMustHaveOnePrimaryIpConfiguration",
        ),
        (
            "ipConfigurations",
            json!([nat("a", primary.clone()), nat("b", primary)]),
            "PrivateLinkServiceMustHaveOnePrimaryIpConfiguration",
        ),
        ("ipConfigurations", json!([nat("a", json!({"primary": true}))]), "SubnetRequired"),
        ("ipConfigurations", json!([nat("a", fixed("192.168.0.9"))]), "PrivateIPAddressNotInSubnet"),
        ("ipConfigurations", json!([nat("a", fixed("10.224.0.4"))]), "PrivateIPAddressIsAllocated"),
    ] {
        let refused = client.put(PLS, service(|properties| properties[field] = value)).await;
        assert_eq!((refused.status, refused.code()), (400, code), "{}", refused.body);
    }
    set_policy(&client, "Enabled").await;
    assert_eq!(client.put(PLS, service(|_| {})).await.code(), POLICY);
    set_policy(&client, "Disabled").await;
    assert_eq!(client.put(PLS, service(|_| {})).await.status, 201);
    assert_eq!(set_policy(&client, "Enabled").await.code(), POLICY);
    let second = client.put("$NET/privateLinkServices/second", service(|_| {})).await;
    assert_eq!(second.code(), "LoadBalancerFrontendIpConfigurationInUseByPrivateLinkService");
    assert_eq!(client.delete(SUBNET).await.code(), "InUseSubnetCannotBeDeleted");
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_keeps_the_front_ends_of_services() {
    let client = prepared(AzureOptions::immediate()).await;
    client.put(PLS, service(|_| {})).await;
    let deleted = client.delete(LB).await;
    assert_eq!((deleted.status, deleted.code()), (400, "CannotDeleteLoadBalancerWithPrivateLinkService"));
    let mut without = load_balancer();
    without["properties"]["frontendIPConfigurations"] = json!([]);
    without["properties"]["loadBalancingRules"] = json!([]);
    assert_eq!(client.put(LB, without.clone()).await.code(), "FrontendIPConfigurationInUse");
    let mut more = load_balancer();
    let front = json!({"name": "more", "properties": {"subnet": {"id": SUBNET}}});
    more["properties"]["frontendIPConfigurations"].as_array_mut().unwrap().push(front);
    assert_eq!(client.put(LB, more).await.status, 200);
    let moved = service(|properties| {
        properties["loadBalancerFrontendIpConfigurations"][0]["id"] = json!(format!("{LB}/frontendIPConfigurations/more"));
    });
    assert_eq!(client.put(PLS, moved).await.code(), "PrivateLinkServiceLoadBalancerCannotBeChanged");
    assert_eq!(client.delete(PLS).await.status, 200);
    assert_eq!(client.put(LB, without).await.code(), "DeletingAllIpConfigsInLoadbalancerNotSupported");
    assert_eq!(client.delete(LB).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn connections_are_decided_and_deleted_on_the_services_side() {
    let client = prepared(AzureOptions::immediate()).await;
    client.put(PLS, service(|_| {})).await;
    let before = client.etag(PLS).await;
    let id = canonical::expand(PLS);
    let name = client.azure.connect_private_endpoint(ENDPOINT, &id, ConnectionStatus::Pending).unwrap();
    assert_ne!(client.etag(PLS).await, before);
    let path = format!("{PLS}/privateEndpointConnections/{name}");
    let shown = client.get(&path).await.body;
    assert_eq!(shown["properties"]["privateEndpoint"]["id"], ENDPOINT);
    assert_eq!(shown["properties"]["privateLinkServiceConnectionState"]["status"], "Pending");
    assert_eq!(client.get(&format!("{PLS}/privateEndpointConnections")).await.body["value"], json!([shown]));
    let approved = json!({"properties": {"privateLinkServiceConnectionState": {"status": "Approved"}}});
    assert_eq!(client.put(&path, approved.clone()).await.status, 200);
    assert_eq!(client.get(&path).await.body["properties"]["privateLinkServiceConnectionState"]["status"], "Approved");
    assert_eq!(client.put(&format!("{path}x"), approved).await.status, 404);
    let refused = client.delete(PLS).await;
    assert_eq!((refused.status, refused.code()), (400, "PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted"));
    assert_eq!(client.put(PLS, service(|properties| properties["fqdns"] = json!(["a.example"]))).await.status, 200);
    assert_eq!(client.get(&path).await.status, 200, "a write of the service does not touch its connections");
    assert_eq!(client.delete(&path).await.status, 200);
    assert_eq!(client.delete(&path).await.status, 204);
    let endpoint = client.azure.document(ENDPOINT).unwrap();
    let state =
        &endpoint["properties"]["manualPrivateLinkServiceConnections"][0]["properties"]["privateLinkServiceConnectionState"];
    assert_eq!(state["status"], "Disconnected", "the consumer keeps its endpoint");
    assert_eq!(client.delete(PLS).await.status, 200);
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
    let connections = client.get(PLS).await.body["properties"]["privateEndpointConnections"].clone();
    assert_eq!(connections.as_array().map(Vec::len), Some(1), "{connections}");
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

#[tokio::test(start_paused = true)]
async fn rules_and_front_ends_are_limited_by_sku() {
    let small = SkuLimits { rules: 2, frontends: 1 };
    let client = prepared(limited(|limits| limits.standard = small)).await;
    assert_eq!(client.put(LB, with_rules(2)).await.status, 200);
    assert_eq!(client.put(LB, with_rules(3)).await.code(), "LoadBalancingRuleCountLimitReached");
    let mut body = load_balancer();
    let front = json!({"name": "more", "properties": {"subnet": {"id": SUBNET}}});
    body["properties"]["frontendIPConfigurations"].as_array_mut().unwrap().push(front);
    let refused = client.put(LB, body).await;
    assert_eq!((refused.status, refused.code()), (400, "LoadBalancerFrontendIPConfigurationCountLimitReached"));
    let azure = LoadBalancerLimits::azure();
    assert_eq!((azure.of_sku(true).rules, azure.of_sku(false).rules, azure.rules_per_interface), (1_500, 250, Some(300)));
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

#[tokio::test(start_paused = true)]
async fn services_are_limited_by_load_balancer() {
    let client = prepared(limited(|limits| {
        limits.private_link_services = Some(1);
        limits.private_link_needs_interfaces = true;
    }))
    .await;
    assert_eq!(client.put(PLS, service(|_| {})).await.status, 201);
    assert_eq!(client.put(PLS, service(|_| {})).await.status, 200, "it is counted once");
    let mut more = load_balancer();
    let front = json!({"name": "more", "properties": {"subnet": {"id": SUBNET}}});
    more["properties"]["frontendIPConfigurations"].as_array_mut().unwrap().push(front);
    assert_eq!(client.put(LB, more).await.status, 200);
    let second = service(|properties| {
        properties["loadBalancerFrontendIpConfigurations"][0]["id"] = json!(format!("{LB}/frontendIPConfigurations/more"));
    });
    let refused = client.put("$NET/privateLinkServices/second", second).await;
    assert_eq!(refused.code(), "PrivateLinkServicesPerLoadBalancerCountLimitReached");
    let address = json!({"name": "n", "properties": {"ipAddress": "10.224.0.4"}});
    let members = json!({"properties": {"loadBalancerBackendAddresses": [address]}});
    assert_eq!(client.put(&format!("{LB}/backendAddressPools/pool"), members).await.status, 200);
    assert_eq!(client.put(PLS, service(|_| {})).await.code(), "PrivateLinkServiceIsNotSupportedForIPBasedLoadBalancer");
}
