//! Services that share frontends and probes, that move, and that are removed.

use std::sync::Arc;

use super::*;
use crate::providers::azure::planner::load_balancer::spec::PortSpec;

fn shared_by(pair: [&ServiceSpec; 2]) -> PublicIpAssignment {
    let [owner, guest] = pair;
    let mut ips = public_ips(&[owner]);
    let id = ips[&(owner.identity.clone(), IpFamily::V4)].clone();
    ips.insert((guest.identity.clone(), IpFamily::V4), id);
    ips
}

fn guest(number: i32) -> ServiceSpec {
    ServiceSpec { ports: vec![port(Protocol::Tcp, number, 30000 + number)], ..pinned("20.0.0.1", service("guest")) }
}

fn made_with(asks: &[ServiceRequest], ips: &PublicIpAssignment) -> ObservedNetwork {
    let empty = observed(Vec::new());
    applied(&empty, &plan_load_balancers(&empty, asks, &[], ips, &settings()))
}

#[test]
fn a_guest_never_takes_away_the_front_end_of_a_service_that_is_there() {
    let (owner, guest) = (ServiceSpec { ports: Vec::new(), ..service("web") }, guest(8080));
    let ips = shared_by([&owner, &guest]);
    let there = made_with(&[ensure(&guest), ensure(&owner)], &ips);
    let gone = plan_load_balancers(&there, &[remove(&guest)], &[Arc::new(owner.clone())], &ips, &settings());
    assert_eq!(frontend_names(put(&gone, "kubernetes")), [owner.identity.name_prefix.as_str()]);
}

#[test]
fn a_port_belongs_to_who_has_it_and_the_others_go_on() {
    let (owner, guest, third) = (service("web"), guest(80), service("third"));
    let mut ips = shared_by([&owner, &guest]);
    ips.extend(public_ips(&[&third]));
    let asks = [ensure(&guest), ensure(&third), ensure(&owner)];
    let outcome = plan_load_balancers(&observed(Vec::new()), &asks, &[], &ips, &settings());
    assert_eq!(refusal(&outcome, &guest).field, "spec.ports");
    assert_eq!(frontend_names(put(&outcome, "kubernetes")).len(), 2);
    assert!(rule_names(put(&outcome, "kubernetes")).iter().all(|name| !name.starts_with(&guest.identity.name_prefix)));
    let moved = ServiceSpec { ports: vec![port(Protocol::Tcp, 81, 30081)], ..owner };
    let there = applied(&observed(Vec::new()), &outcome);
    let outcome = plan_load_balancers(&there, &[ensure(&guest), ensure(&moved)], &[], &ips, &settings());
    assert!(outcome.services.values().all(Result::is_ok), "who frees a port and who takes it fit into one write");
}

fn with_ports(spec: ServiceSpec, ports: &[(i32, bool)]) -> ServiceSpec {
    let port = |(number, rule): &(i32, bool)| PortSpec { rule: *rule, ..port(Protocol::Tcp, *number, 30_000 + number) };
    ServiceSpec { ports: ports.iter().map(port).collect(), ..spec }
}

/// A port without a load balancing rule is also published, and opened in the network security group.
#[test]
fn a_port_without_a_rule_has_one_service_too() {
    let owner = |ports: &[(i32, bool)]| with_ports(service("web"), ports);
    let guest = |ports: &[(i32, bool)]| with_ports(guest(81), ports);
    let ips = shared_by([&owner(&[]), &guest(&[])]);
    for (of_owner, of_guest, is_granted) in [
        ((80, true), (80, true), false),
        ((80, true), (80, false), false),
        ((80, false), (80, true), false),
        ((80, false), (80, false), false),
        ((80, false), (8080, false), true),
        ((80, true), (8080, false), true),
    ] {
        let (owner, guest) = (owner(&[of_owner]), guest(&[(81, true), of_guest]));
        let there = made_with(&[ensure(&owner)], &ips);
        for requests in [vec![ensure(&guest)], vec![ensure(&guest), ensure(&owner)]] {
            let others = if requests.len() == 1 { vec![Arc::new(owner.clone())] } else { Vec::new() };
            let outcome = plan_load_balancers(&there, &requests, &others, &ips, &settings());
            let result = &outcome.services[&guest.identity];
            assert_eq!(result.is_ok(), is_granted, "{of_owner:?} {of_guest:?}: {result:?}");
            let message = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
            let words = ["tcp port 80 of frontend", "Service default/web"];
            assert!(is_granted || words.iter().all(|words| message.contains(words)), "{message}");
            assert!(outcome.services.get(&owner.identity).is_none_or(Result::is_ok));
        }
    }
}

