//! Cases that upstream handles incorrectly, rules of other owners, and limits.

use super::*;

const WEB: &str = "k8s-azure-lb_allow_IPv4_d39272f7f57ed937951650d93992ad77";

/// Returns the rule for port 80 from the Internet, as ARM returns it.
fn web_rule(destinations: &[&str]) -> Value {
    json!({"id": "/x", "name": WEB, "etag": "e", "properties": {"access": "allow", "direction": "Inbound", "priority": 507,
        "provisioningState": "Succeeded", "protocol": "TCP", "sourceAddressPrefix": "internet", "sourceAddressPrefixes": [],
        "sourcePortRange": "*", "sourcePortRanges": [], "destinationAddressPrefixes": destinations, "destinationPortRange": "",
        "destinationPortRanges": ["80"], "sourceApplicationSecurityGroups": []}})
}

#[test]
fn a_guest_denies_nothing_at_the_ports_of_the_owner() {
    let denying = |key: &str, number: i32| {
        let access = AccessControl { ranges: vec!["10.9.0.0/16".parse().unwrap()], deny_all: true, ..Default::default() };
        let ports = vec![port(Protocol::Tcp, number)];
        ServiceRules::wanted(&ServiceSpec { access, ports, ..spec(key) }, &[ip("20.0.0.1")], &[]).unwrap()
    };
    let names = |rules: &ServiceRules| -> Vec<String> {
        rules.rule_destinations().into_iter().map(|destinations| destinations.rule.name).collect()
    };
    let (owner, guest) = (denying("web", 80), denying("guest", 81));
    assert!(names(&owner).iter().any(|name| name.contains("deny-all")));
    assert_eq!(owner.clone().as_guest(|_| false), owner);
    let guest = guest.as_guest(|address| *address == ip("20.0.0.1"));
    assert!(!names(&guest).iter().any(|name| name.contains("deny-all")), "{:?}", names(&guest));
    let made = after(&group(json!([])), &[service("web", &[80], "20.0.0.1"), guest.clone()], &[]);
    let denied: Vec<Value> = rules(&made).into_iter().filter(|rule| rule["properties"]["access"] == "Deny").collect();
    assert_eq!(denied.len(), 1);
    assert_eq!(denied[0]["properties"]["destinationPortRanges"], json!(["81"]), "{denied:?}");
    // The rules are removed with the guest.
    let left = after(&made, &[gone(&guest)], &[service("web", &[80], "20.0.0.1")]);
    assert_eq!(rules(&left).len(), 1);
}

#[test]
fn what_means_the_same_is_not_written() {
    let web = service("web", &[80], "20.0.0.1");
    for destinations in [&["20.0.0.1"][..], &["20.0.0.1/32"]] {
        assert_eq!(run(&group(json!([web_rule(destinations)])), std::slice::from_ref(&web), &[]).document, None);
    }
    assert_eq!(run(&group(json!([web_rule(&["20.0.0.9"])])), &[], &[web]), SecurityRulePlan::default());
}

#[test]
fn a_rule_keeps_what_is_not_changed_in_it() {
    let made = after(&group(json!([web_rule(&["20.0.0.9"])])), &[service("web", &[80], "20.0.0.1")], &[]);
    let mut expected = web_rule(&["20.0.0.1", "20.0.0.9"]);
    expected.as_object_mut().unwrap().remove("etag");
    expected["properties"].as_object_mut().unwrap().remove("provisioningState");
    assert_eq!(rules(&made), [expected]);
    assert_eq!(serde_json::to_value(&made).unwrap()["properties"]["flushConnection"], false);
}

#[test]
fn changes_of_others_in_a_wanted_rule_are_undone_at_its_priority() {
    let web = service("web", &[80], "20.0.0.1");
    for (field, value) in [
        ("access", json!("Deny")),
        ("direction", json!("Outbound")),
        ("protocol", json!("Udp")),
        ("sourceAddressPrefix", json!("VirtualNetwork")),
        ("sourcePortRange", json!("1")),
        ("destinationPortRanges", json!(["80", "81"])),
    ] {
        let mut rule = web_rule(&["20.0.0.1"]);
        rule["properties"][field] = value;
        let made = after(&group(json!([rule])), std::slice::from_ref(&web), &[]);
        let expected = format!("507 {} Internet > 20.0.0.1 : 80", WEB.trim_start_matches("k8s-azure-lb_"));
        assert_eq!(lines(&made), [expected], "{field}");
    }
}

