//! Machine of any kind, compact: the fields for Nodes, routes and load balancers; the query for one, and why there is none.

use std::net::IpAddr;

use super::{ArmError, ResourceId};

/// Membership of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineKind {
    /// An instance of a uniform scale set.
    ScaleSetInstance {
        /// Scale set of the instance.
        scale_set: ResourceId,
        /// Decimal number in the scale set.
        instance_id: String,
    },
    /// A machine of a flexible scale set.
    FlexInstance { scale_set: ResourceId },
    /// A machine of an availability set.
    AvailabilitySet { set: ResourceId },
    /// A machine of its own.
    Standalone,
}

/// IP configuration of a network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineIpConfiguration {
    /// Whether it is the interface's primary one.
    pub primary: bool,
    /// Whether it is of IPv6.
    pub ipv6: bool,
    /// Private address, as ARM writes it.
    pub private_address: Option<String>,
    /// Public address, as ARM writes it.
    pub public_address: Option<String>,
}

/// Network interface of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineInterface {
    pub id: ResourceId,
    /// Whether it is the machine's primary one.
    pub primary: bool,
    /// Addresses in ARM's order.
    pub ip_configurations: Vec<MachineIpConfiguration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// ARM id, in ARM's spelling.
    pub id: ResourceId,
    pub kind: MachineKind,
    /// Name of the virtual machine; for an instance of a uniform scale set `<set>_<number>`.
    pub name: String,
    /// Host name; empty if ARM does not report it.
    pub computer_name: String,
    /// Value of `vmId`, which differs for a machine recreated under the same name.
    pub vm_id: String,
    pub vm_size: String,
    /// Region, as ARM writes it.
    pub location: String,
    pub zone: Option<String>,
    /// Fault domain, if the instance view was requested and has one.
    pub fault_domain: Option<i32>,
    /// `properties.provisioningState`.
    pub provisioning_state: String,
    /// Part behind `PowerState/`; `None` if the instance view was not requested or has none.
    pub power_state: Option<String>,
    /// Network interfaces, in the machine's order.
    pub interfaces: Vec<MachineInterface>,
}

impl Machine {
    /// Returns the name of the machine's Node, but for letter case.
    ///
    /// In scale sets that is the host name (empty if ARM does not report it), elsewhere the machine's own name.
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

    /// Returns `true` if some interface has a private address: a machine that is still being made has none.
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
    /// The machine, from `spec.providerID`; an id decides alone, the name is not compared then.
    pub id: Option<ResourceId>,
    /// Resource group from the label `kubernetes.azure.com/resource-group`; `None`: the cluster's.
    pub resource_group: Option<String>,
}

/// Reason why there is no machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The machine is in none of its possible locations, which were read just now and are listed. Not evidence that it is
    /// gone.
    #[error("instance not found: {0}")]
    NotListed(String),
    /// The machine exists, but has no network interface or no address yet.
    #[error(
        "{0} has no private address yet; if it should have one, may the identity in azure.json read network interfaces, and those \
         of scale sets?"
    )]
    NoAddress(String),
    /// The request to ARM failed.
    #[error(transparent)]
    Arm(#[from] ArmError),
}
