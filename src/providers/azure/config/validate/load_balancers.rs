//! Consistency of the load balancer fields.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::super::{
    choices::{BackendPoolType, HealthProbeMode, LoadBalancerSku},
    fields::AzureConfig,
    finding::{ConfigFinding, FindingCollector},
    objects::MultipleStandardLoadBalancer,
    reader::shown,
};
use crate::providers::azure::model::names;

const SEVERAL: &str = "multipleStandardLoadBalancerConfigurations";

/// Applies the rules that check one field each.
pub(super) fn check_fields(config: &AzureConfig, findings: &mut FindingCollector) {
    let types = config.pre_configured_backend_pool_load_balancer_types.as_str();
    findings.warn_if(
        !["", "internal", "external", "all"].contains(&types),
        "preConfiguredBackendPoolLoadBalancerTypes",
        "expected internal, external, all or nothing, in lower case; any other word has no effect",
    );
    let name = Some(config.load_balancer_name.as_str()).filter(|name| !name.is_empty());
    let problem = name.and_then(name_problem);
    findings.warn_if(problem.is_some(), "loadBalancerName", &problem.unwrap_or_default());
    counts(config, findings);
    private_links(config, findings);
    policy(config, findings);
}

/// Applies the rules about several fields.
pub(super) fn check(config: &AzureConfig, findings: &mut FindingCollector) {
    let is_standard = config.load_balancer_sku == LoadBalancerSku::Standard;
    findings.error_if(
        config.disable_outbound_snat == Some(true) && !is_standard,
        "disableOutboundSNAT",
        "can be true only with loadBalancerSku standard",
    );
    service_gateway(config, findings);
    probes(config, findings);
    several(config, is_standard, findings);
}

/// Checks the limits. Only those of this program are errors: upstream has the first one, and starts with any number.
fn counts(config: &AzureConfig, findings: &mut FindingCollector) {
    let message = |count: i32| format!("{count} is out of range: expected a whole number from 0 to {}", i32::MAX);
    let count = config.maximum_load_balancer_rule_count;
    findings.warn_if(count < 0, "maximumLoadBalancerRuleCount", &message(count));
    for (field, count) in [
        ("maximumNetworkInterfaceRuleCount", Some(config.maximum_network_interface_rule_count)),
        ("maximumServiceRuleCount", config.maximum_service_rule_count),
        ("maximumServiceSourceRangeCount", config.maximum_service_source_range_count),
        ("maximumServiceSecurityRuleCount", config.maximum_service_security_rule_count),
        ("maximumNamespaceFactor", config.maximum_namespace_factor),
    ] {
        let count = count.unwrap_or_default();
        findings.error_if(count < 0, field, &message(count));
    }
}

/// Azure's limit of private link services of a subscription.
const MAX_PRIVATE_LINKS: i32 = 800;

fn private_links(config: &AzureConfig, findings: &mut FindingCollector) {
    let count = config.maximum_private_link_service_count;
    findings.error_if(
        !(1..=MAX_PRIVATE_LINKS).contains(&count),
        "maximumPrivateLinkServiceCount",
        &format!("{count} is out of range: expected a whole number from 1 to {MAX_PRIVATE_LINKS}"),
    );
}

/// Checks the shared resources that Services may use.
fn policy(config: &AzureConfig, findings: &mut FindingCollector) {
    let addresses = config.allowed_additional_public_ips.trim();
    let is_range = |text: &str| text.trim().parse::<IpNet>().is_ok_and(|range| range.trunc() == range);
    findings.error_if(
        !["", "any", "none"].contains(&addresses) && !addresses.split(',').all(is_range),
        "allowedAdditionalPublicIPs",
        "expected any, none, or CIDR ranges without host bits between commas",
    );
}

fn service_gateway(config: &AzureConfig, findings: &mut FindingCollector) {
    let parts = [
        config.service_gateway_enabled,
        config.load_balancer_backend_pool_configuration_type == BackendPoolType::PodIp,
        config.load_balancer_sku == LoadBalancerSku::Service,
    ];
    let is_whole = parts == [true; 3];
    findings.error_if(
        parts.contains(&true) && !is_whole,
        "serviceGatewayEnabled",
        "serviceGatewayEnabled true, loadBalancerBackendPoolConfigurationType podIP and loadBalancerSku service go together: set \
         all three or none",
    );
    findings.error_if(
        is_whole && !config.multiple_standard_load_balancer_configurations.is_empty(),
        SEVERAL,
        "cannot be combined with serviceGatewayEnabled",
    );
    findings.error_if(
        is_whole && config.enable_migrate_to_ip_based_backend_pool_api,
        "enableMigrateToIPBasedBackendPoolAPI",
        "cannot be combined with serviceGatewayEnabled",
    );
}

fn probes(config: &AzureConfig, findings: &mut FindingCollector) {
    if config.cluster_service_load_balancer_health_probe_mode != HealthProbeMode::Shared {
        return;
    }
    findings.error_if(
        !(1..=65535).contains(&config.cluster_service_shared_load_balancer_health_probe_port),
        "clusterServiceSharedLoadBalancerHealthProbePort",
        "expected a port from 1 to 65535",
    );
    findings.warn_if(
        !config.cluster_service_shared_load_balancer_health_probe_path.starts_with('/'),
        "clusterServiceSharedLoadBalancerHealthProbePath",
        "expected a path that begins with /; it is sent as it is, and Azure may refuse it",
    );
}

