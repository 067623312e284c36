//! Warnings about annotations that look like annotations of this provider but have no effect. Pure.
//!
//! In: the keys. Out: warnings about the first keys, each with the nearest known key, and the number of further keys. Comparing keys costs
//! much more than reading them. So callers do it only to report the warnings, and only reported keys are compared.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::Service;

use super::{
    ALLOWED_IP_RANGES, ANNOTATIONS, CONFIGURATIONS, MOST_RANGES, PORT_ENDINGS, PORT_PROBE_COUNT, PORT_PROBE_INTERVAL,
    PREFIX, SOURCE_RANGES, ServiceAnnotations, excerpt,
};
use crate::{
    cloud_provider::AnnotationUse,
    providers::azure::planner::load_balancer::spec::{ServiceWarning, reason},
};

/// Largest number of reported keys.
const MOST: usize = 10;
/// Longest key, without prefix, that is compared with known keys, in bytes. The API server accepts 63.
const LONGEST: usize = 64;

/// Ports of a Service that keys of annotations may name.
pub struct AnnotatedPorts {
    ports: HashSet<i32>,
    /// Health-check node port, if the Service has one.
    health_check: Option<i32>,
}

impl AnnotatedPorts {
    pub fn new(ports: impl IntoIterator<Item = i32>, health_check: Option<i32>) -> Self {
        Self { ports: ports.into_iter().collect(), health_check }
    }
}

/// Returns how much of an annotation is kept in memory; `service` is `None` before it is decoded.
pub fn use_in(key: &str, service: Option<&Service>) -> AnnotationUse {
    let Some(name) = key.strip_prefix(PREFIX) else { return AnnotationUse::Unread };
    if let Some(rest) = name.strip_prefix("port_") {
        return port_annotation_use(rest, service);
    }
    let read = ANNOTATIONS.iter().find(|row| row.key == key);
    match read {
        Some(row) if [ALLOWED_IP_RANGES.key, SOURCE_RANGES.key].contains(&key) => {
            AnnotationUse::ReadList { longest: row.longest, most: MOST_RANGES }
        }
        Some(row) => AnnotationUse::Read { longest: row.longest },
        None if name.starts_with("azure-") || CONFIGURATIONS.key.eq_ignore_ascii_case(key) => AnnotationUse::Sampled,
        None => AnnotationUse::Unread,
    }
}

fn port_annotation_use(rest: &str, service: Option<&Service>) -> AnnotationUse {
    let (number, ending) = rest.split_once('_').unwrap_or((rest, ""));
    let is_there = canonical_port(number).is_some_and(|port| service.is_none_or(|service| has_port(service, port)));
    let row = ANNOTATIONS.iter().find(|row| row.key.split_once("port_{p}_").is_some_and(|(_, known)| known == ending));
    row.filter(|_| is_there).map_or(AnnotationUse::Sampled, |row| AnnotationUse::Read { longest: row.longest })
}

/// Parses a port in the spelling of annotation keys: keys with `080` or `+80` are not those of port 80.
fn canonical_port(number: &str) -> Option<i32> {
    number.parse::<i32>().ok().filter(|port| port.to_string() == number)
}

fn has_port(service: &Service, port: i32) -> bool {
    let spec = service.spec.as_ref();
    let health_check = spec.and_then(|spec| spec.health_check_node_port);
    health_check == Some(port) || spec.is_some_and(|spec| spec.ports.iter().flatten().any(|known| known.port == port))
}

/// Returns warnings about keys that are unknown or have no effect.
pub fn unknown_annotations(annotations: &ServiceAnnotations, ports: &AnnotatedPorts) -> Vec<ServiceWarning> {
    warnings(annotations, ports, &mut nearest)
}

/// Returns the warnings. `nearest` returns the name of its second argument that is a few typing errors away from the first argument.
fn warnings(
    annotations: &ServiceAnnotations,
    ports: &AnnotatedPorts,
    nearest: &mut impl FnMut(&str, &[String]) -> Option<String>,
) -> Vec<ServiceWarning> {
    let mut strange = annotations.keys().filter_map(|key| Some((key, check_key(key, ports)?)));
    let warning = |field: String, message: String| ServiceWarning { reason: reason::UNKNOWN_ANNOTATION, field, message };
    let mut warnings: Vec<ServiceWarning> =
        strange.by_ref().take(MOST).map(|(key, strange)| warning(excerpt(key), strange.message(key, nearest))).collect();
    match strange.count() {
        0 => {}
        more => warnings.push(warning("metadata.annotations".to_owned(), format!("{more} more keys are ignored"))),
    }
    warnings
}

