//! Sizes of the pod CIDRs of a Node, from tags of the set that its machine belongs to.
//!
//! In: a Node, the inventory, ARM. Out: prefix lengths, from the tags `kubernetesNodeCIDRMaskIPV4` and
//! `kubernetesNodeCIDRMaskIPV6` of the scale set (uniform or flexible) or availability set. A set is read once for all Nodes
//! that need it within `MAX_AGE`. Upstream: `GetNodeCIDRMasksByProviderID`, which treats any error as a set without tags;
//! here the Node waits.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use serde::Deserialize;
use tokio::{sync::Mutex, time::Instant};

use super::{
    arm::ArmClient,
    instances::{errors, ownership},
    inventory::{Freshness, Inventory},
    model::{ApiType, MachineKind, ResourceId, api, spelling},
};
use crate::{
    cloud_provider::{CloudError, CloudResult, PodCidrMaskSizes, PodCidrMasks},
    runtime::clock::Clock,
};

const TAG_IPV4: &str = "kubernetesNodeCIDRMaskIPV4";
const TAG_IPV6: &str = "kubernetesNodeCIDRMaskIPV6";

/// Largest age of tags. A change after the first Node has its CIDRs affects later Nodes only.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Fields of a set that are read.
#[derive(Deserialize)]
struct TaggedSet {
    #[serde(default)]
    tags: Option<BTreeMap<String, String>>,
}

/// Tags of sets, as last read.
pub struct AzurePodCidrMasks {
    arm: ArmClient,
    inventory: Arc<Inventory>,
    clock: Clock,
    /// Cache and lock of the reads: concurrent callers get the same result. There are few sets.
    read: Mutex<HashMap<ResourceId, (Instant, PodCidrMaskSizes)>>,
}

impl AzurePodCidrMasks {
    /// Creates a reader that uses `arm` for the sets of the machines in `inventory`.
    pub fn new(arm: ArmClient, inventory: Arc<Inventory>, clock: Clock) -> Self {
        Self { arm, inventory, clock, read: Mutex::default() }
    }

    async fn of_set(&self, kind: &'static ApiType, set: &ResourceId) -> CloudResult<PodCidrMaskSizes> {
        let mut read = self.read.lock().await;
        let now = self.clock.now();
        if let Some((_, sizes)) = read.get(set).filter(|(at, _)| now.saturating_duration_since(*at) < MAX_AGE) {
            return Ok(*sizes);
        }
        let document: TaggedSet = self.arm.get(kind, set, &[]).await.map_err(CloudError::from)?;
        let tags = document.tags.unwrap_or_default();
        let sizes = PodCidrMaskSizes { ipv4: size(set, &tags, TAG_IPV4, 32), ipv6: size(set, &tags, TAG_IPV6, 128) };
        read.insert(set.clone(), (now, sizes));
        Ok(sizes)
    }
}

#[async_trait]
impl PodCidrMasks for AzurePodCidrMasks {
    async fn mask_sizes(&self, node: &Node) -> CloudResult<PodCidrMaskSizes> {
        let Some(desired) = ownership::metadata_query(node) else { return Ok(PodCidrMaskSizes::default()) };
        let found = self.inventory.lookup(&[desired], Freshness::Cached).await.pop();
        let found = found.ok_or_else(|| CloudError::failed("the inventory did not answer"))?;
        match &found.map_err(|error| errors::from_lookup(&error))?.kind {
            MachineKind::ScaleSetInstance { scale_set, .. } | MachineKind::FlexInstance { scale_set } => {
                self.of_set(&api::SCALE_SETS, scale_set).await
            }
            MachineKind::AvailabilitySet { set } => self.of_set(&api::AVAILABILITY_SETS, set).await,
            MachineKind::Standalone => Ok(PodCidrMaskSizes::default()),
        }
    }
}

/// Returns the size in a tag. An invalid one is ignored, as upstream, but logged.
fn size(set: &ResourceId, tags: &BTreeMap<String, String>, name: &str, longest: u8) -> Option<u8> {
    let (_, text) = tags.iter().find(|(key, _)| spelling::same_name(key, name))?;
    let size = text.trim().parse::<u8>().ok().filter(|size| (1..=longest).contains(size));
    if size.is_none() {
        let shown: String = text.chars().take(64).collect();
        tracing::warn!(%set, tag = name, value = shown, "tag ignored: want a prefix length from 1 to {longest}");
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_say_prefix_lengths_or_nothing() {
        let set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/v";
        let set = ResourceId::parse(set).unwrap();
        for (tag, value, expected) in [
            (TAG_IPV4, "26", Some(26)),
            ("kubernetesnodecidrmaskipv4", " 26 ", Some(26)),
            (TAG_IPV4, "33", None),
            (TAG_IPV4, "0", None),
            (TAG_IPV4, "many", None),
            (TAG_IPV4, "-1", None),
            (TAG_IPV6, "26", None),
        ] {
            let tags = BTreeMap::from([(tag.to_owned(), value.to_owned())]);
            assert_eq!(size(&set, &tags, TAG_IPV4, 32), expected, "{tag}={value}");
        }
    }
}
