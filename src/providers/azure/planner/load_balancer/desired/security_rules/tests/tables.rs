//! Names, priorities and fields, as upstream has them.

use super::*;

#[test]
fn a_denial_gives_way_to_a_rule_that_has_its_priority() {
    let access = AccessControl { ranges: vec!["10.0.0.0/8".parse().unwrap()], deny_all: true, ..AccessControl::default() };
    let web = ServiceRules::wanted(&ServiceSpec { access, ..spec("web") }, &[ip("20.1.2.3")], &[]).unwrap();
    let user = json!([{"name": "mine", "properties": {"priority": 4095, "direction": "Outbound", "access": "Allow"}}]);
    assert_eq!(lines(&after(&group(user), &[web], &[]))[1], "4094 deny-all_IPv4 * > 20.1.2.3 : *");
}

#[test]
fn the_number_of_security_rules_follows_from_the_spec() {
    let ranges = vec!["10.0.0.0/8".parse().unwrap()];
    let restricted = AccessControl { ranges, ..AccessControl::default() };
    let tagged = AccessControl { tags: vec!["A".into(), "B".into()], ..restricted.clone() };
    let denying = AccessControl { deny_all: true, ..restricted };
    let (v4, both) = (vec![IpFamily::V4], vec![IpFamily::V4, IpFamily::V6]);
    for (access, families, floating_ip, expected) in [
        (AccessControl::default(), v4.clone(), true, 2),
        (AccessControl::default(), both.clone(), true, 4),
        (tagged, both.clone(), true, 10),
        (denying.clone(), both, true, 4),
        (denying, v4.clone(), false, 6),
        (AccessControl { closed: true, ..AccessControl::default() }, v4.clone(), true, 0),
        (AccessControl { disabled: true, ..AccessControl::default() }, v4, true, 0),
    ] {
        let ports = vec![port(Protocol::Tcp, 80), port(Protocol::Udp, 53)];
        let web = ServiceSpec { access, families, floating_ip, ports, additional_ips: vec![ip("20.77.0.1")], ..spec("web") };
        let at = |v4: &str, v6: &str| [ip(v4), ip(v6)][..web.families.len()].to_vec();
        let members = if floating_ip { Vec::new() } else { at("10.0.0.4", "fd00::4") };
        let service_rules = ServiceRules::wanted(&web, &at("20.1.2.3", "2603:1030::3"), &members).unwrap();
        let planned = rules(&after(&group(json!([])), &[service_rules], &[])).len();
        assert_eq!((planned, web.security_rule_count()), (expected, expected), "{web:?}");
    }
}

#[test]
fn only_services_that_change_a_rule_are_causes() {
    let (first, second) = (service("a", &[80], "20.1.2.3"), service("b", &[80], "20.9.9.9"));
    let both = after(&group(json!([])), &[first.clone(), second.clone()], &[]);
    let causes = |requests: &[ServiceRules]| -> Vec<String> {
        let plan = plan_security_rules(&both, requests, &[], &NodeAddresses::default(), &settings());
        plan.causes.into_iter().map(|identity| identity.key).collect()
    };
    assert_eq!(causes(&[first.clone(), second.clone()]), [""; 0]);
    assert_eq!(causes(&[gone(&first), second.clone()]), ["default/a"]);
    assert_eq!(causes(&[first, service("c", &[80], "20.7.7.7"), second]), ["default/c"]);
}

#[test]
fn a_rule_of_a_shared_address_is_split_by_what_others_need() {
    let both = [service("old", &[80, 443], "20.1.2.3"), service("z", &[80, 443], "20.9.9.9")];
    let start = after(&group(json!([])), &both, &[]);
    let (x, y) = (service("x", &[80], "20.1.2.3"), service("y", &[443], "20.1.2.3"));
    assert_eq!(
        lines(&after(&start, &[x], &[y, both[1].clone()])),
        [
            "500 allow_IPv4_556f7044ec033071ec0dfcf7cd85bc93 Internet > 20.9.9.9 : 443,80",
            "501 allow_IPv4_bc87afc9aeeece13e643801ad1da615f Internet > 20.1.2.3 : 443",
            "502 allow_IPv4_d39272f7f57ed937951650d93992ad77 Internet > 20.1.2.3 : 80",
        ]
    );
}

