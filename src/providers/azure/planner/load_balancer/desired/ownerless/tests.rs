use serde_json::{Value, json};

use super::*;
use crate::providers::azure::{
    config::{AzureConfig, LoadBalancerSku, MultipleStandardLoadBalancer},
    planner::load_balancer::desired::samples::{network, observed, service, settings},
};

fn balancer(name: &str, frontends: &[Value], rules: &[Value], pools: &[&str]) -> ArmLoadBalancer {
    let pools: Vec<Value> = pools.iter().map(|pool| json!({"name": pool})).collect();
    let document = json!({"id": network(&format!("loadBalancers/{name}")), "name": name, "sku": {"name": "Standard"},
        "properties": {"frontendIPConfigurations": frontends, "loadBalancingRules": rules, "backendAddressPools": pools}});
    serde_json::from_value(document).unwrap()
}

fn frontend(name: &str) -> Value {
    json!({"name": name})
}

fn rule(name: &str, frontend: &str, pool: &str) -> Value {
    let id = |list: &str, name: &str| json!({"id": network(&format!("loadBalancers/kubernetes/{list}/{name}"))});
    json!({"name": name, "properties": {"frontendIPConfiguration": id("frontendIPConfigurations", frontend),
        "backendAddressPool": id("backendAddressPools", pool)}})
}

fn parts_of(
    observed: &ObservedNetwork,
    services: &[ServiceIdentity],
    addresses: &[&str],
    settings: &LoadBalancerSettings,
) -> Vec<OwnerlessPart> {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let is_managed = |document: &&ArmLoadBalancer| document.name.as_deref() == Some("kubernetes");
    let managed = observed.load_balancers.iter().filter(is_managed).collect();
    ownerless(&OwnershipInput { observed, managed, services, addresses: &addresses, settings })
}

fn found(observed: &ObservedNetwork, services: &[ServiceIdentity], addresses: &[&str]) -> Vec<(OwnerlessKind, String)> {
    let parts = parts_of(observed, services, addresses, &settings());
    parts.into_iter().map(|part| (part.kind, part.id.rsplit('/').next().unwrap_or_default().to_owned())).collect()
}

#[test]
fn front_ends_and_rules_of_services_that_are_gone_belong_to_nobody() {
    let (web, gone) = (service("web").identity, service("gone").identity);
    let [of_web, of_gone] = [&web, &gone].map(|who| who.name_prefix.clone());
    let name = |prefix: &str| format!("{prefix}-TCP-80");
    let frontends = [frontend(&of_web), frontend(&of_gone), frontend("theirs")];
    let rules = [rule(&name(&of_web), &of_web, "kubernetes"), rule(&name(&of_gone), &of_gone, "kubernetes")];
    let there = observed(vec![balancer("kubernetes", &frontends, &rules, &["kubernetes"])]);
    let expected = [(OwnerlessKind::LoadBalancingRule, name(&of_gone)), (OwnerlessKind::FrontEnd, of_gone.clone())];
    assert_eq!(found(&there, std::slice::from_ref(&web), &[]), expected);
    assert_eq!(found(&there, &[web.clone(), gone], &[]), []);
    let shared = [rules.to_vec(), vec![rule(&name(&of_web), &of_gone, "kubernetes")]].concat();
    let there = observed(vec![balancer("kubernetes", &frontends, &shared, &["kubernetes"])]);
    assert_eq!(found(&there, std::slice::from_ref(&web), &[]).len(), 1, "somebody else uses the front end");
    let others = observed(vec![balancer("theirs", &frontends, &rules, &[])]);
    assert_eq!(found(&others, &[web], &[]), [], "another load balancer is not the cluster's");
}

