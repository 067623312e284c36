use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::*;
use crate::providers::azure::{
    config::{AzureConfig, LoadBalancerSku},
    model::ResourceId,
    planner::load_balancer::{annotations::PREFIX, naming, settings::LoadBalancerSettings},
};

pub(super) use crate::providers::azure::planner::load_balancer::desired::samples::settings;

const UID: &str = "6f3c1a52-8d7e-4b90-9a41-2c5d7e8f9a01";

/// Returns `default/web` with the ports `http` 80 → 30080 and `https` 443 → 30443, changed by `fields`. Keys of annotations have no prefix.
pub(super) fn service(annotations: &[(&str, &str)], fields: Value) -> Service {
    let annotations: BTreeMap<_, _> = annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value)).collect();
    let mut spec = json!({"type": "LoadBalancer", "ports": [
        {"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080},
        {"name": "https", "protocol": "TCP", "port": 443, "nodePort": 30443}]});
    if let (Value::Object(spec), Value::Object(fields)) = (&mut spec, fields) {
        spec.extend(fields);
    }
    let metadata = json!({"namespace": "default", "name": "web", "uid": UID, "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

pub(super) fn accepted(annotations: &[(&str, &str)], fields: Value) -> ServiceSpec {
    parse_service(&service(annotations, fields), &settings()).unwrap()
}

/// Returns fields and messages of refusals, with keys without prefix.
pub(super) fn refused(annotations: &[(&str, &str)], fields: Value) -> Vec<String> {
    let refusals = parse_service(&service(annotations, fields), &settings()).err().unwrap_or_default();
    refusals.iter().map(|refusal| refusal.to_string().replace(PREFIX, "")).collect()
}

/// Returns reasons and fields of warnings, with keys without prefix.
pub(super) fn warned(annotations: &[(&str, &str)], fields: Value) -> Vec<(&'static str, String)> {
    let warnings = warnings(&service(annotations, fields), &settings());
    warnings.into_iter().map(|warning| (warning.reason, warning.field.replace(PREFIX, ""))).collect()
}

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

#[test]
fn all_problems_are_told_at_once() {
    let found = refused(
        &[
            ("azure-load-balancer-tcp-idle-timeout", "3"),
            ("azure-additional-public-ips", "192.0.2.1,x"),
            ("azure-load-balancer-health-probe-interval", "4"),
            ("port_443_health-probe_num-of-probe", "1"),
            ("azure-load-balancer-ipv4", "10.0.0.1"),
            ("azure-pip-prefix-id", "prefix"),
            ("azure-allowed-ip-ranges", "192.0.2.0/24"),
        ],
        json!({"loadBalancerSourceRanges": ["198.51.100.0/24"]}),
    );
    let fields: Vec<_> = found.iter().filter_map(|text| text.split(": ").next()).collect();
    assert_eq!(
        fields,
        [
            "azure-load-balancer-health-probe-interval",
            "port_443_health-probe_num-of-probe",
            "azure-pip-prefix-id",
            "azure-load-balancer-tcp-idle-timeout",
            "azure-additional-public-ips",
            "spec.loadBalancerSourceRanges",
        ]
    );
    assert!(found[3].ends_with("expected a whole number from 4 to 100, found `3`"), "{}", found[3]);
}

#[test]
fn idle_timeouts_are_minutes_from_4_to_100() {
    for (text, want) in
        [("4", Some(4)), ("100", Some(100)), (" 30 ", Some(30)), ("3", None), ("101", None), ("", None), ("x", None)]
    {
        let spec = parse_service(&service(&[("azure-load-balancer-tcp-idle-timeout", text)], json!({})), &settings());
        assert_eq!(spec.map(|spec| spec.idle_timeout).ok(), want, "{text}");
    }
}

#[test]
fn pinned_addresses_of_external_services_are_public() {
    for (family, address, message) in [
        ("ipv4", "10.0.0.5", Some("cannot use non-public LoadBalancer IP \"10.0.0.5\"")),
        ("ipv4", "nonsense", Some("invalid LoadBalancer IP \"nonsense\"; expected an IPv4 address")),
        ("ipv4", "2001:db8::1", Some("invalid LoadBalancer IP \"2001:db8::1\"; expected an IPv4 address")),
        ("ipv4", "20.0.0.1", None),
        ("ipv4", "", None),
        ("ipv6", "nonsense", None),
    ] {
        let key = format!("azure-load-balancer-{family}");
        let found = refused(&[(&*key, address)], json!({}));
        assert_eq!(found.len(), usize::from(message.is_some()), "{address}: {found:?}");
        assert!(message.is_none_or(|message| found[0].starts_with(&format!("{key}: {message}"))), "{found:?}");
    }
    let from_spec = |address: &str| refused(&[], json!({"loadBalancerIP": address}));
    assert!(from_spec("10.0.0.5")[0].starts_with("spec.loadBalancerIP: cannot use non-public LoadBalancer IP \"10.0.0.5\""));
    assert!(from_spec("nonsense")[0].starts_with("spec.loadBalancerIP: invalid LoadBalancer IP \"nonsense\""));
}

/// On Azure Stack, an operator may choose private ranges for public IPs (cloud-provider-azure#10863).
#[test]
fn on_azure_stack_every_address_may_be_public() {
    let stack = LoadBalancerSettings { is_azure_stack: true, ..settings() };
    for address in ["10.255.96.63", "192.168.0.1", "100.64.0.1", "20.0.0.1"] {
        for (annotations, fields) in
            [(vec![("azure-load-balancer-ipv4", address)], json!({})), (vec![], json!({"loadBalancerIP": address}))]
        {
            let spec = parse_service(&service(&annotations, fields), &stack);
            assert_eq!(spec.map(|spec| spec.pinned.v4), Ok(address.parse::<IpAddr>().ok()));
        }
    }
    let nonsense = service(&[("azure-load-balancer-ipv4", "nonsense")], json!({}));
    assert!(parse_service(&nonsense, &stack).is_err());
    let additional = service(&[("azure-additional-public-ips", "10.255.96.64")], json!({}));
    assert_eq!(parse_service(&additional, &stack).unwrap().additional_ips.len(), 1);
}

#[test]
fn addresses_are_pinned_by_annotation_else_by_field() {
    let v4 = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    let dual = json!({"ipFamilies": ["IPv4", "IPv6"], "loadBalancerIP": "10.0.0.4"});
    let pinned = accepted(&[INTERNAL, ("azure-load-balancer-ipv6", "FD00:0::4")], dual.clone()).pinned;
    assert_eq!(pinned, PerFamily { v4: v4("10.0.0.4"), v6: v4("fd00::4") });
    let pinned = accepted(&[INTERNAL, ("azure-load-balancer-ipv4", "10.0.0.9")], dual).pinned;
    assert_eq!(pinned, PerFamily { v4: v4("10.0.0.9"), v6: None });
}

#[test]
fn names_and_prefixes_of_single_stack_ipv6_fall_back() {
    let prefix =
        |name: &str| format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPPrefixes/{name}");
    let (p4, p6) = (prefix("p4"), prefix("p6"));
    let both = [
        ("azure-pip-name", "n4"),
        ("azure-pip-name-ipv6", "n6"),
        ("azure-pip-prefix-id", &*p4),
        ("azure-pip-prefix-id-ipv6", &*p6),
    ];
    let only = [both[0], both[2]];
    for (families, annotations, v4, v6) in [
        (json!(["IPv4"]), &both[..], Some("4"), None),
        (json!(["IPv6"]), &both[..], None, Some("6")),
        (json!(["IPv6"]), &only[..], None, Some("4")),
        (json!(["IPv6", "IPv4"]), &both[..], Some("4"), Some("6")),
        (json!(["IPv4", "IPv6"]), &only[..], Some("4"), None),
    ] {
        let public_ip = accepted(annotations, json!({"ipFamilies": families})).public_ip;
        let with = |start: &str, end: Option<&str>| end.map(|end| format!("{start}{end}"));
        assert_eq!(public_ip.name, PerFamily { v4: with("n", v4), v6: with("n", v6) });
        assert_eq!(public_ip.prefix, PerFamily { v4: with(&prefix("p"), v4), v6: with(&prefix("p"), v6) });
    }
}

#[test]
fn labels_and_ip_tags_tell_absent_from_empty() {
    let asked = |annotations: &[(&str, &str)]| accepted(annotations, json!({})).public_ip;
    assert_eq!(asked(&[("azure-dns-label-name", "")]).dns_label.as_deref(), Some(""));
    assert_eq!(asked(&[("azure-pip-ip-tags", "")]).ip_tags, Some(vec![]));
    assert_eq!(asked(&[("azure-load-balancer-resource-group", " other ")]).group, ResourceId::group_of("sub", "other"));
    let tags = [("azure-pip-tags", "a=b,bad")];
    assert_eq!(warned(&tags, json!({})), [(reason::IGNORED_CONFIGURATION, tags[0].0.to_owned())]);
}

#[test]
fn the_subnet_counts_for_internal_services_only() {
    let subnet = ("azure-load-balancer-internal-subnet", "apps");
    assert_eq!(accepted(&[INTERNAL, subnet], json!({})).subnet.as_deref(), Some("apps"));
    assert_eq!(refused(&[INTERNAL, (subnet.0, " apps")], json!({})).len(), 1, "it is part of names as it is written");
    assert_eq!(accepted(&[INTERNAL, (subnet.0, "  ")], json!({})).subnet, None);
    assert_eq!(accepted(&[subnet], json!({})).subnet, None);
    assert_eq!(warned(&[subnet], json!({})), [(reason::IGNORED_CONFIGURATION, subnet.0.to_owned())]);
}

#[test]
fn the_mode_counts_for_basic_load_balancers_only() {
    let service = service(&[("azure-load-balancer-mode", " __auto__ ")], json!({}));
    assert_eq!(parse_service(&service, &settings()).unwrap().mode, None);
    assert_eq!(warnings(&service, &settings()).len(), 1);
    let basic = LoadBalancerSettings { sku: LoadBalancerSku::Basic, ..settings() };
    assert_eq!(parse_service(&service, &basic).unwrap().mode.as_deref(), Some("__auto__"));
    assert_eq!(warnings(&service, &basic), []);
}

#[test]
fn sctp_needs_all_ports_of_an_internal_standard_load_balancer() {
    let ports = json!({"ports": [{"protocol": "SCTP", "port": 5000, "nodePort": 30500}]});
    let all_ports = ("azure-load-balancer-enable-high-availability-ports", "True");
    for annotations in [&[][..], &[INTERNAL], &[all_ports]] {
        let found = refused(annotations, ports.clone());
        assert!(found.len() == 1 && found[0].starts_with("spec.ports[0].protocol: SCTP is only supported"), "{found:?}");
    }
    assert_eq!(accepted(&[INTERNAL, all_ports], ports.clone()).ha_ports, Some(PortProbe::None));
    assert!(!accepted(&[("port_5000_no_lb_rule", "true")], ports).ports[0].rule);
}

#[test]
fn traffic_to_node_ports_needs_node_ports() {
    let ports = json!({"ports": [{"protocol": "UDP", "port": 53}]});
    let without_floating = ("azure-disable-load-balancer-floating-ip", "true");
    assert_eq!(accepted(&[], ports.clone()).ports[0].node_port, 0);
    assert_eq!(refused(&[without_floating], ports.clone()).len(), 1);
    assert_eq!(accepted(&[without_floating, ("port_53_no_lb_rule", "true")], ports).ports.len(), 1);
}

#[test]
fn what_keeps_a_service_from_being_made_keeps_none_from_being_deleted() {
    let annotations =
        [("azure-additional-public-ips", "x"), ("azure-allowed-ip-ranges", "192.0.2.0/24"), ("azure-pip-name", "mine")];
    let service = service(&annotations, json!({"loadBalancerSourceRanges": ["198.51.100.0/24"]}));
    assert_eq!(parse_service(&service, &settings()).map_err(|refusals| refusals.len()), Err(2));
    let lenient = parse_leniently(&service, &settings());
    assert_eq!((lenient.identity, lenient.public_ip.name.v4.as_deref()), (identity_of(&service), Some("mine")));
    assert_eq!((lenient.ports.len(), lenient.additional_ips.len()), (2, 0));
}

/// Texts that would become part of URLs, labels, events and log lines.
#[test]
fn what_arm_could_not_know_is_refused_before_it_is_used() {
    let long = "x".repeat(240_000);
    let dots = format!("{}=v", "k".repeat(600));
    for (key, text) in [
        ("azure-load-balancer-resource-group", &*long),
        ("azure-load-balancer-resource-group", "../../other"),
        ("azure-load-balancer-resource-group", "a\u{7}b"),
        ("azure-pip-name", &long),
        ("azure-pip-name", "a b"),
        ("azure-pip-name-ipv6", "a?b"),
        ("azure-pip-prefix-id", &long),
        ("azure-pip-tags", &long),
        ("azure-pip-tags", &dots),
        ("azure-pip-ip-tags", &long),
        ("azure-load-balancer-ipv4", &long),
        ("azure-additional-public-ips", &long),
        ("azure-load-balancer-tcp-idle-timeout", &long),
        ("port_80_health-probe_port", &long),
    ] {
        let found = refused(&[(key, text)], json!({}));
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        assert!(found[0].starts_with(&format!("{key}: ")) && found[0].len() <= 600, "{key}: {}", found[0]);
        assert!(!found[0].contains(&"x".repeat(65)), "more than 64 characters are shown: {}", found[0]);
        let lenient = parse_leniently(&service(&[(key, text)], json!({})), &settings());
        assert_eq!((lenient.public_ip.group, lenient.public_ip.name), (settings().group, PerFamily::default()), "{key}");
    }
    let probe =
        [("azure-load-balancer-health-probe-protocol", "http"), ("azure-load-balancer-health-probe-request-path", &*long)];
    assert_eq!(refused(&probe, json!({})).len(), 1);
    assert_eq!(refused(&[INTERNAL, ("azure-load-balancer-internal-subnet", &long)], json!({})).len(), 1);
}

#[test]
fn what_decides_nothing_is_no_reason_to_refuse() {
    for (annotations, key) in [
        (vec![("azure-load-balancer-internal-subnet", "a b")], "azure-load-balancer-internal-subnet"),
        (vec![("azure-load-balancer-mode", "a b")], "azure-load-balancer-mode"),
        (vec![INTERNAL, ("azure-pip-name", "a b")], "azure-pip-name"),
        (vec![INTERNAL, ("azure-dns-label-name", "a b")], "azure-dns-label-name"),
        (vec![("azure-pip-name", "mine"), ("azure-load-balancer-ipv4", "10.0.0.5")], "azure-load-balancer-ipv4"),
    ] {
        assert_eq!(accepted(&annotations, json!({})).pinned, PerFamily::default(), "{key}");
        assert_eq!(warned(&annotations, json!({})), [(reason::IGNORED_CONFIGURATION, key.to_owned())]);
    }
}

const TAGS: &str = "azure-allowed-service-tags";

#[test]
fn one_service_takes_only_so_much_of_what_all_share() {
    let ports: Vec<Value> =
        (1..=130).map(|port| json!({"name": format!("p{port}"), "port": port, "nodePort": 30_000 + port})).collect();
    let ranges: Vec<String> = (0..130).map(|index| format!("10.{index}.{index}.0/24")).collect();
    let many = |families: &[&str]| json!({"ports": ports, "loadBalancerSourceRanges": ranges, "ipFamilies": families});
    let without_rules: Vec<(String, &str)> =
        (1..=130).map(|port| (format!("port_{port}_no_lb_rule"), "true")).chain([(TAGS.to_owned(), "A,B,C")]).collect();
    let annotations: Vec<(&str, &str)> = without_rules.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    for (families, [rules, source_ranges, security_rules], refused) in [
        (&["IPv4"][..], [Some(130), Some(130), Some(4)], &[][..]),
        (&["IPv4"], [Some(129), Some(130), Some(3)], &["spec.ports", TAGS]),
        (&["IPv4", "IPv6"], [Some(259), Some(129), Some(7)], &["spec.ports", "spec.loadBalancerSourceRanges"]),
        (&["IPv4", "IPv6"], [Some(0), Some(0), Some(0)], &[]),
        (&["IPv4", "IPv6"], [None, None, None], &[]),
    ] {
        let config = AzureConfig {
            maximum_service_rule_count: rules,
            maximum_service_source_range_count: source_ranges,
            maximum_service_security_rule_count: security_rules,
            ..AzureConfig::default()
        };
        let service = service(&annotations, many(families));
        let found = parse_service(&service, &LoadBalancerSettings::new(&config, "kubernetes"));
        let mut found = found.err().unwrap_or_default();
        found.iter_mut().for_each(|refusal| refusal.field = refusal.field.replace(PREFIX, ""));
        assert_eq!(found.iter().map(|refusal| refusal.field.as_str()).collect::<Vec<_>>(), refused, "{found:?}");
    }
}

#[test]
fn services_name_groups_that_the_configuration_allows() {
    for (subscription, group, allowed, enforced, refused) in [
        ("other", "victim", &[][..], false, false),
        ("sub", "any", &[], false, false),
        ("sub", "victim", &["shared"], false, true),
        ("sub", "Shared", &["shared"], false, false),
        ("sub", "RG", &["shared"], false, false),
        ("other", "shared", &["shared"], false, true),
        ("sub", "victim", &[], true, true),
        ("sub", "rg", &[], true, false),
    ] {
        let allowed_groups = allowed.iter().map(|group| (*group).to_owned()).collect();
        let settings = LoadBalancerSettings { allowed_groups, namespaces_are_enforced: enforced, ..settings() };
        let message = |key: &str, text: &str| {
            let service = service(&[(key, text)], json!({"ipFamilies": ["IPv4", "IPv6"]}));
            parse_service(&service, &settings).err().map(|refusals| refusals[0].message.clone()).unwrap_or_default()
        };
        let prefix = ResourceId::group_of(subscription, group).resource("Microsoft.Network/publicIPPrefixes", &["p"]);
        for key in ["azure-pip-prefix-id", "azure-pip-prefix-id-ipv6"] {
            let is_refused = message(key, prefix.as_str()).contains("allowedPublicIPResourceGroups");
            assert_eq!(is_refused, refused, "{key} {prefix} {allowed:?} {enforced}");
        }
        if enforced || subscription != "sub" {
            continue;
        }
        let key = "azure-load-balancer-resource-group";
        let expected = format!("allowedPublicIPResourceGroups names (`shared`), found `{group}`");
        let found = message(key, group);
        assert!(if refused { found.contains(&expected) } else { found.is_empty() }, "{group} {allowed:?}: {found}");
        let removed_from = parse_leniently(&service(&[(key, group)], json!({})), &settings).public_ip.group;
        assert_eq!(removed_from, ResourceId::group_of("sub", group), "found to be taken away");
    }
}

/// A text that is too long is refused, and no part of it is read.
#[test]
fn tags_that_are_too_long_are_not_split() {
    for key in ["azure-pip-tags", "azure-pip-ip-tags"] {
        let long = "k8s-azure-x,".repeat(20_000);
        let warnings = warned(&[(key, &long)], json!({}));
        assert_eq!((refused(&[(key, &long)], json!({})).len(), warnings), (1, vec![]), "{key}");
    }
    assert_eq!(warned(&[("azure-pip-tags", "Service=x/y")], json!({})).len(), 1);
}

#[test]
fn of_many_problems_some_are_told() {
    let ports: Vec<_> = (1..=1_501).map(|port| json!({"protocol": "SCTP", "port": port, "nodePort": port})).collect();
    let found = refused(&[], json!({"ports": ports}));
    assert_eq!(parse_leniently(&service(&[], json!({"ports": ports})), &settings()).ports.len(), 1_500);
    assert_eq!(found.len(), 20);
    assert!(found[0].starts_with("spec.ports: expected at most 1500 ports, found more"), "{}", found[0]);
    let ports: Vec<_> = (1..=1_500).map(|port| json!({"port": port, "nodePort": port})).collect();
    let tags = ["AzureCloud"; 11].join(",");
    let found = refused(&[("azure-allowed-service-tags", &tags)], json!({"ports": ports}));
    assert!(found.len() == 1 && found[0].contains("found 11 tags and 1500 ports"), "{found:?}");
}

#[test]
fn without_a_uid_a_service_owns_nothing() {
    let mut nobody = service(&[], json!({}));
    nobody.metadata.uid = None;
    assert_eq!(parse_service(&nobody, &settings()).unwrap_err()[0].field, "metadata.uid");
    assert!(!naming::owns_frontend(&identity_of(&nobody), &naming::identity("default", "web", UID).name_prefix));
}

#[test]
fn addresses_of_the_status_are_known() {
    let mut known = service(&[], json!({}));
    let status = json!({"loadBalancer": {"ingress": [{"ip": "20.0.0.1"}, {"hostname": "h"}, {"ip": ""}, {"ip": "2603:1030:C02::1"}]}});
    known.status = serde_json::from_value(status).unwrap();
    let addresses = parse_service(&known, &settings()).unwrap().status_addresses;
    assert_eq!(addresses, ["20.0.0.1", "2603:1030:c02::1"].map(|text| text.parse::<IpAddr>().unwrap()));
}
