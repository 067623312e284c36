//! Ports and traces of a Service in the documents, independent of its spec. Pure.
//!
//! In: documents and the identity of a Service. Out: the ports that its rules lead to, and whether any trace of the Service exists.

use std::collections::BTreeSet;

use super::{draft, plan_index::PlanIndex, public_ips::public_ip_addresses_of, security_rules::PortsByProtocol};
use crate::providers::azure::{
    model::{network::ArmLoadBalancer, spelling},
    planner::load_balancer::{
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{Protocol, ServiceIdentity},
    },
};

/// Returns the frontend and backend ports of the Service's rules.
pub fn ports_of(index: &PlanIndex<'_>, service: &ServiceIdentity) -> PortsByProtocol {
    let mut ports = PortsByProtocol::new();
    for rule in index.rules_of(service).filter_map(|rule| rule.properties.as_ref()) {
        let numbers = [rule.frontend_port, rule.backend_port].into_iter().flatten();
        let numbers: BTreeSet<i32> = numbers.filter_map(|number| i32::try_from(number).ok()).collect();
        for protocol in protocols(rule.protocol.as_deref().unwrap_or_default()) {
            ports.entry(protocol).or_default().extend(&numbers);
        }
    }
    ports
}

/// Returns the protocols of a rule. A rule for all ports is for all protocols.
fn protocols(text: &str) -> Vec<Protocol> {
    let all = [(Protocol::Tcp, "Tcp"), (Protocol::Udp, "Udp")];
    let one = all.iter().filter(|(_, name)| spelling::same_word(name, text)).map(|(protocol, _)| *protocol);
    let found: Vec<_> = one.collect();
    if found.is_empty() { vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp] } else { found }
}

/// Returns `true` if a name or tag shows that a resource was created for the Service, in any layout of load balancers.
///
/// Each program that creates a resource for a Service puts the UID of the Service into the name.
pub fn has_traces(
    observed: &ObservedNetwork,
    service: &ServiceIdentity,
    uid: &str,
    settings: &LoadBalancerSettings,
) -> bool {
    let uid = uid.to_ascii_lowercase();
    let plain: String = uid.replace('-', "").chars().take(naming::NAME_PREFIX_LENGTH - 1).collect();
    let shows = |name: Option<&String>| {
        let name = name.map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        !uid.is_empty() && (name.contains(&uid) || name.contains(&plain))
    };
    let is_on = |document: &ArmLoadBalancer| {
        let frontends = draft::frontends(document).iter().map(|part| part.name.as_ref());
        let rules = draft::rules(document).iter().map(|part| part.name.as_ref());
        frontends.chain(rules).chain([document.name.as_ref()]).any(shows)
    };
    observed.load_balancers.iter().any(is_on)
        || observed.public_ips.iter().any(|public| shows(public.name.as_ref()))
        || !public_ip_addresses_of(&PlanIndex::of_one_service(observed), &service.key, settings).is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::samples::*, *};

    const UID: &str = "6f3c1a52-8d7e-4b90-9a41-2c5d7e8f9a01";

    #[test]
    fn rules_show_the_ports_of_a_service_on_both_sides() {
        let (web, other) = (service("web").identity, service("other").identity);
        let rule = |name: &str, protocol: &str, front: i32, back: i32| json!({"name": name, "properties": {"protocol": protocol, "frontendPort": front, "backendPort": back}});
        let rules = [
            rule(&format!("{}-TCP-80", web.name_prefix), "tcp", 80, 30080),
            rule(&format!("{}-UDP-53-IPv6", web.name_prefix.to_uppercase()), "Udp", 53, 53),
            rule(&format!("{}-TCP-81", other.name_prefix), "Tcp", 81, 30081),
        ];
        let there =
            observed(vec![load_balancer(json!({"name": "kubernetes", "properties": {"loadBalancingRules": rules}}))]);
        let expected = [(Protocol::Tcp, [80, 30080].into()), (Protocol::Udp, [53].into())];
        assert_eq!(ports_of(&PlanIndex::new(&there), &web), expected.into());
    }

    #[test]
    fn a_trace_is_a_name_with_the_uid_or_a_tag() {
        let (web, settings) = (service("web").identity, settings());
        let found = |there: &ObservedNetwork| has_traces(there, &web, UID, &settings);
        let on = |document: serde_json::Value| observed(vec![load_balancer(document)]);
        let public = |name: &str, tags: serde_json::Value| {
            let document = json!({"name": name, "tags": tags, "properties": {"ipAddress": "20.0.0.1"}});
            ObservedNetwork { public_ips: vec![serde_json::from_value(document).unwrap()], ..observed(Vec::new()) }
        };
        let base = &web.name_prefix;
        for (there, expected) in [
            (observed(Vec::new()), false),
            (on(json!({"name": "kubernetes", "properties": {}})), false),
            (on(json!({"name": UID, "properties": {}})), true),
            (on(json!({"name": "lb1", "properties": {"frontendIPConfigurations": [{"name": base}]}})), true),
            (on(json!({"name": "lb1", "properties": {"loadBalancingRules": [{"name": format!("{base}-TCP-80")}]}})), true),
            (public(&format!("kubernetes-{base}"), json!({})), true),
            (public("theirs", json!({})), false),
            (public("theirs", json!({"k8s-azure-service": "default/web"})), true),
            (public("theirs", json!({"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "other"})), false),
        ] {
            assert_eq!(found(&there), expected, "{there:?}");
        }
    }
}
