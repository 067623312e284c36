//! ARM documents of the network around the machines: resource groups, virtual network, security group, route table, public IPs.

use serde_json::{Value, json};

use super::{IpConfiguration, Machine, PoolKind, Topology};
use crate::providers::azure::model::ResourceId;

impl Topology {
    /// Returns the documents that exist before the first machine: resource groups, security group, route table, virtual
    /// network.
    pub fn network_documents(&self) -> Vec<Value> {
        let mut groups: Vec<ResourceId> = Vec::new();
        for group in std::iter::once(self.group_id()).chain(self.pools.iter().map(|pool| self.pool_group_id(pool))) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        let mut documents: Vec<_> = groups.iter().map(|group| self.group_document(group)).collect();
        documents.extend([self.security_group_document(), self.route_table_document(), self.vnet_document()]);
        documents
    }

    /// Returns the document of a resource group.
    pub fn group_document(&self, group: &ResourceId) -> Value {
        json!({
            "id": group, "location": self.location, "name": group.name(),
            "properties": {"provisioningState": "Succeeded"},
            "type": "Microsoft.Resources/resourceGroups",
        })
    }

    fn security_group_id(&self) -> ResourceId {
        self.group_id().resource("Microsoft.Network/networkSecurityGroups", &[&self.security_group])
    }

    fn route_table_id(&self) -> ResourceId {
        self.group_id().resource("Microsoft.Network/routeTables", &[&self.route_table])
    }

    fn security_group_document(&self) -> Value {
        json!({
            "id": self.security_group_id(), "location": self.location, "name": self.security_group,
            "properties": {"provisioningState": "Succeeded", "securityRules": []},
            "type": "Microsoft.Network/networkSecurityGroups",
        })
    }

    fn route_table_document(&self) -> Value {
        json!({
            "id": self.route_table_id(), "location": self.location, "name": self.route_table,
            "properties": {"disableBgpRoutePropagation": false, "provisioningState": "Succeeded", "routes": []},
            "type": "Microsoft.Network/routeTables",
        })
    }

    fn vnet_document(&self) -> Value {
        let mut spaces = vec!["10.224.0.0/12"];
        let mut subnet = json!({
            "networkSecurityGroup": {"id": self.security_group_id()},
            "privateEndpointNetworkPolicies": "Disabled",
            "privateLinkServiceNetworkPolicies": "Enabled",
            "routeTable": {"id": self.route_table_id()},
        });
        if self.dual_stack {
            spaces.push("fd00:10::/48");
            subnet["addressPrefixes"] = json!(["10.224.0.0/16", "fd00:10::/64"]);
        } else {
            subnet["addressPrefix"] = json!("10.224.0.0/16");
        }
        json!({
            "id": self.vnet_id(), "location": self.location, "name": self.vnet,
            "properties": {
                "addressSpace": {"addressPrefixes": spaces},
                "provisioningState": "Succeeded",
                "subnets": [{"id": self.subnet_id(), "name": self.subnet, "properties": subnet}],
            },
            "type": "Microsoft.Network/virtualNetworks",
        })
    }
}

/// Returns the public IP of an IP configuration that has one.
pub(super) fn public_ip(topology: &Topology, machine: &Machine, configuration: &IpConfiguration) -> Value {
    let kind = match machine.pool.kind {
        PoolKind::Uniform => {
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/ipConfigurations/publicIPAddresses"
        }
        _ => "Microsoft.Network/publicIPAddresses",
    };
    json!({
        "id": machine.public_ip_id(topology, configuration),
        "location": topology.location,
        "name": machine.public_ip_name(configuration),
        "properties": {
            "idleTimeoutInMinutes": 4,
            "ipAddress": configuration.public_address,
            "ipConfiguration": {"id": machine.ip_configuration_id(topology, configuration)},
            "ipTags": [],
            "provisioningState": "Succeeded",
            "publicIPAddressVersion": configuration.version(),
            "publicIPAllocationMethod": "Static",
        },
        "sku": {"name": "Standard", "tier": "Regional"},
        "type": kind,
        "zones": machine.zone().map(|zone| [zone]),
    })
}
