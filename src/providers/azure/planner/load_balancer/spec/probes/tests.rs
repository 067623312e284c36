use serde_json::{Value, json};

use super::*;
use crate::providers::azure::planner::load_balancer::spec::{
    ServiceSpec, parse_service,
    tests::{accepted, refused, service, settings},
};

fn own(protocol: ProbeProtocol, port: i32, path: Option<&str>, interval: i32, threshold: i32) -> PortProbe {
    PortProbe::Own(ProbeSpec { protocol, port, path: path.map(str::to_owned), interval, threshold })
}

fn probes(spec: &ServiceSpec) -> Vec<PortProbe> {
    spec.ports.iter().map(|port| port.probe.clone()).collect()
}

fn first(annotations: &[(&str, &str)], fields: Value) -> PortProbe {
    probes(&accepted(annotations, fields)).remove(0)
}

fn local() -> Value {
    json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31234})
}

fn one(app_protocol: Option<&str>) -> Value {
    json!({"ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080, "appProtocol": app_protocol}]})
}

#[test]
fn the_ports_own_protocol_outranks_the_application_protocol_and_that_the_services() {
    use ProbeProtocol::{Http, Https, Tcp};
    for (port, app, service, want) in [
        (None, None, None, Tcp),
        (None, None, Some("Http"), Http),
        (None, None, Some(" HTTPS "), Https),
        (None, None, Some("grpc"), Tcp),
        (None, Some("https"), Some("http"), Https),
        (None, Some("kubernetes.io/h2c"), Some("http"), Tcp),
        (Some("tcp"), Some("http"), Some("http"), Tcp),
        (Some("http"), Some("https"), None, Http),
        (Some(""), Some("https"), None, Tcp),
    ] {
        let annotations = [("port_80_health-probe_protocol", port), ("azure-load-balancer-health-probe-protocol", service)];
        let annotations: Vec<_> = annotations.iter().filter_map(|(key, value)| Some((*key, (*value)?))).collect();
        let path = (want != Tcp).then_some("/");
        assert_eq!(first(&annotations, one(app)), own(want, 30080, path, 5, 2), "{port:?} {app:?} {service:?}");
    }
}

#[test]
fn basic_load_balancers_have_no_https_probes() {
    let basic = LoadBalancerSettings { sku: LoadBalancerSku::Basic, ..settings() };
    let spec = parse_service(&service(&[], one(Some("https"))), &basic).unwrap();
    assert_eq!(probes(&spec), [own(ProbeProtocol::Tcp, 30080, None, 5, 2)]);
}

#[test]
fn settings_of_a_port_outrank_those_of_the_service() {
    let all = [
        ("azure-load-balancer-health-probe-protocol", "http"),
        ("azure-load-balancer-health-probe-request-path", "/all"),
        ("azure-load-balancer-health-probe-interval", " 15 "),
        ("azure-load-balancer-health-probe-num-of-probe", "4"),
        ("port_443_health-probe_request-path", "/one"),
        ("port_443_health-probe_interval", "20"),
        ("port_443_health-probe_num-of-probe", "5"),
    ];
    let want = [own(ProbeProtocol::Http, 30080, Some("/all"), 15, 4), own(ProbeProtocol::Http, 30443, Some("/one"), 20, 5)];
    assert_eq!(probes(&accepted(&all, json!({}))), want);
}

#[test]
fn interval_times_number_is_less_than_120() {
    for (interval, count, is_accepted) in [
        ("59", "2", true),
        ("60", "2", false),
        ("5", "23", true),
        ("5", "24", false),
        ("2147483647", "2147483647", false),
        ("4", "2", false),
        ("5", "1", false),
        ("5.5", "2", false),
    ] {
        for keys in [
            ["azure-load-balancer-health-probe-interval", "azure-load-balancer-health-probe-num-of-probe"],
            ["port_80_health-probe_interval", "port_80_health-probe_num-of-probe"],
        ] {
            let found = refused(&[(keys[0], interval), (keys[1], count)], one(None));
            assert_eq!(found.is_empty(), is_accepted, "{interval} {count} {found:?}");
        }
    }
}

#[test]
fn a_problem_that_ports_share_is_told_once() {
    assert_eq!(refused(&[("azure-load-balancer-health-probe-interval", "1")], json!({})).len(), 1);
    assert_eq!(refused(&[("azure-load-balancer-health-probe-interval", "60")], json!({})).len(), 1);
}

#[test]
fn probe_ports_are_names_or_numbers() {
    for (text, port) in [("HTTPS", 30443), ("443", 30443), ("9999", 9999), (" 9999 ", 9999), ("65535", 65535)] {
        let probe = first(&[("port_80_health-probe_port", text)], json!({}));
        assert_eq!(probe, own(ProbeProtocol::Tcp, port, None, 5, 2), "{text}");
    }
}

#[test]
fn a_probe_port_out_of_range_is_told_in_upstreams_words() {
    for (text, told) in [
        ("65536", "port 65536 is out of range, expected "),
        ("0", "port 0 is out of range, expected "),
        ("-1", "port -1 is out of range, expected "),
        ("4294967376", "port 4294967376 is out of range, expected "),
        ("nosuch", "expected "),
        ("99999999999999999999", "expected "),
    ] {
        let refusals = refused(&[("port_80_health-probe_port", text)], json!({}));
        let start = format!("port_80_health-probe_port: {told}");
        assert!(refusals[0].starts_with(&start), "{text}: {refusals:?}");
    }
}

#[test]
fn no_node_port_means_no_probe_of_ones_own() {
    let without = json!({"ports": [{"protocol": "TCP", "port": 80}]});
    assert!(refused(&[], without.clone())[0].starts_with("spec.ports[0].nodePort: no node port to probe"));
    assert_eq!(first(&[("port_80_no_probe_rule", "True")], without.clone()), PortProbe::None);
    assert_eq!(first(&[("port_80_health-probe_port", "8080")], without), own(ProbeProtocol::Tcp, 8080, None, 5, 2));
}

#[test]
fn local_services_probe_the_health_check_port() {
    let annotations = [
        ("port_443_health-probe_port", "10256"),
        ("port_443_health-probe_protocol", "http"),
        ("port_443_health-probe_request-path", "/healthz"),
        ("port_31234_health-probe_interval", "7"),
        ("port_80_health-probe_protocol", "https"),
    ];
    let spec = accepted(&annotations, local());
    let probe =
        ProbeSpec { protocol: ProbeProtocol::Http, port: 31234, path: Some("/healthz".into()), interval: 7, threshold: 2 };
    assert_eq!(spec.local_probe, Some(probe));
    assert_eq!(probes(&spec), [PortProbe::Local, own(ProbeProtocol::Http, 10256, Some("/healthz"), 5, 2)]);
    assert_eq!(refused(&[("port_31234_health-probe_num-of-probe", "1")], local()).len(), 1);
}

#[test]
fn behind_a_private_link_with_proxy_header_each_port_has_its_probe() {
    let internal = ("azure-load-balancer-internal", "true");
    let spec = accepted(&[internal, ("azure-pls-create", "true"), ("azure-pls-proxy-protocol", "TRUE")], local());
    assert_eq!((spec.local_probe, probes_count(&spec.ports)), (None, 2));
    assert_eq!(probes_count(&accepted(&[("azure-pls-proxy-protocol", "true")], local()).ports), 0);
}

fn probes_count(ports: &[crate::providers::azure::planner::load_balancer::spec::PortSpec]) -> usize {
    ports.iter().filter(|port| matches!(port.probe, PortProbe::Own(_))).count()
}

#[test]
fn the_shared_probe_is_for_services_with_policy_cluster() {
    let shared = LoadBalancerSettings { probe_mode: HealthProbeMode::Shared, ..settings() };
    let udp = json!({"ports": [{"protocol": "UDP", "port": 53, "nodePort": 30053}]});
    let bad = [("azure-load-balancer-health-probe-interval", "1")];
    assert_eq!(probes(&parse_service(&service(&bad, udp), &shared).unwrap()), [PortProbe::Shared]);
    assert_eq!(probes(&parse_service(&service(&[], local()), &shared).unwrap()), [PortProbe::Local, PortProbe::Local]);
}

#[test]
fn the_rule_for_all_ports_has_the_first_probe_that_can_be() {
    let annotations = [
        ("azure-load-balancer-internal", "true"),
        ("azure-load-balancer-enable-high-availability-ports", "true"),
        ("port_80_health-probe_port", "nosuch"),
    ];
    let spec_of = |annotations: &[(&str, &str)], fields| accepted(annotations, fields).ha_ports;
    assert_eq!(spec_of(&annotations[..2], json!({})), Some(own(ProbeProtocol::Tcp, 30080, None, 5, 2)));
    assert_eq!(spec_of(&annotations, json!({})), Some(own(ProbeProtocol::Tcp, 30443, None, 5, 2)));
    assert_eq!(spec_of(&annotations, local()), Some(PortProbe::Local));
    assert_eq!(spec_of(&annotations[1..2], json!({})), None);
    let udp = json!({"ports": [{"protocol": "UDP", "port": 53, "nodePort": 30053}]});
    assert_eq!(spec_of(&annotations[..2], udp), Some(PortProbe::None));
}
