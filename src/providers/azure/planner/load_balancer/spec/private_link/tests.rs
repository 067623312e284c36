use serde_json::{Value, json};

use super::super::{
    ServiceSpec, parse_service,
    tests::{accepted, refused, service, settings, warned},
};
use super::*;
use crate::providers::azure::{model::ResourceId, planner::load_balancer::desired::samples::plain_private_link};

const CREATE: (&str, &str) = ("azure-pls-create", "true");
const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

fn of(more: &[(&str, &str)]) -> PrivateLinkSpec {
    let annotations = [&[CREATE, INTERNAL], more].concat();
    accepted(&annotations, json!({})).private_link.unwrap()
}

fn refusals(more: &[(&str, &str)]) -> Vec<String> {
    refused(&[&[CREATE, INTERNAL], more].concat(), json!({}))
}

#[test]
fn only_true_asks_for_one() {
    for (text, asks) in [("true", true), (" TRUE ", true), ("yes", false), ("", false), ("false", false)] {
        let spec: ServiceSpec = accepted(&[("azure-pls-create", text), INTERNAL], json!({}));
        assert_eq!(spec.private_link.is_some(), asks, "{text}");
    }
}

#[test]
fn without_other_annotations_it_has_the_defaults() {
    let plain = plain_private_link(ResourceId::group_of("sub", "rg"));
    assert_eq!(of(&[]), plain);
    let blank = [("azure-pls-resource-group", "  "), ("azure-pls-ip-configuration-subnet", " "), ("azure-pls-fqdns", " ")];
    let owners_only = vec![PLS_SUBNET.key, PLS_FQDNS.key];
    assert_eq!(of(&blank), PrivateLinkSpec { owners_only, ..plain }, "its mere presence counts");
}

#[test]
fn every_annotation_is_read() {
    let link = of(&[
        ("azure-pls-name", " mine "),
        ("azure-pls-resource-group", " Links "),
        ("azure-pls-ip-configuration-subnet", " pls "),
        ("azure-pls-ip-configuration-ip-address-count", " 4 "),
        ("azure-pls-ip-configuration-ip-address", "10.0.0.9  10.0.0.7 10.0.0.9 ::ffff:10.0.0.8"),
        ("azure-pls-fqdns", "b.example a.example"),
        ("azure-pls-proxy-protocol", " True "),
        ("azure-pls-visibility", "s1 * s2"),
        ("azure-pls-auto-approval", "s1 *"),
    ]);
    assert_eq!((link.group, link.names_group), (ResourceId::group_of("sub", "Links"), true));
    assert_eq!((link.name.as_deref(), link.subnet), (Some("mine"), Some((PLS_SUBNET.key, "pls".to_owned()))));
    let addresses: Vec<String> = link.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.9", "10.0.0.7", "10.0.0.8"], "in their order, each once");
    assert_eq!((link.address_count, link.proxy_protocol), (4, true));
    assert_eq!(link.fqdns, ["b.example", "a.example"]);
    assert_eq!((link.visibility, link.auto_approval), (vec!["*".to_owned()], vec!["s1".to_owned(), "*".to_owned()]));
}

