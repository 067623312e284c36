//! One machine of any kind, compact: what nodes, routes and load balancers ask about it.

use crate::providers::azure::arm::ResourceId;

/// What the machine belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineKind {
    /// An instance of a uniform scale set.
    ScaleSetInstance {
        /// The scale set.
        scale_set: ResourceId,
        /// Its number there, in decimal.
        instance_id: String,
    },
    /// A machine of a flexible scale set.
    FlexInstance { scale_set: ResourceId },
    /// A machine of an availability set.
    AvailabilitySet { set: ResourceId },
    /// A machine of its own.
    Standalone,
}

/// One IP configuration of a network interface.
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

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineInterface {
    pub id: ResourceId,
    /// Whether it is the machine's primary one.
    pub primary: bool,
    /// Its addresses, in ARM's order.
    pub ip_configurations: Vec<MachineIpConfiguration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// ARM id, in ARM's spelling.
    pub id: ResourceId,
    pub kind: MachineKind,
    /// Name of the virtual machine; for an instance of a uniform scale set `<set>_<number>`.
    pub name: String,
    /// Host name; empty when ARM does not tell.
    pub computer_name: String,
    /// `vmId`: differs for a machine made anew under the same name.
    pub vm_id: String,
    /// Machine type.
    pub vm_size: String,
    /// Region, as ARM writes it.
    pub location: String,
    /// First availability zone.
    pub zone: Option<String>,
    /// Fault domain, when the instance view was asked for and has one.
    pub fault_domain: Option<i32>,
    /// `properties.provisioningState`.
    pub provisioning_state: String,
    /// The part behind `PowerState/`; `None` when the instance view was not asked for or has none.
    pub power_state: Option<String>,
    /// Network interfaces, in the machine's order.
    pub interfaces: Vec<MachineInterface>,
}

impl Machine {
    /// What the machine's Node is called, but for letter case: the host name in scale sets (empty when ARM does not tell it), the
    /// machine's own name elsewhere.
    pub fn node_name(&self) -> &str {
        match self.kind {
            MachineKind::ScaleSetInstance { .. } | MachineKind::FlexInstance { .. } => &self.computer_name,
            MachineKind::AvailabilitySet { .. } | MachineKind::Standalone => &self.name,
        }
    }

    /// Whether some interface has a private address: a machine that is still being made has none.
    pub fn has_address(&self) -> bool {
        let mut configurations = self.interfaces.iter().flat_map(|interface| &interface.ip_configurations);
        configurations.any(|configuration| configuration.private_address.is_some())
    }
}
