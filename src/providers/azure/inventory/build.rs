//! From ARM's records to [`Machine`]s.

use std::collections::BTreeMap;

use super::{
    Machine, MachineInterface, MachineIpConfiguration, MachineKind,
    records::{InterfaceRecord, InterfaceReferenceRecord, PublicIpRecord, ScaleSetRecord, VmRecord, VmRecordProperties},
};
use crate::providers::azure::arm::{ResourceId, api, spelling};

/// A scale set, as far as machines are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScaleSetSummary {
    pub(super) id: ResourceId,
    /// Prefix of its machines' host names.
    pub(super) prefix: String,
    /// Whether it is a flexible one.
    pub(super) flexible: bool,
    /// Desired number of machines; `None` if ARM does not report it.
    pub(super) capacity: Option<usize>,
}

/// Returns a scale set; `None` when its id is none.
pub(super) fn scale_set(record: ScaleSetRecord) -> Option<ScaleSetSummary> {
    let id = ResourceId::parse(&record.id).ok()?;
    let properties = record.properties.as_ref();
    let mode = properties.and_then(|it| it.orchestration_mode.as_deref()).unwrap_or_default();
    let os = properties.and_then(|it| it.virtual_machine_profile.as_ref()?.os_profile.as_ref());
    let prefix = os.and_then(|it| it.computer_name_prefix.clone()).filter(|prefix| !prefix.is_empty());
    Some(ScaleSetSummary {
        prefix: prefix.unwrap_or_else(|| id.name().to_owned()),
        flexible: spelling::same_word(mode, "Flexible"),
        capacity: record.sku.and_then(|sku| sku.capacity).map(|capacity| capacity as usize),
        id,
    })
}

/// Returns a machine from its own document, and whether that had an instance view.
///
/// Interfaces have an ID but no addresses yet. `None` if the record has no ID.
pub(super) fn machine(record: VmRecord) -> Option<(Machine, bool)> {
    let id = ResourceId::parse(&record.id).ok()?;
    let properties = record.properties.unwrap_or_default();
    let kind = kind_of(&id, record.instance_id, &properties)?;
    let view = properties.instance_view;
    let has_view = view.is_some();
    let sku = record.sku.and_then(|sku| sku.name);
    let size = properties.hardware_profile.and_then(|hardware| hardware.vm_size);
    // An instance may be of another size than its hardware profile repeats from the model; upstream reads the sku.
    let vm_size = if matches!(kind, MachineKind::ScaleSetInstance { .. }) { sku } else { size };
    let references = properties.network_profile.and_then(|network| network.network_interfaces);
    let machine = Machine {
        name: record.name.unwrap_or_else(|| id.name().to_owned()),
        kind,
        computer_name: properties.os_profile.and_then(|os| os.computer_name).unwrap_or_default(),
        vm_id: properties.vm_id.unwrap_or_default(),
        vm_size: vm_size.unwrap_or_default(),
        location: record.location.unwrap_or_default(),
        zone: record.zones.and_then(|zones| zones.into_iter().next()),
        fault_domain: view.as_ref().and_then(|view| view.platform_fault_domain),
        provisioning_state: properties.provisioning_state.unwrap_or_default(),
        power_state: view.and_then(|view| power_state(view.statuses?.into_iter().filter_map(|status| status.code))),
        interfaces: without_addresses(references.unwrap_or_default()),
        id,
    };
    Some((machine, has_view))
}

fn kind_of(id: &ResourceId, instance_id: Option<String>, properties: &VmRecordProperties) -> Option<MachineKind> {
    if id.is_type(api::SCALE_SET_VMS.resource_type) {
        let instance_id = instance_id.unwrap_or_else(|| id.name().to_owned());
        return Some(MachineKind::ScaleSetInstance { scale_set: id.parent()?, instance_id });
    }
    let parsed = |reference: &super::records::ResourceReference| ResourceId::parse(&reference.id).ok();
    if let Some(scale_set) = properties.virtual_machine_scale_set.as_ref().and_then(parsed) {
        return Some(MachineKind::FlexInstance { scale_set });
    }
    let set = properties.availability_set.as_ref().and_then(parsed);
    Some(set.map_or(MachineKind::Standalone, |set| MachineKind::AvailabilitySet { set }))
}

fn power_state(mut codes: impl Iterator<Item = String>) -> Option<String> {
    const PREFIX: &str = "PowerState/";
    codes.find_map(|code| spelling::strip_start(&code, PREFIX).map(str::to_owned))
}

fn without_addresses(references: Vec<InterfaceReferenceRecord>) -> Vec<MachineInterface> {
    let single = references.len() == 1;
    let flagged =
        |reference: &InterfaceReferenceRecord| reference.properties.as_ref().and_then(|it| it.primary) == Some(true);
    let interface = |reference: InterfaceReferenceRecord| {
        let id = ResourceId::parse(&reference.id).ok()?;
        Some(MachineInterface { id, primary: single || flagged(&reference), ip_configurations: Vec::new() })
    };
    references.into_iter().filter_map(interface).collect()
}

/// Addresses of public IPs, by id.
pub(super) type PublicIpAddressById = BTreeMap<ResourceId, String>;

/// Returns the addresses of public IPs; those without one are left out.
pub(super) fn public_addresses(records: Vec<PublicIpRecord>) -> PublicIpAddressById {
    let address = |record: PublicIpRecord| {
        let address = record.properties?.ip_address.filter(|address| !address.is_empty())?;
        Some((ResourceId::parse(&record.id).ok()?, address))
    };
    records.into_iter().filter_map(address).collect()
}

/// Returns an interface with its addresses; `None` when the record has no id.
pub(super) fn interface(record: InterfaceRecord, addresses: &PublicIpAddressById) -> Option<MachineInterface> {
    let id = ResourceId::parse(&record.id).ok()?;
    let properties = record.properties.unwrap_or_default();
    let configurations = properties.ip_configurations.unwrap_or_default().into_iter().map(|it| it.properties);
    let configuration = |it: super::records::IpConfigurationRecordProperties| MachineIpConfiguration {
        primary: it.primary.unwrap_or_default(),
        ipv6: spelling::is_word(it.private_ip_address_version.as_deref(), "IPv6"),
        private_address: it.private_ip_address.filter(|address| !address.is_empty()),
        public_address: it.public_ip_address.and_then(|it| addresses.get(&ResourceId::parse(&it.id).ok()?).cloned()),
    };
    let mut ip_configurations: Vec<_> = configurations.map(|it| it.map(configuration).unwrap_or_default()).collect();
    // A sole one is the primary one, whatever its flag says.
    if let [only] = ip_configurations.as_mut_slice() {
        only.primary = true;
    }
    Some(MachineInterface { id, primary: properties.primary.unwrap_or_default(), ip_configurations })
}

/// Fills the machine's interfaces from those read; answers whether each was among them. Order and, where the machine's document
/// says so, the primary one are the machine's.
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

/// Takes over what an older reading knew of the interfaces; answers whether that covers all of them.
pub(super) fn carry_over(machine: &mut Machine, older: &Machine) -> bool {
    let existing = older.interfaces.iter().map(|interface| (interface.id.clone(), interface.clone())).collect();
    fill(machine, &existing)
}

#[cfg(test)]
mod tests;
