//! Properties over random clusters and histories.

use proptest::{collection::vec, prelude::*, sample::subsequence};

use super::{super::rule, *};

const NODES: [&str; 2] = ["10.0.0.4", "10.0.0.5"];

fn access() -> impl Strategy<Value = AccessControl> {
    let range = || vec!["10.0.0.0/8".parse().unwrap()];
    prop_oneof![
        3 => Just(AccessControl::default()),
        1 => Just(AccessControl { tags: vec!["AzureCloud".into()], ..AccessControl::default() }),
        1 => Just(AccessControl { ranges: range(), deny_all: true, ..AccessControl::default() }),
        1 => Just(AccessControl { ranges: range(), tags: vec!["AzureCloud".into()], ..AccessControl::default() }),
        1 => Just(AccessControl { has_invalid_ranges: true, deny_all: true, ..AccessControl::default() }),
        1 => Just(AccessControl { disabled: true, ..AccessControl::default() }),
        1 => Just(AccessControl { closed: true, ranges: range(), deny_all: true, ..AccessControl::default() }),
    ]
}

/// Generates states of the Service with number `index`.
fn state(index: usize) -> impl Strategy<Value = ServiceRules> {
    let addresses = subsequence(vec!["20.0.0.1", "20.0.0.2", "fd00::1"], 1..=2);
    let former = subsequence(vec!["20.0.0.1", "20.0.0.2", "20.0.0.3", "fd00::1"], 0..=2);
    let ports = subsequence(vec![(Protocol::Tcp, 80), (Protocol::Tcp, 443), (Protocol::Udp, 80)], 1..=3);
    let claimed = subsequence(vec!["20.0.0.9"], 0..=1);
    (addresses, former, claimed, ports, access(), 0..6).prop_map(move |(addresses, former, claimed, ports, access, kind)| {
        let port = |(protocol, number): (Protocol, i32)| PortSpec {
            node_port: 30000 + number + 1000 * i32::try_from(index).unwrap(),
            ..port(protocol, number)
        };
        let spec = ServiceSpec {
            ports: ports.into_iter().map(port).collect(),
            floating_ip: kind != 0,
            access,
            internal: kind == 1,
            additional_ips: claimed.into_iter().map(ip).collect(),
            ..spec(&index.to_string())
        };
        let addresses: Vec<_> = addresses.into_iter().map(ip).collect();
        let reach = ServiceRules::wanted(&spec, &addresses, &NODES.map(ip)).unwrap();
        let former: BTreeSet<_> =
            former.into_iter().map(ip).filter(|address| !reach.destinations.contains(address)).collect();
        let reach = match kind {
            2 => ServiceRules::removed(spec.identity.clone(), Some(&spec), &addresses),
            3 => ServiceRules::unknown(spec.identity, reach.destinations, reach.ports),
            _ => reach,
        };
        if reach.is_unknown() { reach } else { ServiceRules { former: &reach.former | &former, ..reach } }
    })
}

fn cluster() -> impl Strategy<Value = Vec<ServiceRules>> {
    (state(0), state(1), state(2), state(3)).prop_map(|(a, b, c, d)| vec![a, b, c, d])
}

fn foreign() -> Vec<Value> {
    let rule = |name: &str, priority: i64, to: &str| {
        json!({"name": name, "zone": 1, "properties": {"priority": priority, "access": "Allow", "direction": "Inbound",
            "protocol": "Tcp", "sourceAddressPrefix": "Internet", "sourcePortRange": "*", "destinationAddressPrefix": to,
            "destinationPortRanges": ["80"]}})
    };
    let mut shared = rule("k8s-azure-lb_allow_IPv4_another", 504, "20.0.0.9");
    shared["properties"]["destinationPortRanges"] = json!(["80", "8443"]);
    vec![rule("legacy-TCP-80-Internet", 501, "20.0.0.1"), rule("k8s-azure-lb_allow_IPv4_other", 503, "52.0.0.1"), shared]
}

fn nodes() -> NodeAddresses {
    NodeAddresses { present: ips(&NODES), gone: ips(&["10.0.0.6"]) }
}

fn next(group: &NetworkSecurityGroup, asks: &[ServiceRules], others: &[ServiceRules]) -> NetworkSecurityGroup {
    plan_security_rules(group, asks, others, &nodes(), &settings()).document.unwrap_or_else(|| group.clone())
}

/// Generates groups with the rules of former clusters and of other owners.
fn history() -> impl Strategy<Value = NetworkSecurityGroup> {
    vec(cluster(), 0..3).prop_map(|past| past.iter().fold(group(foreign()), |group, asks| next(&group, asks, &[])))
}

