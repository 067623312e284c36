//! Checks of Services for clusters whose namespaces belong to people who do not trust each other. Pure.
//!
//! In: the documents, the Services and the configuration. Out: the Services that `multiTenant` refuses, and those that publish private
//! additional addresses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;

use super::{
    checks::TENANTS,
    verdicts::{NAMED, is_balanced},
};
use crate::{
    cloud_provider::diagnostics::DiagnosticFinding,
    providers::azure::{
        config::AzureConfig,
        planner::load_balancer::{
            desired::ServiceRequest,
            observed::ObservedNetwork,
            plan::network::plan_network,
            rule_memory::ParsedService,
            settings::LoadBalancerSettings,
            spec::{has_private_additional_ips, parse_leniently},
        },
    },
};

/// Checks the Services of the cluster called `cluster`.
pub(super) fn tenants(
    observed: &ObservedNetwork,
    services: &[Service],
    config: &AzureConfig,
    cluster: &str,
) -> Vec<DiagnosticFinding> {
    let balanced: Vec<&Service> = services.iter().filter(|service| is_balanced(service)).collect();
    let refused = |multi_tenant: bool| {
        let config = AzureConfig { multi_tenant, ..config.clone() };
        refusals(observed, &balanced, &LoadBalancerSettings::new(&config, cluster))
    };
    let open = refused(false);
    let more = refused(true).into_iter().filter(|(key, _)| !open.contains_key(key));
    let more: Vec<String> = more.map(|(key, reason)| format!("{key}: {reason}")).collect();
    let text = match (config.multi_tenant, more.is_empty()) {
        (true, true) => format!("multiTenant refuses none of {} Services", balanced.len()),
        (false, true) => format!("`multiTenant: true` would refuse none of {} Services", balanced.len()),
        (true, false) => format!("multiTenant refuses {} of {} Services: {}", more.len(), balanced.len(), shown(&more)),
        (false, false) => {
            format!("`multiTenant: true` would refuse {} of {} Services: {}", more.len(), balanced.len(), shown(&more))
        }
    };
    let finding = match config.multi_tenant && !more.is_empty() {
        true => DiagnosticFinding::warning(TENANTS, text, "change the Services, or set the field that the refusal names"),
        false => DiagnosticFinding::ok(TENANTS, text),
    };
    [finding].into_iter().chain(published(&balanced, config, cluster)).collect()
}

/// Returns the reasons why Services are refused, by key.
fn refusals(observed: &ObservedNetwork, services: &[&Service], settings: &LoadBalancerSettings) -> BTreeMap<String, String> {
    let (mut refused, mut requests) = (BTreeMap::new(), Vec::new());
    for service in services {
        match ParsedService::of(service, settings) {
            ParsedService::Valid(spec) => requests.push(ServiceRequest::Ensure(spec)),
            ParsedService::Refused(spec, refusals) => {
                let reason = refusals.first().map(ToString::to_string).unwrap_or_default();
                refused.insert(spec.identity.key.clone(), reason);
            }
        }
    }
    let planned = plan_network(observed, &requests, &[], settings).refused;
    refused.extend(planned.into_iter().map(|(identity, refusal)| (identity.key, refusal.to_string())));
    refused
}

/// Returns a finding if Services publish private additional addresses.
///
/// Nodes send the traffic of Pods for these addresses to the Service, even if another host outside of the cluster has them.
/// Only an operator who sets the field has accepted that.
fn published(services: &[&Service], config: &AzureConfig, cluster: &str) -> Option<DiagnosticFinding> {
    let settings = LoadBalancerSettings::new(config, cluster);
    let specs = services.iter().map(|service| parse_leniently(service, &settings));
    let private =
        specs.filter(has_private_additional_ips).map(|spec| format!("{} {:?}", spec.identity.key, spec.additional_ips));
    let private: Vec<String> = private.collect();
    let text = format!("{} Services publish private additional addresses: {}", private.len(), shown(&private));
    let remedy = "set allowedAdditionalPublicIPs: none, the CIDR ranges that Services may have, or any if you trust all users who may write \
                  Services";
    let finding = match config.allowed_additional_public_ips.trim().is_empty() {
        true => DiagnosticFinding::warning(TENANTS, text, remedy),
        false => DiagnosticFinding::ok(TENANTS, text),
    };
    Some(finding).filter(|_| !private.is_empty())
}

fn shown(lines: &[String]) -> String {
    lines.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ")
}
