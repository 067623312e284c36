//! Documents of the compute provider: fields of instances and scale sets for pool membership.
//!
//! Upstream: the structures of `armcompute` that `pkg/provider` reads; see [`super::document`] for the other fields.

use serde_json::Value;

use super::{
    document::{ArmSku, ExtendedLocation, SubResource, Tags, documents},
    spelling::strip_start,
};

documents! {
    /// A scale set, uniform or flexible.
    VirtualMachineScaleSet {
        id: String,
        location: String,
        extended_location: ExtendedLocation,
        tags: Tags,
        etag: String,
        sku: ArmSku,
        properties: ArmScaleSetProperties,
    }
    /// See [`VirtualMachineScaleSet`].
    ArmScaleSetProperties {
        orchestration_mode: String,
        provisioning_state: String,
        virtual_machine_profile: ScaleSetVmProfile,
    }
    /// What new instances of a scale set look like.
    ScaleSetVmProfile {
        network_profile: NetworkProfileConfiguration,
    }
    /// An instance of a uniform scale set.
    VirtualMachineScaleSetVm {
        id: String,
        location: String,
        etag: String,
        properties: ScaleSetVmProperties,
    }
    /// See [`VirtualMachineScaleSetVm`].
    ScaleSetVmProperties {
        provisioning_state: String,
        hardware_profile: Value,
        network_profile_configuration: NetworkProfileConfiguration,
        instance_view: ArmInstanceView,
    }
    /// What a machine is doing; only in answers to `$expand=instanceView`.
    ArmInstanceView {
        statuses: Vec<InstanceViewStatus>,
    }
    /// `PowerState/…`, `ProvisioningState/…`.
    InstanceViewStatus {
        code: String,
    }
    /// Network interfaces of a scale set's model, or of one instance of it.
    NetworkProfileConfiguration {
        network_api_version: String,
        network_interface_configurations: Vec<NetworkInterfaceConfiguration>,
    }
    /// One of them.
    NetworkInterfaceConfiguration {
        properties: NetworkInterfaceConfigurationProperties,
    }
    /// See [`NetworkInterfaceConfiguration`].
    NetworkInterfaceConfigurationProperties {
        primary: bool,
        ip_configurations: Vec<ScaleSetIpConfiguration>,
    }
    /// An IP configuration of it.
    ScaleSetIpConfiguration {
        properties: ScaleSetIpConfigurationProperties,
    }
    /// See [`ScaleSetIpConfiguration`].
    ScaleSetIpConfigurationProperties {
        primary: bool,
        private_ip_address_version: String = "privateIPAddressVersion",
        load_balancer_backend_address_pools: Vec<SubResource>,
    }
}

impl ArmInstanceView {
    /// Returns the part behind `PowerState/`, as ARM writes it.
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
    fn the_power_state_is_the_part_behind_the_slash() {
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