#[test]
fn a_load_balancer_of_the_cluster_without_front_ends_belongs_to_nobody() {
    let web = service("web").identity;
    let basic = AzureConfig { load_balancer_sku: LoadBalancerSku::Basic, ..AzureConfig::default() };
    let basic = LoadBalancerSettings::new(&basic, "kubernetes");
    for (name, frontends, settings, is_listed) in [
        ("kubernetes", vec![], &settings(), true),
        ("Kubernetes-internal", vec![], &settings(), true),
        ("kubernetes", vec![frontend("theirs")], &settings(), false),
        ("somebody-elses", vec![], &settings(), false),
        ("kubernetes", vec![], &basic, true),
        ("a-vm-set", vec![], &basic, false),
    ] {
        let there = observed(vec![balancer(name, &frontends, &[], &["kubernetes"])]);
        let managed = there.load_balancers.iter().collect();
        let services = std::slice::from_ref(&web);
        let input = OwnershipInput { observed: &there, managed, services, addresses: &BTreeSet::new(), settings };
        let found: Vec<_> = ownerless(&input).into_iter().map(|part| (part.kind, part.id.ends_with(name))).collect();
        let expected: &[_] = if is_listed { &[(OwnerlessKind::LoadBalancer, true)] } else { &[] };
        assert_eq!(found, expected, "{name} {frontends:?}");
    }
}

#[test]
fn public_ips_and_private_links_are_judged_by_their_tags() {
    let web = service("web").identity;
    let address = |name: &str, tags: Value| {
        let document = json!({"id": network(&format!("publicIPAddresses/{name}")), "name": name, "tags": tags});
        serde_json::from_value(document).unwrap()
    };
    let listed = |services: &str, cluster: &str| json!({"k8s-azure-service": services, "k8s-azure-cluster-name": cluster});
    let mut there = observed(Vec::new());
    there.public_ips = vec![
        address("web", listed("default/Web", "kubernetes")),
        address("gone", listed("default/gone, default/other", "kubernetes")),
        address("half", listed("default/gone,default/web", "kubernetes")),
        address("foreign", listed("default/gone", "another")),
        address("user", json!({"owner": "me"})),
    ];
    let link = |name: &str, owner: &str, cluster: &str| {
        let tags = json!({"k8s-azure-cluster-name": cluster, "k8s-azure-owner-service": owner});
        let document = json!({"id": network(&format!("privateLinkServices/{name}")), "name": name, "tags": tags});
        serde_json::from_value(document).unwrap()
    };
    there.private_links.services = vec![
        link("kept", "default/web", "kubernetes"),
        link("lost", "default/gone", "kubernetes"),
        link("not", "default/gone", "b"),
    ];
    let expected = [(OwnerlessKind::PrivateLinkService, "lost".to_owned()), (OwnerlessKind::PublicIp, "gone".to_owned())];
    assert_eq!(found(&there, std::slice::from_ref(&web), &[]), expected);
    // The public IP is used by a Service for which its list had no room.
    let rule = rule(&format!("{}-TCP-80", web.name_prefix), "shared", "kubernetes");
    there.load_balancers = vec![balancer("kubernetes", &[frontend("shared")], &[rule], &[])];
    let user = network("loadBalancers/kubernetes/frontendIPConfigurations/shared");
    there.public_ips[1].properties = serde_json::from_value(json!({"ipConfiguration": {"id": user}})).unwrap();
    assert_eq!(found(&there, &[web], &[]), expected[..1]);
}

#[test]
fn a_private_link_of_a_service_that_exists_is_never_offered() {
    let (web, gone) = (service("web").identity, service("gone").identity);
    let frontend_of = |name: &str| network(&format!("loadBalancers/kubernetes/frontendIPConfigurations/{name}"));
    for (frontend, is_offered) in [(web.name_prefix.as_str(), false), ("theirs", false), (gone.name_prefix.as_str(), true)] {
        let tags = json!({"k8s-azure-cluster-name": "kubernetes", "k8s-azure-owner-service": "default/guest-that-is-gone"});
        let document = json!({"id": network("privateLinkServices/pls"), "name": "pls", "tags": tags,
            "properties": {"loadBalancerFrontendIpConfigurations": [{"id": frontend_of(frontend)}]}});
        let mut there = observed(Vec::new());
        there.private_links.services = vec![serde_json::from_value(document).unwrap()];
        assert_eq!(!found(&there, std::slice::from_ref(&web), &[]).is_empty(), is_offered, "{frontend}");
    }
}

