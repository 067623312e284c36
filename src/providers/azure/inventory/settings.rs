//! Settings of the inventory. Pure.

use std::time::Duration;

use crate::providers::azure::{
    config::{AzureConfig, VmType},
    model::ResourceId,
};

/// Locations of machines, and the validity of results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventorySettings {
    /// The cluster's resource group: where Nodes are looked up unless their ID or label names another.
    pub group: ResourceId,
    /// Whether uniform scale sets are read.
    pub uniform: bool,
    /// Whether flexible scale sets are read.
    pub flex: bool,
    /// Whether machines of availability sets and standalone machines are read.
    pub standard: bool,
    /// Whether lists of instances come without instance view (`listVmssVirtualMachinesWithoutInstanceView`).
    pub without_instance_view: bool,
    /// Validity of the list of scale sets.
    pub scale_sets_ttl: Duration,
    /// Validity of information about an instance of a uniform scale set.
    pub instances_ttl: Duration,
    /// Validity of information about machines of flexible scale sets.
    pub flex_ttl: Duration,
    /// Validity of information about machines outside scale sets.
    pub standard_ttl: Duration,
    /// Validity of the information that a machine is missing.
    pub absent_ttl: Duration,
}

impl InventorySettings {
    /// Returns the settings of a configuration. The kinds of machines follow upstream's `pkg/provider/azure_vmss.go`.
    pub fn from_config(config: &AzureConfig) -> Self {
        let vmss = config.vm_type == VmType::Vmss;
        let others = vmss && (!config.disable_availability_set_nodes || config.enable_vmss_flex_nodes);
        let ttl = |ttl: Duration| if config.disable_api_call_cache { Duration::ZERO } else { ttl };
        Self {
            group: ResourceId::group_of(&config.subscription_id, &config.resource_group),
            uniform: vmss,
            flex: config.vm_type == VmType::VmssFlex || others,
            standard: config.vm_type == VmType::Standard || others,
            without_instance_view: config.list_vmss_virtual_machines_without_instance_view,
            scale_sets_ttl: ttl(config.vmss_cache_ttl.min(config.vmss_flex_cache_ttl)),
            instances_ttl: ttl(config.vmss_virtual_machines_cache_ttl),
            flex_ttl: ttl(config.vmss_flex_vm_cache_ttl),
            standard_ttl: ttl(config.non_vmss_uniform_nodes_cache_ttl),
            absent_ttl: ttl(config.vm_cache_ttl),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_kinds_follow_the_configuration() {
        // vmType, disableAvailabilitySetNodes, enableVmssFlexNodes; uniform, flex, standard.
        let table = [
            (VmType::Vmss, false, false, [true, true, true]),
            (VmType::Vmss, false, true, [true, true, true]),
            (VmType::Vmss, true, true, [true, true, true]),
            (VmType::Vmss, true, false, [true, false, false]),
            (VmType::VmssFlex, false, false, [false, true, false]),
            (VmType::VmssFlex, true, true, [false, true, false]),
            (VmType::Standard, false, false, [false, false, true]),
            (VmType::Standard, true, true, [false, false, true]),
        ];
        for (vm_type, disable_availability_set_nodes, enable_vmss_flex_nodes, expected) in table {
            let config =
                AzureConfig { vm_type, disable_availability_set_nodes, enable_vmss_flex_nodes, ..AzureConfig::default() };
            let settings = InventorySettings::from_config(&config);
            let kinds = [settings.uniform, settings.flex, settings.standard];
            assert_eq!(kinds, expected, "{vm_type:?} {disable_availability_set_nodes} {enable_vmss_flex_nodes}");
        }
    }

    #[test]
    fn disabled_cache_sets_all_ttls_to_zero() {
        let config = AzureConfig { disable_api_call_cache: true, ..AzureConfig::default() };
        let settings = InventorySettings::from_config(&config);
        let ttls = [settings.scale_sets_ttl, settings.instances_ttl, settings.flex_ttl, settings.standard_ttl];
        assert_eq!((ttls, settings.absent_ttl), ([Duration::ZERO; 4], Duration::ZERO));
    }
}