#[test]
fn rules_of_others_stay_as_they_are() {
    let foreign = json!([
        {"name": "aweb-TCP-80-Internet", "properties": {"priority": 600, "access": "Allow", "protocol": "Tcp", "direction": "Inbound",
            "sourceAddressPrefix": "Internet", "destinationAddressPrefix": "20.0.0.1", "destinationPortRange": "80"}},
        {"name": "nothing", "properties": {"priority": 500}},
        {"name": "k8s-azure-lb_own", "properties": {"priority": 499, "access": "Allow", "protocol": "Tcp", "direction": "Inbound",
            "sourceAddressPrefix": "Internet", "destinationAddressPrefix": "20.0.0.1", "destinationPortRange": "80"}},
        {"name": "k8s-azure-lb_range", "properties": {"priority": 501, "access": "Allow", "protocol": "Tcp", "direction": "Inbound",
            "sourceAddressPrefix": "Internet", "destinationAddressPrefix": "20.0.0.1", "destinationPortRange": "80-90"}},
    ]);
    let web = service("web", &[81], "20.0.0.1");
    let made = after(&group(foreign.clone()), std::slice::from_ref(&web), &[]);
    let all = serde_json::to_value(&made).unwrap();
    let all = all["properties"]["securityRules"].as_array().unwrap();
    assert_eq!(all[..4], foreign.as_array().unwrap()[..]);
    assert_eq!(all[4]["properties"]["priority"], 502);
    assert_eq!(serde_json::to_value(after(&made, &[gone(&web)], &[])).unwrap()["properties"]["securityRules"], foreign);
}

#[test]
fn a_rule_with_another_kind_of_destination_is_not_removed() {
    let mut rule = web_rule(&["20.0.0.1"]);
    rule["properties"]["destinationApplicationSecurityGroups"] = json!([{"id": "/asg"}]);
    let web = service("web", &[80], "20.0.0.1");
    assert_eq!(rules(&after(&group(json!([rule])), &[gone(&web)], &[])).len(), 1);
    let range = group(json!([web_rule(&["20.0.0.1", "20.1.0.0/16"])]));
    assert_eq!(rules(&after(&range, &[gone(&web)], &[]))[0]["properties"]["destinationAddressPrefix"], "20.1.0.0/16");
}

#[test]
fn addresses_of_nobody_stay_until_they_are_known_to_have_been_ours() {
    let start = group(json!([web_rule(&["20.0.0.1", "20.0.0.7", "10.0.0.9"])]));
    let web = service("web", &[80], "20.0.0.1");
    assert_eq!(run(&start, std::slice::from_ref(&web), &[]).document, None, "another cluster's");
    let moved = ServiceRules { former: ips(&["20.0.0.7"]), ..web };
    let nodes = NodeAddresses { gone: ips(&["10.0.0.9"]), ..NodeAddresses::default() };
    let made = plan_security_rules(&start, std::slice::from_ref(&moved), &[], &nodes, &settings());
    assert_eq!(rules(made.document.as_ref().unwrap())[0]["properties"]["destinationAddressPrefix"], "20.0.0.1");
    assert_eq!(made.reasons, [format!("rule {WEB} (priority 507): remove 10.0.0.9, 20.0.0.7")]);
}

