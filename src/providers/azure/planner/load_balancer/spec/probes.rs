//! Health probes of a Service. Pure. Upstream: `pkg/provider/azure_loadbalancer_healthprobe.go`.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec as Fields};

use super::{
    PortProbe, ProbeProtocol, ProbeSpec, Protocol, ServiceRefusal,
    reader::{SpecReader, refusal},
};
use crate::providers::azure::{
    config::{HealthProbeMode, LoadBalancerSku},
    planner::load_balancer::{
        annotations::{
            AnnotationFormat, AnnotationKey, NO_PROBE, PLS_CREATE, PLS_PROXY_PROTOCOL, PORT_PROBE_COUNT,
            PORT_PROBE_INTERVAL, PORT_PROBE_PORT, PORT_PROBE_PROTOCOL, PORT_PROBE_REQUEST_PATH, PROBE_COUNT, PROBE_INTERVAL,
            PROBE_PROTOCOL, PROBE_REQUEST_PATH, PortAnnotationKey, ProbePortFormat, ServiceAnnotations, WholeNumberFormat,
            excerpt,
        },
        settings::LoadBalancerSettings,
    },
};

/// Exclusive upper bound of the interval times the number of probes, in seconds.
const MAX_PROBE_SECONDS: i64 = 120;
/// Path on which kube-proxy reports whether a Node has local endpoints.
const LOCAL_PATH: &str = "/healthz";

/// Rule that selects the probes of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbePolicy {
    /// A probe for each TCP port.
    PerPort,
    /// A probe for the Service, of Nodes with local endpoints.
    Local,
    /// A probe for all Services, from the configuration.
    Shared,
}

/// Returns the policy of a Service. Behind a private link with proxy header, the health-check node port cannot be probed.
pub(super) fn policy(reading: &SpecReader<'_>, fields: &Fields, settings: &LoadBalancerSettings) -> ProbePolicy {
    if fields.external_traffic_policy.as_deref() == Some("Local") {
        let proxied = reading.is(&PLS_CREATE) && reading.is(&PLS_PROXY_PROTOCOL);
        let has_port = fields.health_check_node_port.is_some_and(|port| port != 0);
        return if has_port && !proxied { ProbePolicy::Local } else { ProbePolicy::PerPort };
    }
    match settings.probe_mode {
        HealthProbeMode::Shared => ProbePolicy::Shared,
        HealthProbeMode::ServiceNodePort => ProbePolicy::PerPort,
    }
}

/// Returns the probe of Nodes with local endpoints. Annotations of the health-check node port set its interval and number of probes.
pub(super) fn local(reading: &mut SpecReader<'_>, fields: &Fields) -> ProbeSpec {
    let port = fields.health_check_node_port.unwrap_or_default();
    let (interval, threshold) = timing(reading.annotations, port).unwrap_or_else(|refusals| {
        refusals.into_iter().for_each(|refusal| reading.refuse(refusal));
        (ProbeSpec::DEFAULT_INTERVAL, ProbeSpec::DEFAULT_THRESHOLD)
    });
    ProbeSpec { protocol: ProbeProtocol::Http, port, path: Some(LOCAL_PATH.to_owned()), interval, threshold }
}

/// Index of the ports of a Service by name and by number. Each port may have an annotation that names a port, so lookups must be fast.
#[derive(Default)]
pub(super) struct PortIndex {
    names: HashMap<String, usize>,
    numbers: HashMap<i32, usize>,
}

impl PortIndex {
    pub(super) fn of(ports: &[ServicePort]) -> Self {
        let mut places = Self::default();
        for (at, port) in ports.iter().enumerate() {
            if let Some(name) = &port.name {
                places.names.entry(name.to_ascii_lowercase()).or_insert(at);
            }
            places.numbers.entry(port.port).or_insert(at);
        }
        places
    }

    /// Returns the index of the first port with this name, in any letter case, or number.
    fn find(&self, name: &str, number: Option<i32>) -> Option<usize> {
        let by_name = self.names.get(&name.to_ascii_lowercase());
        by_name.into_iter().chain(number.and_then(|number| self.numbers.get(&number))).min().copied()
    }
}

/// Parser of the probes of a Service.
pub(super) struct ProbeParser<'a> {
    pub(super) annotations: &'a ServiceAnnotations,
    pub(super) ports: &'a [ServicePort],
    pub(super) index: PortIndex,
    pub(super) policy: ProbePolicy,
    pub(super) sku: LoadBalancerSku,
}

