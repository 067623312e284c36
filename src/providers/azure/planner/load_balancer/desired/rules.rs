//! Load balancing rules that a Service needs, and a comparison of rules. Pure.
//!
//! In: a [`ServiceSpec`] and the frontends that are assigned to it. Out: ARM's documents, rules with the probes they refer to.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `getExpectedLBRules`; unlike upstream, a rule for all ports whose TCP reset
//! changed is detected.

use super::{pools, probes};
use crate::providers::azure::{
    config::LoadBalancerSku,
    model::{
        ResourceId,
        document::SubResource,
        network::{LoadBalancingRule, LoadBalancingRuleProperties, Probe},
    },
    planner::load_balancer::{
        settings::LoadBalancerSettings,
        spec::{IpFamily, PortProbe, PortSpec, Protocol, ServiceSpec},
    },
};

/// Rules and probes of a Service on a load balancer, for one of its IP families.
#[derive(Debug, Default)]
pub(super) struct RulesAndProbes {
    /// Rules, in the order of the ports.
    pub(super) rules: Vec<LoadBalancingRule>,
    pub(super) probes: Vec<Probe>,
}

/// Returns the rules and probes of the Service behind the frontend with the id `frontend`.
pub(super) fn rules_and_probes(
    spec: &ServiceSpec,
    family: IpFamily,
    frontend: &str,
    load_balancer: &ResourceId,
    settings: &LoadBalancerSettings,
) -> RulesAndProbes {
    let maker = RuleBuilder { spec, family, frontend, load_balancer, settings };
    let name = |port: &PortSpec| probes::rule_name(spec, port.protocol, port.port, family);
    let mut wanted = RulesAndProbes::default();
    match (&spec.ha_ports, spec.ports.first()) {
        (Some(probe), Some(first)) => {
            maker.add(&mut wanted, name(first), probe, maker.all_ports());
        }
        _ => {
            for port in spec.ports.iter().filter(|port| port.rule) {
                maker.add(&mut wanted, name(port), &port.probe, maker.one_port(port));
            }
        }
    }
    wanted
}

struct RuleBuilder<'a> {
    spec: &'a ServiceSpec,
    family: IpFamily,
    frontend: &'a str,
    load_balancer: &'a ResourceId,
    settings: &'a LoadBalancerSettings,
}

impl RuleBuilder<'_> {
    fn add(&self, wanted: &mut RulesAndProbes, name: String, probe: &PortProbe, properties: LoadBalancingRuleProperties) {
        let probe = probes::of_rule(self.spec, probe, &name, self.family, self.settings);
        let reference = probe.as_ref().and_then(|probe| probe.name.as_deref());
        let properties = LoadBalancingRuleProperties {
            probe: reference.map(|name| SubResource::to(&self.load_balancer.child("probes", name))),
            ..properties
        };
        wanted.rules.push(LoadBalancingRule { name: Some(name), properties: Some(properties), ..Default::default() });
        let is_new = |probe: &Probe| wanted.probes.iter().all(|known| known.name != probe.name);
        wanted.probes.extend(probe.filter(is_new));
    }

    fn is_standard(&self) -> bool {
        self.settings.sku == LoadBalancerSku::Standard
    }

    /// Returns `true` if rules can have a floating IP. IPv6 rules of internal load balancers cannot.
    fn can_float(&self) -> bool {
        !(self.spec.internal && self.family == IpFamily::V6)
    }

    fn one_port(&self, port: &PortSpec) -> LoadBalancingRuleProperties {
        let floating = self.spec.floating_ip && self.can_float();
        let protocol = match port.protocol {
            Protocol::Tcp => "Tcp",
            Protocol::Udp => "Udp",
            Protocol::Sctp => "All",
        };
        LoadBalancingRuleProperties {
            protocol: Some(protocol.to_owned()),
            frontend_port: Some(port.port.into()),
            backend_port: Some(if floating { port.port } else { port.node_port }.into()),
            enable_floating_ip: Some(floating),
            enable_tcp_reset: (port.protocol == Protocol::Tcp && self.is_standard()).then_some(self.spec.tcp_reset),
            ..self.common()
        }
    }

    fn all_ports(&self) -> LoadBalancingRuleProperties {
        LoadBalancingRuleProperties {
            protocol: Some("All".to_owned()),
            frontend_port: Some(0),
            backend_port: Some(0),
            enable_floating_ip: Some(self.can_float()),
            enable_tcp_reset: self.is_standard().then_some(self.spec.tcp_reset),
            ..self.common()
        }
    }

    fn common(&self) -> LoadBalancingRuleProperties {
        let pool = pools::name(self.spec, self.settings, self.family);
        let distribution = if self.spec.client_ip_affinity { "SourceIP" } else { "Default" };
        LoadBalancingRuleProperties {
            disable_outbound_snat: Some(self.settings.disable_outbound_snat),
            load_distribution: Some(distribution.to_owned()),
            idle_timeout_in_minutes: Some(self.spec.idle_timeout.into()),
            frontend_ip_configuration: Some(SubResource { id: Some(self.frontend.to_owned()), ..SubResource::default() }),
            backend_address_pool: Some(SubResource::to(&pools::id(self.load_balancer, &pool))),
            ..LoadBalancingRuleProperties::default()
        }
    }
}

