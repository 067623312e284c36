//! Allocated and free blocks of one cluster CIDR. Pure.
//!
//! In: CIDRs to occupy and to release, prefix lengths to allocate. Out: blocks. Each block of the longest prefix in use, the unit,
//! has a count of its holders; a shorter prefix takes an aligned run of units. The search for the next block starts after the last
//! allocated one and wraps around, so that a released block is reused as late as possible.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use ipnet::IpNet;

/// Longest distance between the prefixes of an IPv6 cluster CIDR and its blocks. Upstream: `clusterSubnetMaxDiff`.
pub(super) const MAX_IPV6_BITS: u8 = 16;
/// Largest number of unit bits for IPv4, where upstream has no limit: 64 MiB of counts.
pub(super) const MAX_IPV4_BITS: u8 = 24;

/// Reason why a set cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrSetError {
    #[error("blocks of /{unit} are larger than the cluster CIDR {cluster}")]
    LargerThanCluster { cluster: IpNet, unit: u8 },
    #[error("blocks of /{unit} do not exist in the cluster CIDR {cluster}")]
    NoSuchPrefix { cluster: IpNet, unit: u8 },
    #[error("blocks of /{unit} are too many for the cluster CIDR {cluster}: at most /{longest} is supported")]
    TooMany { cluster: IpNet, unit: u8, longest: u8 },
}

/// Allocated block, and the number of occupied ones that the search passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AllocatedBlock {
    pub(super) cidr: IpNet,
    pub(super) passed: usize,
}

/// Units that were allocated and released since the last read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UnitCounts {
    pub(super) allocated: u64,
    pub(super) released: u64,
}

#[derive(Debug, Clone)]
pub(super) struct CidrSet {
    pub(super) cluster: IpNet,
    pub(super) unit: u8,
    /// Number of holders of each unit, which is free without any.
    holders: Vec<u32>,
    pub(super) allocated: usize,
    next: usize,
    counts: UnitCounts,
}

impl CidrSet {
    /// Creates a set in which all of `cluster` is free, in blocks with the prefix `unit`.
    pub(super) fn new(cluster: IpNet, unit: u8) -> Result<Self, CidrSetError> {
        let cluster = cluster.trunc();
        check(cluster, unit)?;
        let holders = vec![0; 1 << (unit - cluster.prefix_len())];
        Ok(Self { cluster, unit, holders, allocated: 0, next: 0, counts: UnitCounts::default() })
    }

    pub(super) fn units(&self) -> usize {
        self.holders.len()
    }

    pub(super) fn take_counts(&mut self) -> UnitCounts {
        std::mem::take(&mut self.counts)
    }

    /// Returns `true` if `cidr` shares an address with the cluster CIDR.
    pub(super) fn overlaps(&self, cidr: &IpNet) -> bool {
        self.cluster.contains(&cidr.trunc()) || cidr.trunc().contains(&self.cluster)
    }

    /// Adds a holder to all units that `cidr` overlaps.
    pub(super) fn occupy(&mut self, cidr: &IpNet) {
        let units = self.range(cidr).unwrap_or_default();
        for holders in &mut self.holders[units] {
            *holders += 1;
            if *holders == 1 {
                self.allocated += 1;
                self.counts.allocated += 1;
            }
        }
    }

    /// Removes a holder from all units that `cidr` overlaps.
    pub(super) fn release(&mut self, cidr: &IpNet) {
        let units = self.range(cidr).unwrap_or_default();
        for holders in &mut self.holders[units] {
            if *holders == 1 {
                self.allocated -= 1;
                self.counts.released += 1;
            }
            *holders = holders.saturating_sub(1);
        }
    }

    /// Allocates the next free block with this prefix, which is at most as long as the unit. Returns `None` if there is
    /// none.
    pub(super) fn allocate(&mut self, prefix: u8) -> Option<AllocatedBlock> {
        self.allocate_outside(prefix, &[])
    }

