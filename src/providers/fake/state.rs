//! State of a fake cloud, and the single steps that change it. Pure: no locks, files or waiting.
//!
//! In: the state and the desired load balancer of a Service. Out: the next [`FakeCloudStep`] towards it, or `None` if there
//! is no difference. Each step is derived from the difference, so the next call continues interrupted work.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::calls::CallName;
use crate::cloud_provider::{CloudError, CloudResult, NodeAddress};

/// Load balancer of a fake cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FakeLoadBalancer {
    /// Cluster it was created for.
    pub cluster: String,
    /// `namespace/name` of its Service.
    pub service: String,
    /// Addresses, one per IP family.
    pub addresses: Vec<IpAddr>,
    pub ports: Vec<FakePort>,
    /// Names of the Nodes that receive traffic, sorted.
    pub hosts: Vec<String>,
}

/// Port of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FakePort {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port that clients use.
    pub port: i32,
    /// Port on the Nodes.
    pub node_port: i32,
}

/// Route in a fake cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FakeRoute {
    /// Cluster it was created for.
    pub cluster: String,
    pub name: String,
    /// Node that receives the packets.
    pub target_node: String,
    /// Addresses of that Node at the time of the creation.
    pub target_node_addresses: Vec<NodeAddress>,
    pub destination_cidr: String,
}

/// Addresses, load balancers and routes of a fake cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct FakeCloudState {
    /// Names of the owning load balancers by allocated address.
    pub(super) addresses: BTreeMap<IpAddr, String>,
    pub(super) load_balancers: BTreeMap<String, FakeLoadBalancer>,
    /// Routes by cluster and destination.
    pub(super) routes: BTreeMap<String, FakeRoute>,
}

/// IP family of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FakeIpFamily {
    V4,
    V6,
}

impl FakeIpFamily {
    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { FakeIpFamily::V4 } else { FakeIpFamily::V6 }
    }

    fn of_range(range: &IpNet) -> Self {
        Self::of(range.addr())
    }

    fn name(self) -> &'static str {
        match self {
            FakeIpFamily::V4 => "IPv4",
            FakeIpFamily::V6 => "IPv6",
        }
    }
}

/// Desired load balancer of a Service. Without families, it has an address of the first family of the pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FakeLoadBalancerSpec {
    pub(super) name: String,
    pub(super) cluster: String,
    pub(super) service: String,
    pub(super) families: Vec<FakeIpFamily>,
    pub(super) requested: Option<IpAddr>,
    pub(super) ports: Vec<FakePort>,
    pub(super) hosts: Vec<String>,
}

/// Single change of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FakeCloudStep {
    AllocateAddress { address: IpAddr, owner: String },
    CreateLoadBalancer { name: String, cluster: String, service: String, addresses: Vec<IpAddr> },
    SetPorts { name: String, ports: Vec<FakePort> },
    SetHosts { name: String, hosts: Vec<String> },
    RemoveLoadBalancer { name: String },
    ReleaseAddress { address: IpAddr },
}

impl FakeCloudStep {
    pub(super) fn call(&self) -> CallName {
        match self {
            FakeCloudStep::AllocateAddress { .. } => CallName::AllocateAddress,
            FakeCloudStep::CreateLoadBalancer { .. } => CallName::CreateLoadBalancer,
            FakeCloudStep::SetPorts { .. } => CallName::SetPorts,
            FakeCloudStep::SetHosts { .. } => CallName::SetHosts,
            FakeCloudStep::RemoveLoadBalancer { .. } => CallName::RemoveLoadBalancer,
            FakeCloudStep::ReleaseAddress { .. } => CallName::ReleaseAddress,
        }
    }
}

impl std::fmt::Display for FakeCloudStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FakeCloudStep::AllocateAddress { address, .. } => write!(f, "allocate address {address}"),
            FakeCloudStep::CreateLoadBalancer { name, addresses, .. } => {
                let addresses: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
                write!(f, "create load balancer {name} at {}", addresses.join(", "))
            }
            FakeCloudStep::SetPorts { ports, .. } => {
                let ports: Vec<_> = ports.iter().map(|p| format!("{} {}→{}", p.protocol, p.port, p.node_port)).collect();
                write!(f, "set ports {}", ports.join(", "))
            }
            FakeCloudStep::SetHosts { hosts, .. } => write!(f, "set hosts {}", hosts.join(", ")),
            FakeCloudStep::RemoveLoadBalancer { name } => write!(f, "remove load balancer {name}"),
            FakeCloudStep::ReleaseAddress { address } => write!(f, "release address {address}"),
        }
    }
}

