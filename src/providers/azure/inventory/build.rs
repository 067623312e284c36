//! From ARM's records to [`Machine`]s. Pure.

use std::collections::BTreeMap;

use super::records::{
    InterfaceRecord, InterfaceReferenceRecord, IpConfigurationRecord, PublicIpRecord, ScaleSetRecord, VmRecord,
    VmRecordProperties,
};
use crate::providers::azure::model::{
    Machine, MachineInterface, MachineIpConfiguration, MachineKind, ResourceId, api, spelling,
};

/// A scale set, as far as machines are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScaleSetSummary {
    pub(super) id: ResourceId,
    /// Prefix of its machines' host names.
    pub(super) prefix: String,
    /// Whether its orchestration is flexible.
    pub(super) flexible: bool,
    /// Desired number of machines; `None` if ARM does not report it.
    pub(super) capacity: Option<usize>,
}

/// Returns a scale set; `None` if its ID is invalid.
pub(super) fn scale_set(record: ScaleSetRecord) -> Option<ScaleSetSummary> {
    let id = ResourceId::parse(&record.id).ok()?;
    let prefix = record.properties.virtual_machine_profile.os_profile.computer_name_prefix;
    Some(ScaleSetSummary {
        prefix: if prefix.is_empty() { id.name().to_owned() } else { prefix },
        flexible: spelling::same_word(&record.properties.orchestration_mode, "Flexible"),
        capacity: record.sku.capacity.map(|capacity| capacity as usize),
        id,
    })
}

/// Returns a machine from its own document, and whether that had an instance view.
///
/// Interfaces have an ID but no addresses yet. `None` if the record has no ID.
pub(super) fn machine(record: VmRecord) -> Option<(Machine, bool)> {
    let id = ResourceId::parse(&record.id).ok()?;
    let properties = record.properties;
    let kind = kind_of(&id, record.instance_id, &properties)?;
    // The hardware profile of an instance repeats the size of the model, from which the instance may differ; upstream reads
    // the SKU.
    let is_instance = matches!(kind, MachineKind::ScaleSetInstance { .. });
    let vm_size = if is_instance { record.sku.name } else { properties.hardware_profile.vm_size };
    let has_view = properties.instance_view.is_some();
    let view = properties.instance_view.unwrap_or_default();
    let machine = Machine {
        name: record.name.unwrap_or_else(|| id.name().to_owned()),
        kind,
        computer_name: properties.os_profile.computer_name,
        vm_id: properties.vm_id,
        vm_size,
        location: record.location,
        zone: record.zones.into_iter().next(),
        fault_domain: view.platform_fault_domain,
        provisioning_state: properties.provisioning_state,
        power_state: power_state(view.statuses.iter().map(|status| status.code.as_str())),
        interfaces: without_addresses(&properties.network_profile.network_interfaces),
        id,
    };
    Some((machine, has_view))
}

fn kind_of(id: &ResourceId, instance_id: Option<String>, properties: &VmRecordProperties) -> Option<MachineKind> {
    if id.is_type(api::SCALE_SET_VMS.resource_type) {
        let instance_id = instance_id.unwrap_or_else(|| id.name().to_owned());
        return Some(MachineKind::ScaleSetInstance { scale_set: id.parent()?, instance_id });
    }
    if let Ok(scale_set) = ResourceId::parse(&properties.virtual_machine_scale_set.id) {
        return Some(MachineKind::FlexInstance { scale_set });
    }
    let set = ResourceId::parse(&properties.availability_set.id);
    Some(set.map_or(MachineKind::Standalone, |set| MachineKind::AvailabilitySet { set }))
}

fn power_state<'a>(mut codes: impl Iterator<Item = &'a str>) -> Option<String> {
    const PREFIX: &str = "PowerState/";
    codes.find_map(|code| spelling::strip_start(code, PREFIX).map(str::to_owned))
}

fn without_addresses(references: &[InterfaceReferenceRecord]) -> Vec<MachineInterface> {
    let is_single = references.len() == 1;
    let interface = |reference: &InterfaceReferenceRecord| {
        let id = ResourceId::parse(&reference.id).ok()?;
        let primary = is_single || reference.properties.primary;
        Some(MachineInterface { id, primary, ip_configurations: Vec::new() })
    };
    references.iter().filter_map(interface).collect()
}

/// Addresses of public IPs, by id.
pub(super) type PublicIpAddressById = BTreeMap<ResourceId, String>;

/// Returns the addresses of public IPs; those without one are left out.
pub(super) fn public_addresses(records: Vec<PublicIpRecord>) -> PublicIpAddressById {
    let assigned = records.into_iter().filter(|record| !record.properties.ip_address.is_empty());
    assigned.filter_map(|record| Some((ResourceId::parse(&record.id).ok()?, record.properties.ip_address))).collect()
}

/// Returns an interface with its addresses; `None` when the record has no id.
pub(super) fn interface(record: InterfaceRecord, addresses: &PublicIpAddressById) -> Option<MachineInterface> {
    let id = ResourceId::parse(&record.id).ok()?;
    let public_address = |id: &str| addresses.get(&ResourceId::parse(id).ok()?).cloned();
    let configuration = |IpConfigurationRecord { properties: it }| MachineIpConfiguration {
        primary: it.primary,
        ipv6: spelling::same_word(&it.private_ip_address_version, "IPv6"),
        public_address: public_address(&it.public_ip_address.id),
        private_address: Some(it.private_ip_address).filter(|address| !address.is_empty()),
    };
    let mut ip_configurations: Vec<_> = record.properties.ip_configurations.into_iter().map(configuration).collect();
    // A single configuration is the primary one, whatever its flag says.
    if let [only] = ip_configurations.as_mut_slice() {
        only.primary = true;
    }
    Some(MachineInterface { id, primary: record.properties.primary, ip_configurations })
}

/// Fills the machine's interfaces from those read. Returns `true` if each was among them. Order and, where the machine's
/// document says so, the primary one are the machine's.
pub(super) fn fill(machine: &mut Machine, read: &BTreeMap<ResourceId, MachineInterface>) -> bool {
    let reported = machine.interfaces.iter().any(|interface| interface.primary);
    let mut complete = true;
    for interface in &mut machine.interfaces {
        match read.get(&interface.id) {
            Some(found) => {
                interface.ip_configurations.clone_from(&found.ip_configurations);
                interface.primary |= !reported && found.primary;
            }
            None => complete = false,
        }
    }
    complete
}

/// Copies the interfaces of an older state. Returns `true` if it covers all of them.
pub(super) fn carry_over(machine: &mut Machine, older: &Machine) -> bool {
    let existing = older.interfaces.iter().map(|interface| (interface.id.clone(), interface.clone())).collect();
    fill(machine, &existing)
}

#[cfg(test)]
mod tests;
