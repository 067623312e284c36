//! Cases that upstream handles wrongly, numbered as in the reference's list of quirks; names and limits.

use super::*;
use crate::providers::azure::config::LoadBalancerSku;

#[test]
fn other_load_balancers_are_neither_changed_nor_deleted() {
    let mut there = made(&[&service("web")]);
    let theirs = json!({"id": network("loadBalancers/theirs"), "name": "theirs", "sku": {"name": "Basic"}});
    there.load_balancers.push(load_balancer(theirs));
    assert!(plan(&there, &[ensure(&service("web"))]).changes.is_empty());
    assert_eq!(plan(&there, &[remove(&service("web"))]).changes.len(), 1);
}

/// Quirk F-10 of upstream.
#[test]
fn the_ipv6_front_end_of_a_service_that_gains_ipv4_is_not_taken_for_ipv4() {
    let six = ServiceSpec { families: vec![IpFamily::V6], ..service("web") };
    let both = ServiceSpec { families: vec![IpFamily::V6, IpFamily::V4], ..service("web") };
    let mut there = made(&[&six]);
    let id = public_ip(&format!("kubernetes-{}", six.identity.name_prefix));
    let properties = json!({"publicIPAddressVersion": "IPv6", "ipAddress": "2603::1"});
    there.public_ips.push(serde_json::from_value(json!({"id": id.as_str(), "properties": properties})).unwrap());
    let ips = PublicIpAssignment::from([
        ((both.identity.clone(), IpFamily::V6), id.clone()),
        ((both.identity.clone(), IpFamily::V4), public_ip("four")),
    ]);
    let outcome = plan_load_balancers(&there, &[ensure(&both)], &[], &ips, &settings());
    let seat = |part: &crate::providers::azure::model::network::FrontendIpConfiguration| {
        (part.name.clone().unwrap(), part.properties.clone().unwrap().public_ip_address.unwrap().id.unwrap())
    };
    let seats: Vec<_> = draft::frontends(put(&outcome, "kubernetes")).iter().map(seat).collect();
    let base = &both.identity.name_prefix;
    let four = public_ip("four").as_str().to_owned();
    assert_eq!(seats, [(format!("{base}-IPv6"), id.as_str().to_owned()), (base.clone(), four)]);
}

/// The others move with the first Service that is requested. At no time is a Service on a load balancer whose pools have lost their
/// members.
#[test]
fn everybody_moves_from_a_former_name_with_the_first_who_asks() {
    let named = |name: &str| LoadBalancerSettings { load_balancer_name: name.into(), ..settings() };
    let (web, api, db) = (service("web"), service("api"), internal("db"));
    let guest = ServiceSpec { ports: vec![port(Protocol::Tcp, 8080, 30080)], ..pinned("20.0.0.1", service("guest")) };
    let mut ips = public_ips(&[&web, &api]);
    ips.insert((guest.identity.clone(), IpFamily::V4), ips[&(web.identity.clone(), IpFamily::V4)].clone());
    let all = [&web, &api, &db, &guest];
    let everybody: Vec<ServiceRequest> = all.iter().map(|spec| ensure(spec)).collect();
    for former in ["", "old"] {
        let empty = observed(Vec::new());
        let mut there = applied(&empty, &plan_load_balancers(&empty, &everybody, &[], &ips, &named(former)));
        let before = rule_names(&there.load_balancers[0]).len();
        let theirs = json!({"id": network("loadBalancers/theirs"), "name": "theirs", "properties": {
            "frontendIPConfigurations": [{"name": format!("a{}", "0".repeat(31)), "properties": {}}],
            "backendAddressPools": [{"name": "kubernetes"}]}});
        there.load_balancers.push(load_balancer(theirs));
        for first in [&web, &api, &guest] {
            let others: Vec<_> =
                all.iter().filter(|spec| *spec != &first).map(|spec| std::sync::Arc::new((*spec).clone())).collect();
            let outcome = plan_load_balancers(&there, &[ensure(first)], &others, &ips, &named("mine"));
            let names: Vec<_> =
                outcome.changes.iter().map(|change| (change.id.name(), change.write == LoadBalancerWrite::Delete)).collect();
            let former = if former.is_empty() { "kubernetes" } else { former };
            assert_eq!(names, [(former, true), ("mine", false)], "{}", first.identity.key);
            let document = put(&outcome, "mine");
            assert_eq!((rule_names(document).len(), frontend_names(document).len()), (before, 2));
            let text = serde_json::to_string(document).unwrap();
            assert!(!text.contains(&format!("loadBalancers/{former}/")), "{text}");
            let after = applied(&there, &outcome);
            let idle = plan_load_balancers(&after, &[ensure(&web), ensure(&api), ensure(&guest)], &[], &ips, &named("mine"));
            assert!(idle.changes.is_empty(), "{:?}", idle.changes);
        }
    }
}