impl FakeCloudState {
    pub(super) fn apply(&mut self, step: FakeCloudStep) {
        match step {
            FakeCloudStep::AllocateAddress { address, owner } => {
                self.addresses.insert(address, owner);
            }
            FakeCloudStep::CreateLoadBalancer { name, cluster, service, addresses } => {
                let entry = self.load_balancers.entry(name).or_default();
                (entry.cluster, entry.service, entry.addresses) = (cluster, service, addresses);
            }
            FakeCloudStep::SetPorts { name, ports } => {
                self.load_balancers.entry(name).and_modify(|entry| entry.ports = ports);
            }
            FakeCloudStep::SetHosts { name, hosts } => {
                self.load_balancers.entry(name).and_modify(|entry| entry.hosts = hosts);
            }
            FakeCloudStep::RemoveLoadBalancer { name } => {
                self.load_balancers.remove(&name);
            }
            FakeCloudStep::ReleaseAddress { address } => {
                self.addresses.remove(&address);
            }
        }
    }

    /// Returns the addresses that are allocated to the load balancer `name`, which does not have to exist (yet, or any
    /// more).
    pub(super) fn owned_by<'a>(&'a self, name: &'a str) -> impl Iterator<Item = IpAddr> + 'a {
        self.addresses.iter().filter(move |(_, owner)| *owner == name).map(|(address, _)| *address)
    }

    /// Returns the next step towards `desired`; `None` if the load balancer matches it.
    pub(super) fn next_to_ensure(
        &self,
        pool: &[IpNet],
        desired: &FakeLoadBalancerSpec,
    ) -> CloudResult<Option<FakeCloudStep>> {
        let name = || desired.name.clone();
        let mut addresses = Vec::new();
        for family in desired.families_in(pool)? {
            match self.address_for(pool, desired, family)? {
                (address, true) => addresses.push(address),
                (address, false) => return Ok(Some(FakeCloudStep::AllocateAddress { address, owner: name() })),
            }
        }
        let current = self.load_balancers.get(&desired.name);
        let Some(current) =
            current.filter(|lb| lb.addresses == addresses && lb.service == desired.service && lb.cluster == desired.cluster)
        else {
            let (cluster, service) = (desired.cluster.clone(), desired.service.clone());
            return Ok(Some(FakeCloudStep::CreateLoadBalancer { name: name(), cluster, service, addresses }));
        };
        if current.ports != desired.ports {
            return Ok(Some(FakeCloudStep::SetPorts { name: name(), ports: desired.ports.clone() }));
        }
        if current.hosts != desired.hosts {
            return Ok(Some(FakeCloudStep::SetHosts { name: name(), hosts: desired.hosts.clone() }));
        }
        let surplus = self.owned_by(&desired.name).find(|address| !addresses.contains(address));
        Ok(surplus.map(|address| FakeCloudStep::ReleaseAddress { address }))
    }

    /// Returns the next step that gives an existing load balancer these `hosts`.
    ///
    /// # Errors
    ///
    /// [`CloudError::Failed`] if the load balancer does not exist.
    pub(super) fn next_to_update(&self, name: &str, hosts: &[String]) -> CloudResult<Option<FakeCloudStep>> {
        let missing = || CloudError::failed(format!("load balancer {name} does not exist, so its hosts cannot be updated"));
        let current = self.load_balancers.get(name).ok_or_else(missing)?;
        Ok((current.hosts != hosts).then(|| FakeCloudStep::SetHosts { name: name.to_owned(), hosts: hosts.to_vec() }))
    }

    /// Returns the next step that deletes the load balancer `name` and its addresses; `None` if all are deleted.
    pub(super) fn next_to_delete(&self, name: &str) -> Option<FakeCloudStep> {
        if self.load_balancers.contains_key(name) {
            return Some(FakeCloudStep::RemoveLoadBalancer { name: name.to_owned() });
        }
        self.owned_by(name).next().map(|address| FakeCloudStep::ReleaseAddress { address })
    }

