//! Security groups: priorities, addresses, limits.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Candidate, text};
use crate::sandbox::azure::{refusal::Refusal, shape};

/// Most rules of a group. Upstream: documented limits.
const MAX_RULES: usize = 1_000;
/// Lists of a rule whose entries are limited in all rules of a group together.
const BOUNDED_LISTS: [&str; 4] =
    ["sourceAddressPrefixes", "destinationAddressPrefixes", "sourcePortRanges", "destinationPortRanges"];

pub(super) fn check(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let rules: Vec<&Value> = shape::parts(candidate.body, "securityRules").collect();
    if rules.len() > MAX_RULES {
        let message = format!("A security group cannot have more than {MAX_RULES} security rules.");
        return Err(Refusal::invalid("SecurityRuleCountLimitReached", message));
    }
    rules.iter().try_for_each(|rule| check_rule(rule))?;
    priorities_differ(&rules)
}

/// Checks that no list has more than `most` entries in all rules of the group together.
pub(super) fn check_lists(candidate: Candidate<'_>, most: usize) -> Result<(), Refusal> {
    let entries = |list: &str| -> usize {
        shape::parts(candidate.body, "securityRules")
            .map(|rule| rule["properties"][list].as_array().map_or(0, Vec::len))
            .sum()
    };
    let counts = BOUNDED_LISTS.iter().map(|list| (list, entries(list)));
    let Some((list, count)) = counts.into_iter().find(|(_, count)| *count > most) else { return Ok(()) };
    let message = format!(
        "Network security group {} has {count} {list}. A security group cannot have more than {most} {list}.",
        candidate.id
    );
    Err(Refusal::invalid("SecurityRuleAddressesOrPortsPerSecurityGroupLimitReached", message))
}

fn check_rule(rule: &Value) -> Result<(), Refusal> {
    let (id, properties) = (text(rule, "id"), &rule["properties"]);
    let refuse = |code: &str, reason: String| Err(Refusal::invalid(code, format!("Security rule {id} {reason}")));
    match properties["priority"].as_u64() {
        Some(100..=4096) => {}
        _ => {
            let reason = format!("has invalid Priority. Value provided: {} Allowed range 100-4096.", properties["priority"]);
            return refuse("SecurityRuleInvalidPriority", reason);
        }
    }
    for (name, accepted) in [
        ("direction", &["inbound", "outbound"][..]),
        ("access", &["allow", "deny"]),
        ("protocol", &["tcp", "udp", "icmp", "esp", "ah", "*"]),
    ] {
        if !accepted.contains(&text(properties, name).to_ascii_lowercase().as_str()) {
            return refuse("InvalidRequestFormat", format!("has invalid {name}: {}.", properties[name]));
        }
    }
    for (singular, many) in [
        ("sourceAddressPrefix", "sourceAddressPrefixes"),
        ("destinationAddressPrefix", "destinationAddressPrefixes"),
        ("sourcePortRange", "sourcePortRanges"),
        ("destinationPortRange", "destinationPortRanges"),
    ] {
        let both =
            (!text(properties, singular).is_empty(), properties[many].as_array().is_some_and(|list| !list.is_empty()));
        match both {
            (true, true) => {
                return refuse("SecurityRuleParameterConflict", format!("cannot specify both {singular} and {many}."));
            }
            (false, false) => return refuse("SecurityRuleParameterMissing", format!("must specify {singular} or {many}.")),
            _ => {}
        }
    }
    Ok(())
}

fn priorities_differ(rules: &[&Value]) -> Result<(), Refusal> {
    let mut seen = BTreeMap::new();
    for rule in rules {
        let properties = &rule["properties"];
        let key = (text(properties, "direction").to_ascii_lowercase(), properties["priority"].as_u64());
        if let Some(other) = seen.insert(key, text(rule, "name")) {
            let message = format!(
                "Security rule {other} conflicts with rule {}. Rules cannot have the same Priority and Direction.",
                text(rule, "name")
            );
            return Err(Refusal::invalid("SecurityRuleConflict", message));
        }
    }
    Ok(())
}