/// The virtual machines could not join another load balancer, so Services there would have no backends.
#[test]
fn nobody_moves_from_a_former_load_balancer_that_has_parts_of_others() {
    use crate::providers::azure::config::BackendPoolType;
    let (web, new, inside) = (service("web"), service("new"), internal("inside"));
    let egress = json!({"id": network("loadBalancers/kubernetes/frontendIPConfigurations/egress"), "name": "egress",
        "properties": {"publicIPAddress": {"id": public_ip("egress").as_str()}}});
    let member = json!({"id": network("networkInterfaces/a/ipConfigurations/a")});
    let there = |specs: &[&ServiceSpec]| {
        let mut there = made(&[&web]);
        if specs.is_empty() {
            let properties = there.load_balancers[0].properties_mut();
            (properties.frontend_ip_configurations, properties.load_balancing_rules) = (Some(Vec::new()), None);
            properties.probes = None;
        }
        let properties = there.load_balancers[0].properties_mut();
        let pool = properties.backend_address_pools.as_mut().unwrap()[0].properties.get_or_insert_default();
        pool.backend_ip_configurations = Some(vec![serde_json::from_value(member.clone()).unwrap()]);
        let egress = serde_json::from_value(egress.clone()).unwrap();
        properties.frontend_ip_configurations.as_mut().unwrap().push(egress);
        there
    };
    let mine = LoadBalancerSettings {
        load_balancer_name: "mine".into(),
        pool_type: BackendPoolType::NodeIpConfiguration,
        ..settings()
    };
    for (specs, asks) in [(vec![&web], vec![&web]), (vec![&web], vec![&web, &new, &inside]), (vec![], vec![&new, &inside])] {
        let asks: Vec<ServiceRequest> = asks.into_iter().map(ensure).collect();
        let outcome = plan_with(&there(&specs), &asks, &mine);
        assert!(outcome.changes.is_empty(), "{:?}", outcome.changes);
        for told in outcome.services.values() {
            let told = told.as_ref().unwrap_err();
            assert_eq!(told.field, "loadBalancerName");
            let parts = ["front end egress", "remove it", "back to `kubernetes`"];
            assert!(parts.iter().all(|part| told.message.contains(part)), "{}", told.message);
        }
    }
    let gone = plan_with(&there(&[&web]), &[remove(&web)], &mine);
    assert_eq!(frontend_names(put(&gone, "kubernetes")), ["egress"], "who goes can go");
    let by_address = LoadBalancerSettings { pool_type: BackendPoolType::NodeIp, ..mine };
    let outcome = plan_with(&there(&[&web]), &[ensure(&web)], &by_address);
    assert_eq!(frontend_names(put(&outcome, "kubernetes")), ["egress"], "machines can be in both");
    assert_eq!(frontend_names(put(&outcome, "mine")), [web.identity.name_prefix.as_str()]);
}

/// Quirk F-27 of upstream.
#[test]
fn a_rule_for_all_ports_loses_tcp_reset_and_never_floating_ip() {
    let ha = ServiceSpec { ha_ports: Some(PortProbe::None), ..internal("web") };
    let without = ServiceSpec { tcp_reset: false, floating_ip: false, ..ha.clone() };
    let outcome = plan(&made(&[&ha]), &[ensure(&without)]);
    let rule = draft::rules(put(&outcome, "kubernetes-internal"))[0].properties.as_ref().unwrap();
    assert_eq!((rule.enable_tcp_reset, rule.enable_floating_ip), (Some(false), Some(true)));
}

/// Quirk F-29 of upstream.
#[test]
fn subnets_and_addresses_are_equal_in_any_spelling() {
    let on = |subnet: &str| ServiceSpec { subnet: Some(subnet.into()), ..internal("web") };
    assert!(plan(&made(&[&on("apps")]), &[ensure(&on("Apps"))]).changes.is_empty());
    let spec = pinned("fd00::9", ServiceSpec { families: vec![IpFamily::V6], ..internal("web") });
    let mut there = made(&[&spec]);
    let frontends = there.load_balancers[0].properties_mut().frontend_ip_configurations.as_mut().unwrap();
    frontends[0].properties.as_mut().unwrap().private_ip_address = Some("FD00:0:0:0:0:0:0:9".into());
    assert!(plan(&there, &[ensure(&spec)]).changes.is_empty());
}

