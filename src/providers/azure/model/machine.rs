//! Machine of any kind with the fields for Nodes, routes and load balancers; the query for a machine, and its errors.

use std::net::IpAddr;

use super::{ArmError, ResourceId};

/// Membership of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineKind {
    /// Instance of a uniform scale set.
    ScaleSetInstance {
        /// ID of the scale set.
        scale_set: ResourceId,
        /// Decimal number in the scale set.
        instance_id: String,
    },
    /// Machine of a flexible scale set.
    FlexInstance { scale_set: ResourceId },
    /// Machine of an availability set.
    AvailabilitySet { set: ResourceId },
    /// Machine without a set.
    Standalone,
}

/// IP configuration of a network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineIpConfiguration {
    /// Whether it is the primary configuration of the interface.
    pub primary: bool,
    /// Whether the family is IPv6.
    pub ipv6: bool,
    /// Private address, in ARM's spelling.
    pub private_address: Option<String>,
    /// Public address, in ARM's spelling.
    pub public_address: Option<String>,
}

/// Network interface of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineInterface {
    pub id: ResourceId,
    /// Whether it is the primary interface of the machine.
    pub primary: bool,
    /// IP configurations in ARM's order.
    pub ip_configurations: Vec<MachineIpConfiguration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// ID in ARM's spelling.
    pub id: ResourceId,
    pub kind: MachineKind,
    /// Name of the virtual machine; for an instance of a uniform scale set `<set>_<number>`.
    pub name: String,
    /// Host name; empty if ARM does not report it.
    pub computer_name: String,
    /// Value of `vmId`, which differs for a machine recreated under the same name.
    pub vm_id: String,
    pub vm_size: String,
    /// Region, in ARM's spelling.
    pub location: String,
    pub zone: Option<String>,
    /// Fault domain, if the instance view was requested and has one.
    pub fault_domain: Option<i32>,
    /// `properties.provisioningState`.
    pub provisioning_state: String,
    /// Part after `PowerState/`; `None` if the instance view was not requested or has none.
    pub power_state: Option<String>,
    /// Network interfaces, in the machine's order.
    pub interfaces: Vec<MachineInterface>,
}

impl Machine {
    /// Returns the name of the machine's Node, in any letter case.
    ///
    /// In scale sets this is the host name (empty if ARM does not report it), otherwise the name of the machine.
    pub fn node_name(&self) -> &str {
        match self.kind {
            MachineKind::ScaleSetInstance { .. } | MachineKind::FlexInstance { .. } => &self.computer_name,
            MachineKind::AvailabilitySet { .. } | MachineKind::Standalone => &self.name,
        }
    }

    /// Returns the only interface, or the one flagged as primary.
    pub fn primary_interface(&self) -> Result<&MachineInterface, &'static str> {
        match self.interfaces.as_slice() {
            [] => {
                Err("no network interface is listed for it; may the identity read Microsoft.Network/networkInterfaces and \
                       Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces?")
            }
            [only] => Ok(only),
            several => several.iter().find(|interface| interface.primary).ok_or("none of its network interfaces is primary"),
        }
    }

    /// Returns the private addresses of all interfaces.
    pub fn private_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let configurations = self.interfaces.iter().flat_map(|interface| &interface.ip_configurations);
        configurations.filter_map(|configuration| configuration.private_address.as_deref()?.parse().ok())
    }

    /// Returns `true` if an interface has a private address. A machine that is still being created has none.
    pub fn has_address(&self) -> bool {
        let mut configurations = self.interfaces.iter().flat_map(|interface| &interface.ip_configurations);
        configurations.any(|configuration| configuration.private_address.is_some())
    }
}

/// Node whose machine is queried.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MachineQuery {
    /// Name of the Node.
    pub node_name: String,
    /// ID of the machine, from `spec.providerID`. If present, the name is not compared.
    pub id: Option<ResourceId>,
    /// Resource group from the label `kubernetes.azure.com/resource-group`; `None` for the cluster's.
    pub resource_group: Option<String>,
}

/// Reason why there is no machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// Machine that is in none of the listed locations, which have just been read. This does not prove that it is deleted.
    #[error("instance not found: {0}")]
    NotListed(String),
    /// Machine that exists, but has no network interface or no address yet.
    #[error(
        "{0} has no private address yet; if it should have one, may the identity in azure.json read network interfaces, and those \
         of scale sets?"
    )]
    NoAddress(String),
    /// Failed request to ARM.
    #[error(transparent)]
    Arm(#[from] ArmError),
}