/// Returns the id of the frontend of a rule in lower case. The text is empty if the rule has none.
pub(super) fn frontend_key(rule: &LoadBalancingRule) -> String {
    reference_key(rule.properties.as_ref().and_then(|properties| properties.frontend_ip_configuration.as_ref()))
}

/// Returns the id of a reference in lower case. The text is empty if there is none.
pub(super) fn reference_key(reference: Option<&SubResource>) -> String {
    reference.and_then(|reference| reference.id.as_deref()).unwrap_or_default().to_ascii_lowercase()
}

/// Returns `true` if ARM's rule is as desired in the fields that the controller sets. The caller has compared the names.
///
/// A field that ARM omits has its default. An idle timeout that ARM omits is not compared.
pub(super) fn is_same(existing: &LoadBalancingRule, wanted: &LoadBalancingRule) -> bool {
    let (Some(existing), Some(wanted)) = (&existing.properties, &wanted.properties) else { return false };
    let words = |rule: &LoadBalancingRuleProperties| {
        let distribution = rule.load_distribution.as_deref().unwrap_or("Default").to_ascii_lowercase();
        (rule.protocol.as_deref().unwrap_or_default().to_ascii_lowercase(), distribution)
    };
    let references = |rule: &LoadBalancingRuleProperties| {
        [&rule.frontend_ip_configuration, &rule.backend_address_pool, &rule.probe].map(|id| reference_key(id.as_ref()))
    };
    let switches = |rule: &LoadBalancingRuleProperties| {
        [rule.enable_tcp_reset, rule.enable_floating_ip, rule.disable_outbound_snat].map(Option::unwrap_or_default)
    };
    let ports = |rule: &LoadBalancingRuleProperties| [rule.frontend_port, rule.backend_port].map(Option::unwrap_or_default);
    let same_timeout = match (existing.idle_timeout_in_minutes, wanted.idle_timeout_in_minutes) {
        (Some(is), Some(wanted)) => is == wanted,
        _ => true,
    };
    words(existing) == words(wanted)
        && ports(existing) == ports(wanted)
        && switches(existing) == switches(wanted)
        && references(existing) == references(wanted)
        && same_timeout
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::samples::*, *};
    use crate::providers::azure::planner::load_balancer::spec::IpFamily;

    #[test]
    fn rules_are_compared_by_what_is_wanted_of_them() {
        let lb = settings().group.resource("Microsoft.Network/loadBalancers", &["kubernetes"]);
        let wanted = rules_and_probes(&service("web"), IpFamily::V4, "/F", &lb, &settings()).rules.remove(0);
        let changed = |field: &str, value: serde_json::Value| {
            let mut rule = serde_json::to_value(&wanted).unwrap();
            rule["properties"][field] = value;
            is_same(&serde_json::from_value(rule).unwrap(), &wanted)
        };
        let id = |id: &str| json!({"id": id});
        for (field, value, same) in [
            ("protocol", json!("tcp"), true),
            ("protocol", json!("Udp"), false),
            ("frontendPort", json!(81), false),
            ("backendPort", json!(81), false),
            ("enableFloatingIP", json!(false), false),
            ("enableTcpReset", json!(null), false),
            ("disableOutboundSnat", json!(null), true),
            ("disableOutboundSnat", json!(true), false),
            ("loadDistribution", json!(null), true),
            ("loadDistribution", json!("SourceIP"), false),
            ("idleTimeoutInMinutes", json!(null), true),
            ("idleTimeoutInMinutes", json!(5), false),
            ("frontendIPConfiguration", id("/f"), true),
            ("frontendIPConfiguration", id("/g"), false),
            ("backendAddressPool", id("/p"), false),
            ("probe", json!(null), false),
            ("backendAddressPools", json!([id("/p")]), true),
            ("enableConnectionTracking", json!(true), true),
        ] {
            assert_eq!(changed(field, value.clone()), same, "{field}: {value}");
        }
    }
}
