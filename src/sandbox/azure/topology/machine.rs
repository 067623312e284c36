//! Machine: its names, IDs and addresses, which follow from its pool, its number and its slot in the network.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use super::{
    Pool, PoolKind, Topology,
    names::{computer_name, scatter, uuid},
};
use crate::providers::azure::model::ResourceId;

/// Power state of a machine, which also determines whether it holds hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Power {
    Running,
    /// Switched off from outside; the hardware is kept.
    Stopped,
    Deallocating,
    /// Switched off, and the hardware released: no fault domain any more.
    Deallocated,
    Starting,
}

impl Power {
    /// Returns ARM's spelling after `PowerState/`.
    pub fn as_str(self) -> &'static str {
        match self {
            Power::Running => "running",
            Power::Stopped => "stopped",
            Power::Deallocating => "deallocating",
            Power::Deallocated => "deallocated",
            Power::Starting => "starting",
        }
    }
}

/// IP configuration of the only network interface of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpConfiguration {
    pub name: &'static str,
    pub address: IpAddr,
    pub public_address: Option<IpAddr>,
}

impl IpConfiguration {
    /// Returns `true` if it is the primary one: the one of IPv4.
    pub fn is_primary(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Returns `IPv4` or `IPv6`.
    pub fn version(&self) -> &'static str {
        if self.address.is_ipv4() { "IPv4" } else { "IPv6" }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Pool of the machine.
    pub pool: Arc<Pool>,
    /// Number in the pool.
    pub number: u32,
    /// Slot in the network, unique in the cluster.
    pub slot: u32,
    /// `vmId`.
    pub vm_id: String,
    /// Addresses, the primary ones first.
    pub ip_configurations: Vec<IpConfiguration>,
    pub power: Power,
    generation: u32,
}

/// Returns the `offset`th address after the four that Azure keeps for itself.
fn v4(base: [u8; 4], offset: u32) -> IpAddr {
    Ipv4Addr::from_bits(Ipv4Addr::from(base).to_bits() + 4 + offset).into()
}

fn v6(base: Ipv6Addr, offset: u32) -> IpAddr {
    Ipv6Addr::from_bits(base.to_bits() + 4 + u128::from(offset)).into()
}

impl Machine {
    /// Creates machine `number` of `pool`, at a slot of its own in the network.
    pub fn new(topology: &Topology, pool: Arc<Pool>, number: u32, slot: u32) -> Self {
        let families = if topology.dual_stack { 2 } else { 1 };
        let all = [
            ("ipconfig1", v4([10, 224, 0, 0], slot), v4([52, 224, 0, 0], slot)),
            (
                "ipconfig1-v6",
                v6(Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 0), slot),
                v6(Ipv6Addr::new(0x2603, 0x1030, 0x8, 0, 0, 0, 0, 0), slot),
            ),
        ];
        let ip_configurations = all.into_iter().take(families).map(|(name, address, public)| IpConfiguration {
            name,
            address,
            public_address: pool.public_ips.then_some(public),
        });
        let ip_configurations = ip_configurations.collect();
        let machine =
            Self { pool, number, slot, vm_id: String::new(), ip_configurations, power: Power::Running, generation: 0 };
        machine.of_generation(topology, 0)
    }

    fn of_generation(mut self, topology: &Topology, generation: u32) -> Self {
        self.generation = generation;
        self.vm_id = uuid(topology.seed, &format!("{}/{generation}", self.id(topology)));
        self
    }

    /// Returns the machine as recreated under the same name: the same IDs and addresses, another `vmId`.
    pub fn recreated(&self, topology: &Topology) -> Self {
        Self { power: Power::Running, ..self.clone() }.of_generation(topology, self.generation + 1)
    }

    /// Returns the host name, which is the name of the Node.
    pub fn computer_name(&self) -> String {
        match self.pool.kind {
            PoolKind::Uniform | PoolKind::Flexible => computer_name(self.pool.prefix(), self.number),
            PoolKind::AvailabilitySet | PoolKind::Standalone => format!("{}-{}", self.pool.prefix(), self.number),
        }
    }