    /// Returns the address of a family, and `true` if the load balancer owns it already.
    ///
    /// A load balancer keeps its address unless another address is requested.
    fn address_for(
        &self,
        pool: &[IpNet],
        desired: &FakeLoadBalancerSpec,
        family: FakeIpFamily,
    ) -> CloudResult<(IpAddr, bool)> {
        if let Some(address) = desired.requested.filter(|address| FakeIpFamily::of(*address) == family) {
            return self.requested_address(pool, desired, address).map(|is_owned| (address, is_owned));
        }
        let owned: BTreeSet<IpAddr> =
            self.owned_by(&desired.name).filter(|address| FakeIpFamily::of(*address) == family).collect();
        let mut used = self.load_balancers.get(&desired.name).into_iter().flat_map(|lb| lb.addresses.iter().copied());
        if let Some(address) = used.find(|address| owned.contains(address)).or_else(|| owned.first().copied()) {
            return Ok((address, true));
        }
        let ranges = pool.iter().filter(|range| FakeIpFamily::of_range(range) == family);
        let free = ranges.flat_map(usable).find(|address| !self.addresses.contains_key(address));
        let exhausted = || {
            CloudError::failed(format!(
                "no {} address is free in loadBalancers.addressPool ({}): delete a load balancer or add a range",
                family.name(),
                list(pool)
            ))
        };
        free.map(|address| (address, false)).ok_or_else(exhausted)
    }

    fn requested_address(&self, pool: &[IpNet], desired: &FakeLoadBalancerSpec, address: IpAddr) -> CloudResult<bool> {
        match self.addresses.get(&address) {
            Some(owner) if *owner == desired.name => Ok(true),
            Some(owner) => {
                Err(CloudError::failed(format!("spec.loadBalancerIP: {address} is in use by load balancer {owner}")))
            }
            None if pool.iter().any(|range| range.contains(&address)) => Ok(false),
            None => Err(CloudError::refused(format!(
                "spec.loadBalancerIP: {address} is not in loadBalancers.addressPool ({})",
                list(pool)
            ))),
        }
    }

    /// Returns the resources that no later call will clean up. `live` are the names of the required load balancers.
    pub(super) fn leaks(&self, live: &BTreeSet<String>) -> Vec<String> {
        let orphans = self.load_balancers.iter().filter(|(name, _)| !live.contains(*name));
        let orphans = orphans.map(|(name, lb)| format!("load balancer {name} of Service {} is not required", lb.service));
        let stray = self
            .addresses
            .iter()
            .filter(|(address, owner)| !self.load_balancers.get(*owner).is_some_and(|lb| lb.addresses.contains(address)));
        let stray =
            stray.map(|(address, owner)| format!("address {address} was allocated for {owner}, which does not use it"));
        let unowned = self.load_balancers.iter().flat_map(|(name, lb)| {
            let foreign = lb.addresses.iter().filter(move |address| self.addresses.get(address) != Some(name));
            foreign.map(move |address| format!("load balancer {name} uses {address}, which is not allocated to it"))
        });
        orphans.chain(stray).chain(unowned).collect()
    }
}

impl FakeLoadBalancerSpec {
    fn families_in(&self, pool: &[IpNet]) -> CloudResult<Vec<FakeIpFamily>> {
        let offered: Vec<FakeIpFamily> = pool.iter().map(FakeIpFamily::of_range).collect();
        let fallback = || self.requested.map(FakeIpFamily::of).or(offered.first().copied());
        let families = if self.families.is_empty() { fallback().into_iter().collect() } else { self.families.clone() };
        if let Some(missing) = families.iter().find(|family| !offered.contains(family)) {
            let (name, pool) = (missing.name(), list(pool));
            return Err(CloudError::refused(format!(
                "loadBalancers.addressPool ({pool}) has no {name} range, which spec.ipFamilies requires"
            )));
        }
        if families.is_empty() {
            return Err(CloudError::refused("loadBalancers.addressPool is empty: no load balancer can get an address"));
        }
        match self.requested.filter(|address| !families.contains(&FakeIpFamily::of(*address))) {
            Some(address) => {
                Err(CloudError::refused(format!("spec.loadBalancerIP: {address} belongs to no family of spec.ipFamilies")))
            }
            None => Ok(families),
        }
    }
}

/// Returns the addresses of a range that load balancers can use.
fn usable(range: &IpNet) -> Box<dyn Iterator<Item = IpAddr>> {
    match *range {
        IpNet::V4(net) => Box::new(net.hosts().map(IpAddr::V4)),
        // The first address of an IPv6 subnet is the anycast address of its routers (RFC 4291 §2.6.1).
        IpNet::V6(net) => Box::new(net.hosts().skip(usize::from(net.prefix_len() < 127)).map(IpAddr::V6)),
    }
}

fn list(pool: &[IpNet]) -> String {
    pool.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ")
}