/// The NodePort changed, or the Service was deleted, while no controller was running.
#[test]
fn a_rule_that_nobody_needs_at_a_node_goes_unless_another_network_may_have_the_address() {
    let settings = samples::settings();
    let leftover = |port: &str| {
        let mut rule = web_rule(&["10.0.0.4", "10.0.0.9", "20.0.0.9"]);
        (rule["name"], rule["properties"]["destinationPortRanges"]) = (json!("k8s-azure-lb_allow_IPv4_old"), json!([port]));
        group_on(&settings.virtual_network, &json!([rule]))
    };
    let nodes = NodeAddresses { present: ips(&["10.0.0.4", "10.0.0.5"]), ..NodeAddresses::default() };
    let web = service("web", &[80], "20.0.0.1");
    let old = |start: &NetworkSecurityGroup, others: &[ServiceRules]| {
        let plan = |group: &NetworkSecurityGroup| {
            plan_security_rules(group, std::slice::from_ref(&web), others, &nodes, &settings).document
        };
        let made = plan(start).unwrap();
        assert_eq!(plan(&made), None, "twice");
        lines(&made).into_iter().filter(|line| line.contains("_old")).collect::<Vec<_>>()
    };
    let kept = "507 allow_IPv4_old internet > 10.0.0.9,20.0.0.9 : ,30555";
    assert_eq!(old(&leftover("30555"), &[]), [kept], "the others may be another cluster's");
    let ports = [(Protocol::Tcp, [30555].into())].into();
    let unsettled = ServiceRules::unknown(identity("y"), nodes.present.clone(), ports);
    assert_eq!(old(&leftover("30555"), std::slice::from_ref(&unsettled)), [kept.replace("10.0.0.9", "10.0.0.4,10.0.0.9")]);
    assert_eq!(old(&leftover("30556"), &[unsettled]), [kept.replace("30555", "30556")]);
    let spared = kept.replace("10.0.0.9", "10.0.0.4,10.0.0.9");
    let own = json!([{"id": settings.virtual_network.child("subnets", "s")}]);
    let other = json!([{"id": own[0]["id"].as_str().unwrap().replace("/vnet/", "/other/")}]);
    let interface = json!([{"id": samples::network("networkInterfaces/somewhere")}]);
    let rows = [
        (&own, json!([]), kept),
        (&other, json!([]), &*spared),
        (&json!([]), json!([]), &*spared),
        (&own, interface, &*spared),
    ];
    for (subnets, interfaces, expected) in rows {
        let mut start = leftover("30555");
        let properties = start.properties_mut();
        properties.subnets = serde_json::from_value(subnets.clone()).unwrap();
        properties.network_interfaces = serde_json::from_value(interfaces).unwrap();
        assert_eq!(old(&start, &[]), [expected], "{subnets}");
    }
}

#[test]
fn a_denial_at_a_node_stays_while_a_service_may_have_asked_for_it() {
    let access = AccessControl { ranges: vec!["10.0.0.0/8".parse().unwrap()], deny_all: true, ..AccessControl::default() };
    let closed = ServiceSpec { access, floating_ip: false, ..spec("closed") };
    let nodes = NodeAddresses { present: ips(&["10.0.0.4"]), ..NodeAddresses::default() };
    let at_nodes = ServiceRules::wanted(&closed, &[ip("20.0.0.1")], &[ip("10.0.0.4")]).unwrap();
    let start = plan_security_rules(&group(json!([])), &[at_nodes], &[], &nodes, &settings()).document.unwrap();
    let denials = |port: i32| {
        let ports = [(Protocol::Tcp, [port].into())].into();
        let unsettled = ServiceRules::unknown(identity("closed"), nodes.present.clone(), ports);
        let web = service("web", &[80], "20.0.0.2");
        let made = plan_security_rules(&start, &[web], &[unsettled], &nodes, &settings()).document.unwrap();
        lines(&made).iter().filter(|line| line.contains(" deny_")).count()
    };
    assert_eq!((denials(30080), denials(30081)), (1, 0));
}

