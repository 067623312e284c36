//! Annotations that look as if they were meant for this provider and are not. Pure.

use super::{ANNOTATIONS, Annotations, CONFIGURATIONS, PORT_ENDINGS, PORT_PROBE_COUNT, PORT_PROBE_INTERVAL, PREFIX, shown};
use crate::providers::azure::load_balancer::spec::{Warning, reason};

/// What is strange about the keys. `ports`: those of the Service, and its health-check node port if it has one.
pub fn unknown(annotations: &Annotations, ports: &[i32], health_check_port: Option<i32>) -> Vec<Warning> {
    let keys = annotations.keys().filter_map(|key| Some((key, key.strip_prefix(PREFIX)?)));
    let judged = keys.filter_map(|(key, name)| {
        let message = match name.strip_prefix("port_") {
            Some(rest) => judge_port(rest, ports, health_check_port)?,
            None if name.starts_with("azure-") && !is_known(key) => advise(&format!("{PREFIX}{name}"), names()),
            None => return None,
        };
        Some(Warning { reason: reason::UNKNOWN_ANNOTATION, field: shown(key), message })
    });
    judged.collect()
}

fn names() -> impl Iterator<Item = String> {
    ANNOTATIONS.iter().filter(|row| !row.key.contains("{p}")).map(|row| row.key.to_owned())
}

fn is_known(key: &str) -> bool {
    ANNOTATIONS.iter().any(|row| row.key == key) || CONFIGURATIONS.key.eq_ignore_ascii_case(key)
}

/// `rest`: what follows `port_`.
fn judge_port(rest: &str, ports: &[i32], health_check_port: Option<i32>) -> Option<String> {
    let (number, ending) = rest.split_once('_').unwrap_or((rest, ""));
    let port = number.parse::<i32>().ok().filter(|port| port.to_string() == number);
    let whole = |ending: &&str| format!("{PREFIX}port_{}_{ending}", port.map_or("{p}".to_owned(), |port| port.to_string()));
    let (Some(port), true) = (port, PORT_ENDINGS.contains(&ending)) else {
        return Some(advise(&format!("{PREFIX}port_{rest}"), PORT_ENDINGS.iter().map(whole)));
    };
    let for_local = [PORT_PROBE_INTERVAL.ending, PORT_PROBE_COUNT.ending].contains(&ending);
    let is_there = ports.contains(&port) || (for_local && health_check_port == Some(port));
    (!is_there).then(|| format!("without effect: the Service has no port {port}"))
}

/// Names the known key that is a few slips away from `key`, if one is.
fn advise(key: &str, known: impl Iterator<Item = String>) -> String {
    let name = key.trim_start_matches(PREFIX).to_lowercase();
    let most = name.chars().count() / 3;
    let near =
        known.map(|known| (strsim::damerau_levenshtein(&name, &known.trim_start_matches(PREFIX).to_lowercase()), known));
    match near.min() {
        Some((distance, known)) if distance <= most => format!("unknown annotation, ignored; did you mean `{known}`?"),
        _ => "unknown annotation, ignored".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str) -> Option<String> {
        let annotations = [(format!("{PREFIX}{name}"), String::new())].into();
        unknown(&annotations, &[80], Some(31_234)).pop().map(|warning| warning.message)
    }

    #[test]
    fn every_row_is_known() {
        for row in ANNOTATIONS {
            let name = row.key.trim_start_matches(PREFIX);
            assert_eq!(message(&name.replace("{p}", "80")), None, "{name}");
        }
        assert_eq!(message("Azure-Load-Balancer-Configurations"), None);
        assert_eq!(message("aws-load-balancer-type"), None);
        assert_eq!(message("port_31234_health-probe_interval"), None);
    }

    #[test]
    fn slips_get_advice() {
        for (name, advice) in [
            ("azure-load-balancer-intrenal", "azure-load-balancer-internal"),
            ("azure-load-balancer-IPv4", "azure-load-balancer-ipv4"),
            ("port_80_health-probe-port", "port_80_health-probe_port"),
            ("port_http_no_lb_rule", "port_{p}_no_lb_rule"),
            ("port_080_no_lb_rule", "port_{p}_no_lb_rule"),
        ] {
            assert_eq!(
                message(name),
                Some(format!("unknown annotation, ignored; did you mean `{PREFIX}{advice}`?")),
                "{name}"
            );
        }
        assert_eq!(message("azure-something-else-altogether").as_deref(), Some("unknown annotation, ignored"));
    }

    #[test]
    fn ports_that_the_service_has_not_are_told() {
        for name in ["port_81_no_lb_rule", "port_31234_no_lb_rule"] {
            assert!(message(name).is_some_and(|message| message.starts_with("without effect")), "{name}");
        }
    }
}
