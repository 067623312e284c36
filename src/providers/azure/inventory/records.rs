//! Parts of ARM's documents that the inventory reads. Everything else is dropped while a page is decoded. Pure.
//!
//! IDs are text here: an invalid ID invalidates its own record, not the page.

use crate::providers::azure::model::document::records;

records! {
    /// A reference to another resource.
    pub(super) ResourceReference {
        id: String,
    }
    /// Record of a scale set.
    pub(super) ScaleSetRecord {
        id: String,
        sku: SkuRecord,
        properties: ScaleSetRecordProperties,
    }
    pub(super) SkuRecord {
        name: String,
        capacity: Option<u32>,
    }
    pub(super) ScaleSetRecordProperties {
        orchestration_mode: String,
        virtual_machine_profile: ScaleSetVmProfileRecord,
    }
    pub(super) ScaleSetVmProfileRecord {
        os_profile: OsProfileRecord,
    }
    pub(super) OsProfileRecord {
        computer_name: String,
        computer_name_prefix: String,
    }
    /// A virtual machine or an instance of a uniform scale set.
    pub(super) VmRecord {
        id: String,
        name: Option<String>,
        location: String,
        zones: Vec<String>,
        sku: SkuRecord,
        instance_id: Option<String>,
        properties: VmRecordProperties,
    }
    pub(super) VmRecordProperties {
        vm_id: String,
        provisioning_state: String,
        hardware_profile: HardwareProfileRecord,
        os_profile: OsProfileRecord,
        network_profile: NetworkProfileRecord,
        instance_view: Option<InstanceViewRecord>,
        availability_set: ResourceReference,
        virtual_machine_scale_set: ResourceReference,
    }
    pub(super) HardwareProfileRecord {
        vm_size: String,
    }
    pub(super) NetworkProfileRecord {
        network_interfaces: Vec<InterfaceReferenceRecord>,
    }
    pub(super) InterfaceReferenceRecord {
        id: String,
        properties: InterfaceReferenceProperties,
    }
    /// Properties of which only this one matters.
    pub(super) InterfaceReferenceProperties {
        primary: bool,
    }
    pub(super) InstanceViewRecord {
        platform_fault_domain: Option<i32>,
        statuses: Vec<InstanceViewStatusRecord>,
    }
    pub(super) InstanceViewStatusRecord {
        code: String,
    }
    /// Record of a network interface.
    pub(super) InterfaceRecord {
        id: String,
        properties: InterfaceRecordProperties,
    }
    pub(super) InterfaceRecordProperties {
        primary: bool,
        ip_configurations: Vec<IpConfigurationRecord>,
    }
    pub(super) IpConfigurationRecord {
        properties: IpConfigurationRecordProperties,
    }
    pub(super) IpConfigurationRecordProperties {
        primary: bool,
        private_ip_address: String = "privateIPAddress",
        private_ip_address_version: String = "privateIPAddressVersion",
        public_ip_address: ResourceReference = "publicIPAddress",
    }
    /// Record of a public IP.
    pub(super) PublicIpRecord {
        id: String,
        properties: PublicIpRecordProperties,
    }
    pub(super) PublicIpRecordProperties {
        ip_address: String,
    }
}

impl InterfaceRecord {
    /// Returns the IDs of the public IPs that the record refers to.
    pub(super) fn public_ips(&self) -> impl Iterator<Item = &str> {
        let references = self.properties.ip_configurations.iter().map(|it| &it.properties.public_ip_address);
        references.map(|reference| reference.id.as_str()).filter(|id| !id.is_empty())
    }
}
