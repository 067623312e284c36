//! Verdicts on documents and objects of the cluster. Pure.
//!
//! In: findings of the configuration, usages, load balancers, Services. Out: findings with remedies.

use k8s_openapi::api::core::v1::Service;
use serde::Deserialize;
use serde_json::Value;

use super::checks::{CLOCK, CLUSTER_NAME, CONFIG, NODE_NAMES, QUOTA, READS, ROOM, SERVICES};
use crate::{
    cloud_provider::diagnostics::{DiagnosticFinding, FindingState, first_of},
    providers::azure::{
        config::{ConfigFinding, FIELDS, FindingSeverity},
        model::{network::PublicIpAddress, spelling},
        node,
        planner::load_balancer::{
            desired::public_ips::{address_of, cluster_of},
            observed::ObservedNetwork,
            occupancy::occupancy,
            pools::claims::FalseClaim,
            settings::LoadBalancerSettings,
            spec::{identity_of, parse_service, status_addresses},
        },
    },
    runtime::yaml,
};

/// Most Services, fields or quotas that are named.
pub(super) const NAMED: usize = 5;
/// Most Nodes that are named.
const NAMED_NODES: usize = 10;
/// Percentage from which usage is reported.
const NEARLY_FULL: i64 = 90;

/// Quotas that Services use up, as ARM names them.
const QUOTAS: [&str; 6] = [
    "PublicIPAddresses",
    "StaticPublicIPAddresses",
    "StandardSkuPublicIpAddresses",
    "LoadBalancers",
    "StandardSkuLoadBalancers",
    "NetworkSecurityGroups",
];

/// A quota and how much of it is used. Upstream: the response of `Microsoft.Network/locations/usages`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NetworkUsage {
    current_value: i64,
    limit: i64,
    name: UsageName,
}

#[derive(Debug, Clone, Deserialize)]
struct UsageName {
    value: String,
}

/// Checks whether the cluster's public IPs carry the name of `--cluster-name`.
///
/// One that carries another name and the address of a Service of this cluster, or that names such a Service, shows that the
/// flag is wrong.
pub(super) fn cluster_name(
    public_ips: &[PublicIpAddress],
    services: &[Service],
    settings: &LoadBalancerSettings,
) -> DiagnosticFinding {
    let is_owned = |pip: &&PublicIpAddress| {
        let name = pip.name.as_deref().unwrap_or_default().to_lowercase();
        services.iter().any(|service| {
            let has_address = address_of(pip).is_some_and(|address| status_addresses(service).contains(&address));
            has_address || name.contains(&identity_of(service).name_prefix.to_lowercase())
        })
    };
    let other = |pip: &PublicIpAddress| {
        let found = cluster_of(pip)?;
        (!spelling::same_name(found, &settings.cluster)).then(|| found.to_owned())
    };
    let mut mismatched = public_ips.iter().filter(is_owned).filter_map(|pip| Some((pip.name.clone()?, other(pip)?)));
    let Some((name, found)) = mismatched.next() else {
        let text = format!("no public IP of a Service carries another name than {:?}", settings.cluster);
        return DiagnosticFinding::ok(CLUSTER_NAME, text);
    };
    let text = format!(
        "public IP {name}, which a Service of this cluster has, and {} more carry the cluster name {found:?}, but --cluster-name is {:?}",
        mismatched.count(),
        settings.cluster
    );
    let remedy = format!("set --cluster-name={found}: with another name, the manager creates all resources a second time");
    DiagnosticFinding::problem(CLUSTER_NAME, text, remedy)
}

/// Returns a finding for each problem, or a single one if there is none.
pub(super) fn configuration(found: &[ConfigFinding]) -> Vec<DiagnosticFinding> {
    if found.is_empty() {
        return vec![DiagnosticFinding::ok(CONFIG, "every field is known and fits")];
    }
    let finding = |config_finding: &ConfigFinding| {
        let text = config_finding.to_string();
        let text = text.strip_prefix("error: ").or_else(|| text.strip_prefix("warning: ")).unwrap_or(&text).to_owned();
        let subject = if config_finding.field.is_empty() {
            "azure.json".to_owned()
        } else {
            format!("{} in azure.json", config_finding.field)
        };
        match config_finding.severity == FindingSeverity::Error {
            true => DiagnosticFinding::problem(CONFIG, text, format!("correct {subject}: the manager refuses it")),
            false => DiagnosticFinding::warning(CONFIG, text, format!("correct {subject}")),
        }
    };
    found.iter().map(finding).collect()
}