type Managed = (rule::SecurityRuleKind, BTreeSet<std::net::IpAddr>, String);

/// Returns the managed rules that can be emptied, with their destinations.
fn managed(group: &NetworkSecurityGroup) -> Vec<Managed> {
    let rules = group.properties.as_ref().unwrap().security_rules.as_ref().unwrap();
    let managed = rules.iter().filter(|rule| rule::is_managed(rule));
    let read = |found: &crate::providers::azure::model::network::SecurityRule| {
        let properties = found.properties.as_ref().unwrap();
        (rule::kind(properties).unwrap(), rule::destinations(properties).0, found.name.clone().unwrap())
    };
    managed.map(read).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn planning_twice_plans_nothing_and_cuts_no_machine_off(start in history(), services in cluster(), asking in 0..=4_usize) {
        let (asks, others) = services.split_at(asking);
        let made = next(&start, asks, others);
        let again = plan_security_rules(&made, asks, others, &nodes(), &settings());
        prop_assert_eq!(again.document, None, "{:?}", again.reasons);
        for (kind, addresses, name) in managed(&made) {
            let machines = nodes().present;
            prop_assert!(kind != rule::SecurityRuleKind::DenyAll || addresses.is_disjoint(&machines), "{}", name);
        }
    }

    #[test]
    fn neither_order_nor_grouping_matters(start in history(), services in cluster(), asking in 1..=4_usize) {
        let (asks, others) = services.split_at(asking);
        let reversed = |list: &[ServiceRules]| list.iter().rev().cloned().collect::<Vec<_>>();
        let made = next(&start, asks, others);
        prop_assert_eq!(&next(&start, &reversed(asks), &reversed(others)), &made);
        let one_by_one = asks.iter().fold(start, |group, ask| {
            let rest: Vec<_> = services.iter().filter(|other| other.identity != ask.identity).cloned().collect();
            next(&group, std::slice::from_ref(ask), &rest)
        });
        prop_assert_eq!(rules(&one_by_one), rules(&made));
    }

    #[test]
    fn who_asks_gets_what_it_claims_and_nothing_unclaimed_stays(start in history(), services in cluster()) {
        let made = managed(&next(&start, &services, &[]));
        let claimed: Vec<_> = services.iter().flat_map(ServiceRules::rule_destinations).collect();
        for grant in &claimed {
            let found = made.iter().find(|(_, _, name)| *name == grant.rule.name);
            prop_assert!(found.is_some_and(|(kind, addresses, _)| *kind == grant.rule.kind && addresses.is_superset(&grant.destinations)));
        }
        let held: BTreeSet<_> = services.iter().filter(|service| !service.is_unknown()).flat_map(|s| s.destinations.union(&s.former).copied()).filter(|address| *address != ip("20.0.0.9")).chain(nodes().present).collect();
        for (kind, addresses, name) in made {
            for address in addresses.intersection(&held) {
                let open = services.iter().filter(|service| service.is_unknown() && service.destinations.contains(address));
                let open: BTreeSet<_> = open.flat_map(|service| service.ports.values().flatten().copied()).collect();
                let alike = claimed.iter().filter(|grant| grant.rule.kind.has_same_sources(&kind) && grant.destinations.contains(address));
                let needed: BTreeSet<_> = alike.flat_map(|grant| grant.rule.kind.ports()).chain(open.iter().copied()).collect();
                let is_claimed = claimed.iter().any(|grant| grant.rule.name == name && grant.destinations.contains(address));
                let is_needed = kind.ports().all(|port| needed.contains(&port)) && (!matches!(kind, rule::SecurityRuleKind::DenyAll | rule::SecurityRuleKind::DenyPorts { .. }) || !open.is_empty());
                prop_assert!(is_claimed || is_needed, "{} at {}", name, address);
            }
        }
    }

    #[test]
    fn others_lose_nothing_and_foreign_rules_stay(before in cluster(), after in cluster(), asking in 0..=4_usize) {
        let start = next(&group(foreign()), &before, &[]);
        let (asks, others) = (&after[..asking], &before[asking..]);
        let made = next(&start, asks, others);
        let all = serde_json::to_value(&made).unwrap();
        for rule in foreign() {
            prop_assert!(all["properties"]["securityRules"].as_array().unwrap().contains(&rule));
        }
        let made = managed(&made);
        for grant in others.iter().flat_map(ServiceRules::rule_destinations) {
            let found = made.iter().find(|(_, _, name)| *name == grant.rule.name);
            prop_assert!(found.is_some_and(|(_, addresses, _)| addresses.is_superset(&grant.destinations)));
        }
    }
}