#[test]
fn sources_follow_the_kind_and_the_families_of_a_service() {
    let v4 = || vec!["10.0.0.0/8".parse().unwrap()];
    let both = || vec!["0.0.0.0/0".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    let none = AccessControl::default;
    let tags = || vec!["VirtualNetwork".to_owned()];
    #[rustfmt::skip]
    let cases: [(bool, AccessControl, &[&str]); 11] = [
        (false, none(), &["Internet > 20.0.0.1", "Internet > fd00::1"]),
        (true, none(), &[]),
        (true, AccessControl { tags: tags(), ..none() }, &["VirtualNetwork > 20.0.0.1", "VirtualNetwork > fd00::1"]),
        (false, AccessControl { ranges: v4(), ..none() }, &["10.0.0.0/8 > 20.0.0.1"]),
        (false, AccessControl { ranges: both(), ..none() }, &["0.0.0.0/0 > 20.0.0.1", "2001:db8::/32 > fd00::1"]),
        (false, AccessControl { has_invalid_ranges: true, ..none() }, &["* > fd00::1", "* > 20.0.0.1"]),
        (false, AccessControl { ranges: v4(), has_invalid_ranges: true, ..none() }, &["10.0.0.0/8 > 20.0.0.1", "* > fd00::1", "* > 20.0.0.1"]),
        (false, AccessControl { deny_all: true, ..none() }, &["Internet > 20.0.0.1", "Internet > fd00::1"]),
        (false, AccessControl { disabled: true, deny_all: true, ranges: v4(), ..none() }, &[]),
        (true, AccessControl { closed: true, deny_all: true, ranges: v4(), ..none() }, &["* > fd00::1", "* > 20.0.0.1"]),
        (false, AccessControl { closed: true, ..none() }, &[]),
    ];
    for (internal, access, expected) in cases {
        let spec = ServiceSpec { internal, access, families: vec![IpFamily::V4, IpFamily::V6], ..spec("web") };
        let web = ServiceRules::wanted(&spec, &[ip("fd00::1"), ip("20.0.0.1")], &[]).unwrap();
        let made = lines(&after(&group(json!([])), &[web], &[]));
        let made: Vec<_> =
            made.iter().map(|line| line.splitn(3, ' ').nth(2).and_then(|end| end.split(" : ").next()).unwrap()).collect();
        assert_eq!(made, expected, "{internal} {:?}", spec.access);
    }
}

#[test]
fn machines_are_denied_at_the_ports_of_the_service_alone() {
    let access = AccessControl {
        has_invalid_ranges: true,
        deny_all: true,
        ranges: vec!["10.1.0.0/16".parse().unwrap()],
        ..AccessControl::default()
    };
    let ports = vec![port(Protocol::Tcp, 80), port(Protocol::Udp, 53)];
    let off = ServiceSpec { floating_ip: false, access, ports, additional_ips: vec![ip("20.0.0.9")], ..spec("web") };
    let machines = [ip("10.0.0.4"), ip("10.0.0.5")];
    let web = ServiceRules::wanted(&off, &[ip("20.0.0.1")], &machines).unwrap();
    // Earlier versions and upstream wrote this rule, which cuts the hosts off. Its other destination belongs to another cluster.
    let deny = json!({"access": "Deny", "direction": "Inbound", "protocol": "*", "sourceAddressPrefix": "*", "sourcePortRange": "*",
        "destinationPortRange": "*", "priority": 4095, "destinationAddressPrefixes": ["10.0.0.4", "10.0.0.5", "10.9.9.9"]});
    let start = group(json!([{"name": "k8s-azure-lb_deny-all_IPv4", "properties": deny}]));
    let nodes = NodeAddresses { present: ips(&["10.0.0.4", "10.0.0.5"]), ..NodeAddresses::default() };
    let made = plan_security_rules(&start, std::slice::from_ref(&web), &[], &nodes, &settings()).document.unwrap();
    let denied: Vec<String> = lines(&made).into_iter().filter(|line| line.contains("deny")).collect();
    assert_eq!(denied.len(), 3, "{denied:?}");
    for (line, (priority, port)) in denied.iter().zip([("4093", "30053"), ("4094", "30080")]) {
        assert!(line.starts_with(&format!("{priority} deny_IPv4_")), "{denied:?}");
        assert!(line.ends_with(&format!(" * > 10.0.0.4,10.0.0.5 : {port}")), "{denied:?}");
    }
    assert_eq!(denied[2], "4095 deny-all_IPv4 * > 10.9.9.9,20.0.0.9 : *");
    let protocols: Vec<_> = rules(&made).iter().map(|rule| rule["properties"]["protocol"].clone()).collect();
    assert_eq!(protocols[protocols.len() - 3..], ["Udp", "Tcp", "*"]);
    // A denying rule precedes the default rule for health probes.
    let probed: Vec<String> = lines(&made).into_iter().filter(|line| line.contains(" AzureLoadBalancer > ")).collect();
    assert!(probed.len() == 1 && probed[0].ends_with(" > 10.0.0.4,10.0.0.5 : 30080"), "{probed:?}");
    assert_eq!(plan_security_rules(&made, std::slice::from_ref(&web), &[], &nodes, &settings()).document, None);
    let left = plan_security_rules(&made, &[ServiceRules::removed(web.identity, Some(&off), &[])], &[], &nodes, &settings());
    assert_eq!(lines(&left.document.unwrap()), ["4095 deny-all_IPv4 * > 10.9.9.9 : *"]);
}

/// TCP and UDP NodePorts are allocated separately: of two Services with the same number only one denies.
#[test]
fn machines_are_denied_one_protocol_alone() {
    let access = AccessControl { deny_all: true, ranges: vec!["10.1.0.0/16".parse().unwrap()], ..AccessControl::default() };
    let off = |key: &str, protocol, access| ServiceSpec {
        floating_ip: false,
        access,
        ports: vec![port(protocol, 53)],
        ..spec(key)
    };
    let (closed, open) = (off("closed", Protocol::Tcp, access), off("open", Protocol::Udp, AccessControl::default()));
    let reach = |spec| ServiceRules::wanted(spec, &[ip("20.0.0.1")], &[ip("10.0.0.4")]).unwrap();
    let made = after(&group(json!([])), &[reach(&closed), reach(&open)], &[]);
    let denying: Vec<_> = rules(&made).into_iter().filter(|rule| rule["properties"]["access"] == "Deny").collect();
    assert_eq!(denying.iter().map(|rule| &rule["properties"]["protocol"]).collect::<Vec<_>>(), ["Tcp"]);
    let nodes = NodeAddresses { present: ips(&["10.0.0.4"]), ..NodeAddresses::default() };
    let removed = ServiceRules::removed(open.identity.clone(), Some(&open), &[ip("20.0.0.1")]);
    let left = plan_security_rules(&made, &[removed], &[reach(&closed)], &nodes, &settings()).document.unwrap();
    assert_eq!(rules(&left).iter().filter(|rule| rule["properties"]["access"] == "Deny").count(), 1);
}

/// The rules of a refused Service remain, except for those that cut hosts off.
#[test]
fn machines_are_freed_whoever_is_refused() {
    let deny = json!({"access": "Deny", "direction": "Inbound", "protocol": "*", "sourceAddressPrefix": "*", "sourcePortRange": "*",
        "destinationPortRange": "*", "priority": 4095, "destinationAddressPrefixes": ["10.0.0.4", "20.0.0.1"]});
    let start = group(json!([{"name": "k8s-azure-lb_deny-all_IPv4", "properties": deny}]));
    let nodes = NodeAddresses { present: ips(&["10.0.0.4"]), ..NodeAddresses::default() };
    let refused = ServiceRules::unknown(identity("refused"), ips(&["10.0.0.4", "20.0.0.1"]), PortsByProtocol::new());
    let asks = [service("web", &[80], "20.0.0.2")];
    let made = plan_security_rules(&start, &asks, &[refused], &nodes, &settings()).document.unwrap();
    assert_eq!(lines(&made).last().unwrap(), "4095 deny-all_IPv4 * > 20.0.0.1 : *");
}

#[test]
fn rules_of_thousands_of_ranges_are_compared_in_any_spelling_and_order() {
    let ranges: Vec<ipnet::IpNet> =
        (0..4_000_u32).map(|n| format!("11.{}.{}.0/24", n / 250, n % 250).parse().unwrap()).collect();
    let texts: Vec<String> = ranges.iter().rev().map(ToString::to_string).collect();
    let (protocol, ports) = (Protocol::Tcp, BTreeSet::from([80]));
    let kind = |sources| super::super::rule::SecurityRuleKind::Allow { protocol, sources, ports: ports.clone() };
    let straight = kind(ranges.iter().map(ToString::to_string).collect());
    assert!(straight.has_same_sources(&kind(texts.clone())));
    assert!(!straight.has_same_sources(&kind([&texts[1..], &["10.0.0.0/8".to_owned()]].concat())));
    let other_case = kind(vec!["azurecloud".into(), "2001:DB8::/32".into()]);
    assert!(other_case.has_same_sources(&kind(vec!["2001:db8::/32".into(), "AzureCloud".into()])));
}

#[test]
fn protocols_come_in_upstreams_order_and_sctp_is_any() {
    let ports = [Protocol::Sctp, Protocol::Udp, Protocol::Tcp].map(|protocol| port(protocol, 80)).to_vec();
    let web = ServiceRules::wanted(&ServiceSpec { ports, ..spec("web") }, &[ip("20.0.0.1")], &[]).unwrap();
    let made = after(&group(json!([])), &[web], &[]);
    let protocols: Vec<_> = rules(&made).iter().map(|rule| rule["properties"]["protocol"].clone()).collect();
    assert_eq!(protocols, ["Tcp", "Udp", "*"]);
    assert_eq!(rules(&made)[2]["name"], "k8s-azure-lb_allow_IPv4_038c095cadb4eb613cd17f29dc624775");
}

#[test]
fn destinations_are_front_ends_or_machines_beside_additional_addresses() {
    let additional = vec![ip("198.51.100.1")];
    let on =
        ServiceSpec { additional_ips: additional, status_addresses: vec![ip("20.0.0.9"), ip("fd00::9")], ..spec("web") };
    let reach = ServiceRules::wanted(&on, &[ip("20.0.0.1")], &[ip("10.0.0.4"), ip("fd00::4")]).unwrap();
    assert_eq!((reach.destinations, reach.former), (ips(&["198.51.100.1", "20.0.0.1"]), ips(&[])));
    assert_eq!(reach.claimed, ips(&["198.51.100.1", "20.0.0.9", "fd00::9"]));
    let dual = ServiceSpec { families: vec![IpFamily::V4, IpFamily::V6], ..on.clone() };
    let reach = ServiceRules::wanted(&dual, &[ip("20.0.0.1")], &[]).unwrap();
    let unknown = "the other address is not known yet, so that the old one may still be it";
    assert_eq!(reach.claimed, ips(&["198.51.100.1", "20.0.0.9"]), "{unknown}");
    let off = ServiceSpec { floating_ip: false, ..on };
    let reach = ServiceRules::wanted(&off, &[ip("20.0.0.1")], &[ip("10.0.0.4"), ip("fd00::4")]).unwrap();
    assert_eq!(reach.destinations, ips(&["198.51.100.1", "10.0.0.4", "fd00::4"]));
    assert_eq!((reach.former, reach.claimed), (ips(&["20.0.0.1"]), ips(&["198.51.100.1", "20.0.0.9", "fd00::9"])));
    assert_eq!(reach.ports, [(Protocol::Tcp, [30080].into())].into());
    assert_eq!(ServiceRules::wanted(&off, &[], &[ip("10.0.0.4")]).unwrap_err().field, "status.loadBalancer");
}