/// Two clusters share the group. A Service of one cluster claims the frontend of a Service of the other cluster, which this cluster does
/// not know.
#[test]
fn who_only_claims_an_address_takes_nothing_from_it_but_its_own() {
    let range = AccessControl { ranges: vec!["10.0.0.0/8".parse().unwrap()], deny_all: true, ..AccessControl::default() };
    let theirs = ServiceSpec { access: range, ports: vec![port(Protocol::Tcp, 8443)], ..spec("theirs") };
    let theirs = [ServiceRules::wanted(&theirs, &[ip("20.0.0.50")], &[]).unwrap(), service("more", &[80, 443], "20.0.0.50")];
    let before = after(&group(json!([])), &theirs, &[]);
    let claiming = ServiceSpec { additional_ips: vec![ip("20.0.0.50")], ..spec("web") };
    let web = ServiceRules::wanted(&claiming, &[ip("20.0.0.1")], &[]).unwrap();
    let claimed = after(&before, std::slice::from_ref(&web), &[]);
    assert_eq!(lines(&claimed).len(), lines(&before).len() + 1, "{:?}", lines(&claimed));
    let told = ServiceSpec { status_addresses: vec![ip("20.0.0.1"), ip("20.0.0.50")], ..claiming };
    let dropped = ServiceSpec { additional_ips: Vec::new(), ..told.clone() };
    for asked in [&told, &dropped] {
        let removed = ServiceRules::removed(asked.identity.clone(), Some(asked), &[ip("20.0.0.1")]);
        assert_eq!(lines(&after(&claimed, &[removed], &[])), lines(&before));
    }
    let dropped = ServiceRules::wanted(&dropped, &[ip("20.0.0.1")], &[]).unwrap();
    let alone = after(&group(json!([])), &[service("web", &[80], "20.0.0.1")], &[]);
    assert_eq!(lines(&after(&claimed, &[dropped], &[])).len(), lines(&before).len() + lines(&alone).len());
}

/// The status still lists the public address. The process that knew its port was killed, and the next process observed another type and
/// other ports.
#[test]
fn an_address_that_a_tag_proves_loses_rules_whose_ports_nobody_remembers() {
    let before = after(&group(json!([])), &[service("web", &[80], "20.0.0.1")], &[]);
    let (ports, frontends) = (vec![port(Protocol::Tcp, 81)], [ip("10.0.0.7")]);
    let inside = ServiceSpec { internal: true, ports, status_addresses: vec![ip("20.0.0.1")], ..spec("web") };
    let told = ServiceRules::wanted(&inside, &frontends, &[]).unwrap();
    assert_eq!(run(&before, std::slice::from_ref(&told), &[]).document, None, "it may be another cluster's");
    let proven = told.with_former_addresses(&inside, &frontends, &[ip("20.0.0.1")]);
    assert_eq!(lines(&after(&before, &[proven], &[])), [""; 0]);
}

#[test]
fn denial_lasts_on_a_shared_address_as_long_as_one_service_asks_for_it() {
    let access = AccessControl { ranges: vec!["10.0.0.0/8".parse().unwrap()], deny_all: true, ..AccessControl::default() };
    let a = ServiceRules::wanted(&ServiceSpec { access, ..spec("a") }, &[ip("20.0.0.1")], &[]).unwrap();
    let b = service("b", &[443], "20.0.0.1");
    let both = after(&group(json!([])), &[a.clone(), b.clone()], &[]);
    let deny = "4095 deny-all_IPv4 * > 20.0.0.1 : *".to_owned();
    assert!(lines(&both).contains(&deny), "{both:?}");
    assert_eq!(run(&both, std::slice::from_ref(&b), std::slice::from_ref(&a)).document, None);
    assert!(!lines(&after(&both, &[gone(&a)], &[b])).contains(&deny));
}

#[test]
fn what_an_unsettled_service_has_stays() {
    let old = service("old", &[80, 443], "20.0.0.1");
    let start = after(&group(json!([])), std::slice::from_ref(&old), &[]);
    let ports = |list: &[i32]| [(Protocol::Tcp, list.iter().copied().collect())].into();
    let unsettled = ServiceRules::unknown(identity("y"), ips(&["20.0.0.1"]), ports(&[80, 443]));
    assert_eq!(run(&start, &[gone(&old)], std::slice::from_ref(&unsettled)).document, None);
    assert_eq!(run(&start, &[unsettled], &[]).document, None);
    let unsettled = ServiceRules::unknown(identity("y"), ips(&["20.0.0.1"]), ports(&[443]));
    let made = lines(&after(&start, &[gone(&old)], &[unsettled]));
    assert_eq!(made, ["501 allow_IPv4_bc87afc9aeeece13e643801ad1da615f Internet > 20.0.0.1 : 443"]);
}

