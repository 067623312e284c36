//! Documents of the compute provider: fields of machines and scale sets for nodes and pool membership.
//!
//! Upstream: the structures of `armcompute` that `pkg/provider` reads; see [`super::document`] for the other fields.

use super::{
    document::{ArmSku, ExtendedLocation, SubResource, Tags, documents},
    spelling::strip_start,
};

documents! {
    /// A machine outside uniform scale sets.
    VirtualMachine {
        id: String,
        name: String,
        location: String,
        extended_location: ExtendedLocation,
        zones: Vec<String>,
        tags: Tags,
        etag: String,
        properties: VirtualMachineProperties,
    }
    /// See [`VirtualMachine`].
    VirtualMachineProperties {
        vm_id: String,
        provisioning_state: String,
        availability_set: SubResource,
        virtual_machine_scale_set: SubResource,
        hardware_profile: ArmHardwareProfile,
        os_profile: ArmOsProfile,
        network_profile: ArmNetworkProfile,
        instance_view: ArmInstanceView,
    }
    /// A scale set, uniform or flexible.
    VirtualMachineScaleSet {
        id: String,
        name: String,
        location: String,
        extended_location: ExtendedLocation,
        zones: Vec<String>,
        tags: Tags,
        etag: String,
        sku: ArmSku,
        properties: ArmScaleSetProperties,
    }
    /// See [`VirtualMachineScaleSet`].
    ArmScaleSetProperties {
        orchestration_mode: String,
        provisioning_state: String,
        platform_fault_domain_count: i64,
        virtual_machine_profile: ScaleSetVmProfile,
    }
    /// What new instances of a scale set look like.
    ScaleSetVmProfile {
        os_profile: ScaleSetOsProfile,
        network_profile: NetworkProfileConfiguration,
    }
    /// Names of new instances.
    ScaleSetOsProfile {
        computer_name_prefix: String,
    }
    /// An instance of a uniform scale set.
    VirtualMachineScaleSetVm {
        id: String,
        name: String,
        instance_id: String,
        location: String,
        zones: Vec<String>,
        tags: Tags,
        etag: String,
        sku: ArmSku,
        properties: ScaleSetVmProperties,
    }
    /// See [`VirtualMachineScaleSetVm`].
    ScaleSetVmProperties {
        vm_id: String,
        provisioning_state: String,
        latest_model_applied: bool,
        hardware_profile: ArmHardwareProfile,
        os_profile: ArmOsProfile,
        network_profile: ArmNetworkProfile,
        network_profile_configuration: NetworkProfileConfiguration,
        instance_view: ArmInstanceView,
    }
    /// An availability set.
    AvailabilitySet {
        id: String,
        name: String,
        location: String,
        tags: Tags,
        sku: ArmSku,
        properties: AvailabilitySetProperties,
    }
    /// See [`AvailabilitySet`].
    AvailabilitySetProperties {
        platform_fault_domain_count: i64,
        platform_update_domain_count: i64,
        virtual_machines: Vec<SubResource>,
    }
    /// Machine type.
    ArmHardwareProfile {
        vm_size: String,
    }
    /// Host name.
    ArmOsProfile {
        computer_name: String,
    }
    /// Network interfaces of a machine.
    ArmNetworkProfile {
        network_interfaces: Vec<NetworkInterfaceReference>,
    }
    /// One of them.
    NetworkInterfaceReference {
        id: String,
        properties: NetworkInterfaceReferenceProperties,
    }
    /// See [`NetworkInterfaceReference`].
    NetworkInterfaceReferenceProperties {
        primary: bool,
    }
    /// What a machine is doing; only in answers to `$expand=instanceView`.
    ArmInstanceView {
        computer_name: String,
        os_name: String,
        platform_fault_domain: i64,
        platform_update_domain: i64,
        statuses: Vec<InstanceViewStatus>,
    }
    /// `PowerState/…`, `ProvisioningState/…`.
    InstanceViewStatus {
        code: String,
        display_status: String,
        level: String,
        message: String,
        time: String,
    }
    /// Network interfaces of a scale set's model, or of one instance of it.
    NetworkProfileConfiguration {
        network_api_version: String,
        network_interface_configurations: Vec<NetworkInterfaceConfiguration>,
    }
    /// One of them.
    NetworkInterfaceConfiguration {
        name: String,
        properties: NetworkInterfaceConfigurationProperties,
    }
    /// See [`NetworkInterfaceConfiguration`].
    NetworkInterfaceConfigurationProperties {
        primary: bool,
        enable_ip_forwarding: bool = "enableIPForwarding",
        network_security_group: SubResource,
        ip_configurations: Vec<ScaleSetIpConfiguration>,
    }
    /// An IP configuration of it.
    ScaleSetIpConfiguration {
        name: String,
        properties: ScaleSetIpConfigurationProperties,
    }
    /// See [`ScaleSetIpConfiguration`].
    ScaleSetIpConfigurationProperties {
        primary: bool,
        private_ip_address_version: String = "privateIPAddressVersion",
        subnet: SubResource,
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
