//! Description of a cluster in Azure: pools of machines of every kind, as data. The ARM documents, the Kubernetes Nodes and
//! `azure.json` are derived from it.
//!
//! In: a [`Topology`], written with its builders. Out: [`Machine`]s, documents and Nodes. Pure and deterministic: values
//! that look random (IDs) depend on [`Topology::seed`] and names only.

mod config;
mod documents;
mod machine;
mod metadata;
mod names;
mod network;
mod nodes;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use config::{Endpoints, Login, Reach};
pub use machine::{IpConfiguration, Machine, Power};
pub use names::{computer_name, uuid};

use crate::providers::azure::model::ResourceId;

/// Kind of a pool's machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// Instances of a scale set with uniform orchestration.
    Uniform,
    /// Machines of a scale set with flexible orchestration.
    Flexible,
    /// Machines of an availability set.
    AvailabilitySet,
    /// Machines of their own.
    Standalone,
}

/// Machines of one kind that are numbered and look alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Name of the scale set or availability set, and prefix of the machines' names.
    pub name: String,
    /// Kind of the machines.
    pub kind: PoolKind,
    /// Initial number of machines.
    pub count: u32,
    /// Number of the first one.
    pub first: u32,
    /// Zones, assigned round-robin; none: machines have fault domains only.
    pub zones: Vec<String>,
    /// Number of fault domains, assigned round-robin.
    pub fault_domains: u32,
    pub vm_size: String,
    /// Resource group, when it is not the cluster's.
    pub resource_group: Option<String>,
    /// Whether the machines run Windows.
    pub windows: bool,
    /// Prefix of computer names; by default the pool's name.
    pub computer_name_prefix: Option<String>,
    /// Whether each machine has a public IP per address family.
    pub public_ips: bool,
    /// Tags of the set and its machines.
    pub tags: BTreeMap<String, String>,
    /// Id of the image.
    pub image: String,
}

const LINUX_IMAGE: &str = "/subscriptions/109a5e88-712a-48ae-9078-9ca8b3c81345/resourceGroups/AKS-Ubuntu/providers/Microsoft.Compute/galleries/AKSUbuntu/images/2204gen2containerd/versions/202601.01.0";
const WINDOWS_IMAGE: &str = "/subscriptions/109a5e88-712a-48ae-9078-9ca8b3c81345/resourceGroups/AKS-Windows/providers/Microsoft.Compute/galleries/AKSWindows/images/windows-2022-containerd-gen2/versions/20348.2700.0";

impl Pool {
    /// Creates a Linux pool without zones.
    pub fn new(kind: PoolKind, name: &str, count: u32) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            count,
            first: 0,
            zones: Vec::new(),
            fault_domains: 1,
            vm_size: "Standard_D4s_v5".to_owned(),
            resource_group: None,
            windows: false,
            computer_name_prefix: None,
            public_ips: false,
            tags: BTreeMap::from([("aks-managed-poolName".to_owned(), name.to_owned())]),
            image: LINUX_IMAGE.to_owned(),
        }
    }

    /// Distributes the machines over these zones in turn.
    pub fn zones(mut self, zones: &[&str]) -> Self {
        self.zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
        self
    }

    /// Sets the number of fault domains.
    pub fn fault_domains(mut self, count: u32) -> Self {
        self.fault_domains = count;
        self
    }

    /// Sets the operating system of the machines to Windows.
    pub fn windows(mut self) -> Self {
        self.windows = true;
        self.image = WINDOWS_IMAGE.to_owned();
        self
    }

    /// Gives each machine a public IP.
    pub fn public_ips(mut self) -> Self {
        self.public_ips = true;
        self
    }

    /// Puts the pool into a resource group of its own.
    pub fn in_group(mut self, group: &str) -> Self {
        self.resource_group = Some(group.to_owned());
        self
    }

    /// Adds a tag to the machines.
    pub fn tag(mut self, key: &str, value: &str) -> Self {
        self.tags.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Numbers the machines from `first` on.
    pub fn starting_at(mut self, first: u32) -> Self {
        self.first = first;
        self
    }

    /// Returns `true` if its machines belong to a scale set.
    pub fn is_scale_set(&self) -> bool {
        matches!(self.kind, PoolKind::Uniform | PoolKind::Flexible)
    }

    /// Returns the prefix of computer names.
    pub fn prefix(&self) -> &str {
        self.computer_name_prefix.as_deref().unwrap_or(&self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    pub subscription: String,
    pub tenant: String,
    /// Resource group of the cluster.
    pub resource_group: String,
    pub location: String,
    /// Zones that the region has.
    pub region_zones: Vec<String>,
    pub vnet: String,
    /// Subnet of the machines.
    pub subnet: String,
    /// Security group of the subnet.
    pub security_group: String,
    /// Route table of the subnet.
    pub route_table: String,
    /// Whether machines have IPv6 addresses as well.
    pub dual_stack: bool,
    /// Seed of the IDs.
    pub seed: u64,
    pub pools: Vec<Arc<Pool>>,
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            subscription: "00000000-0000-0000-0000-000000000001".to_owned(),
            tenant: "00000000-0000-0000-0000-00000000000a".to_owned(),
            resource_group: "rg-test".to_owned(),
            location: "eastus".to_owned(),
            region_zones: ["1", "2", "3"].map(str::to_owned).to_vec(),
            vnet: "vnet-test".to_owned(),
            subnet: "subnet-nodes".to_owned(),
            security_group: "nsg-test".to_owned(),
            route_table: "rt-test".to_owned(),
            dual_stack: false,
            seed: 0,
            pools: Vec::new(),
        }
    }
}

