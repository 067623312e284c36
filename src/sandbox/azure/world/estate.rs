//! The existing machines, and their events. Pure: each event changes the estate and returns the [`Change`]s of documents
//! that belong to it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::change::{Change, Edit, created, readdressed, removed};
use crate::sandbox::azure::topology::{Machine, Pool, Power, Topology};

/// Missing subject of an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSuch {
    /// No machine with this node name.
    #[error("there is no machine {0:?}")]
    Machine(String),
    /// No pool of this name.
    #[error("there is no pool {0:?}")]
    Pool(String),
    /// The machine has no address of that family.
    #[error("machine {0:?} has no address of the family of {1}")]
    Family(String, IpAddr),
}

/// Result of an event.
pub type Happened<T = ()> = Result<(T, Vec<Change>), NoSuch>;

#[derive(Debug, Clone)]
pub struct Estate {
    topology: Topology,
    /// Machines by node name.
    machines: BTreeMap<String, Machine>,
    next_slot: u32,
    /// The number after the highest one ever given, by pool.
    next_number: BTreeMap<String, u32>,
}

impl Estate {
    /// Returns the machines of `topology` as they are at the beginning.
    pub fn new(topology: Topology) -> Self {
        let machines = topology.machines();
        let next_number = topology.pools.iter().map(|pool| (pool.name.clone(), pool.first + pool.count)).collect();
        let next_slot = machines.iter().map(|machine| machine.slot + 1).max().unwrap_or_default();
        let machines = machines.into_iter().map(|machine| (machine.computer_name(), machine)).collect();
        Self { topology, machines, next_slot, next_number }
    }

    /// Returns the topology that it was made from.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the machines, by node name.
    pub fn machines(&self) -> impl Iterator<Item = (&str, &Machine)> {
        self.machines.iter().map(|(name, machine)| (name.as_str(), machine))
    }

    /// Returns the machine of a node.
    pub fn machine(&self, node: &str) -> Result<&Machine, NoSuch> {
        self.machines.get(node).ok_or_else(|| NoSuch::Machine(node.to_owned()))
    }

    fn pool(&self, name: &str) -> Result<Arc<Pool>, NoSuch> {
        let found = self.topology.pools.iter().find(|pool| pool.name.eq_ignore_ascii_case(name));
        found.cloned().ok_or_else(|| NoSuch::Pool(name.to_owned()))
    }

    /// Returns the node names of the machines of a pool, lowest number first.
    fn members(&self, pool: &Pool) -> Vec<String> {
        let members = self.machines.iter().filter(|(_, machine)| machine.pool.name == pool.name);
        let by_number: BTreeMap<u32, &String> = members.map(|(name, machine)| (machine.number, name)).collect();
        by_number.into_values().cloned().collect()
    }

    fn capacity(&self, pool: &Pool) -> Option<Change> {
        let set = self.topology.set_id(pool).filter(|_| pool.is_scale_set())?;
        Some(Change::Edit(set, Edit::Capacity(self.members(pool).len())))
    }

    /// Adds `count` machines to a pool, with new numbers. Returns their node names.
    pub fn scale_out(&mut self, pool: &str, count: u32) -> Happened<Vec<String>> {
        let pool = self.pool(pool)?;
        let next = self.next_number.entry(pool.name.clone()).or_insert(pool.first);
        let first = std::mem::replace(next, *next + count);
        let mut names = Vec::new();
        let mut changes = Vec::new();
        for number in first..first + count {
            let machine = Machine::new(&self.topology, Arc::clone(&pool), number, self.next_slot);
            self.next_slot += 1;
            changes.extend(created(&self.topology, &machine));
            names.push(machine.computer_name());
            self.machines.insert(machine.computer_name(), machine);
        }
        changes.extend(self.capacity(&pool));
        Ok((names, changes))
    }

    /// Removes `count` machines from a pool, those of the highest numbers. Returns their node names.
    pub fn scale_in(&mut self, pool: &str, count: u32) -> Happened<Vec<String>> {
        let pool = self.pool(pool)?;
        let names: Vec<String> = self.members(&pool).into_iter().rev().take(count as usize).collect();
        let mut changes = Vec::new();
        for name in &names {
            changes.extend(self.delete(name)?.1);
        }
        Ok((names, changes))
    }

    /// Deletes a machine with its documents.
    pub fn delete(&mut self, node: &str) -> Happened {
        let machine = self.machine(node)?.clone();
        self.machines.remove(node);
        let mut changes = removed(&self.topology, &machine);
        changes.extend(self.capacity(&machine.pool));
        Ok(((), changes))
    }

    /// Deletes a machine and recreates it under the same name: the same IDs and addresses, another `vmId`, switched on.
    pub fn recreate(&mut self, node: &str) -> Happened {
        let old = self.machine(node)?.clone();
        let new = old.recreated(&self.topology);
        let mut changes = removed(&self.topology, &old);
        changes.extend(created(&self.topology, &new));
        self.machines.insert(node.to_owned(), new);
        Ok(((), changes))
    }

    /// Sets a machine's power state.
    pub fn power(&mut self, node: &str, power: Power) -> Happened {
        let mut machine = self.machine(node)?.clone();
        machine.power = power;
        let view = Edit::InstanceView(machine.instance_view());
        let change = Change::Edit(machine.id(&self.topology), view);
        self.machines.insert(node.to_owned(), machine);
        Ok(((), vec![change]))
    }

    /// Sets the private address of a machine, of the family of `address`, to `address`.
    pub fn readdress(&mut self, node: &str, address: IpAddr) -> Happened {
        let mut machine = self.machine(node)?.clone();
        let mut configurations = machine.ip_configurations.iter_mut();
        let Some(configuration) = configurations.find(|found| found.address.is_ipv4() == address.is_ipv4()) else {
            return Err(NoSuch::Family(node.to_owned(), address));
        };
        configuration.address = address;
        let configuration = configuration.clone();
        let changes = readdressed(&self.topology, &machine, &configuration);
        self.machines.insert(node.to_owned(), machine);
        Ok(((), changes))
    }

    /// Deletes a scale set or availability set with all its machines. Returns their node names.
    pub fn delete_set(&mut self, pool: &str) -> Happened<Vec<String>> {
        let pool = self.pool(pool)?;
        let names = self.members(&pool);
        let mut changes = Vec::new();
        for name in &names {
            changes.extend(removed(&self.topology, &self.machine(name)?.clone()));
            self.machines.remove(name);
        }
        changes.extend(self.topology.set_id(&pool).map(Change::Remove));
        self.topology.pools.retain(|retained| retained.name != pool.name);
        Ok((names, changes))
    }
}