#[test]
fn parts_come_in_an_order_in_which_they_can_be_removed() {
    let (web, gone) = (service("web").identity, service("gone").identity);
    let (frontend_name, name) = (gone.name_prefix.clone(), format!("{}-TCP-80", gone.name_prefix));
    let mut document =
        balancer("kubernetes", &[frontend(&frontend_name)], &[rule(&name, &frontend_name, "kubernetes")], &[]);
    let probe = |name: &str| serde_json::from_value(json!({"name": name})).unwrap();
    let kept = format!("{}-TCP-80", web.name_prefix);
    document.properties_mut().probes = Some(vec![probe(&name), probe(&kept), probe("theirs")]);
    let mut there = observed(vec![document]);
    let tags = json!({"k8s-azure-cluster-name": "kubernetes", "k8s-azure-owner-service": "default/gone"});
    let id = network(&format!("loadBalancers/kubernetes/frontendIPConfigurations/{frontend_name}"));
    let link = json!({"id": network("privateLinkServices/pls"), "name": "pls", "tags": tags,
        "properties": {"loadBalancerFrontendIpConfigurations": [{"id": id}]}});
    there.private_links.services = vec![serde_json::from_value(link).unwrap()];
    let expected = [
        (OwnerlessKind::PrivateLinkService, "pls".to_owned()),
        (OwnerlessKind::LoadBalancingRule, name.clone()),
        (OwnerlessKind::Probe, name),
        (OwnerlessKind::FrontEnd, frontend_name),
    ];
    assert_eq!(found(&there, &[web], &[]), expected);
}

#[test]
fn security_rules_are_judged_by_where_they_lead() {
    let rule = |name: &str, priority: i32, to: &[&str]| {
        json!({"name": name, "properties": {"priority": priority, "access": "Allow", "direction": "Inbound", "protocol": "Tcp",
            "sourceAddressPrefix": "Internet", "destinationPortRanges": ["80"], "destinationAddressPrefixes": to}})
    };
    let rules = [
        rule("k8s-azure-lb_allow_IPv4_1", 500, &["192.0.2.1", "10.0.0.4"]),
        rule("k8s-azure-lb_allow_IPv4_2", 501, &["192.0.2.2"]),
        rule("k8s-azure-lb_allow_IPv4_3", 502, &["10.9.0.0/16"]),
        rule("k8s-azure-lb_allow_IPv4_4", 100, &["192.0.2.2"]),
        rule("theirs", 503, &["192.0.2.2"]),
    ];
    let group = json!({"id": network("networkSecurityGroups/nsg"), "name": "nsg", "properties": {"securityRules": rules}});
    let there = ObservedNetwork { security_group: Some(serde_json::from_value(group).unwrap()), ..observed(Vec::new()) };
    let expected = [(OwnerlessKind::SecurityRule, "k8s-azure-lb_allow_IPv4_2".to_owned())];
    assert_eq!(found(&there, &[], &["192.0.2.1"]), expected);
    assert_eq!(found(&there, &[], &["10.0.0.4", "192.0.2.2"]), []);
}

#[test]
fn among_several_load_balancers_a_pool_without_rules_is_nobodys() {
    let entry = MultipleStandardLoadBalancer { name: "kubernetes".into(), ..MultipleStandardLoadBalancer::default() };
    let config = AzureConfig {
        subscription_id: "SUB".into(),
        resource_group: "RG".into(),
        multiple_standard_load_balancer_configurations: vec![entry],
        ..AzureConfig::default()
    };
    let settings = LoadBalancerSettings::new(&config, "kubernetes");
    let pools = ["kubernetes", "default-web", "default-gone", "default-used"];
    let rules = [rule("theirs", "x", "default-used")];
    let there = observed(vec![balancer("kubernetes", &[], &rules, &pools)]);
    let parts = parts_of(&there, &[service("web").identity], &[], &settings);
    let names: Vec<&str> = parts.iter().map(|part| part.id.rsplit('/').next().unwrap_or_default()).collect();
    assert_eq!(names, ["default-gone"]);
}