/// Returns a finding as `check-config` shows it; `None`: it says nothing about the configuration.
pub(super) fn for_check(finding: DiagnosticFinding) -> Option<DiagnosticFinding> {
    match finding.check {
        CLOCK => None,
        // The text names the field and its values.
        CONFIG => Some(DiagnosticFinding { remedy: String::new(), ..finding }),
        // Permissions that could not be read may be missing.
        READS if finding.state == FindingState::Unknown => {
            Some(DiagnosticFinding { state: FindingState::Problem, ..finding })
        }
        _ => Some(finding),
    }
}

/// Returns the values of secret fields, at any position and in any letter case.
pub(super) fn secrets(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut found = Vec::new();
    texts.filter_map(|text| yaml::parse::<Value>(&text).ok()).for_each(|tree| collect_secrets(&tree, &mut found));
    found
}

fn collect_secrets(tree: &Value, found: &mut Vec<String>) {
    let is_secret = |name: &str| FIELDS.iter().any(|field| field.secret && spelling::same_name(field.name, name));
    match tree {
        Value::Object(fields) => {
            for (name, value) in fields {
                found.extend(value.as_str().filter(|_| is_secret(name)).map(str::to_owned));
                collect_secrets(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_secrets(item, found)),
        _ => {}
    }
}

/// Checks whether new public IPs and load balancers can be created.
pub(super) fn quotas(usages: &[NetworkUsage], location: &str) -> DiagnosticFinding {
    let counts = usages.iter().filter(|usage| QUOTAS.iter().any(|name| spelling::same_word(name, &usage.name.value)));
    let counts: Vec<&NetworkUsage> = counts.filter(|usage| usage.limit > 0).collect();
    let line = |usage: &&NetworkUsage| format!("{} of {} {}", usage.current_value, usage.limit, usage.name.value);
    let is_used = |usage: &NetworkUsage, share: i64| {
        i128::from(usage.current_value) * 100 >= i128::from(usage.limit) * i128::from(share)
    };
    let of = |lowest: i64| counts.iter().copied().filter(move |usage| is_used(usage, lowest));
    let (full, nearly): (Vec<String>, Vec<String>) =
        (of(100).map(|usage| line(&usage)).collect(), of(NEARLY_FULL).map(|usage| line(&usage)).collect());
    let remedy = "ask for a higher quota in the portal (Subscription, Usage + quotas), or delete what `orphans` lists";
    if !full.is_empty() {
        return DiagnosticFinding::problem(QUOTA, format!("used up in {location}: {}", full.join(", ")), remedy);
    }
    if !nearly.is_empty() {
        return DiagnosticFinding::warning(QUOTA, format!("nearly used up in {location}: {}", nearly.join(", ")), remedy);
    }
    match counts.is_empty() {
        true => DiagnosticFinding::undetermined(
            QUOTA,
            format!("ARM lists no quota of public IPs in {location}"),
            "look with `az network list-usages`",
        ),
        false => DiagnosticFinding::ok(QUOTA, counts.iter().map(line).collect::<Vec<_>>().join(", ")),
    }
}

/// Checks whether load balancers have room for more Services.
pub(super) fn room(observed: &ObservedNetwork, settings: &LoadBalancerSettings) -> DiagnosticFinding {
    let occupancy = occupancy(observed, settings);
    let is_full = |used: usize, limit: usize, share: usize| used * 100 >= limit * share;
    let of = |share: usize| {
        let full = occupancy.load_balancers.iter().filter(move |finding| {
            is_full(finding.rules, finding.limits.rules, share)
                || is_full(finding.frontends, finding.limits.frontends, share)
        });
        let interfaces = occupancy.interfaces.iter().filter(move |finding| is_full(finding.rules, finding.limit, share));
        full.map(ToString::to_string).chain(interfaces.map(ToString::to_string)).collect::<Vec<String>>()
    };
    let remedy = "add an entry with Nodes of its own to multipleStandardLoadBalancerConfigurations, or give Services fewer ports \
                  (see the runbook load-balancer-nearly-full)";
    let (full, nearly) = (of(100), of(80));
    if !full.is_empty() {
        return DiagnosticFinding::problem(ROOM, full.join("; "), remedy);
    }
    if !nearly.is_empty() {
        return DiagnosticFinding::warning(ROOM, nearly.join("; "), remedy);
    }
    let lines: Vec<String> = occupancy.load_balancers.iter().map(ToString::to_string).collect();
    let none = "the cluster has no load balancer".to_owned();
    DiagnosticFinding::ok(ROOM, if lines.is_empty() { none } else { lines.join("; ") })
}

/// Checks whether Nodes have the names of their machines. `rejected`: those of `count` that have not; `failure`: the error
/// of reading machines.
pub(super) fn node_names(rejected: &[FalseClaim], count: usize, failure: Option<String>) -> DiagnosticFinding {
    let names: Vec<String> = rejected.iter().map(|claim| node::name(&claim.node).to_owned()).collect();
    match (names.is_empty(), failure) {
        (true, Some(reason)) => {
            DiagnosticFinding::undetermined(NODE_NAMES, reason, "grant the read rights that are reported above")
        }
        (true, None) => DiagnosticFinding::ok(NODE_NAMES, format!("{count} Nodes, each with the name of its machine")),
        (false, _) => {
            let text = format!("{} Nodes are in no backend pool: {}", names.len(), first_of(&names, NAMED_NODES));
            let remedy = "register them under the name of their machine: the computer name in scale sets, else the name of the virtual \
                          machine (kubelet flag --hostname-override)";
            DiagnosticFinding::warning(NODE_NAMES, text, remedy)
        }
    }
}

/// Checks whether every Service of type `LoadBalancer` can be served.
pub(super) fn services(services: &Result<Vec<Service>, String>, settings: &LoadBalancerSettings) -> DiagnosticFinding {
    let all = match services {
        Ok(all) => all,
        Err(reason) => return DiagnosticFinding::undetermined(SERVICES, reason, "grant list on services"),
    };
    let balanced: Vec<&Service> = all.iter().filter(|service| is_balanced(service)).collect();
    let reported = |service: &&Service| {
        let refusals = parse_service(service, settings).err()?;
        let reason = refusals.first().map(ToString::to_string).unwrap_or_default();
        Some(format!("{}: {reason}", identity_of(service).key))
    };
    let refused: Vec<String> = balanced.iter().filter_map(reported).collect();
    if refused.is_empty() {
        return DiagnosticFinding::ok(SERVICES, format!("{} Services of type LoadBalancer can be", balanced.len()));
    }
    let shown = refused.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    let text = format!("{} of {} Services are refused: {shown}", refused.len(), balanced.len());
    DiagnosticFinding::problem(SERVICES, text, "correct the annotation or field; `explain ANNOTATION` says what it accepts")
}

/// Returns `true` for a Service of type `LoadBalancer` without a class: one with a class may be another controller's.
pub(super) fn is_balanced(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_any_size_are_compared() {
        for (current_value, limit, expected) in [
            (90, 100, FindingState::Warning),
            (0, i64::MAX, FindingState::Ok),
            (i64::MAX, i64::MAX, FindingState::Problem),
            (i64::MAX, 1, FindingState::Problem),
            (i64::MIN, i64::MAX, FindingState::Ok),
        ] {
            let usage = NetworkUsage { current_value, limit, name: UsageName { value: QUOTAS[0].to_owned() } };
            assert_eq!(quotas(&[usage], "eastus").state, expected, "{current_value} of {limit}");
        }
    }
}