/// The plan finds a Service without any rule by the address in its status.
#[test]
fn the_owner_gets_a_port_before_a_guest_without_a_rule() {
    let owner = |rule: bool| with_ports(service("web"), &[(80, true), (443, rule)]);
    let status_addresses = vec!["20.0.0.1".parse().unwrap()];
    let silent = ServiceSpec { status_addresses, ..with_ports(guest(81), &[(443, false)]) };
    let third =
        ServiceSpec { ports: with_ports(service("web"), &[(443, true)]).ports, ..pinned("20.0.0.1", service("third")) };
    let mut ips = shared_by([&owner(true), &silent]);
    let id = ips[&(silent.identity.clone(), IpFamily::V4)].clone();
    ips.insert((third.identity.clone(), IpFamily::V4), id.clone());
    let mut there = made_with(&[ensure(&with_ports(service("web"), &[(80, true)]))], &ips);
    let public_ip = json!({"id": id.as_str(), "properties": {"ipAddress": "20.0.0.1"}});
    there.public_ips = vec![serde_json::from_value(public_ip).unwrap()];
    let others = [Arc::new(silent.clone())];
    let both = [Arc::new(silent.clone()), Arc::new(with_ports(service("web"), &[(80, true)]))];
    let outcome = plan_load_balancers(&there, &[ensure(&third)], &both, &ips, &settings());
    assert!(refusal(&outcome, &third).message.contains("Service default/guest"), "{:?}", outcome.services);
    for has_rule in [true, false] {
        let owner = owner(has_rule);
        let with_port = applied(&there, &plan_load_balancers(&there, &[ensure(&owner)], &[], &ips, &settings()));
        for there in [&there, &with_port] {
            let outcome = plan_load_balancers(there, &[ensure(&owner)], &others, &ips, &settings());
            assert!(outcome.services.values().all(Result::is_ok), "{:?}", outcome.services);
            let outcome = plan_load_balancers(there, &[ensure(&silent), ensure(&owner)], &[], &ips, &settings());
            assert!(outcome.services[&owner.identity].is_ok(), "{:?}", outcome.services);
            assert!(refusal(&outcome, &silent).message.contains("Service default/web"), "{:?}", outcome.services);
        }
    }
}

#[test]
fn high_availability_ports_conflict_with_every_port() {
    let on = |name: &str, number: i32| with_ports(pinned("10.0.0.9", internal(name)), &[(number, true)]);
    let all = |name: &str| ServiceSpec { ha_ports: Some(PortProbe::None), ..on(name, 80) };
    for (first, second, words) in [
        (on("a", 80), all("b"), "high-availability ports need all ports of frontend"),
        (all("a"), on("b", 443), "belong to Service default/a, which has high-availability ports"),
        (all("a"), with_ports(on("b", 443), &[(443, false)]), "which has high-availability ports"),
        (with_ports(on("a", 80), &[(80, false)]), all("b"), "tcp port 80 belongs to Service default/a"),
    ] {
        let there = made(&[&first]);
        for others in [vec![Arc::new(first.clone())], Vec::new()] {
            let requests: Vec<_> = others.is_empty().then(|| ensure(&first)).into_iter().chain([ensure(&second)]).collect();
            let outcome = plan_load_balancers(&there, &requests, &others, &PublicIpAssignment::new(), &settings());
            let message = refusal(&outcome, &second).to_string();
            assert!(message.contains(words) && message.starts_with("spec.ports: "), "{message}");
            assert!(outcome.services.get(&first.identity).is_none_or(Result::is_ok));
        }
    }
    // Conflicting rules that exist next to each other, as the Go CCM creates them, are retained.
    let (one, other) = (on("a", 443), all("b"));
    let mut there = made(&[&one]);
    let both = made(&[&ServiceSpec { pinned: PerFamily::default(), ..other.clone() }]);
    let mut rule = draft::rules(&both.load_balancers[0])[0].clone();
    let properties = there.load_balancers[0].properties_mut();
    let frontend =
        properties.load_balancing_rules.as_ref().unwrap()[0].properties.clone().unwrap().frontend_ip_configuration;
    rule.properties.as_mut().unwrap().frontend_ip_configuration = frontend;
    properties.load_balancing_rules.as_mut().unwrap().push(rule);
    let outcome = plan(&there, &[ensure(&one), ensure(&other)]);
    assert!(outcome.services.values().all(Result::is_ok), "{:?}", outcome.services);
}