/// Maximum number of machines, for which the subnet and the pod network are large enough.
pub const MOST_MACHINES: u32 = 15_000;

impl Topology {
    /// Creates an empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pool to the cluster.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(Arc::new(pool));
        self
    }

    /// Adds `pools` pools of `count` machines each, in all zones of the region, with names such as `aks-pool1-vmss`.
    pub fn pools(self, kind: PoolKind, pools: u32, count: u32) -> Self {
        let zones = self.region_zones.clone();
        let (start, end) = if kind == PoolKind::Uniform { ("aks-pool", "-vmss") } else { ("pool", "") };
        let first = self.pools.len() + 1;
        (first..first + pools as usize).fold(self, |topology, number| {
            topology.pool(Pool { zones: zones.clone(), ..Pool::new(kind, &format!("{start}{number}{end}"), count) })
        })
    }

    /// Adds addresses of both families.
    pub fn dual_stack(mut self) -> Self {
        self.dual_stack = true;
        self
    }

    /// Checks the topology as Azure would. The error names the pool and the field.
    pub fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for pool in &self.pools {
            pool.check().map_err(|problem| format!("pool {:?}: {problem}", pool.name))?;
            let twice = [pool.name.to_lowercase(), pool.prefix().to_lowercase()];
            if !twice.into_iter().collect::<BTreeSet<_>>().into_iter().all(|name| names.insert(name)) {
                return Err(format!("pool {:?}: another pool has that name or computer name prefix", pool.name));
            }
        }
        let count: u32 = self.pools.iter().map(|pool| pool.count).fold(0, u32::saturating_add);
        if count > MOST_MACHINES {
            return Err(format!("{count} machines; there may be {MOST_MACHINES}"));
        }
        Ok(())
    }

    /// Returns the machines at the beginning, in the order of pools and numbers.
    pub fn machines(&self) -> Vec<Machine> {
        let all =
            self.pools.iter().flat_map(|pool| (pool.first..).take(pool.count as usize).map(move |number| (pool, number)));
        (0..).zip(all).map(|(slot, (pool, number))| Machine::new(self, Arc::clone(pool), number, slot)).collect()
    }

    /// Returns the ID of the subscription.
    pub fn subscription_id(&self) -> ResourceId {
        ResourceId::subscription_of(&self.subscription)
    }

    /// Returns the ID of the cluster's resource group.
    pub fn group_id(&self) -> ResourceId {
        ResourceId::group_of(&self.subscription, &self.resource_group)
    }

    /// Returns the ID of the resource group of a pool.
    pub fn pool_group_id(&self, pool: &Pool) -> ResourceId {
        ResourceId::group_of(&self.subscription, pool.resource_group.as_deref().unwrap_or(&self.resource_group))
    }

    /// Returns the ID of the scale set or availability set of a pool; `None` for machines of their own.
    pub fn set_id(&self, pool: &Pool) -> Option<ResourceId> {
        let kind = match pool.kind {
            PoolKind::Uniform | PoolKind::Flexible => "Microsoft.Compute/virtualMachineScaleSets",
            PoolKind::AvailabilitySet => "Microsoft.Compute/availabilitySets",
            PoolKind::Standalone => return None,
        };
        Some(self.pool_group_id(pool).resource(kind, &[&pool.name]))
    }

    fn vnet_id(&self) -> ResourceId {
        self.group_id().resource("Microsoft.Network/virtualNetworks", &[&self.vnet])
    }

    fn subnet_id(&self) -> ResourceId {
        self.vnet_id().child("subnets", &self.subnet)
    }
}

impl Pool {
    fn check(&self) -> Result<(), String> {
        let limit = if self.windows { names::WINDOWS_PREFIX } else { 58 };
        if self.prefix().is_empty() || self.prefix().len() > limit {
            return Err(format!("computer name prefix {:?} must have 1 to {limit} characters", self.prefix()));
        }
        if self.fault_domains == 0 {
            return Err("faultDomains must be at least 1".to_owned());
        }
        if self.first.checked_add(self.count).is_none_or(|end| end > names::NUMBERS) {
            return Err("numbers do not fit into six base-36 digits".to_owned());
        }
        if self.kind == PoolKind::Uniform && self.count > 1_000 {
            return Err(format!("{} instances; a scale set may have 1000", self.count));
        }
        Ok(())
    }
}
