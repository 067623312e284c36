//! Validity of resource names for ARM. Upstream sends any text, and Azure rejects the requests.

use super::super::{fields::AzureConfig, finding::FindingCollector, reader::shown};
use crate::providers::azure::model::names;

/// Warns of names that no resource in Azure can have.
pub(super) fn check(config: &AzureConfig, findings: &mut FindingCollector) {
    let groups = config.resource_groups();
    let resources = [
        ("vnetName", &config.vnet_name),
        ("subnetName", &config.subnet_name),
        ("securityGroupName", &config.security_group_name),
        ("routeTableName", &config.route_table_name),
    ];
    let machine_sets = [
        ("primaryAvailabilitySetName", &config.primary_availability_set_name),
        ("primaryScaleSetName", &config.primary_scale_set_name),
    ];
    groups.iter().for_each(|(field, name)| warn(field, name, names::is_group, names::GROUP_FORMAT, findings));
    resources.iter().for_each(|(field, name)| warn(field, name, names::is_resource, names::RESOURCE_FORMAT, findings));
    machine_sets
        .iter()
        .for_each(|(field, name)| warn(field, name, names::is_machine_set, names::MACHINE_SET_FORMAT, findings));
    for group in config.allowed_public_ip_resource_groups.split(',').map(str::trim) {
        warn("allowedPublicIPResourceGroups", group, names::is_group, names::GROUP_FORMAT, findings);
    }
}

fn warn(field: &str, name: &str, is_valid: fn(&str) -> bool, expected: &str, findings: &mut FindingCollector) {
    let message = format!("Azure accepts no such name: expected {expected}, found `{}`", shown(name));
    findings.warn_if(!name.is_empty() && !is_valid(name), field, &message);
}
