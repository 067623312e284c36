//! Resources whose documents list the pools of a machine: instances of uniform scale sets, and network interfaces. Pure.
//!
//! In: machines, provider ids, entries of pools. Out: [`PoolMemberResource`]s, and keys that are equal for all of these
//! sources.

use crate::providers::azure::model::{Machine, MachineKind, ResourceId, api};

/// Resource whose document lists the pools of a machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolMemberResource {
    /// An instance of a uniform scale set.
    Instance(ResourceId),
    /// A network interface of another machine.
    Interface(ResourceId),
}

const INTERFACES: &str = "/networkinterfaces/";
const CONFIGURATIONS: &str = "/ipconfigurations/";
const SCALE_SETS: &str = "/virtualmachinescalesets/";

impl PoolMemberResource {
    /// Returns the member resource of a machine: the instance itself in a uniform scale set, else its primary or first
    /// interface. `None` without interface.
    pub fn of(machine: &Machine) -> Option<Self> {
        if matches!(machine.kind, MachineKind::ScaleSetInstance { .. }) {
            return Some(Self::Instance(machine.id.clone()));
        }
        let primary = machine.interfaces.iter().find(|interface| interface.primary).or(machine.interfaces.first());
        primary.map(|interface| Self::Interface(interface.id.clone()))
    }

    /// Returns the instance with this id, or `None` for an id of another type.
    pub fn of_instance(id: &ResourceId) -> Option<Self> {
        id.is_type(api::SCALE_SET_VMS.resource_type).then(|| Self::Instance(id.clone()))
    }

    /// Returns the member resource with this key.
    pub fn of_key(key: &str) -> Option<Self> {
        let id = ResourceId::parse(key).ok()?;
        Some(if id.is_type(api::SCALE_SET_VMS.resource_type) { Self::Instance(id) } else { Self::Interface(id) })
    }

    pub fn id(&self) -> &ResourceId {
        match self {
            Self::Instance(id) | Self::Interface(id) => id,
        }
    }

    /// Returns the id in lower case, by which maps refer to the resource.
    pub fn key(&self) -> String {
        self.id().key()
    }

    /// Returns an entry of `backendIPConfigurations` whose key is [`Self::key`]. Its other names are placeholders.
    pub fn ip_configuration(&self) -> String {
        match self {
            Self::Instance(id) => format!("{id}/networkInterfaces/primary/ipConfigurations/primary"),
            Self::Interface(id) => format!("{id}/ipConfigurations/primary"),
        }
    }

    /// Returns the scale set of an instance, or `None` for a network interface.
    pub fn scale_set(&self) -> Option<ResourceId> {
        match self {
            Self::Instance(id) => id.parent(),
            Self::Interface(_) => None,
        }
    }
}

/// Returns the key of the member resource to which an entry of `backendIPConfigurations` belongs. `None` if the entry is no
/// IP configuration of an interface.
pub fn key_of_entry(entry: &str) -> Option<String> {
    let mut key = entry.to_ascii_lowercase();
    let interface = key.rfind(INTERFACES)?;
    let end = if key.contains(SCALE_SETS) { interface } else { key.rfind(CONFIGURATIONS).filter(|end| *end > interface)? };
    key.truncate(end);
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_machines_have_the_same_keys() {
        let group = "/subscriptions/s/resourceGroups/RG/providers/";
        let instance = format!("{group}Microsoft.Compute/virtualMachineScaleSets/S/virtualMachines/3");
        let interface = format!("{group}Microsoft.Network/networkInterfaces/N");
        for (entry, place) in [
            (format!("{instance}/networkInterfaces/nic/ipConfigurations/c"), &instance),
            (format!("{interface}/ipConfigurations/C"), &interface),
        ] {
            let key = key_of_entry(&entry).unwrap();
            assert_eq!(PoolMemberResource::of_key(&key).unwrap().id().as_str(), place.to_lowercase());
            assert_eq!(PoolMemberResource::of_key(place).unwrap().key(), key);
        }
        for text in ["", "/x", &interface, "/networkInterfaces/"] {
            assert_eq!(key_of_entry(text), None, "{text}");
        }
    }
}
