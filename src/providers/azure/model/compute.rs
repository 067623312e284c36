//! Documents of the compute provider: fields of instances and scale sets for pool membership.
//!
//! Upstream: the structures of `armcompute` that `pkg/provider` reads; see [`super::document`] for the other fields.

use serde_json::Value;

use super::{
    document::{ArmSku, ExtendedLocation, SubResource, Tags, documents},
    spelling::strip_start,
};

documents! {
    /// Scale set, uniform or flexible.
    VirtualMachineScaleSet {
        id: String,
        location: String,
        extended_location: ExtendedLocation,
        tags: Tags,
        etag: String,
        sku: ArmSku,
        properties: ArmScaleSetProperties,
    }
    /// Properties of a [`VirtualMachineScaleSet`].
    ArmScaleSetProperties {
        orchestration_mode: String,
        provisioning_state: String,
        virtual_machine_profile: ScaleSetVmProfile,
    }
    /// Model of new instances of a scale set.
    ScaleSetVmProfile {
        network_profile: NetworkProfileConfiguration,
    }
    /// Instance of a uniform scale set.
    VirtualMachineScaleSetVm {
        id: String,
        location: String,
        etag: String,
        properties: ScaleSetVmProperties,
    }
    /// Properties of a [`VirtualMachineScaleSetVm`].
    ScaleSetVmProperties {
        provisioning_state: String,
        hardware_profile: Value,
        network_profile_configuration: NetworkProfileConfiguration,
        instance_view: ArmInstanceView,
    }
    /// Runtime status of a machine, only in responses to `$expand=instanceView`.
    ArmInstanceView {
        statuses: Vec<InstanceViewStatus>,
    }
    /// Status of a machine: `PowerState/…` or `ProvisioningState/…`.
    InstanceViewStatus {
        code: String,
    }
    /// Network interfaces of a scale set's model, or of one of its instances.
    NetworkProfileConfiguration {
        network_api_version: String,
        network_interface_configurations: Vec<NetworkInterfaceConfiguration>,
    }
    /// Network interface of a scale set's model or instance.
    NetworkInterfaceConfiguration {
        properties: NetworkInterfaceConfigurationProperties,
    }
    /// Properties of a [`NetworkInterfaceConfiguration`].
    NetworkInterfaceConfigurationProperties {
        primary: bool,
        ip_configurations: Vec<ScaleSetIpConfiguration>,
    }
    /// IP configuration of a [`NetworkInterfaceConfiguration`].
    ScaleSetIpConfiguration {
        properties: ScaleSetIpConfigurationProperties,
    }
    /// Properties of a [`ScaleSetIpConfiguration`].
    ScaleSetIpConfigurationProperties {
        primary: bool,
        private_ip_address_version: String = "privateIPAddressVersion",
        load_balancer_backend_address_pools: Vec<SubResource>,
    }
}

impl ArmInstanceView {
    /// Returns the part after `PowerState/`, in ARM's spelling.
    pub fn power_state(&self) -> Option<&str> {
        const PREFIX: &str = "PowerState/";
        let codes = self.statuses.iter().flatten().filter_map(|status| status.code.as_deref());
        let mut states = codes.filter_map(|code| strip_start(code, PREFIX));
        states.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_state_is_the_part_after_the_slash() {
        let cases = [
            (r#"[{"code":"ProvisioningState/succeeded"},{"code":"PowerState/running"}]"#, Some("running")),
            (r#"[{"code":"powerstate/deallocated"}]"#, Some("deallocated")),
            (r#"[{"code":"PowerState/"}]"#, Some("")),
            (r#"[{"code":"PowerStat"},{}]"#, None),
            ("[]", None),
        ];
        for (statuses, expected) in cases {
            let view = ArmInstanceView { statuses: serde_json::from_str(statuses).unwrap(), ..Default::default() };
            assert_eq!(view.power_state(), expected, "{statuses}");
        }
    }
}
