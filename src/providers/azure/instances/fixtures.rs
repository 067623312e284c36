//! Fixtures of machines for tests.

use crate::providers::azure::model::{Machine, MachineInterface, MachineIpConfiguration, MachineKind, ResourceId};

const GROUP: &str = "/subscriptions/s/resourceGroups/My-RG";

fn id(kind: &str, names: &[&str]) -> ResourceId {
    ResourceId::parse(GROUP).unwrap().resource(kind, names)
}

fn machine(id: ResourceId, kind: MachineKind, name: &str) -> Machine {
    Machine {
        id,
        kind,
        name: name.to_owned(),
        computer_name: name.to_owned(),
        vm_id: String::new(),
        vm_size: "Standard_D4s_v5".into(),
        location: "westeurope".into(),
        zone: None,
        fault_domain: Some(0),
        provisioning_state: "Succeeded".into(),
        power_state: Some("running".into()),
        interfaces: vec![interface(true, vec![configuration("10.0.0.4", "")])],
    }
}

pub(super) fn standalone(name: &str) -> Machine {
    machine(id("Microsoft.Compute/virtualMachines", &[name]), MachineKind::Standalone, name)
}

pub(super) fn in_availability_set(name: &str) -> Machine {
    let kind = MachineKind::AvailabilitySet { set: id("Microsoft.Compute/availabilitySets", &["set"]) };
    Machine { kind, ..standalone(name) }
}

pub(super) fn flex_instance(set: &str, name: &str) -> Machine {
    let scale_set = id("Microsoft.Compute/virtualMachineScaleSets", &[set]);
    Machine { kind: MachineKind::FlexInstance { scale_set }, ..standalone(name) }
}

pub(in crate::providers::azure) fn scale_set_instance(set: &str, number: u32) -> Machine {
    let scale_set = id("Microsoft.Compute/virtualMachineScaleSets", &[set]);
    let id = scale_set.child("virtualMachines", &number.to_string());
    let kind = MachineKind::ScaleSetInstance { scale_set, instance_id: number.to_string() };
    machine(id, kind, &format!("{set}_{number}"))
}

pub(super) fn interface(primary: bool, ip_configurations: Vec<MachineIpConfiguration>) -> MachineInterface {
    MachineInterface { id: id("Microsoft.Network/networkInterfaces", &["nic"]), primary, ip_configurations }
}

/// Returns a primary IPv4 configuration; an empty text is a missing address.
pub(super) fn configuration(private: &str, public: &str) -> MachineIpConfiguration {
    let existing = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    MachineIpConfiguration {
        primary: true,
        ipv6: false,
        private_address: existing(private),
        public_address: existing(public),
    }
}
