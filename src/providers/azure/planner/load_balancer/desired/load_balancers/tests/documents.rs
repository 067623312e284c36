//! Documents as the reference's worked examples have them.

use super::*;
use crate::providers::azure::planner::load_balancer::spec::PortSpec;

const B: &str = "a6f3c1a528d7e4b909a412c5d7e8f9a0";

fn lb(name: &str, rest: &str) -> String {
    network(&format!("loadBalancers/{name}/{rest}"))
}

fn as_json(document: &ArmLoadBalancer) -> serde_json::Value {
    serde_json::to_value(document).unwrap()
}

/// The rules of a Service that is alone.
fn properties_of_rules(spec: &ServiceSpec) -> Vec<serde_json::Value> {
    let outcome = plan(&observed(Vec::new()), &[ensure(spec)]);
    let document = put(&outcome, if spec.internal { "kubernetes-internal" } else { "kubernetes" });
    draft::rules(document).iter().map(|rule| serde_json::to_value(rule.properties.as_ref().unwrap()).unwrap()).collect()
}

#[test]
fn a_public_service_gets_front_end_pool_probes_and_rules() {
    let tagged = LoadBalancerSettings { tags: [("env".to_owned(), "prod".to_owned())].into(), ..settings() };
    let outcome = plan_with(&observed(Vec::new()), &[ensure(&service("web"))], &tagged);
    let rule = |port: i64| {
        json!({"name": format!("{B}-TCP-{port}"), "properties": {
            "protocol": "Tcp", "frontendPort": port, "backendPort": port, "enableFloatingIP": true, "enableTcpReset": true,
            "disableOutboundSnat": false, "idleTimeoutInMinutes": 4, "loadDistribution": "Default",
            "frontendIPConfiguration": {"id": lb("kubernetes", &format!("frontendIPConfigurations/{B}"))},
            "backendAddressPool": {"id": lb("kubernetes", "backendAddressPools/kubernetes")},
            "probe": {"id": lb("kubernetes", &format!("probes/{B}-TCP-{port}"))}}})
    };
    let probe = |port: i64, node_port: i64| {
        json!({"name": format!("{B}-TCP-{port}"), "properties": {
            "protocol": "Tcp", "port": node_port, "intervalInSeconds": 5, "probeThreshold": 2}})
    };
    assert_eq!(
        as_json(put(&outcome, "kubernetes")),
        json!({"name": "kubernetes", "location": "eastus", "sku": {"name": "Standard"}, "tags": {"env": "prod"}, "properties": {
            "frontendIPConfigurations": [{"id": lb("kubernetes", &format!("frontendIPConfigurations/{B}")), "name": B,
                "properties": {"publicIPAddress": {"id": network(&format!("publicIPAddresses/kubernetes-{B}"))}}}],
            "backendAddressPools": [{"name": "kubernetes", "properties": {}}],
            "probes": [probe(80, 30080), probe(443, 30443)],
            "loadBalancingRules": [rule(80), rule(443)]}})
    );
    let placed = outcome.services[&service("web").identity].as_ref().unwrap();
    assert_eq!(placed.frontends, [(IpFamily::V4, lb("kubernetes", &format!("frontendIPConfigurations/{B}")))]);
}

#[test]
fn an_internal_service_gets_its_pinned_address_in_its_subnet() {
    let spec = pinned("10.0.1.9", ServiceSpec { subnet: Some("apps".into()), ..internal("web") });
    let outcome = plan(&observed(Vec::new()), &[ensure(&spec)]);
    let document = put(&outcome, "kubernetes-internal");
    assert_eq!(rule_names(document), [format!("{B}-apps-TCP-80"), format!("{B}-apps-TCP-443")]);
    assert_eq!(
        as_json(document)["properties"]["frontendIPConfigurations"],
        json!([{"id": lb("kubernetes-internal", &format!("frontendIPConfigurations/{B}-apps")), "name": format!("{B}-apps"),
            "zones": ["1", "2", "3"], "properties": {"privateIPAddress": "10.0.1.9", "privateIPAllocationMethod": "Static",
            "subnet": {"id": network("virtualNetworks/vnet/subnets/apps")}}}])
    );
}

#[test]
fn without_the_subnet_annotation_the_address_stays_only_when_the_default_subnet_has_it() {
    for (address, kept) in [("10.0.1.9", None), ("10.0.0.9", Some("10.0.0.9"))] {
        let mut there = made(&[&ServiceSpec { subnet: Some("apps".into()), ..internal("web") }]);
        let frontends = there.load_balancers[0].properties.as_mut().unwrap().frontend_ip_configurations.as_mut().unwrap();
        frontends[0].properties.as_mut().unwrap().private_ip_address = Some(address.into());
        let outcome = plan(&there, &[ensure(&internal("web"))]);
        let document = as_json(put(&outcome, "kubernetes-internal"));
        let frontends = &document["properties"]["frontendIPConfigurations"];
        assert_eq!(frontends.as_array().map(Vec::len), Some(1));
        assert_eq!(frontends[0]["name"], B);
        assert_eq!(frontends[0]["properties"]["privateIPAddress"].as_str(), kept, "{address}");
    }
}