#[test]
fn where_namespaces_are_enforced_the_owner_of_a_private_address_has_to_agree() {
    let owner = |namespaces: &[&str]| {
        let sharing_namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        ServiceSpec { sharing_namespaces, ..with_ports(pinned("10.0.0.9", internal("web")), &[(80, true)]) }
    };
    let guest = |namespace: &str| ServiceSpec {
        identity: naming::identity(namespace, "guest", "0a0b0c0d-8d7e-4b90-9a41-2c5d7e8f9a01"),
        ..with_ports(pinned("10.0.0.9", internal("guest")), &[(81, true)])
    };
    let there = made(&[&owner(&[])]);
    for (namespaces, namespace, is_enforced, is_granted) in [
        (&[][..], "other", false, true),
        (&[], "other", true, false),
        (&["shop", "other"], "other", true, true),
        (&["*"], "other", true, true),
        (&["shop"], "other", true, false),
        (&[], "default", true, true),
    ] {
        let (owner, guest) = (owner(namespaces), guest(namespace));
        let settings = LoadBalancerSettings { namespaces_are_enforced: is_enforced, ..settings() };
        for others in [vec![Arc::new(owner.clone())], Vec::new()] {
            let requests: Vec<_> = others.is_empty().then(|| ensure(&owner)).into_iter().chain([ensure(&guest)]).collect();
            let outcome = plan_load_balancers(&there, &requests, &others, &PublicIpAssignment::new(), &settings);
            let result = &outcome.services[&guest.identity];
            assert_eq!(result.is_ok(), is_granted, "{namespaces:?} {namespace} {is_enforced}: {result:?}");
            let message = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
            assert!(is_granted || message.contains("azure-load-balancer-sharing-namespaces"), "{message}");
        }
    }
}

#[test]
fn inbound_nat_keeps_its_ports() {
    let mut there = made(&[&service("web")]);
    let base = service("web").identity.name_prefix;
    let frontend = json!({"id": network(&format!("loadBalancers/kubernetes/frontendIPConfigurations/{base}"))});
    let properties = there.load_balancers[0].properties_mut();
    let rule = json!({"frontendIPConfiguration": frontend, "protocol": "Tcp", "frontendPort": 22});
    let pool = json!({"frontendIPConfiguration": frontend, "protocol": "Udp",
        "frontendPortRangeStart": 50, "frontendPortRangeEnd": 60});
    properties.inbound_nat_rules = Some(vec![json!({"name": "ssh", "properties": rule})]);
    properties.inbound_nat_pools = Some(vec![json!({"name": "range", "properties": pool})]);
    let cases =
        [(Protocol::Tcp, 22, false), (Protocol::Udp, 22, true), (Protocol::Udp, 53, false), (Protocol::Tcp, 53, true)];
    for (protocol, number, fits) in cases {
        let spec = ServiceSpec { ports: vec![port(protocol, number, 30000)], ..service("web") };
        assert_eq!(plan(&there, &[ensure(&spec)]).services[&spec.identity].is_ok(), fits, "{protocol:?} {number}");
    }
    let left = plan(&there, &[remove(&service("web"))]);
    assert_eq!(left.services[&service("web").identity].as_ref().unwrap().retained_frontends[0].uses.len(), 2);
}

fn public_seat(name: &str) -> Option<frontends::FrontendAddress> {
    Some(frontends::FrontendAddress::Public(public_ip(name).key()))
}