impl ProbeParser<'_> {
    /// Returns the probe of one port's rule. `at`: index of the port in the Service.
    pub(super) fn of(&self, at: usize, port: &ServicePort, protocol: Protocol) -> Result<PortProbe, Vec<ServiceRefusal>> {
        let has_own_port = || matches!(PORT_PROBE_PORT.read(port.port, self.annotations), Ok(Some(_)));
        match (self.policy, protocol) {
            (ProbePolicy::Shared, _) => Ok(PortProbe::Shared),
            (ProbePolicy::Local, Protocol::Tcp) if has_own_port() => self.own(at, port).map(PortProbe::Own),
            (ProbePolicy::Local, _) => Ok(PortProbe::Local),
            (ProbePolicy::PerPort, Protocol::Tcp) => self.own(at, port).map(PortProbe::Own),
            (ProbePolicy::PerPort, Protocol::Udp | Protocol::Sctp) => Ok(PortProbe::None),
        }
    }

    /// Returns the probe of the rule for all ports: the first valid probe of a TCP port.
    pub(super) fn of_all_ports(&self) -> PortProbe {
        match self.policy {
            ProbePolicy::Shared => PortProbe::Shared,
            ProbePolicy::Local => PortProbe::Local,
            ProbePolicy::PerPort => {
                let tcp =
                    self.ports.iter().enumerate().filter(|(_, port)| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
                tcp.filter_map(|(at, port)| self.own(at, port).ok()).next().map_or(PortProbe::None, PortProbe::Own)
            }
        }
    }

    fn own(&self, at: usize, port: &ServicePort) -> Result<ProbeSpec, Vec<ServiceRefusal>> {
        let timing = timing(self.annotations, port.port);
        let number = self.number(at, port);
        let protocol = self.protocol(port);
        let path = if protocol == ProbeProtocol::Tcp { Ok(None) } else { self.path(port.port).map(Some) };
        match (number, timing, path) {
            (Ok(port), Ok((interval, threshold)), Ok(path)) => Ok(ProbeSpec { protocol, port, path, interval, threshold }),
            (number, timing, path) => {
                Err(number.err().into_iter().chain(timing.err().into_iter().flatten()).chain(path.err()).collect())
            }
        }
    }

    /// Returns the probed port of the Nodes.
    fn number(&self, at: usize, port: &ServicePort) -> Result<i32, ServiceRefusal> {
        let Some(text) = PORT_PROBE_PORT.read(port.port, self.annotations)? else {
            return allocated_node_port(port, port.port, || format!("spec.ports[{at}].nodePort"));
        };
        let key = PORT_PROBE_PORT.of(port.port);
        let number: Option<i64> = text.parse().ok();
        let in_range = number.and_then(|number| i32::try_from(number).ok()).filter(|number| (1..=65_535).contains(number));
        match (self.index.find(text, in_range).and_then(|at| self.ports.get(at)), in_range) {
            (Some(other), _) => allocated_node_port(other, port.port, || key),
            (None, Some(number)) => Ok(number),
            (None, None) => Err(refusal(key, invalid_port(text, number))),
        }
    }

    /// Returns the protocol of a probe. As upstream, an unknown protocol counts as TCP, and `appProtocol` outranks the annotation for all
    /// ports.
    fn protocol(&self, port: &ServicePort) -> ProbeProtocol {
        let own = PORT_PROBE_PROTOCOL.read(port.port, self.annotations).ok().flatten();
        let all = || PROBE_PROTOCOL.read(self.annotations).ok().flatten();
        let text = own.or(port.app_protocol.as_deref()).or_else(all).unwrap_or_default().trim();
        let is_basic = self.sku == LoadBalancerSku::Basic;
        match text {
            _ if text.eq_ignore_ascii_case("http") => ProbeProtocol::Http,
            _ if text.eq_ignore_ascii_case("https") && !is_basic => ProbeProtocol::Https,
            _ => ProbeProtocol::Tcp,
        }
    }

    fn path(&self, port: i32) -> Result<String, ServiceRefusal> {
        let path = match PORT_PROBE_REQUEST_PATH.read(port, self.annotations)? {
            Some(own) => Some(own),
            None => PROBE_REQUEST_PATH.read(self.annotations)?,
        };
        Ok(path.unwrap_or("/").to_owned())
    }
}

/// Describes an invalid number or name of a port. For a number, the message has the words of upstream, which its end-to-end tests match.
fn invalid_port(text: &str, number: Option<i64>) -> String {
    let expected = format!("expected {}", ProbePortFormat::accepts());
    match number {
        Some(number) => format!("port {number} is out of range, {expected}"),
        None => format!("{expected}, found `{}`", excerpt(text)),
    }
}

/// Returns the node port of `probed`, for the probe of the port with number `port`.
fn allocated_node_port(probed: &ServicePort, port: i32, field: impl FnOnce() -> String) -> Result<i32, ServiceRefusal> {
    let advice = || {
        let (other, none) = (PORT_PROBE_PORT.of(port), NO_PROBE.of(port));
        format!("no node port to probe; allocate node ports, name another port in `{other}`, or set `{none}` to `true`")
    };
    probed.node_port.filter(|port| *port != 0).ok_or_else(|| refusal(field(), advice()))
}

/// Returns the interval in seconds and the number of probes: the port's own annotations, else those for all ports, else the defaults.
fn timing(annotations: &ServiceAnnotations, port: i32) -> Result<(i32, i32), Vec<ServiceRefusal>> {
    let interval = setting(annotations, port, &PORT_PROBE_INTERVAL, &PROBE_INTERVAL, ProbeSpec::DEFAULT_INTERVAL);
    let count = setting(annotations, port, &PORT_PROBE_COUNT, &PROBE_COUNT, ProbeSpec::DEFAULT_THRESHOLD);
    match (interval, count) {
        (Ok((_, interval)), Ok((_, count))) if i64::from(interval) * i64::from(count) < MAX_PROBE_SECONDS => {
            Ok((interval, count))
        }
        (Ok((field, interval)), Ok((other, count))) => Err(vec![refusal(
            field,
            format!(
                "interval times number of probes (`{other}`) must be less than {MAX_PROBE_SECONDS} seconds, found {interval} times {count}"
            ),
        )]),
        (interval, count) => Err(interval.err().into_iter().chain(count.err()).collect()),
    }
}

/// Returns the annotation that a refusal of the value names, and the value.
fn setting<const MIN: i32>(
    annotations: &ServiceAnnotations,
    port: i32,
    own: &PortAnnotationKey<WholeNumberFormat<MIN, { i32::MAX }>>,
    all: &AnnotationKey<WholeNumberFormat<MIN, { i32::MAX }>>,
    default: i32,
) -> Result<(String, i32), ServiceRefusal> {
    if let Some(value) = own.read(port, annotations)? {
        return Ok((own.of(port), value));
    }
    Ok((all.key.to_owned(), all.read(annotations)?.unwrap_or(default)))
}

#[cfg(test)]
mod tests;
