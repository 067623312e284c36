//! Requirements of Services and routes on a valid configuration: without them these are refused, while Nodes work. Pure.
//!
//! In: a configuration, and whether pod routes are enabled. Out: a warning for each field, with the accepted values.

use crate::providers::azure::{
    config::{AzureConfig, ConfigFinding},
    load_balancer::cluster_watches::WatchedKinds,
    planner::load_balancer::settings::LoadBalancerSettings,
};

/// Accepted values of fields that may request unimplemented features.
const ACCEPTED: &[(&str, &str)] = &[
    ("serviceGatewayEnabled", "want false"),
    ("loadBalancerBackendPoolConfigurationType", "want nodeIPConfiguration or nodeIP"),
    ("loadBalancerSku", "want standard or basic"),
];

/// Returns the reasons why Services or routes would not work. `has_routes`: whether they are enabled.
pub(super) fn lacking(config: &AzureConfig, has_routes: bool) -> Vec<ConfigFinding> {
    let mut findings: Vec<_> = LoadBalancerSettings::new(config, "").unsupported.into_iter().map(not_built).collect();
    if config.security_group_name.is_empty() {
        findings.push(ConfigFinding::warning(
            "securityGroupName",
            "is empty: no security rules are written, so what a Service allows or denies has no effect; expected the name of the \
             security group of the nodes",
        ));
    }
    if has_routes && config.route_table_name.is_empty() {
        findings.push(ConfigFinding::warning(
            "routeTableName",
            "is empty: no Node gets a route to its pods; expected the name of the route table of the nodes' subnet, or \
             --configure-cloud-routes=false where something else makes pods reachable",
        ));
    }
    findings
}

/// Returns a line for each kind that the program watches only because of this configuration, with the rights that it needs.
pub(in crate::providers::azure) fn watched(config: &AzureConfig) -> Vec<String> {
    let WatchedKinds { namespaces, endpoint_slices } = WatchedKinds::of(&LoadBalancerSettings::new(config, ""));
    let kinds = [
        (namespaces, "Namespaces", "namespaces", "an entry of multipleStandardLoadBalancerConfigurations selects them"),
        (endpoint_slices, "EndpointSlices", "endpointslices.discovery.k8s.io", "there are several standard load balancers"),
    ];
    let needed = kinds.into_iter().filter(|(is_needed, ..)| *is_needed);
    let line = |(_, kind, resource, reason): (bool, &str, &str, &str)| {
        format!("watches {kind}, since {reason}: needs list and watch on {resource}")
    };
    needed.map(line).collect()
}

/// Returns the finding about `requested`, a field, perhaps with its value, that requests an unimplemented feature.
fn not_built(requested: &str) -> ConfigFinding {
    let (field, value) = requested.split_once(' ').unwrap_or((requested, "what it asks for"));
    let accepted = ACCEPTED.iter().find(|(existing, _)| *existing == field).map_or("leave it out", |(_, accepted)| accepted);
    ConfigFinding::warning(
        field,
        format!("{value} is not built yet, so every Service of type LoadBalancer is refused; {accepted}"),
    )
}
