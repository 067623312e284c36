//! Which Node holds which pod CIDRs. Pure.
//!
//! In: what Nodes have, who needs blocks, whose patch has come to which end. Out: blocks that nobody else has. Everything is kept by the
//! Node's UID: a Node that was made anew under the same name is another one, and what a stale watch tells of the former one does not
//! touch what the new one has. A block that two Nodes hold, as others may have given it, is free when both are gone.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;

use super::{
    super::route::config::MASK_TOLERANCE,
    cidr_set::{AllocatedBlock, CidrSet, CidrSetError, UnitCounts},
    plan::is_later,
};

/// Why a Node's `spec.podCIDRs` cannot be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ForeignCidrError {
    #[error("{0:?} is no CIDR")]
    Garbage(String),
    #[error("it has {0} pod CIDRs, but --cluster-cidr has no more than {1}")]
    TooMany(usize, usize),
    #[error("its pod CIDR {0} lies outside of --cluster-cidr")]
    OutOfRange(IpNet),
    #[error("its pod CIDR {0} is larger than the pod CIDR of a node, /{1}")]
    TooLarge(IpNet, u8),
}

/// Why a Node gets no blocks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AllocationError {
    #[error("no /{prefix} is left in the cluster CIDR {cluster}")]
    Exhausted { cluster: IpNet, prefix: u8 },
    #[error(transparent)]
    Prefix(#[from] CidrSetError),
}

/// What a Node's CIDRs are to what was known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObservedCidrs {
    /// Nothing new.
    Known,
    /// Those that were meant for it are there now.
    Confirmed,
    /// Nobody here gave them to it.
    Foreign,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HeldBlocks {
    cidrs: Box<[IpNet]>,
    /// Whether the Node has them for sure; if not, a patch is or may be under way.
    written: bool,
    /// The versions of the Node on which patches were sent that may still be carried out.
    may_land: Vec<Box<str>>,
}

/// What one cluster CIDR is at, for metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ClusterCidrUsage {
    pub(super) cluster: IpNet,
    pub(super) taken: usize,
    pub(super) units: usize,
    pub(super) counts: UnitCounts,
}

#[derive(Debug, Clone)]
pub(super) struct Allocations {
    sets: Vec<CidrSet>,
    /// Never given to a Node.
    services: Vec<IpNet>,
    /// Prefixes that limit what a Node may claim.
    claim_masks: Vec<(IpNet, u8)>,
    held: HashMap<Box<str>, HeldBlocks>,
}

impl Allocations {
    /// Nothing but the ranges of Services is taken. `clusters`: each with the prefix of its blocks.
    pub(super) fn new(clusters: &[(IpNet, u8)], services: &[IpNet]) -> Result<Self, CidrSetError> {
        let mut sets =
            clusters.iter().map(|(cluster, unit)| CidrSet::new(*cluster, *unit)).collect::<Result<Vec<_>, _>>()?;
        for set in &mut sets {
            for service in services {
                set.occupy(service);
            }
        }
        Ok(Self { sets, services: services.to_vec(), claim_masks: Vec::new(), held: HashMap::new() })
    }

    /// Ignores what Nodes claim beyond these prefixes, each of a cluster CIDR.
    pub(super) fn limiting_claims(self, masks: Vec<(IpNet, u8)>) -> Self {
        Self { claim_masks: masks, ..self }
    }

    /// Takes in what a Node has, by the cluster CIDR that each lies in, whatever their order. What is wrong with it is told once; the rest
    /// is taken in all the same, since nobody else may get it.
    pub(super) fn observe(&mut self, uid: &str, pod_cidrs: &[String]) -> Result<ObservedCidrs, ForeignCidrError> {
        let (cidrs, wrong) = self.parse(pod_cidrs);
        if let Some(held) = self.held.get_mut(uid).filter(|held| is_same(&held.cidrs, &cidrs)) {
            let news = !std::mem::replace(&mut held.written, true);
            return Ok(if news { ObservedCidrs::Confirmed } else { ObservedCidrs::Known });
        }
        self.release(uid);
        for cidr in &cidrs {
            for set in &mut self.sets {
                set.occupy(cidr);
            }
        }
        self.held.insert(uid.into(), HeldBlocks { cidrs: cidrs.into(), written: true, may_land: Vec::new() });
        wrong.map_or(Ok(ObservedCidrs::Foreign), Err)
    }

    /// Those that concern a cluster CIDR, and what is wrong with the others or with their number.
    fn parse(&self, pod_cidrs: &[String]) -> (Vec<IpNet>, Option<ForeignCidrError>) {
        let (mut cidrs, mut wrong) = (Vec::new(), None);
        for text in pod_cidrs {
            match text.parse::<IpNet>() {
                Ok(cidr) if self.sets.iter().any(|set| set.overlaps(&cidr)) => match self.excess(&cidr) {
                    None => cidrs.push(cidr),
                    Some(mask) => wrong = wrong.or(Some(ForeignCidrError::TooLarge(cidr, mask))),
                },
                Ok(outside) => wrong = wrong.or(Some(ForeignCidrError::OutOfRange(outside))),
                Err(_) => wrong = Some(ForeignCidrError::Garbage(shown(text))),
            }
        }
        let is_number_wrong = pod_cidrs.len() > self.sets.len() && !matches!(wrong, Some(ForeignCidrError::Garbage(_)));
        let too_many = is_number_wrong.then_some(ForeignCidrError::TooMany(pod_cidrs.len(), self.sets.len()));
        (cidrs, too_many.or(wrong))
    }

