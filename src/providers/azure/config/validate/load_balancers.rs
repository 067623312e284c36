//! Whether the load balancer fields belong together.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::super::{
    choices::{BackendPoolType, HealthProbeMode, LoadBalancerSku},
    fields::AzureConfig,
    finding::FindingCollector,
};

const SEVERAL: &str = "multipleStandardLoadBalancerConfigurations";

pub(super) fn check(config: &AzureConfig, findings: &mut FindingCollector) {
    let is_standard = config.load_balancer_sku == LoadBalancerSku::Standard;
    findings.error_if(
        config.disable_outbound_snat == Some(true) && !is_standard,
        "disableOutboundSNAT",
        "can be true only with loadBalancerSku standard",
    );
    let types = config.pre_configured_backend_pool_load_balancer_types.as_str();
    findings.warn_if(
        !["", "internal", "external", "all"].contains(&types),
        "preConfiguredBackendPoolLoadBalancerTypes",
        "expected internal, external, all or nothing, in lower case; any other word has no effect",
    );
    policy(config, findings);
    service_gateway(config, findings);
    probes(config, findings);
    several(config, is_standard, findings);
}

/// What Services may have that is not their own.
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
    findings.error_if(
        !config.cluster_service_shared_load_balancer_health_probe_path.starts_with('/'),
        "clusterServiceSharedLoadBalancerHealthProbePath",
        "expected a path that begins with /",
    );
}

/// Upstream: `checkEnableMultipleStandardLoadBalancers` of `pkg/provider/azure.go`; names compare without case there.
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
    let (mut names, mut machines) = (BTreeSet::new(), BTreeSet::new());
    for (index, one) in all.iter().enumerate() {
        let field = |name: &str| format!("{SEVERAL}[{index}].{name}");
        findings.error_if(one.name.is_empty(), &field("name"), "is required: the name of the load balancer");
        findings.error_if(
            one.primary_vm_set.is_empty(),
            &field("primaryVMSet"),
            "is required: the machines of the load balancer",
        );
        let is_new = one.name.is_empty() || names.insert(one.name.to_lowercase());
        findings.error_if(!is_new, &field("name"), "is the name of an entry above; names must be unique");
        let is_new = one.primary_vm_set.is_empty() || machines.insert(one.primary_vm_set.to_lowercase());
        findings.error_if(!is_new, &field("primaryVMSet"), "is that of an entry above; each must be unique");
    }
}
