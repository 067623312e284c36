//! Parts of ARM's documents that the inventory reads. Everything else is dropped while a page is decoded.
//!
//! IDs are text here: an invalid one costs its own record, not the page.

use serde::Deserialize;

/// A reference to another resource.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct ResourceReference {
    #[serde(default)]
    pub(super) id: String,
}

/// Record of a scale set.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ScaleSetRecord {
    #[serde(default)]
    pub(super) id: String,
    pub(super) sku: Option<SkuRecord>,
    pub(super) properties: Option<ScaleSetRecordProperties>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct SkuRecord {
    pub(super) name: Option<String>,
    pub(super) capacity: Option<u32>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScaleSetRecordProperties {
    pub(super) orchestration_mode: Option<String>,
    pub(super) virtual_machine_profile: Option<ScaleSetVmProfileRecord>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScaleSetVmProfileRecord {
    pub(super) os_profile: Option<OsProfileRecord>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OsProfileRecord {
    pub(super) computer_name: Option<String>,
    pub(super) computer_name_prefix: Option<String>,
}

/// A virtual machine or an instance of a uniform scale set.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VmRecord {
    #[serde(default)]
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) location: Option<String>,
    pub(super) zones: Option<Vec<String>>,
    pub(super) sku: Option<SkuRecord>,
    pub(super) instance_id: Option<String>,
    pub(super) properties: Option<VmRecordProperties>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VmRecordProperties {
    pub(super) vm_id: Option<String>,
    pub(super) provisioning_state: Option<String>,
    pub(super) hardware_profile: Option<HardwareProfileRecord>,
    pub(super) os_profile: Option<OsProfileRecord>,
    pub(super) network_profile: Option<NetworkProfileRecord>,
    pub(super) instance_view: Option<InstanceViewRecord>,
    pub(super) availability_set: Option<ResourceReference>,
    pub(super) virtual_machine_scale_set: Option<ResourceReference>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HardwareProfileRecord {
    pub(super) vm_size: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NetworkProfileRecord {
    pub(super) network_interfaces: Option<Vec<InterfaceReferenceRecord>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct InterfaceReferenceRecord {
    #[serde(default)]
    pub(super) id: String,
    pub(super) properties: Option<InterfaceReferenceProperties>,
}

/// Properties of which only this one matters.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct InterfaceReferenceProperties {
    pub(super) primary: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstanceViewRecord {
    pub(super) platform_fault_domain: Option<i32>,
    pub(super) statuses: Option<Vec<InstanceViewStatusRecord>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct InstanceViewStatusRecord {
    pub(super) code: Option<String>,
}

/// Record of a network interface.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct InterfaceRecord {
    #[serde(default)]
    pub(super) id: String,
    pub(super) properties: Option<InterfaceRecordProperties>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InterfaceRecordProperties {
    pub(super) primary: Option<bool>,
    pub(super) ip_configurations: Option<Vec<IpConfigurationRecord>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct IpConfigurationRecord {
    pub(super) properties: Option<IpConfigurationRecordProperties>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IpConfigurationRecordProperties {
    pub(super) primary: Option<bool>,
    #[serde(rename = "privateIPAddress")]
    pub(super) private_ip_address: Option<String>,
    #[serde(rename = "privateIPAddressVersion")]
    pub(super) private_ip_address_version: Option<String>,
    #[serde(rename = "publicIPAddress")]
    pub(super) public_ip_address: Option<ResourceReference>,
}

impl InterfaceRecord {
    /// Ids of the public IPs it refers to.
    pub(super) fn public_ips(&self) -> impl Iterator<Item = &str> {
        let configurations = self.properties.iter().flat_map(|properties| properties.ip_configurations.iter().flatten());
        let references = configurations.filter_map(|it| it.properties.as_ref()?.public_ip_address.as_ref());
        references.map(|reference| reference.id.as_str()).filter(|id| !id.is_empty())
    }
}

/// Record of a public IP.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PublicIpRecord {
    #[serde(default)]
    pub(super) id: String,
    pub(super) properties: Option<PublicIpRecordProperties>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct PublicIpRecordProperties {
    #[serde(rename = "ipAddress")]
    pub(super) ip_address: Option<String>,
}