/// Reason for which a key has no effect.
enum IneffectiveKey {
    Unknown,
    /// Unknown annotation of a port, with the number of the port if it is valid.
    UnknownForPort(Option<i32>),
    /// Port that the Service does not have.
    NoPort(i32),
}

fn check_key(key: &str, ports: &AnnotatedPorts) -> Option<IneffectiveKey> {
    let name = key.strip_prefix(PREFIX)?;
    match name.strip_prefix("port_") {
        Some(rest) => check_port_key(rest, ports),
        None if ANNOTATIONS.iter().any(|row| row.key == key) => None,
        // Upstream reads this key in any letter case.
        None if CONFIGURATIONS.key.eq_ignore_ascii_case(key) => Some(IneffectiveKey::Unknown),
        None if !name.starts_with("azure-") => None,
        None => Some(IneffectiveKey::Unknown),
    }
}

/// Returns the reason for which the key of a port has no effect. `rest`: the key after `port_`.
fn check_port_key(rest: &str, of: &AnnotatedPorts) -> Option<IneffectiveKey> {
    let (number, ending) = rest.split_once('_').unwrap_or((rest, ""));
    let port = canonical_port(number);
    let (Some(number), true) = (port, PORT_ENDINGS.contains(&ending)) else {
        return Some(IneffectiveKey::UnknownForPort(port));
    };
    let for_local = [PORT_PROBE_INTERVAL.ending, PORT_PROBE_COUNT.ending].contains(&ending);
    let is_there = of.ports.contains(&number) || (for_local && of.health_check == Some(number));
    (!is_there).then_some(IneffectiveKey::NoPort(number))
}

impl IneffectiveKey {
    fn message(&self, key: &str, nearest: &mut impl FnMut(&str, &[String]) -> Option<String>) -> String {
        let known = match self {
            IneffectiveKey::NoPort(port) => return format!("without effect: the Service has no port {port}"),
            IneffectiveKey::Unknown => names(),
            IneffectiveKey::UnknownForPort(port) => names_of_port(*port),
        };
        let near = Some(key.trim_start_matches(PREFIX)).filter(|name| name.len() <= LONGEST);
        match near.and_then(|name| nearest(name, &known)) {
            Some(known) => format!("unknown annotation, ignored; did you mean `{PREFIX}{known}`?"),
            None => "unknown annotation, ignored".to_owned(),
        }
    }
}

fn names() -> Vec<String> {
    let of_services = ANNOTATIONS.iter().filter(|row| !row.key.contains("{p}"));
    of_services.map(|row| row.key.trim_start_matches(PREFIX).to_owned()).collect()
}

fn names_of_port(port: Option<i32>) -> Vec<String> {
    let port = port.map_or("{p}".to_owned(), |port| port.to_string());
    PORT_ENDINGS.iter().map(|ending| format!("port_{port}_{ending}")).collect()
}

