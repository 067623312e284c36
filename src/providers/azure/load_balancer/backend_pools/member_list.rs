//! List of the instances of a scale set, where one list is cheaper than a read of each instance.
//!
//! In: a scale set, the instances to write, the number of instances of the set. Out: their documents, to be written on the
//! version in the list. Instances that the list lacks, or shows without a version, are read individually.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio::time::Instant;
use tracing::debug;

use crate::providers::azure::{
    arm::ArmClient,
    model::{ResourceId, api, compute::VirtualMachineScaleSetVm},
};

/// Number of instances on a page of the list, as observed.
const PAGE: usize = 100;
/// Assumed number of instances of a scale set that is not cached.
const UNKNOWN_SIZE: usize = 1000;
pub(super) const INSTANCE_VIEW: (&str, &str) = ("$expand", "instanceView");

/// Time in which the power states in a list are trusted: writes of a large scale set take half an hour.
const POWER_STATE_TTL: Duration = Duration::from_secs(60);

/// Document of an instance, with the time when a list showed it.
pub(super) struct ListedInstance {
    document: VirtualMachineScaleSetVm,
    listed: Instant,
}

impl ListedInstance {
    /// Returns the document, unless it must be read again for the power state. A version does not show that a machine was
    /// switched on or off.
    pub(super) fn current(self, needs_power_state: bool) -> Option<VirtualMachineScaleSetVm> {
        (!needs_power_state || self.listed.elapsed() <= POWER_STATE_TTL).then_some(self.document)
    }
}

/// Returns `true` if the list has fewer pages than there are instances to read.
///
/// Compute counts list requests and reads of single instances separately.
fn list_pays(instances: usize, size: Option<usize>) -> bool {
    instances > size.unwrap_or(UNKNOWN_SIZE).div_ceil(PAGE).max(1)
}

/// Returns the documents of the instances `wanted` by key, as far as the list shows them; none if reads of each instance are
/// cheaper.
pub(super) async fn listed_instances(
    arm: &ArmClient,
    set: &ResourceId,
    wanted: &HashSet<String>,
    size: Option<usize>,
) -> HashMap<String, ListedInstance> {
    let mut found = HashMap::new();
    if !list_pays(wanted.len(), size) {
        return found;
    }
    let take = |page: Vec<VirtualMachineScaleSetVm>| {
        let listed = Instant::now();
        let versioned = page.into_iter().filter(|document| document.etag.as_ref().is_some_and(|etag| !etag.is_empty()));
        found.extend(versioned.filter_map(|document| {
            let key = document.id.as_ref()?.to_ascii_lowercase();
            wanted.contains(&key).then_some((key, ListedInstance { document, listed }))
        }));
    };
    let path = format!("{set}/virtualMachines");
    if let Err(error) = arm.list_with(&api::SCALE_SET_VMS, &path, &[INSTANCE_VIEW], take).await {
        debug!(scale_set = set.name(), %error, "instances cannot be listed, reading each");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_the_place_of_more_reads_than_it_has_pages() {
        for (instances, size, pays) in [
            (1, Some(1), false),
            (2, Some(2), true),
            (10, Some(10), true),
            (2, Some(101), false),
            (10, Some(1000), false),
            (11, Some(1000), true),
            (10, None, false),
            (1000, None, true),
        ] {
            assert_eq!(list_pays(instances, size), pays, "{instances} of {size:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_tells_for_a_minute_whether_a_machine_is_off() {
        let listed = || ListedInstance { document: VirtualMachineScaleSetVm::default(), listed: Instant::now() };
        let (fresh, old, older) = (listed(), listed(), listed());
        assert!(fresh.current(true).is_some());
        tokio::time::advance(POWER_STATE_TTL + Duration::from_millis(1)).await;
        assert!(old.current(true).is_none());
        assert!(older.current(false).is_some(), "its version is enough to leave pools");
    }
}