    /// The mask that `cidr` exceeds by so much that it is not taken in: the kubelet that registers a Node may claim any pod CIDR, and one Node
    /// must not take the blocks of all others.
    fn excess(&self, cidr: &IpNet) -> Option<u8> {
        let is_same_family = |(cluster, _): &&(IpNet, u8)| cluster.addr().is_ipv4() == cidr.addr().is_ipv4();
        let mask = self.claim_masks.iter().find(is_same_family).map(|(_, mask)| *mask)?;
        (cidr.prefix_len() + MASK_TOLERANCE < mask).then_some(mask)
    }

    /// One block of each cluster CIDR for the Node, with these prefixes; the same ones as long as they are its own. Of all or of none.
    pub(super) fn reserve(&mut self, uid: &str, prefixes: &[u8]) -> Result<(Vec<IpNet>, Vec<usize>), AllocationError> {
        if let Some(held) = self.held.get(uid) {
            return Ok((held.cidrs.to_vec(), Vec::new()));
        }
        let mut blocks: Vec<AllocatedBlock> = Vec::with_capacity(self.sets.len());
        for (index, prefix) in prefixes.iter().enumerate().take(self.sets.len()) {
            match self.allocate(index, *prefix, &blocks) {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    // Each goes back where it came from.
                    self.sets.iter_mut().zip(&blocks).for_each(|(set, block)| set.release(&block.cidr));
                    return Err(error);
                }
            }
        }
        let cidrs: Vec<IpNet> = blocks.iter().map(|block| block.cidr).collect();
        let held = HeldBlocks { cidrs: cidrs.clone().into(), written: false, may_land: Vec::new() };
        self.held.insert(uid.into(), held);
        Ok((cidrs, blocks.iter().map(|block| block.passed).collect()))
    }

    fn allocate(
        &mut self,
        index: usize,
        prefix: u8,
        reserved: &[AllocatedBlock],
    ) -> Result<AllocatedBlock, AllocationError> {
        let set = &self.sets[index];
        let cluster = set.cluster();
        super::cidr_set::check(cluster, prefix)?;
        if prefix > set.unit() {
            let held = self.held.values().flat_map(|held| held.cidrs.iter());
            let held = held.chain(&self.services).chain(reserved.iter().map(|block| &block.cidr));
            self.sets[index] = set.in_units_of(prefix, held)?;
        }
        self.sets[index].allocate(prefix).ok_or(AllocationError::Exhausted { cluster, prefix })
    }

    /// The Node has what was reserved for it.
    pub(super) fn confirm(&mut self, uid: &str) {
        if let Some(held) = self.held.get_mut(uid) {
            held.written = true;
        }
    }

    /// Gives back what the Node holds; answers whether it held anything.
    pub(super) fn release(&mut self, uid: &str) -> bool {
        let Some(held) = self.held.remove(uid) else { return false };
        for cidr in &held.cidrs {
            self.sets.iter_mut().for_each(|set| set.release(cidr));
        }
        true
    }

    /// A patch with these CIDRs is about to be sent on this version of the Node. Answers whether they are still the Node's.
    pub(super) fn patch_begins(&mut self, uid: &str, cidrs: &[IpNet], version: &str) -> bool {
        let held = self.held.get_mut(uid).filter(|held| *held.cidrs == *cidrs);
        held.map(|held| held.may_land.push(version.into())).is_some()
    }

    /// A patch that was sent on this version has not been carried out and will not be.
    pub(super) fn patch_failed(&mut self, uid: &str, version: &str) {
        let Some(held) = self.held.get_mut(uid) else { return };
        if let Some(place) = held.may_land.iter().position(|sent| **sent == *version) {
            held.may_land.swap_remove(place);
        }
    }

    /// The Node is at this version: what was sent on an earlier one is a conflict.
    pub(super) fn is_at(&mut self, uid: &str, version: Option<&str>) {
        if let Some(held) = self.held.get_mut(uid) {
            held.may_land.retain(|sent| !is_later(version, sent));
        }
    }

    /// Gives back what was reserved for the Node, unless it is known to be there or may get there yet.
    pub(super) fn withdraw(&mut self, uid: &str) -> bool {
        self.held.get(uid).is_some_and(|held| !held.written && held.may_land.is_empty()) && self.release(uid)
    }

    /// Nodes that have their CIDRs, or may have them.
    pub(super) fn written(&self) -> HashSet<Box<str>> {
        let may_have = |held: &HeldBlocks| held.written || !held.may_land.is_empty();
        self.held.iter().filter(|(_, held)| may_have(held)).map(|(uid, _)| uid.clone()).collect()
    }

    /// Whether the Node has its blocks for sure.
    pub(super) fn is_written(&self, uid: &str) -> bool {
        self.held.get(uid).is_some_and(|held| held.written)
    }

    /// Each cluster CIDR with the units that are taken and all.
    pub(super) fn usage(&self) -> Vec<(IpNet, usize, usize)> {
        self.sets.iter().map(|set| (set.cluster(), set.taken(), set.units())).collect()
    }

    /// How many Nodes hold blocks.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// How full the cluster CIDRs are, and what has happened to them since this was last asked.
    pub(super) fn take_usage(&mut self) -> Vec<ClusterCidrUsage> {
        let usage = |set: &mut CidrSet| ClusterCidrUsage {
            cluster: set.cluster(),
            taken: set.taken(),
            units: set.units(),
            counts: set.take_counts(),
        };
        self.sets.iter_mut().map(usage).collect()
    }
}

fn is_same(held: &[IpNet], observed: &[IpNet]) -> bool {
    held.len() == observed.len() && held.iter().zip(observed).all(|(one, other)| one.trunc() == other.trunc())
}

/// As much of a text as a message may hold.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