/// Returns a group with rules of other owners at `priorities`.
fn taken(priorities: impl IntoIterator<Item = i64>) -> NetworkSecurityGroup {
    let rule = |priority| {
        json!({"name": format!("mine-{priority}"), "properties": {"priority": priority, "direction": "Outbound", "access": "Allow",
            "protocol": "*", "sourceAddressPrefix": "*", "destinationAddressPrefix": "*"}})
    };
    group(priorities.into_iter().map(rule).collect::<Value>())
}

#[test]
fn without_a_free_priority_only_those_that_need_one_are_refused() {
    let mut full = taken(500..4096);
    let rules = full.properties_mut().security_rules.as_mut().unwrap();
    rules[7] = serde_json::from_value(web_rule(&["20.0.0.9"])).unwrap();
    let services = [service("a", &[443], "20.0.0.1"), service("b", &[80], "20.0.0.2")];
    let outcome = run(&full, &services, &[]);
    let refusal = outcome.services[&identity("a")].as_ref().unwrap_err();
    let expected = "securityGroupName: the security group has no free priority from 500 to 4095: remove rules from it";
    assert_eq!(refusal.to_string(), expected);
    assert_eq!(outcome.services[&identity("b")], Ok(()), "it shares a rule, so that the group gets no larger in rules");
}

#[test]
fn a_group_is_filled_to_the_limit_and_no_further() {
    let services: Vec<_> = (0..3).map(|i| service(&format!("s{i}"), &[80 + i], &format!("20.0.0.{i}"))).collect();
    let outcome = run(&taken(2000..2998), &services, &[]);
    assert_eq!(outcome.services.values().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(rules(outcome.document.as_ref().unwrap()).len(), 1000);
    let message = outcome.services[&identity("s2")].as_ref().unwrap_err().to_string();
    assert!(message.contains("has 1000 rules and would have 1001, of which ARM accepts 1000"), "{message}");
    assert_eq!(run(&outcome.document.unwrap(), &services, &[]).document, None);
}

#[test]
fn sources_and_destinations_are_counted_over_all_rules() {
    let ranges = |count: u32| (0..count).map(|i| format!("10.{}.{}.0/32", i / 256, i % 256).parse().unwrap()).collect();
    let many = |key: &str, count| {
        let access = AccessControl { ranges: ranges(count), ..AccessControl::default() };
        ServiceRules::wanted(&ServiceSpec { access, ..spec(key) }, &[ip("20.0.0.1")], &[]).unwrap()
    };
    let refused =
        |outcome: SecurityRulePlan| outcome.services.into_values().find_map(Result::err).map(|refusal| refusal.message);
    assert_eq!(refused(run(&group(json!([])), &[many("a", 4000)], &[])), None);
    let both = [many("a", 4000), service("b", &[80], "20.0.0.1")];
    assert!(refused(run(&group(json!([])), &both, &[])).unwrap().contains("4001"));
    let addresses =
        |count: u32| (0..count).map(|i| std::net::Ipv4Addr::from(0x1400_0000 + i).into()).collect::<BTreeSet<_>>();
    let wide = |count| ServiceRules { destinations: addresses(count), ..service("a", &[80], "20.0.0.1") };
    assert_eq!(refused(run(&group(json!([])), &[wide(4000)], &[])), None);
    assert!(refused(run(&group(json!([])), &[wide(4001)], &[])).unwrap().contains("would have 4001, of which"));
}

#[test]
fn what_one_service_gives_up_is_there_for_one_that_was_refused_before() {
    let start = run(&taken(2000..2999), &[service("z", &[80], "20.0.0.9")], &[]).document.unwrap();
    let asks = [service("a", &[443], "20.0.0.1"), gone(&service("z", &[80], "20.0.0.9"))];
    let made = after(&start, &asks, &[]);
    assert!(lines(&made).iter().any(|line| line.contains("> 20.0.0.1 : 443")));
}
