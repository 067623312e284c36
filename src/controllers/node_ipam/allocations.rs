//! Allocation of pod CIDRs to Nodes. Pure.
//!
//! In: pod CIDRs of Nodes, requests for blocks, results of patches. Out: blocks that no other Node has. Everything is
//! recorded by the Node's UID: a Node that was recreated under the same name is another one, and a stale watch event of the
//! former one does not affect the blocks of the new one. A block that two Nodes hold, which other allocators can cause, is
//! free when both are deleted.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::{
    super::route::config::MASK_TOLERANCE,
    cidr_set::{AllocatedBlock, CidrSet, CidrSetError},
    plan::is_later,
};

/// Reason why a Node's `spec.podCIDRs` cannot be recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ForeignCidrError {
    #[error("{0:?} is not a valid CIDR")]
    Garbage(String),
    #[error("it has {0} pod CIDRs, but --cluster-cidr has no more than {1}")]
    TooMany(usize, usize),
    #[error("its pod CIDR {0} is outside --cluster-cidr")]
    OutOfRange(IpNet),
    #[error("its pod CIDR {0} is larger than the pod CIDR of a node, /{1}")]
    TooLarge(IpNet, u8),
}

/// Reason why a Node gets no blocks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AllocationError {
    #[error("no /{prefix} is free in the cluster CIDR {cluster}")]
    Exhausted { cluster: IpNet, prefix: u8 },
    #[error(transparent)]
    Prefix(#[from] CidrSetError),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ReservedBlocks {
    cidrs: Box<[IpNet]>,
    /// Whether the Node is confirmed to have them; if not, a patch is or may be in flight.
    written: bool,
    /// Versions of the Node on which patches were sent that may still be executed.
    pending_versions: Vec<Box<str>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Allocations {
    sets: Vec<CidrSet>,
    /// Ranges of Services, which no Node gets.
    services: Vec<IpNet>,
    /// Cluster CIDRs with the prefixes that limit what a Node may claim.
    claim_masks: Vec<(IpNet, u8)>,
    /// Claims beyond these prefixes, by Node. Its Pods may have addresses there, so other Nodes get them last.
    oversized_claims: BTreeMap<Box<str>, Vec<IpNet>>,
    reserved: BTreeMap<Box<str>, ReservedBlocks>,
}

impl Allocations {
    /// Creates allocations in which only the ranges of Services are reserved. `clusters` lists each cluster CIDR with the
    /// prefix of its blocks.
    pub(super) fn new(clusters: &[(IpNet, u8)], services: &[IpNet]) -> Result<Self, CidrSetError> {
        let mut sets =
            clusters.iter().map(|(cluster, unit)| CidrSet::new(*cluster, *unit)).collect::<Result<Vec<_>, _>>()?;
        sets.iter_mut().for_each(|set| services.iter().for_each(|service| set.occupy(service)));
        Ok(Self { sets, services: services.to_vec(), ..Self::default() })
    }

    /// Returns allocations that reserve nothing for claims beyond these prefixes, each of a cluster CIDR.
    pub(super) fn limiting_claims(self, masks: Vec<(IpNet, u8)>) -> Self {
        Self { claim_masks: masks, ..self }
    }

    /// Records the CIDRs of a Node, in any order. Returns `true` if they differ from those that were recorded for it.
    ///
    /// # Errors
    ///
    /// A CIDR is invalid, which is reported once. The others are recorded nevertheless, because no other Node may get them.
    pub(super) fn observe(&mut self, uid: &str, pod_cidrs: &[String]) -> Result<bool, ForeignCidrError> {
        let (cidrs, invalid) = self.parse(pod_cidrs);
        if let Some(blocks) = self.reserved.get_mut(uid).filter(|blocks| is_same(&blocks.cidrs, &cidrs)) {
            blocks.written = true;
            return Ok(false);
        }
        self.release(uid);
        self.sets.iter_mut().for_each(|set| cidrs.iter().for_each(|cidr| set.occupy(cidr)));
        self.reserved
            .insert(uid.into(), ReservedBlocks { cidrs: cidrs.into(), written: true, pending_versions: Vec::new() });
        let claims = pod_cidrs.iter().filter_map(|text| text.parse::<IpNet>().ok());
        let oversized_claims: Vec<IpNet> = claims.filter(|cidr| self.excess(cidr).is_some()).collect();
        if !oversized_claims.is_empty() {
            self.oversized_claims.insert(uid.into(), oversized_claims);
        }
        invalid.map_or(Ok(true), Err)
    }

    /// Returns the CIDRs inside a cluster CIDR, and an error about the others or about their number.
    fn parse(&self, pod_cidrs: &[String]) -> (Vec<IpNet>, Option<ForeignCidrError>) {
        let (mut cidrs, mut invalid) = (Vec::new(), None);
        for text in pod_cidrs {
            match text.parse::<IpNet>() {
                Ok(cidr) if self.sets.iter().any(|set| set.overlaps(&cidr)) => match self.excess(&cidr) {
                    None => cidrs.push(cidr),
                    Some(mask) => invalid = invalid.or(Some(ForeignCidrError::TooLarge(cidr, mask))),
                },
                Ok(outside) => invalid = invalid.or(Some(ForeignCidrError::OutOfRange(outside))),
                Err(_) => invalid = Some(ForeignCidrError::Garbage(shown(text))),
            }
        }
        let has_too_many = pod_cidrs.len() > self.sets.len() && !matches!(invalid, Some(ForeignCidrError::Garbage(_)));
        let too_many = has_too_many.then_some(ForeignCidrError::TooMany(pod_cidrs.len(), self.sets.len()));
        (cidrs, too_many.or(invalid))
    }

    /// Returns the mask that `cidr` exceeds by more than [`MASK_TOLERANCE`] bits, so that it is not recorded.
    ///
    /// The kubelet that registers a Node may claim any pod CIDR, and one Node must not reserve the blocks of all others.
    fn excess(&self, cidr: &IpNet) -> Option<u8> {
        let is_same_family = |(cluster, _): &&(IpNet, u8)| cluster.addr().is_ipv4() == cidr.addr().is_ipv4();
        let mask = self.claim_masks.iter().find(is_same_family).map(|(_, mask)| *mask)?;
        (cidr.prefix_len() + MASK_TOLERANCE < mask).then_some(mask)
    }

    /// Reserves one block of each cluster CIDR for the Node, with these prefixes, or none at all.
    ///
    /// Returns the blocks, and the number of allocated ones that the search passed for each. While the Node has blocks, they are
    /// returned again.
    pub(super) fn reserve(&mut self, uid: &str, prefixes: &[u8]) -> Result<(Vec<IpNet>, Vec<usize>), AllocationError> {
        if let Some(blocks) = self.reserved.get(uid) {
            return Ok((blocks.cidrs.to_vec(), Vec::new()));
        }
        let mut blocks: Vec<AllocatedBlock> = Vec::with_capacity(self.sets.len());
        for (index, prefix) in prefixes.iter().enumerate().take(self.sets.len()) {
            match self.allocate(index, *prefix, &blocks) {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    // Release each block to its own set.
                    self.sets.iter_mut().zip(&blocks).for_each(|(set, block)| set.release(&block.cidr));
                    return Err(error);
                }
            }
        }
        let cidrs: Vec<IpNet> = blocks.iter().map(|block| block.cidr).collect();
        let entry = ReservedBlocks { cidrs: cidrs.clone().into(), written: false, pending_versions: Vec::new() };
        self.reserved.insert(uid.into(), entry);
        Ok((cidrs, blocks.iter().map(|block| block.passed).collect()))
    }

    fn allocate(&mut self, index: usize, prefix: u8, blocks: &[AllocatedBlock]) -> Result<AllocatedBlock, AllocationError> {
        let set = &self.sets[index];
        let cluster = set.cluster;
        super::cidr_set::check(cluster, prefix)?;
        if prefix > set.unit {
            let occupied = self.reserved.values().flat_map(|occupied| occupied.cidrs.iter());
            let occupied = occupied.chain(&self.services).chain(blocks.iter().map(|block| &block.cidr));
            self.sets[index] = set.in_units_of(prefix, occupied)?;
        }
        let avoided: Vec<IpNet> = self.oversized_claims.values().flatten().copied().collect();
        let set = &mut self.sets[index];
        let block = set.allocate_outside(prefix, &avoided).or_else(|| set.allocate(prefix));
        block.ok_or(AllocationError::Exhausted { cluster, prefix })
    }

    /// Records that the Node has its reserved blocks.
    pub(super) fn confirm(&mut self, uid: &str) {
        if let Some(blocks) = self.reserved.get_mut(uid) {
            blocks.written = true;
        }
    }

    /// Releases the blocks of the Node. Returns `true` if it had any.
    pub(super) fn release(&mut self, uid: &str) -> bool {
        self.oversized_claims.remove(uid);
        let Some(blocks) = self.reserved.remove(uid) else { return false };
        for cidr in &blocks.cidrs {
            self.sets.iter_mut().for_each(|set| set.release(cidr));
        }
        true
    }

    /// Records a patch with these CIDRs on this version of the Node before it is sent. Returns `false` if they are no longer
    /// the Node's.
    pub(super) fn patch_begins(&mut self, uid: &str, cidrs: &[IpNet], version: &str) -> bool {
        let blocks = self.reserved.get_mut(uid).filter(|blocks| *blocks.cidrs == *cidrs);
        blocks.map(|blocks| blocks.pending_versions.push(version.into())).is_some()
    }

    /// Records that a patch on this version was not executed and will not be.
    pub(super) fn patch_failed(&mut self, uid: &str, version: &str) {
        let Some(blocks) = self.reserved.get_mut(uid) else { return };
        if let Some(index) = blocks.pending_versions.iter().position(|sent| **sent == *version) {
            blocks.pending_versions.swap_remove(index);
        }
    }

    /// Records the version of the Node: patches of earlier versions will conflict.
    pub(super) fn record_version(&mut self, uid: &str, version: Option<&str>) {
        if let Some(blocks) = self.reserved.get_mut(uid) {
            blocks.pending_versions.retain(|sent| !is_later(version, sent));
        }
    }

    /// Releases the blocks reserved for the Node, unless the Node has them or a patch may still set them. Returns `true` if it did.
    pub(super) fn withdraw(&mut self, uid: &str) -> bool {
        self.reserved.get(uid).is_some_and(|blocks| !blocks.written && blocks.pending_versions.is_empty())
            && self.release(uid)
    }

    /// Returns the UIDs of the Nodes that have, or may have, their CIDRs.
    pub(super) fn written(&self) -> BTreeSet<Box<str>> {
        let may_have = |blocks: &ReservedBlocks| blocks.written || !blocks.pending_versions.is_empty();
        self.reserved.iter().filter(|(_, blocks)| may_have(blocks)).map(|(uid, _)| uid.clone()).collect()
    }

    /// Returns `true` if the Node is confirmed to have its blocks.
    pub(super) fn is_written(&self, uid: &str) -> bool {
        self.reserved.get(uid).is_some_and(|blocks| blocks.written)
    }

    /// Returns each cluster CIDR with the numbers of allocated and of all units.
    pub(super) fn usage(&self) -> Vec<(IpNet, usize, usize)> {
        self.sets.iter().map(|set| (set.cluster, set.allocated, set.units())).collect()
    }

    /// Returns the number of Nodes with blocks.
    pub(super) fn len(&self) -> usize {
        self.reserved.len()
    }

    /// Returns the blocks of each cluster CIDR.
    pub(super) fn sets(&mut self) -> &mut [CidrSet] {
        &mut self.sets
    }
}

fn is_same(reserved: &[IpNet], observed: &[IpNet]) -> bool {
    reserved.len() == observed.len() && reserved.iter().zip(observed).all(|(left, right)| left.trunc() == right.trunc())
}

/// Returns `text`, truncated to what a message may contain.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