fn nearest(name: &str, known: &[String]) -> Option<String> {
    let name = name.to_lowercase();
    let most = name.chars().count() / 3;
    let distances = known.iter().map(|known| (strsim::damerau_levenshtein(&name, &known.to_lowercase()), known));
    distances.min().filter(|(distance, _)| *distance <= most).map(|(_, known)| known.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str) -> Option<String> {
        let annotations = [(format!("{PREFIX}{name}"), String::new())].into();
        unknown_annotations(&annotations, &ports()).pop().map(|warning| warning.message)
    }

    fn ports() -> AnnotatedPorts {
        AnnotatedPorts::new([80], Some(31_234))
    }

    #[test]
    fn however_many_keys_there_are_few_are_compared() {
        for count in [1_500, 3_000] {
            let keys = (0..count).map(|number| (format!("{PREFIX}azure-load-balancer-internl-{number:030}"), String::new()));
            let (annotations, mut compared) = (keys.collect(), 0);
            let warnings = warnings(&annotations, &ports(), &mut |_, known| {
                compared += known.len();
                None
            });
            assert_eq!(warnings.len(), MOST + 1);
            assert!(compared <= MOST * ANNOTATIONS.len(), "{compared} comparisons for {count} keys");
            assert_eq!(warnings[MOST].message, format!("{} more keys are ignored", count - MOST));
        }
    }

    #[test]
    fn only_annotations_that_are_read_are_kept() {
        let service = serde_json::json!({"metadata": {}, "spec": {"healthCheckNodePort": 31234, "ports": [{"port": 80}]}});
        let service: Service = serde_json::from_value(service).unwrap();
        let use_of = |name: &str| use_in(&format!("{PREFIX}{name}"), Some(&service));
        for row in ANNOTATIONS {
            let name = row.key.trim_start_matches(PREFIX).replace("{p}", "80");
            let longest = row.longest;
            let expected = match name.as_str() {
                "azure-allowed-ip-ranges" | "load-balancer-source-ranges" => {
                    AnnotationUse::ReadList { longest, most: MOST_RANGES }
                }
                _ => AnnotationUse::Read { longest },
            };
            assert_eq!(use_of(&name), expected, "{name}");
        }
        for (name, expected) in [
            ("azure-load-balancer-intrenal", AnnotationUse::Sampled),
            ("Azure-Load-Balancer-Configurations", AnnotationUse::Sampled),
            ("port_81_no_lb_rule", AnnotationUse::Sampled),
            ("port_80_no-lb-rule", AnnotationUse::Sampled),
            ("port_080_no_lb_rule", AnnotationUse::Sampled),
            ("port_+80_no_lb_rule", AnnotationUse::Sampled),
            ("aws-load-balancer-type", AnnotationUse::Unread),
        ] {
            assert_eq!(use_of(name), expected, "{name}");
        }
        assert_eq!(use_in("example.com/azure-x", None), AnnotationUse::Unread);
        assert_eq!(use_in(&format!("{PREFIX}port_0080_no_lb_rule"), None), AnnotationUse::Sampled);
        for (name, service) in [("port_81_no_lb_rule", None), ("port_31234_health-probe_interval", Some(&service))] {
            let key_use = use_in(&format!("{PREFIX}{name}"), service);
            assert!(matches!(key_use, AnnotationUse::Read { .. }), "{name}: the Service has, or may have, the port");
        }
    }

    #[test]
    fn long_keys_are_not_compared() {
        let annotations = [(format!("{PREFIX}azure-{}", "x".repeat(100_000)), String::new())].into();
        let warnings = warnings(&annotations, &ports(), &mut |_, _| panic!("compared"));
        assert!(warnings.len() == 1 && warnings[0].field.chars().count() <= 65);
    }

    #[test]
    fn every_row_is_known() {
        for row in ANNOTATIONS {
            let name = row.key.trim_start_matches(PREFIX);
            assert_eq!(message(&name.replace("{p}", "80")), None, "{name}");
        }
        for name in ["aws-load-balancer-type", "port_31234_health-probe_interval"] {
            assert_eq!(message(name), None, "{name}");
        }
        for name in ["port_81_no_lb_rule", "port_31234_no_lb_rule"] {
            assert!(message(name).is_some_and(|message| message.starts_with("without effect")), "{name}");
        }
    }

    #[test]
    fn slips_get_advice() {
        for (name, advice) in [
            ("azure-load-balancer-intrenal", "azure-load-balancer-internal"),
            ("Azure-Load-Balancer-Configurations", "azure-load-balancer-configurations"),
            ("azure-load-balancer-IPv4", "azure-load-balancer-ipv4"),
            ("port_80_health-probe-port", "port_80_health-probe_port"),
            ("port_http_no_lb_rule", "port_{p}_no_lb_rule"),
            ("port_080_no_lb_rule", "port_{p}_no_lb_rule"),
        ] {
            let expected = format!("unknown annotation, ignored; did you mean `{PREFIX}{advice}`?");
            assert_eq!(message(name), Some(expected), "{name}");
        }
        assert_eq!(message("azure-something-else-altogether").as_deref(), Some("unknown annotation, ignored"));
    }
}