#[test]
fn who_leaves_a_shared_front_end_gets_what_it_asks_for_and_the_others_keep_theirs() {
    let (owner, first) = (service("web"), guest(8080));
    let second = ServiceSpec { ports: vec![port(Protocol::Tcp, 9090, 30090)], ..pinned("20.0.0.1", service("second")) };
    let mut ips = shared_by([&owner, &first]);
    ips.extend([((second.identity.clone(), IpFamily::V4), ips[&(owner.identity.clone(), IpFamily::V4)].clone())]);
    let there = made_with(&[ensure(&owner), ensure(&first), ensure(&second)], &ips);
    let before = seats_of_rules(&there.load_balancers[0]);
    let old = public_seat(&format!("kubernetes-{}", owner.identity.name_prefix));
    // The new frontend gets a port that another Service keeps at the former address.
    let ports = [owner.ports.clone(), first.ports.clone()].concat();
    let leaver = ServiceSpec { ports, ..owner.clone() };
    ips.insert((owner.identity.clone(), IpFamily::V4), public_ip("other"));
    let all = [&first, &second];
    for asking in [&all[..0], &all[..1], &all[1..], &all[..]] {
        let asks: Vec<ServiceRequest> = asking.iter().map(|spec| ensure(spec)).chain([ensure(&leaver)]).collect();
        let rest = all.iter().filter(|spec| !asking.contains(spec)).map(|spec| Arc::new((*spec).clone()));
        let outcome = plan_load_balancers(&there, &asks, &rest.collect::<Vec<_>>(), &ips, &settings());
        assert!(outcome.services.values().all(Result::is_ok), "{:?}", outcome.services);
        let after = seats_of_rules(put(&outcome, "kubernetes"));
        assert_eq!(outcome.changes.len(), 1);
        for (rule, (name, seat)) in &after {
            let is_leaver = rule.starts_with(&owner.identity.name_prefix);
            let expected = if is_leaver { public_seat("other") } else { old.clone() };
            assert_eq!((name == &owner.identity.name_prefix, seat), (is_leaver, &expected), "{rule}");
        }
        assert_eq!(after.len(), before.len() + 1);
        let there = applied(&there, &outcome);
        let everybody = [ensure(&leaver), ensure(&first), ensure(&second)];
        assert!(plan_load_balancers(&there, &everybody, &[], &ips, &settings()).changes.is_empty());
        let gone = [remove(&leaver), remove(&first), remove(&second)];
        assert_eq!(plan_load_balancers(&there, &gone, &[], &ips, &settings()).changes[0].write, LoadBalancerWrite::Delete);
    }
}

#[test]
fn what_is_no_services_keeps_the_address_of_a_front_end_too() {
    let owner = service("web");
    let mut there = made(&[&owner]);
    let name = format!("kubernetes-{}", owner.identity.name_prefix);
    let frontend =
        json!({"id": network(&format!("loadBalancers/kubernetes/frontendIPConfigurations/{}", owner.identity.name_prefix))});
    let properties = there.load_balancers[0].properties_mut();
    let outbound = json!([{"name": "out", "properties": {"protocol": "All", "frontendIPConfigurations": [frontend]}}]);
    properties.outbound_rules = serde_json::from_value(outbound).unwrap();
    let nat = json!({"frontendIPConfiguration": frontend, "protocol": "Tcp", "frontendPort": 22});
    properties.inbound_nat_rules = Some(vec![json!({"name": "ssh", "properties": nat})]);
    let other = PublicIpAssignment::from([((owner.identity.clone(), IpFamily::V4), public_ip("other"))]);
    let outcome = plan_load_balancers(&there, &[ensure(&owner)], &[], &other, &settings());
    let kept = format!("k8s-azure-kept-{name}");
    assert_eq!(frontend_names(put(&outcome, "kubernetes")), [kept.as_str(), owner.identity.name_prefix.as_str()]);
    let uses = draft::frontend_uses(put(&outcome, "kubernetes"));
    let of = |name: &str| uses.iter().filter(|(id, _)| id.ends_with(&format!("/{name}"))).count();
    assert_eq!((of(&kept), of(&owner.identity.name_prefix)), (2, 2));
    let after = applied(&there, &outcome);
    assert!(plan_load_balancers(&after, &[ensure(&owner)], &[], &other, &settings()).changes.is_empty());
    let back = plan(&after, &[ensure(&owner)]);
    assert_eq!(frontend_names(put(&back, "kubernetes")), [kept.as_str()], "it is a guest there now");
    let mut free = after;
    let properties = free.load_balancers[0].properties_mut();
    (properties.outbound_rules, properties.inbound_nat_rules) = (None, None);
    let outcome = plan_load_balancers(&free, &[ensure(&owner)], &[], &other, &settings());
    let own = [owner.identity.name_prefix.as_str()];
    assert_eq!(frontend_names(put(&outcome, "kubernetes")), own, "nothing needs it any more");
    let pool = json!({"name": "range", "properties": {"frontendIPConfiguration": frontend, "protocol": "Tcp",
        "frontendPortRangeStart": 50, "frontendPortRangeEnd": 60}});
    there.load_balancers[0].properties_mut().inbound_nat_pools = Some(vec![pool]);
    let outcome = plan_load_balancers(&there, &[ensure(&owner)], &[], &other, &settings());
    assert!(outcome.changes.is_empty());
    let told = refusal(&outcome, &owner).message.clone();
    assert!(told.contains("inbound NAT pool range") && told.contains("give what refers to it another front end"), "{told}");
}