    /// Allocates the next free block with this prefix that shares no address with `avoided`.
    pub(super) fn allocate_outside(&mut self, prefix: u8, avoided: &[IpNet]) -> Option<AllocatedBlock> {
        let run = 1_usize << self.unit.checked_sub(prefix.max(self.cluster.prefix_len()))?;
        if prefix < self.cluster.prefix_len() || self.units() - self.allocated < run {
            return None;
        }
        let blocks = self.units() / run;
        let first = self.next.div_ceil(run) % blocks;
        let candidates = (0..blocks).map(|passed| (passed, (first + passed) % blocks * run));
        let avoided: Vec<_> = avoided.iter().filter_map(|cidr| self.range(cidr)).collect();
        let is_avoided = |start: usize| avoided.iter().any(|units| units.start < start + run && start < units.end);
        let is_free = |start: usize| self.holders[start..start + run].iter().all(|holders| *holders == 0);
        let (passed, start) = candidates.into_iter().find(|(_, start)| is_free(*start) && !is_avoided(*start))?;
        let cidr = self.block(start, prefix)?;
        self.occupy(&cidr);
        self.next = (start + run) % self.units();
        Some(AllocatedBlock { cidr, passed })
    }

    /// Returns the set in finer units, with `reserved` allocated. The search continues at the same position.
    pub(super) fn in_units_of<'a>(
        &self,
        unit: u8,
        reserved: impl IntoIterator<Item = &'a IpNet>,
    ) -> Result<Self, CidrSetError> {
        let mut finer = Self::new(self.cluster, unit)?;
        for cidr in reserved {
            finer.occupy(cidr);
        }
        finer.next = self.next << unit.saturating_sub(self.unit);
        finer.counts = self.counts;
        Ok(finer)
    }

    /// Returns the units that `cidr` overlaps, if any.
    fn range(&self, cidr: &IpNet) -> Option<Range<usize>> {
        if !self.overlaps(cidr) {
            return None;
        }
        if cidr.prefix_len() <= self.cluster.prefix_len() {
            return Some(0..self.units());
        }
        let width = self.cluster.max_prefix_len() - self.unit;
        let index = |address: IpAddr| usize::try_from((bits_of(address) - bits_of(self.cluster.network())) >> width).ok();
        Some(index(cidr.network())?..index(cidr.broadcast())? + 1)
    }

    fn block(&self, unit: usize, prefix: u8) -> Option<IpNet> {
        let offset = (unit as u128).checked_shl(u32::from(self.cluster.max_prefix_len() - self.unit))?;
        let address = bits_of(self.cluster.network()) + offset;
        let address = match self.cluster {
            IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(address).ok()?)),
            IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(address)),
        };
        IpNet::new(address, prefix).ok()
    }
}

/// Checks whether a set of blocks with the prefix `unit` can be represented.
pub(super) fn check(cluster: IpNet, unit: u8) -> Result<(), CidrSetError> {
    let Some(bits) = unit.checked_sub(cluster.prefix_len()) else {
        return Err(CidrSetError::LargerThanCluster { cluster, unit });
    };
    if unit > cluster.max_prefix_len() {
        return Err(CidrSetError::NoSuchPrefix { cluster, unit });
    }
    let longest = cluster.prefix_len() + most_bits(&cluster);
    if bits > most_bits(&cluster) { Err(CidrSetError::TooMany { cluster, unit, longest }) } else { Ok(()) }
}

/// Returns the prefix nearest to `unit` with which blocks of `cluster` can be represented.
pub(super) fn nearest_unit(cluster: &IpNet, unit: u8) -> u8 {
    let longest = cluster.prefix_len().saturating_add(most_bits(cluster)).min(cluster.max_prefix_len());
    unit.clamp(cluster.prefix_len(), longest)
}

fn most_bits(cluster: &IpNet) -> u8 {
    if cluster.addr().is_ipv4() { MAX_IPV4_BITS } else { MAX_IPV6_BITS }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests;
