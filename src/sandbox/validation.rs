//! Validation of Nodes, Leases and Events: the rules that a controller can violate. Pure. Upstream:
//! `pkg/apis/core/validation/{validation,events}.go` and `pkg/apis/coordination/validation`.

use serde_json::Value;

use super::{kinds::Kind, refusal::Cause};

/// Checks the name: a DNS-1123 subdomain; for Services a DNS-1035 label.
pub fn name(kind: &Kind, object: &Value) -> Vec<Cause> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let good = if kind.plural == "services" { is_label(name) } else { is_subdomain(name) };
    if good { Vec::new() } else { vec![Cause::invalid("metadata.name", format!("{name:?}: not a valid name"))] }
}

fn is_subdomain(name: &str) -> bool {
    let part = |part: &str| {
        let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = part.as_bytes();
        bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
            && bytes.first().copied().is_some_and(alphanumeric)
            && bytes.last().copied().is_some_and(alphanumeric)
    };
    name.len() <= 253 && name.split('.').all(part)
}

fn is_label(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && is_subdomain(name) && !name.starts_with(|c: char| c.is_ascii_digit())
}

const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub fn node(old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let mut causes = taints(new);
    causes.extend(addresses(new));
    causes.extend(old.into_iter().flat_map(|old| frozen(old, new)));
    causes
}

fn taints(node: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (index, taint) in items(&node["spec"]["taints"]).iter().enumerate() {
        let (key, effect) = (taint["key"].as_str().unwrap_or_default(), taint["effect"].as_str().unwrap_or_default());
        if key.is_empty() {
            causes.push(Cause::invalid(format!("spec.taints[{index}].key"), "\"\": name part must be non-empty"));
        }
        if !TAINT_EFFECTS.contains(&effect) {
            causes.push(Cause::unsupported(format!("spec.taints[{index}].effect"), effect, &TAINT_EFFECTS));
        }
        if seen.contains(&(key, effect)) {
            let message = format!("{key}:{effect}: taints must be unique by key and effect pair");
            causes.push(Cause::duplicate(format!("spec.taints[{index}]"), message));
        }
        seen.push((key, effect));
    }
    causes
}

fn addresses(node: &Value) -> Vec<Cause> {
    let all = items(&node["status"]["addresses"]);
    let repeated = all.iter().enumerate().filter(|(index, address)| all[..*index].contains(address));
    repeated.map(|(index, address)| Cause::duplicate(format!("status.addresses[{index}]"), address.to_string())).collect()
}

/// Returns the changed fields of the spec that can be set only once.
fn frozen(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["providerID", "podCIDR", "podCIDRs"] {
        let (before, now) = (&old["spec"][field], &new["spec"][field]);
        let was_set = !before.is_null() && before != "" && before.as_array().is_none_or(|list| !list.is_empty());
        if was_set && before != now {
            let message = format!("node updates may not change {field} except from \"\" to valid");
            causes.push(Cause::forbidden(format!("spec.{field}"), message));
        }
    }
    causes
}

pub fn lease(lease: &Value) -> Vec<Cause> {
    let spec = &lease["spec"];
    let mut causes = Vec::new();
    if spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", "must be greater than 0"));
    }
    if spec["leaseTransitions"].as_i64().is_some_and(|count| count < 0) {
        causes.push(Cause::invalid("spec.leaseTransitions", "must be greater than or equal to 0"));
    }
    causes
}

/// Checks that an Event is in the namespace of its object; those of cluster-scoped objects in `default` or `kube-system`.
pub fn event(event: &Value) -> Vec<Cause> {
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let involved = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let good = if involved.is_empty() { ["default", "kube-system"].contains(&namespace) } else { involved == namespace };
    if good {
        return Vec::new();
    }
    vec![Cause::invalid("involvedObject.namespace", format!("{involved:?}: does not match event.namespace"))]
}

/// Returns the items of a list, none if it is not one.
pub fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes() {
        let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        let cases = [
            (json!({}), json!({"spec": {"providerID": "fake://a"}}), vec![]),
            (json!({"spec": {"providerID": "a"}}), json!({"spec": {"providerID": "b"}}), vec!["spec.providerID"]),
            (json!({"spec": {"podCIDRs": ["10.0.0.0/24"]}}), json!({"spec": {}}), vec!["spec.podCIDRs"]),
            (json!({}), json!({"spec": {"taints": [taint, taint]}}), vec!["spec.taints[1]"]),
            (json!({}), json!({"spec": {"taints": [{"key": "a", "effect": "No"}]}}), vec!["spec.taints[0].effect"]),
            (json!({}), json!({"status": {"addresses": [address, address]}}), vec!["status.addresses[1]"]),
        ];
        for (old, new, expected) in cases {
            let fields: Vec<_> = node(Some(&old), &new).into_iter().map(|cause| cause.field).collect();
            assert_eq!(fields, expected, "{new}");
        }
    }
}
