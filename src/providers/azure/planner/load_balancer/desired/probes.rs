//! Health probes that a Service needs, and a comparison of probes. Pure.
//!
//! In: a [`ServiceSpec`]. Out: ARM's documents. Upstream: `pkg/provider/azure_loadbalancer_healthprobe.go`.

use std::collections::BTreeSet;

use crate::providers::azure::{
    model::network::{LoadBalancingRule, Probe, ProbeProperties},
    planner::load_balancer::{
        naming,
        settings::LoadBalancerSettings,
        spec::{IpFamily, PortProbe, ProbeProtocol, ProbeSpec, Protocol, ServiceSpec},
    },
};

/// Returns the probe of a rule called `rule`; `None` if the rule has no probe.
pub(super) fn of_rule(
    spec: &ServiceSpec,
    wanted: &PortProbe,
    rule: &str,
    family: IpFamily,
    settings: &LoadBalancerSettings,
) -> Option<Probe> {
    match wanted {
        PortProbe::None => None,
        PortProbe::Own(probe) => Some(document(rule.to_owned(), probe)),
        PortProbe::Local => {
            let probe = spec.local_probe.as_ref()?;
            Some(document(rule_name(spec, Protocol::Tcp, probe.port, family), probe))
        }
        PortProbe::Shared => Some(shared(settings)),
    }
}

/// Returns the name of the rule of a port. The port's own probe has the same name.
pub(super) fn rule_name(spec: &ServiceSpec, protocol: Protocol, port: i32, family: IpFamily) -> String {
    let subnet = spec.subnet.as_deref().filter(|_| spec.internal);
    naming::rule(&spec.identity, subnet, protocol, port, family, spec.is_dual_stack())
}

fn document(name: String, probe: &ProbeSpec) -> Probe {
    let protocol = match probe.protocol {
        ProbeProtocol::Tcp => "Tcp",
        ProbeProtocol::Http => "Http",
        ProbeProtocol::Https => "Https",
    };
    let properties = ProbeProperties {
        protocol: Some(protocol.to_owned()),
        port: Some(probe.port.into()),
        request_path: probe.path.clone(),
        interval_in_seconds: Some(probe.interval.into()),
        probe_threshold: Some(probe.threshold.into()),
        ..ProbeProperties::default()
    };
    Probe { name: Some(name), properties: Some(properties), ..Probe::default() }
}

fn shared(settings: &LoadBalancerSettings) -> Probe {
    let (port, path) = settings.shared_probe.clone();
    let (interval, threshold) = (ProbeSpec::DEFAULT_INTERVAL, ProbeSpec::DEFAULT_THRESHOLD);
    let probe = ProbeSpec { protocol: ProbeProtocol::Http, port, path: Some(path), interval, threshold };
    document(naming::SHARED_PROBE.to_owned(), &probe)
}

/// Returns `true` if ARM's probe is as desired in the fields that the controller sets. The caller has compared the names.
pub(super) fn is_same(existing: &Probe, wanted: &Probe) -> bool {
    let key = |probe: &Probe| {
        let properties = probe.properties.clone().unwrap_or_default();
        (
            properties.protocol.unwrap_or_default().to_ascii_lowercase(),
            properties.port,
            properties.request_path.unwrap_or_default().to_lowercase(),
            properties.interval_in_seconds,
            properties.probe_threshold,
        )
    };
    key(existing) == key(wanted)
}

/// Returns the names of the probes that rules refer to, in lower case.
pub(super) fn probe_references<'r>(rules: impl IntoIterator<Item = &'r LoadBalancingRule>) -> BTreeSet<String> {
    let references = rules.into_iter().filter_map(|rule| rule.properties.as_ref()?.probe.as_ref()?.id.as_deref());
    references.filter_map(|id| id.rsplit('/').next()).map(str::to_ascii_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::samples::*, *};

    fn probe(value: Value) -> Probe {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn probes_are_compared_by_what_is_wanted_of_them() {
        let wanted = document("p".into(), &http_probe(31234, "/healthz"));
        #[rustfmt::skip]
        let cases = [
            (json!({"protocol": "http", "port": 31234, "requestPath": "/HEALTHZ", "intervalInSeconds": 5, "probeThreshold": 2, "numberOfProbes": 2, "noHealthyBackendsBehavior": "AllProbedDown"}), true),
            (json!({"protocol": "Tcp", "port": 31234, "requestPath": "/healthz", "intervalInSeconds": 5, "probeThreshold": 2}), false),
            (json!({"protocol": "Http", "port": 31235, "requestPath": "/healthz", "intervalInSeconds": 5, "probeThreshold": 2}), false),
            (json!({"protocol": "Http", "port": 31234, "intervalInSeconds": 5, "probeThreshold": 2}), false),
            (json!({"protocol": "Http", "port": 31234, "requestPath": "/healthz", "intervalInSeconds": 6, "probeThreshold": 2}), false),
            (json!({"protocol": "Http", "port": 31234, "requestPath": "/healthz", "intervalInSeconds": 5, "numberOfProbes": 2}), false),
        ];
        for (properties, same) in cases {
            assert_eq!(is_same(&probe(json!({"name": "p", "properties": properties})), &wanted), same, "{properties}");
        }
    }
}