/// Maximum length of an entry's name: Azure allows 80 characters, and the internal load balancer has a suffix.
const MAX_NAME_LENGTH: usize = 80 - INTERNAL.len();
/// Suffix of the names of internal load balancers.
const INTERNAL: &str = "-internal";

/// Returns the problem of the entries for a cluster of this name: one of them must have it.
///
/// Upstream notices that when the first Service is reconciled, and fails each then, deletions included.
pub fn missing_cluster_entry(config: &AzureConfig, cluster: &str) -> Option<ConfigFinding> {
    let all = &config.multiple_standard_load_balancer_configurations;
    let is_there = || all.iter().any(|entry| entry.name.eq_ignore_ascii_case(cluster));
    let counts = !all.is_empty() && config.load_balancer_sku == LoadBalancerSku::Standard && !cluster.is_empty();
    (counts && !is_there()).then(|| {
        let advice = format!("has no entry called `{cluster}`, the name of the cluster (--cluster-name): add one");
        ConfigFinding::error(SEVERAL, advice)
    })
}

/// Returns the problem of the name that load balancers get where no field names them.
pub fn unusable_cluster_name(config: &AzureConfig, cluster: &str) -> Option<ConfigFinding> {
    let applies = !cluster.is_empty() && config.load_balancer_name.is_empty();
    let problem = name_problem(cluster).filter(|_| applies)?;
    Some(ConfigFinding::warning("--cluster-name", format!("is the name of the load balancers: {problem}")))
}

/// Returns the problem of an entry's name, independent of the other names.
fn name_problem(name: &str) -> Option<String> {
    let ending = name.get(name.len().saturating_sub(INTERNAL.len())..);
    if name.trim().is_empty() {
        Some("is required: the name of the load balancer".to_owned())
    } else if ending.is_some_and(|ending| ending.eq_ignore_ascii_case(INTERNAL)) {
        Some(format!("must not end in {INTERNAL}, which internal load balancers get as an ending"))
    } else if name.len() > MAX_NAME_LENGTH || !names::is_resource(name) {
        Some(format!(
            "expected at most {MAX_NAME_LENGTH} letters, digits, `_`, `.` and `-`, a letter or digit first, no `.` or `-` last, found `{}`",
            shown(name)
        ))
    } else {
        None
    }
}

/// Checks several entries. Upstream: `checkEnableMultipleStandardLoadBalancers` of `pkg/provider/azure.go`, which compares
/// names ignoring case.
fn several(config: &AzureConfig, is_standard: bool, findings: &mut FindingCollector) {
    let all = &config.multiple_standard_load_balancer_configurations;
    findings.warn_if(!all.is_empty() && !is_standard, SEVERAL, "has an effect only with loadBalancerSku standard");
    if all.is_empty() || !is_standard {
        return;
    }
    findings.error_if(
        config.load_balancer_backend_pool_configuration_type == BackendPoolType::NodeIpConfiguration,
        SEVERAL,
        "cannot be combined with loadBalancerBackendPoolConfigurationType nodeIPConfiguration, the default; set nodeIP",
    );
    let (mut distinct_names, mut machines) = (BTreeSet::new(), BTreeSet::new());
    for (index, entry) in all.iter().enumerate() {
        let field = |name: &str| format!("{SEVERAL}[{index}].{name}");
        if let Some(problem) = name_problem(&entry.name) {
            findings.error_if(true, &field("name"), &problem);
        }
        warn_of_selectors(entry, &field, findings);
        findings.error_if(
            entry.primary_vm_set.is_empty(),
            &field("primaryVMSet"),
            "is required: the machines of the load balancer",
        );
        let is_new = entry.name.is_empty() || distinct_names.insert(entry.name.to_lowercase());
        findings.error_if(!is_new, &field("name"), "is the name of an entry above; names must be unique");
        let is_new = entry.primary_vm_set.is_empty() || machines.insert(entry.primary_vm_set.to_lowercase());
        findings.error_if(!is_new, &field("primaryVMSet"), "is that of an entry above; each must be unique");
    }
}

/// Warns about empty selectors: they match every Service, so that entries without a selector get none.
fn warn_of_selectors(
    entry: &MultipleStandardLoadBalancer,
    field: &impl Fn(&str) -> String,
    findings: &mut FindingCollector,
) {
    let selectors = [
        ("serviceLabelSelector", &entry.service_label_selector),
        ("serviceNamespaceSelector", &entry.service_namespace_selector),
    ];
    let is_empty = |selector: &LabelSelector| {
        selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    };
    for (name, selector) in selectors {
        findings.warn_if(
            selector.as_ref().is_some_and(is_empty),
            &field(name),
            "is empty, so it matches every Service, and no entry without a selector gets any; leave it out if that is not intended",
        );
    }
}
