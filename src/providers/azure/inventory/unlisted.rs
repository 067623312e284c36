//! Determines whether no known location has a machine of a name, for a Node without a provider ID.
//!
//! In: a name, looked up in each resource group of the inventory. Out: `true` only if all reads succeeded and none shows the
//! machine. A missing machine is not proven to be gone; the caller adds time and the rule against mass deletion.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    Freshness, Inventory,
    query::PendingQuery,
    resolve::{self, LookupResult},
    snapshot::InventorySnapshot,
};
use crate::providers::azure::model::{LookupError, MachineQuery, ResourceId, spelling};

impl Inventory {
    /// Returns `true` if no known resource group has a machine of this name, by reads not older than `freshness`.
    ///
    /// # Errors
    ///
    /// The reason if a read failed, or if the lists as a whole cannot be trusted.
    pub async fn is_unlisted(&self, query: &MachineQuery, freshness: Duration) -> Result<bool, String> {
        let results = self.evaluate_all(self.in_all_groups(query, freshness), resolve::lookup).await;
        self.health()?;
        Ok(lacks_machine(&results)? && !is_known(&self.state.lock().snapshot, &query.node_name))
    }

    fn in_all_groups(&self, query: &MachineQuery, freshness: Duration) -> Arc<[PendingQuery]> {
        let first = PendingQuery::new(query, &self.settings, self.clock.now(), Freshness::Within(freshness), false);
        let mut groups: BTreeSet<ResourceId> = self.state.lock().snapshot.scale_sets.keys().cloned().collect();
        groups.extend([self.settings.group.clone(), first.group.clone()]);
        groups.into_iter().map(|group| PendingQuery { group, ..first.clone() }).collect()
    }
}

fn is_known(snapshot: &InventorySnapshot, name: &str) -> bool {
    snapshot.entries.values().any(|entry| spelling::same_name(entry.machine.node_name(), name))
}

/// Returns `true` if every location lacks the machine.
fn lacks_machine(results: &[Option<LookupResult>]) -> Result<bool, String> {
    let mut failure = None;
    for result in results {
        match result {
            Some(Err(LookupError::NotListed(_))) => {}
            Some(Ok(_) | Err(LookupError::NoAddress(_))) => return Ok(false),
            Some(Err(LookupError::Arm(error))) => failure = Some(error.to_string()),
            None => failure = Some("the inventory did not answer".to_owned()),
        }
    }
    failure.map_or(Ok(true), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{
        instances::fixtures::scale_set_instance, inventory::tests::arm_fixture::error, model::ArmErrorClass,
    };

    #[test]
    fn only_complete_results_lack_a_machine() {
        let lacks = || Some(Err(LookupError::NotListed("n".into())));
        let found = || Some(Ok(Arc::new(scale_set_instance("s", 0))));
        let failed = || Some(Err(LookupError::Arm(error(ArmErrorClass::Throttled))));
        assert_eq!(lacks_machine(&[lacks(), lacks()]), Ok(true));
        assert_eq!(lacks_machine(&[lacks(), found()]), Ok(false));
        assert_eq!(lacks_machine(&[failed(), found()]), Ok(false));
        assert_eq!(lacks_machine(&[lacks(), Some(Err(LookupError::NoAddress("n".into())))]), Ok(false));
        assert!(lacks_machine(&[lacks(), failed()]).is_err());
        assert!(lacks_machine(&[lacks(), None]).is_err());
    }
}
