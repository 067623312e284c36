//! The ports of a Service. Pure. Upstream: `pkg/provider/azure_loadbalancer.go`, `getExpectedLBRules`.

use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec as Fields};

use super::{
    PortProbe, PortSpec, ProbeSpec, Protocol,
    probes::{self, PortIndex, ProbeParser, ProbePolicy},
    reader::{SpecReader, refusal},
};
use crate::providers::azure::{
    config::LoadBalancerSku,
    planner::load_balancer::{
        annotations::{HA_PORTS, INTERNAL, NO_PROBE, NO_RULE, excerpt},
        settings::LoadBalancerSettings,
    },
};

/// Largest number of ports of one Service: a standard load balancer has at most 1,500 rules.
pub const MAX_PORTS: usize = 1_500;

/// Properties of a Service that are parsed before its ports.
pub(super) struct PortContext {
    pub(super) internal: bool,
    /// Whether some rule leads to node ports instead of Service ports.
    pub(super) to_node_ports: bool,
}

/// Desired ports and probes.
pub(super) struct ParsedPorts {
    pub(super) ports: Vec<PortSpec>,
    pub(super) local_probe: Option<ProbeSpec>,
    pub(super) ha_ports: Option<PortProbe>,
}

pub(super) fn ports(
    reading: &mut SpecReader<'_>,
    fields: &Fields,
    settings: &LoadBalancerSettings,
    front: &PortContext,
) -> ParsedPorts {
    let given = fields.ports.as_deref().unwrap_or_default();
    let policy = probes::policy(reading, fields, settings);
    if given.len() > MAX_PORTS {
        reading.refuse(refusal("spec.ports", format!("expected at most {MAX_PORTS} ports, found more")));
    }
    // A refused Service is still compared with all Services that share an address, so the cost of the comparison is bounded here.
    let given = given.get(..MAX_PORTS).unwrap_or(given);
    let found = PortIndex::of(given);
    let probes = ProbeParser { annotations: reading.annotations, ports: given, index: found, policy, sku: settings.sku };
    let ha_ports = uses_ha_ports(reading, settings, front).then(|| probes.of_all_ports());
    let mut ports = Vec::with_capacity(given.len());
    for (at, port) in given.iter().enumerate() {
        let Some(protocol) = protocol(reading, at, port) else { continue };
        ports.push(if ha_ports.is_some() {
            ha_port(protocol, port)
        } else {
            rule_port(reading, &probes, front, at, port, protocol)
        });
    }
    let local_probe = (policy == ProbePolicy::Local).then(|| probes::local(reading, fields));
    ParsedPorts { ports, local_probe, ha_ports }
}

fn uses_ha_ports(reading: &mut SpecReader<'_>, settings: &LoadBalancerSettings, front: &PortContext) -> bool {
    let asked = reading.is(&HA_PORTS);
    let can = front.internal && settings.sku == LoadBalancerSku::Standard;
    if asked && !can {
        let reason = format!(
            "only internal standard load balancers have high-availability ports: `{}` must be `true`, and loadBalancerSku of the \
             provider's configuration standard",
            INTERNAL.key
        );
        reading.without_effect(HA_PORTS.key, &reason);
    }
    asked && can
}

fn protocol(reading: &mut SpecReader<'_>, at: usize, port: &ServicePort) -> Option<Protocol> {
    match port.protocol.as_deref() {
        None | Some("TCP" | "") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(other) => {
            let message = format!("expected TCP, UDP or SCTP, found `{}`", excerpt(other));
            reading.refuse(refusal(format!("spec.ports[{at}].protocol"), message));
            None
        }
    }
}

/// Returns a port that the rule for all ports serves.
fn ha_port(protocol: Protocol, port: &ServicePort) -> PortSpec {
    PortSpec { protocol, port: port.port, node_port: port.node_port.unwrap_or_default(), rule: true, probe: PortProbe::None }
}

/// Returns a port that has its own rule. If an annotation disables the rule, values that only the rule needs are not checked.
fn rule_port(
    reading: &mut SpecReader<'_>,
    probes: &ProbeParser<'_>,
    front: &PortContext,
    at: usize,
    port: &ServicePort,
    protocol: Protocol,
) -> PortSpec {
    let rule = !reading.is_at(&NO_RULE, port.port);
    let mut probe = PortProbe::None;
    if rule {
        check_rule(reading, front, at, port, protocol);
        if !reading.is_at(&NO_PROBE, port.port) {
            probe = probes.of(at, port, protocol).unwrap_or_else(|refusals| {
                refusals.into_iter().for_each(|refusal| reading.refuse(refusal));
                PortProbe::None
            });
        }
    }
    PortSpec { rule, probe, ..ha_port(protocol, port) }
}

/// Refuses a rule that ARM would reject: SCTP, because its protocol `All` is valid only for all ports, and node port 0. Upstream sends
/// both.
fn check_rule(reading: &mut SpecReader<'_>, front: &PortContext, at: usize, port: &ServicePort, protocol: Protocol) {
    if protocol == Protocol::Sctp {
        let message = format!(
            "SCTP is only supported on internal standard load balancers with high-availability ports: set `{}` and `{}` to `true`",
            INTERNAL.key, HA_PORTS.key
        );
        reading.refuse(refusal(format!("spec.ports[{at}].protocol"), message));
    }
    if front.to_node_ports && port.node_port.unwrap_or_default() == 0 {
        let message = "expected a node port, since the load balancer sends traffic there: set spec.allocateLoadBalancerNodePorts to true";
        reading.refuse(refusal(format!("spec.ports[{at}].nodePort"), message));
    }
}
