//! Rules of load balancers: ports and protocols, pairs that collide. Their number is limited by [`mod@super::limits`].

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Candidate, text};
use crate::sandbox::azure::{refusal::Refusal, shape};

pub(super) fn check(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let rules: Vec<&Value> = shape::parts(candidate.body, "loadBalancingRules").collect();
    rules.iter().try_for_each(|rule| check_rule(rule))?;
    frontends_differ(&rules)?;
    backends_differ(&rules)
}

fn check_rule(rule: &Value) -> Result<(), Refusal> {
    let (id, properties) = (text(rule, "id"), &rule["properties"]);
    let refuse = |code: &str, reason: String| Err(Refusal::invalid(code, format!("Load balancing rule {id}: {reason}")));
    if properties["frontendIPConfiguration"]["id"].is_null() {
        return refuse("LoadBalancingRuleMustHaveFrontendIPConfig", "frontendIPConfiguration is required.".to_owned());
    }
    let protocol = text(properties, "protocol").to_ascii_lowercase();
    let ports = [&properties["frontendPort"], &properties["backendPort"]].map(Value::as_u64);
    match protocol.as_str() {
        "all" if ports.iter().all(|port| port.unwrap_or(0) == 0) => {}
        "all" => {
            return refuse(
                "InvalidLoadBalancingRulePort",
                "with protocol All the frontend and backend port must be 0.".to_owned(),
            );
        }
        "tcp" | "udp" if ports.iter().all(|port| port.is_some_and(|port| (1..=65535).contains(&port))) => {}
        "tcp" | "udp" => {
            return refuse(
                "InvalidLoadBalancingRulePort",
                "frontend and backend port must be between 1 and 65535.".to_owned(),
            );
        }
        other => {
            return refuse(
                "InvalidRequestFormat",
                format!("`{other}` is no protocol of rules; there are Tcp, Udp and All."),
            );
        }
    }
    if protocol == "udp" && properties["enableTcpReset"] == true {
        return refuse("EnableTcpResetNotAllowedForUdp", "enableTcpReset is not allowed with protocol Udp.".to_owned());
    }
    match properties["idleTimeoutInMinutes"].as_u64() {
        Some(minutes) if !(4..=100).contains(&minutes) => {
            refuse("InvalidIdleTimeout", "idleTimeoutInMinutes must be between 4 and 100.".to_owned())
        }
        _ => Ok(()),
    }
}

/// Returns the protocols that overlap: All overlaps with every protocol.
fn protocols(properties: &Value) -> &'static [&'static str] {
    match text(properties, "protocol").to_ascii_lowercase().as_str() {
        "tcp" => &["tcp"],
        "udp" => &["udp"],
        _ => &["tcp", "udp"],
    }
}

fn frontends_differ(rules: &[&Value]) -> Result<(), Refusal> {
    let mut seen = BTreeMap::new();
    for rule in rules {
        let properties = &rule["properties"];
        for protocol in protocols(properties) {
            let frontend = text(&properties["frontendIPConfiguration"], "id").to_ascii_lowercase();
            let key = (frontend, properties["frontendPort"].as_u64(), *protocol);
            let Some(other) = seen.insert(key, text(rule, "id")) else { continue };
            let message = format!(
                "Load balancing rules {other} and {} use the same frontend port and protocol with the same frontend IP configuration.",
                text(rule, "id")
            );
            return Err(Refusal::invalid("RulesUseSameFrontendPortProtocolAndIPConfig", message));
        }
    }
    Ok(())
}

fn backends_differ(rules: &[&Value]) -> Result<(), Refusal> {
    let mut seen = BTreeMap::new();
    for rule in rules.iter().filter(|rule| rule["properties"]["enableFloatingIP"] != true) {
        let properties = &rule["properties"];
        let Some(pool) = properties["backendAddressPool"]["id"].as_str().map(str::to_ascii_lowercase) else { continue };
        for protocol in protocols(properties) {
            let key = (pool.clone(), properties["backendPort"].as_u64(), *protocol);
            let Some(other) = seen.insert(key, text(rule, "id")) else { continue };
            let message = format!(
                "Load balancing rules {other} and {} with floating IP disabled use the same protocol {} and backend port {}, and must \
                 not be used with the same backend address pool {pool}.",
                text(rule, "id"),
                text(properties, "protocol"),
                properties["backendPort"]
            );
            return Err(Refusal::invalid("RulesUseSameBackendPortProtocolAndPool", message));
        }
    }
    Ok(())
}
