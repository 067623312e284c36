//! Properties for any requests: their order has no effect, a second plan has no changes, and parts of other owners remain unchanged.

use std::sync::Arc;

use proptest::prelude::*;

use super::{
    super::super::{arm_constraints::check, context::is_generated_name},
    entries::ips,
    *,
};

fn any_service() -> impl Strategy<Value = ServiceSpec> {
    let ports = prop::collection::btree_set((0..2_usize, 1..4_i32), 0..3);
    let families = prop_oneof![Just(vec![IpFamily::V4]), Just(vec![IpFamily::V6]), Just(vec![IpFamily::V4, IpFamily::V6])];
    let subnet = prop_oneof![Just(None), Just(Some("apps".to_owned())), Just(Some("gone".to_owned()))];
    let address = prop_oneof![3 => Just(None), 1 => Just(Some("10.0.1.9")), 1 => Just(Some("10.0.1.10"))];
    let parts = ("[a-e]", any::<[bool; 3]>(), ports, families, subnet, address);
    parts.prop_map(|(name, [internal, floating_ip, all], ports, families, subnet, address)| {
        let protocols = [Protocol::Tcp, Protocol::Udp];
        let ports = ports.into_iter().map(|(at, number)| port(protocols[at], number, 30000 + number)).collect();
        let pinned = PerFamily { v4: address.and_then(|address| address.parse().ok()), v6: None };
        let ha_ports = (internal && all).then_some(PortProbe::None);
        ServiceSpec { internal, floating_ip, ports, families, subnet, pinned, ha_ports, ..service(&name) }
    })
}

fn any_asks() -> impl Strategy<Value = Vec<ServiceRequest>> {
    let ask = (any_service(), prop::bool::weighted(0.2));
    let ask = ask.prop_map(|(spec, gone)| if gone { remove(&spec) } else { ensure(&spec) });
    prop::collection::vec(ask, 0..6).prop_map(|asks| {
        let by_name: BTreeMap<_, _> = asks.into_iter().map(|ask| (ask.identity().clone(), ask)).collect();
        by_name.into_values().collect()
    })
}

/// Returns a load balancer with parts that belong to no Service, and with fields that the model does not have.
fn foreign() -> ArmLoadBalancer {
    let part = |kind: &str, name: &str| network(&format!("loadBalancers/kubernetes/{kind}/{name}"));
    let frontend = || json!({"id": part("frontendIPConfigurations", "out")});
    load_balancer(json!({
        "id": network("loadBalancers/kubernetes"), "name": "kubernetes", "etag": "e", "x": 1,
        "sku": {"name": "Standard", "tier": "Regional"},
        "properties": {
            "resourceGuid": "g",
            "frontendIPConfigurations": [{"id": part("frontendIPConfigurations", "out"), "name": "out", "zones": ["1"],
                "y": [], "properties": {"publicIPAddress": {"id": network("publicIPAddresses/out")}, "z": null}}],
            "backendAddressPools": [{"id": part("backendAddressPools", "aksOutboundBackendPool"),
                "name": "aksOutboundBackendPool", "properties": {"drain": 3}}],
            "loadBalancingRules": [{"name": "theirs", "properties": {"protocol": "Tcp", "frontendPort": 1,
                "backendPort": 1, "frontendIPConfiguration": frontend(), "w": {}}}],
            "probes": [], "inboundNatRules": [],
            "outboundRules": [{"name": "aksOutboundRule", "properties": {"protocol": "All",
                "frontendIPConfigurations": [frontend()]}}]}}))
}

/// Returns the document without the parts whose names are those of Services, and without the cluster's pools.
fn others_parts(document: &ArmLoadBalancer) -> serde_json::Value {
    let mut value = serde_json::to_value(document).unwrap();
    for (_, list) in value["properties"].as_object_mut().unwrap() {
        let is_foreign = |part: &serde_json::Value| {
            part["name"].as_str().is_none_or(|name| !is_generated_name(name) && !name.starts_with("kubernetes"))
        };
        list.as_array_mut().into_iter().for_each(|parts| parts.retain(is_foreign));
    }
    value
}

fn shuffled(asks: &[ServiceRequest], by: usize) -> Vec<ServiceRequest> {
    let mut asks = asks.to_vec();
    asks.reverse();
    let middle = by % asks.len().max(1);
    asks.rotate_left(middle);
    asks
}

fn specs(asks: &[ServiceRequest], pick: impl Fn(&ServiceRequest) -> bool) -> Vec<Arc<ServiceSpec>> {
    asks.iter().filter(|ask| pick(ask)).filter_map(ensured_spec).cloned().map(Arc::new).collect()
}

/// Returns the address of the frontend of each rule of these Services.
fn seats_of(there: &ObservedNetwork, specs: &[Arc<ServiceSpec>]) -> BTreeMap<String, Option<frontends::FrontendAddress>> {
    let is_theirs = |rule: &String| specs.iter().any(|spec| naming::owns_rule(&spec.identity, rule));
    let rules = there.load_balancers.iter().flat_map(seats_of_rules).filter(|(rule, _)| is_theirs(rule));
    rules.map(|(rule, (_, seat))| (rule, seat)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_stable_and_keep_what_is_others(first in any_asks(), second in any_asks(), by in 0..5_usize) {
        let start = observed(vec![foreign()]);
        let before = applied(&start, &plan_load_balancers(&start, &first, &[], &ips(&first), &settings()));
        let others = specs(&first, |ask| second.iter().all(|other| other.identity() != ask.identity()));
        let ips = ips(&second);
        let outcome = plan_load_balancers(&before, &second, &others, &ips, &settings());
        prop_assert_eq!(&outcome, &plan_load_balancers(&before, &shuffled(&second, by), &others, &ips, &settings()));
        for change in &outcome.changes {
            let LoadBalancerWrite::Put(document) = &change.write else { continue };
            prop_assert_eq!(check(document), vec![]);
        }
        let after = applied(&before, &outcome);
        let document = after.load_balancers.iter().find(|document| document.name.as_deref() == Some("kubernetes"));
        prop_assert_eq!(document.map(others_parts), Some(others_parts(&foreign())));
        prop_assert_eq!(seats_of(&before, &others), seats_of(&after, &others));
        let fits = |ask: &ServiceRequest| outcome.services[ask.identity()].is_ok();
        let again: Vec<ServiceRequest> = second.iter().filter(|ask| fits(ask)).cloned().collect();
        let others = [others, specs(&second, |ask| !fits(ask))].concat();
        let idle = plan_load_balancers(&after, &again, &others, &ips, &settings());
        prop_assert_eq!(&idle.changes, &vec![], "planned from {:?}", outcome.changes);

        // After all Services are deleted, the load balancer is as it was before.
        let gone: Vec<ServiceRequest> = first.iter().map(|ask| ServiceRequest::Delete(ask.identity().clone(), None)).collect();
        let left = applied(&before, &plan_load_balancers(&before, &gone, &[], &PublicIpAssignment::new(), &settings()));
        prop_assert_eq!(left.load_balancers.len(), 1);
        prop_assert_eq!(others_parts(&left.load_balancers[0]), others_parts(&foreign()));
        prop_assert_eq!(frontend_names(&left.load_balancers[0]), vec!["out"]);
    }
}