#[test]
fn an_internal_service_has_it_where_its_front_end_is() {
    let subnet = ("azure-load-balancer-internal-subnet", "apps");
    let key = crate::providers::azure::planner::load_balancer::annotations::INTERNAL_SUBNET.key;
    assert_eq!(of(&[subnet]).subnet, Some((key, "apps".to_owned())));
    assert_eq!(of(&[subnet, ("azure-pls-ip-configuration-subnet", "pls")]).subnet, Some((PLS_SUBNET.key, "pls".to_owned())));
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_looked_at() {
    let count = "azure-pls-ip-configuration-ip-address-count";
    let address = "azure-pls-ip-configuration-ip-address";
    for (more, start) in [
        (vec![("azure-pls-name", "  ")], "azure-pls-name: expected a name"),
        (vec![("azure-pls-name", "a/b")], "azure-pls-name: expected a name"),
        (vec![(count, "0")], "azure-pls-ip-configuration-ip-address-count: expected a whole number from 1 to 8"),
        (vec![(count, "9")], "azure-pls-ip-configuration-ip-address-count: expected a whole number from 1 to 8"),
        (vec![(count, "x")], "azure-pls-ip-configuration-ip-address-count: expected a whole number from 1 to 8"),
        (vec![(address, "fd00::1")], "azure-pls-ip-configuration-ip-address: expected IPv4 addresses"),
        (vec![(address, "10.0.0.1,10.0.0.2")], "azure-pls-ip-configuration-ip-address: expected IPv4 addresses"),
        (vec![(address, "10.0.0.1 10.0.0.2")], "azure-pls-ip-configuration-ip-address: expected at most 1 addresses"),
        (vec![("azure-pls-resource-group", "a/b")], "azure-pls-resource-group: expected the name of a resource group"),
        (vec![("azure-pls-ip-configuration-subnet", "a b")], "azure-pls-ip-configuration-subnet: expected"),
    ] {
        let found = refusals(&more);
        assert!(found.len() == 1 && found[0].starts_with(start), "{more:?}: {found:?}");
    }
}

#[test]
fn azure_has_to_be_able_to_put_one_there() {
    let external = |more: &[(&str, &str)], fields: Value| refused(&[&[CREATE], more].concat(), fields);
    assert!(external(&[], json!({}))[0].contains("needs an internal load balancer, or"));
    assert_eq!(external(&[("azure-disable-load-balancer-floating-ip", "true")], json!({})), Vec::<String>::new());
    let families = |families: Value| refused(&[CREATE, INTERNAL], json!({"ipFamilies": families}));
    assert!(families(json!(["IPv6"]))[0].contains("needs an IPv4 front end"));
    assert_eq!(families(json!(["IPv6", "IPv4"])), Vec::<String>::new());
    let basic = LoadBalancerSettings { sku: LoadBalancerSku::Basic, ..settings() };
    let refusals = parse_service(&service(&[CREATE, INTERNAL], json!({})), &basic).unwrap_err();
    assert!(refusals[0].message.contains("standard load balancer"), "{refusals:?}");
}

#[test]
fn nothing_of_it_is_refused_when_none_is_asked_for() {
    let annotations = [("azure-pls-name", " "), ("azure-pls-ip-configuration-ip-address-count", "9")];
    assert_eq!(accepted(&annotations, json!({})).private_link, None);
    assert_eq!(warned(&annotations, json!({})), [(reason::IGNORED_CONFIGURATION, "azure-pls-name".to_owned())]);
}

#[test]
fn the_shared_probe_needs_somebody_who_understands_the_header() {
    let proxied = [CREATE, INTERNAL, ("azure-pls-proxy-protocol", "true")];
    let warned = |port: i32, fields: Value| {
        let mode = crate::providers::azure::config::HealthProbeMode::Shared;
        let settings = LoadBalancerSettings { probe_mode: mode, shared_probe: (port, "/healthz".into()), ..settings() };
        let warnings = super::super::warnings(&service(&proxied, fields), &settings);
        warnings.into_iter().any(|warning| warning.reason == reason::UNANSWERED_PROBE)
    };
    assert!(warned(10_256, json!({})));
    assert!(!warned(10_356, json!({})), "health-probe-proxy");
    assert!(!warned(10_256, json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000})));
}

#[test]
fn the_group_is_in_the_subscription_of_the_machines() {
    let config = crate::providers::azure::config::AzureConfig {
        subscription_id: "machines".into(),
        network_resource_subscription_id: "network".into(),
        resource_group: "rg".into(),
        private_link_service_resource_group: "links".into(),
        ..Default::default()
    };
    let settings = LoadBalancerSettings::new(&config, "kubernetes");
    let group = |annotations: &[(&str, &str)]| {
        parse_service(&service(annotations, json!({})), &settings).unwrap().private_link.unwrap().group
    };
    assert_eq!(group(&[CREATE, INTERNAL]), ResourceId::group_of("machines", "links"));
    let named = group(&[CREATE, INTERNAL, ("azure-pls-resource-group", "other")]);
    assert_eq!(named, ResourceId::group_of("machines", "other"));
}