#[test]
fn both_halves_of_a_dual_stack_service_have_names_pools_and_rules_of_their_own() {
    let spec = ServiceSpec { families: vec![IpFamily::V4, IpFamily::V6], ..internal("web") };
    let outcome = plan(&observed(Vec::new()), &[ensure(&spec)]);
    let document = as_json(put(&outcome, "kubernetes-internal"));
    let properties = &document["properties"];
    assert_eq!(properties["frontendIPConfigurations"][1]["name"], format!("{B}-IPv6"));
    assert_eq!(properties["frontendIPConfigurations"][1]["properties"]["privateIPAddressVersion"], "IPv6");
    assert_eq!(properties["backendAddressPools"][1]["name"], "kubernetes-IPv6");
    let rules = properties_of_rules(&spec);
    assert_eq!((&rules[0]["backendPort"], &rules[0]["enableFloatingIP"]), (&json!(80), &json!(true)));
    assert_eq!((&rules[2]["backendPort"], &rules[2]["enableFloatingIP"]), (&json!(30080), &json!(false)));
    assert_eq!(rules[2]["backendAddressPool"]["id"], lb("kubernetes-internal", "backendAddressPools/kubernetes-IPv6"));
    let single = plan(&observed(Vec::new()), &[ensure(&ServiceSpec { families: vec![IpFamily::V6], ..service("web") })]);
    assert_eq!(frontend_names(put(&single, "kubernetes")), [B]);
}

#[test]
fn rules_follow_the_annotations() {
    let one = |ports: PortSpec| ServiceSpec { ports: vec![ports], ..service("web") };
    let tcp = || port(Protocol::Tcp, 80, 30080);
    let ha = ServiceSpec { ha_ports: Some(PortProbe::Own(tcp_probe(30080))), ..internal("web") };
    let local = Some(http_probe(31234, "/healthz"));
    #[rustfmt::skip]
    let cases = [
        (ha.clone(), json!({"protocol": "All", "frontendPort": 0, "backendPort": 0, "enableTcpReset": true, "enableFloatingIP": true})),
        (ServiceSpec { floating_ip: false, tcp_reset: false, ..ha }, json!({"enableTcpReset": false, "enableFloatingIP": true})),
        (one(port(Protocol::Udp, 53, 30053)), json!({"protocol": "Udp", "enableTcpReset": null, "probe": null})),
        (ServiceSpec { floating_ip: false, ..one(tcp()) }, json!({"backendPort": 30080, "enableFloatingIP": false})),
        (ServiceSpec { client_ip_affinity: true, idle_timeout: 100, ..one(tcp()) }, json!({"loadDistribution": "SourceIP", "idleTimeoutInMinutes": 100})),
        (one(PortSpec { probe: PortProbe::None, ..tcp() }), json!({"probe": null})),
        (one(PortSpec { probe: PortProbe::Shared, ..tcp() }), json!({"probe": {"id": lb("kubernetes", "probes/cluster-service-shared-health-probe")}})),
        (ServiceSpec { local_probe: local, ..one(PortSpec { probe: PortProbe::Local, ..tcp() }) }, json!({"probe": {"id": lb("kubernetes", &format!("probes/{B}-TCP-31234"))}})),
    ];
    for (spec, expected) in cases {
        let rules = properties_of_rules(&spec);
        assert_eq!(rules.len(), 1);
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&rules[0][field], value, "{field} of {spec:?}");
        }
    }
}

#[test]
fn ports_without_a_rule_have_no_probe_either_and_local_probes_are_there_once() {
    let local = |number| PortSpec { probe: PortProbe::Local, ..port(Protocol::Tcp, number, 30000 + number) };
    let ports = vec![local(80), local(443), PortSpec { rule: false, ..port(Protocol::Tcp, 81, 30081) }];
    let spec = ServiceSpec { ports, local_probe: Some(http_probe(31234, "/healthz")), ..service("web") };
    let outcome = plan(&observed(Vec::new()), &[ensure(&spec)]);
    let document = put(&outcome, "kubernetes");
    assert_eq!(rule_names(document), [format!("{B}-TCP-80"), format!("{B}-TCP-443")]);
    let probes: Vec<_> = draft::probes(document).iter().filter_map(|probe| probe.name.clone()).collect();
    assert_eq!(probes, [format!("{B}-TCP-31234")]);
}

#[test]
fn one_changed_field_changes_one_rule() {
    let before = made(&[&service("web"), &service("api")]);
    let spec = ServiceSpec { idle_timeout: 10, ports: vec![port(Protocol::Tcp, 80, 30080)], ..service("web") };
    let outcome = plan(&before, &[ensure(&spec)]);
    assert_eq!(outcome.changes.len(), 1);
    assert_eq!(
        outcome.changes[0].reasons,
        [format!("change rule {B}-TCP-80"), format!("remove rule {B}-TCP-443"), format!("remove probe {B}-TCP-443")]
    );
}

#[test]
fn edge_zones_have_no_zones() {
    let edge = LoadBalancerSettings { extended_location: Some("edge".into()), ..settings() };
    let outcome = plan_with(&observed(Vec::new()), &[ensure(&internal("web"))], &edge);
    let document = as_json(put(&outcome, "kubernetes-internal"));
    assert_eq!(document["extendedLocation"], json!({"name": "edge", "type": "EdgeZone"}));
    assert_eq!(document["properties"]["frontendIPConfigurations"][0].get("zones"), None);
}

#[test]
fn tags_change_only_where_services_are() {
    let tagged = LoadBalancerSettings { tags: [("env".to_owned(), "prod".to_owned())].into(), ..settings() };
    let before = made(&[&service("web"), &internal("int")]);
    let outcome = plan_with(&before, &[ensure(&service("web"))], &tagged);
    assert_eq!(outcome.changes.len(), 1);
    assert_eq!(outcome.changes[0].reasons, ["change tags"]);
}