/// Quirks F-31 and F-33 of upstream.
#[test]
fn basic_services_move_by_mode_and_stay_when_they_cannot() {
    let basic =
        LoadBalancerSettings { sku: LoadBalancerSku::Basic, primary_vm_set: "pool1".into(), maximum_rules: 4, ..settings() };
    let mode = |mode: &str| ServiceSpec { mode: Some(mode.into()), ..service("web") };
    let empty = observed(Vec::new());
    let first = plan_with(&empty, &[ensure(&mode("Pool2"))], &basic);
    assert_eq!(put(&first, "pool2").sku.as_ref().unwrap().name.as_deref(), Some("Basic"));
    let there = applied(&empty, &first);
    let unknown = plan_with(&there, &[ensure(&mode("pool3"))], &basic);
    assert!(unknown.changes.is_empty());
    assert!(refusal(&unknown, &mode("pool3")).to_string().contains("azure-load-balancer-mode: there is no"));
    for stays in [service("web"), mode("__AUTO__"), mode("pool2")] {
        assert!(plan_with(&there, &[ensure(&stays)], &basic).changes.is_empty(), "{:?}", stays.mode);
    }
    let moved = plan_with(&there, &[ensure(&mode("pool1"))], &basic);
    assert_eq!(moved.changes.iter().map(|change| change.id.name()).collect::<Vec<_>>(), ["pool2", "kubernetes"]);
    let auto = |name: &str| ensure(&ServiceSpec { mode: Some("__auto__".into()), ..service(name) });
    let full = plan_with(&there, &["a", "b", "c", "d"].map(auto), &basic);
    assert_eq!(full.services.values().filter(|result| result.is_err()).count(), 1, "three times two rules fit");
}

#[test]
fn a_leftover_basic_load_balancer_stays_while_an_address_would_be_lost_with_it() {
    let user = network("loadBalancers/kubernetes/frontendIPConfigurations/a");
    for (method, stays) in [("Dynamic", true), ("Static", false)] {
        let basic = json!({"id": network("loadBalancers/kubernetes"), "name": "kubernetes", "sku": {"name": "Basic"}});
        let mut there = observed(vec![load_balancer(basic)]);
        let pip = json!({"id": public_ip("a").as_str(), "name": "a", "sku": {"name": "Basic"},
            "properties": {"publicIPAllocationMethod": method, "ipConfiguration": {"id": user}}});
        there.public_ips = vec![serde_json::from_value(pip).unwrap()];
        assert_eq!(plan(&there, &[]).changes.is_empty(), stays, "{method}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let nowhere = ServiceSpec { subnet: Some("gone".into()), ..internal("web") };
    let outside = pinned("10.9.9.9", internal("db"));
    let outcome = plan(&observed(Vec::new()), &[ensure(&nowhere), ensure(&service("api")), ensure(&outside)]);
    assert!(refusal(&outcome, &outside).message.contains("10.9.9.9 is not in subnet nodes"));
    assert_eq!(
        refusal(&outcome, &nowhere).to_string(),
        "service.beta.kubernetes.io/azure-load-balancer-internal-subnet: virtual network vnet has no subnet gone"
    );
    assert_eq!(outcome.changes.len(), 1);
    let outcome =
        plan_load_balancers(&observed(Vec::new()), &[ensure(&service("web"))], &[], &PublicIpAssignment::new(), &settings());
    assert!(refusal(&outcome, &service("web")).message.contains("no IPv4 public IP"));
}

#[test]
fn limits_stop_the_last_of_those_that_add() {
    let many = |name: &str, count: i32| {
        let ports = (1..=count).map(|number| port(Protocol::Udp, number, 30000 + number)).collect();
        ServiceSpec { ports, ..service(name) }
    };
    // Pools of network interfaces have a lower limit.
    let settings = LoadBalancerSettings { interface_rules: None, ..settings() };
    let empty = observed(Vec::new());
    let there = applied(&empty, &plan_with(&empty, &[ensure(&many("old", 1400))], &settings));
    let asks = [many("old", 1400), many("a", 90), many("b", 90), many("c", 5)].map(|spec| ensure(&spec));
    let outcome = plan_with(&there, &asks, &settings);
    let refused: Vec<_> = outcome.services.iter().filter(|(_, result)| result.is_err()).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(rule_names(put(&outcome, "kubernetes")).len(), 1495);
    let no_node_port = ServiceSpec { ports: vec![port(Protocol::Tcp, 80, 0)], ..service("web") };
    assert!(refusal(&plan(&there, &[ensure(&no_node_port)]), &no_node_port).message.contains("cannot be probed"));
}
