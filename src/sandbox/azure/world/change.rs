//! Changes of ARM documents, as data: what an event in the cloud does to them.

use serde_json::{Value, json};

use crate::{
    providers::azure::model::ResourceId,
    sandbox::azure::topology::{IpConfiguration, Machine, Topology},
};

/// Change of one document.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The document is created, or replaced.
    Put(Value),
    /// The document and everything below it are removed.
    Remove(ResourceId),
    /// The document is edited in place; changes of other writers remain.
    Edit(ResourceId, Edit),
}

/// An edit of one document.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// `sku.capacity` of a scale set.
    Capacity(usize),
    /// `properties.instanceView` of a machine.
    InstanceView(Value),
    /// `privateIPAddress` of the IP configuration of this name.
    PrivateAddress(&'static str, String),
    /// `properties.ipAddress` of a public IP.
    PublicAddress(String),
}

impl Edit {
    /// Applies the edit to the document.
    pub fn apply(&self, document: &mut Value) {
        match self {
            Self::Capacity(count) => document["sku"]["capacity"] = json!(count),
            Self::InstanceView(view) => document["properties"]["instanceView"] = view.clone(),
            Self::PublicAddress(address) => document["properties"]["ipAddress"] = json!(address),
            Self::PrivateAddress(name, address) => {
                let configurations = document["properties"]["ipConfigurations"].as_array_mut();
                for configuration in configurations.into_iter().flatten().filter(|entry| entry["name"] == **name) {
                    configuration["properties"]["privateIPAddress"] = json!(address);
                }
            }
        }
    }
}

/// Returns the documents of a new machine.
pub(super) fn created(topology: &Topology, machine: &Machine) -> Vec<Change> {
    topology.machine_documents(machine).into_iter().map(Change::Put).collect()
}

/// Returns the removal of a machine with its network interface and public IPs.
pub(super) fn removed(topology: &Topology, machine: &Machine) -> Vec<Change> {
    let public = machine.ip_configurations.iter().filter(|configuration| configuration.public_address.is_some());
    let public = public.map(|configuration| machine.public_ip_id(topology, configuration));
    // The machine is removed first, so that no interface is seen without its machine.
    let ids = [machine.id(topology), machine.interface_id(topology)].into_iter().chain(public);
    ids.map(Change::Remove).collect()
}

/// Returns the changes for new addresses of an IP configuration.
pub(super) fn readdressed(topology: &Topology, machine: &Machine, configuration: &IpConfiguration) -> Vec<Change> {
    let private = Edit::PrivateAddress(configuration.name, configuration.address.to_string());
    let mut changes = vec![Change::Edit(machine.interface_id(topology), private)];
    if let Some(public) = configuration.public_address {
        let id = machine.public_ip_id(topology, configuration);
        changes.push(Change::Edit(id, Edit::PublicAddress(public.to_string())));
    }
    changes
}