    /// Returns the name in ARM: of the virtual machine, or `<set>_<number>`.
    pub fn name(&self) -> String {
        match self.pool.kind {
            PoolKind::Uniform => format!("{}_{}", self.pool.name, self.number),
            PoolKind::Flexible => {
                // Eight digits derived from the number, as Azure does.
                let scattered = (scatter(0, &self.pool.name) & 0xffff_ffff) ^ u64::from(self.number);
                format!("{}_{scattered:08x}", self.pool.name)
            }
            PoolKind::AvailabilitySet | PoolKind::Standalone => self.computer_name(),
        }
    }

    /// Returns the ID of the machine.
    pub fn id(&self, topology: &Topology) -> ResourceId {
        match topology.set_id(&self.pool) {
            Some(set) if self.pool.kind == PoolKind::Uniform => set.child("virtualMachines", &self.number.to_string()),
            _ => topology.pool_group_id(&self.pool).resource("Microsoft.Compute/virtualMachines", &[&self.name()]),
        }
    }

    /// Returns the name of its network interface.
    pub fn interface_name(&self) -> String {
        match self.pool.kind {
            PoolKind::Uniform => self.pool.name.clone(),
            _ => format!("{}-nic", self.name()),
        }
    }

    /// Returns the ID of its network interface: below an instance of a uniform scale set, of its own otherwise.
    pub fn interface_id(&self, topology: &Topology) -> ResourceId {
        let name = self.interface_name();
        match self.pool.kind {
            PoolKind::Uniform => self.id(topology).child("networkInterfaces", &name),
            _ => topology.pool_group_id(&self.pool).resource("Microsoft.Network/networkInterfaces", &[&name]),
        }
    }

    /// Returns the ID of one of its IP configurations.
    pub fn ip_configuration_id(&self, topology: &Topology, configuration: &IpConfiguration) -> ResourceId {
        self.interface_id(topology).child("ipConfigurations", configuration.name)
    }

    /// Returns the name of the public IP of an IP configuration.
    pub fn public_ip_name(&self, configuration: &IpConfiguration) -> String {
        let suffix = if configuration.is_primary() { "" } else { "-v6" };
        match self.pool.kind {
            PoolKind::Uniform => format!("pub{suffix}"),
            _ => format!("{}-pip{suffix}", self.name()),
        }
    }

    /// Returns the ID of the public IP of an IP configuration.
    pub fn public_ip_id(&self, topology: &Topology, configuration: &IpConfiguration) -> ResourceId {
        let name = self.public_ip_name(configuration);
        match self.pool.kind {
            PoolKind::Uniform => self.ip_configuration_id(topology, configuration).child("publicIPAddresses", &name),
            _ => topology.pool_group_id(&self.pool).resource("Microsoft.Network/publicIPAddresses", &[&name]),
        }
    }

    pub fn zone(&self) -> Option<&str> {
        let zones = &self.pool.zones;
        let zone_index = self.number as usize % zones.len().max(1);
        zones.get(zone_index).map(String::as_str)
    }

    /// Returns the fault domain; none if it holds no hardware.
    pub fn fault_domain(&self) -> Option<u32> {
        (self.power != Power::Deallocated).then_some(self.number % self.pool.fault_domains.max(1))
    }

    pub fn update_domain(&self) -> u32 {
        self.number % 5
    }

    /// Returns `spec.providerID` as the provider writes it. Upstream: the resource group in lower case, all else in ARM's
    /// spelling.
    pub fn provider_id(&self, topology: &Topology) -> String {
        let id = self.id(topology);
        let group = id.resource_group().unwrap_or_default();
        let lower = group.to_lowercase();
        format!(
            "azure://{}",
            id.as_str().replacen(&format!("/resourceGroups/{group}/"), &format!("/resourceGroups/{lower}/"), 1)
        )
    }
}
