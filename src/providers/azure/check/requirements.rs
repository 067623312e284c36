//! What a configuration that is valid lacks for Services and routes: they would be refused, while Nodes work. Pure.
//!
//! In: a configuration, and whether pod routes are wanted. Out: a warning for each field, with what is accepted.

use crate::providers::azure::{
    config::{AzureConfig, ConfigFinding},
    load_balancer::cluster_watches::WatchedKinds,
    planner::load_balancer::settings::LoadBalancerSettings,
};

/// What the fields that may ask for what is not built accept instead.
const ACCEPTED: &[(&str, &str)] = &[
    ("serviceGatewayEnabled", "want false"),
    ("loadBalancerBackendPoolConfigurationType", "want nodeIPConfiguration or nodeIP"),
    ("loadBalancerSku", "want standard or basic"),
];

/// Why Services or routes would not work. `has_routes`: whether they are to be configured.
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

/// What the program watches of the cluster only because of this configuration, and the rights that it takes: a line each.
pub(super) fn watched(config: &AzureConfig) -> Vec<String> {
    let WatchedKinds { namespaces, endpoint_slices } = WatchedKinds::of(&LoadBalancerSettings::new(config, ""));
    let kinds = [
        (namespaces, "Namespaces", "namespaces", "an entry of multipleStandardLoadBalancerConfigurations selects them"),
        (endpoint_slices, "EndpointSlices", "endpointslices.discovery.k8s.io", "there are several standard load balancers"),
    ];
    let needed = kinds.into_iter().filter(|(is_needed, ..)| *is_needed);
    let line = |(_, kind, resource, why): (bool, &str, &str, &str)| {
        format!("watches {kind}, since {why}: needs list and watch on {resource}")
    };
    needed.map(line).collect()
}

/// `asked` is a field, and perhaps the value of it that asks for what is not built.
fn not_built(asked: &str) -> ConfigFinding {
    let (field, value) = asked.split_once(' ').unwrap_or((asked, "what it asks for"));
    let accepted = ACCEPTED.iter().find(|(known, _)| *known == field).map_or("leave it out", |(_, accepted)| accepted);
    ConfigFinding::warning(
        field,
        format!("{value} is not built yet, so every Service of type LoadBalancer is refused; {accepted}"),
    )
}
