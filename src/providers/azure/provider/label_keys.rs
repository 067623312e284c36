//! Labels of Nodes or Services that the provider reads, and the relist when they change.
//!
//! In: the labels that configurations read, in their order. Out: for each label of an object, whether its informer keeps it;
//! for each configuration, whether the store has all labels that it reads. A configuration is not used before that: without
//! its labels, machines would leave their pools, and Services their load balancers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;

use crate::{
    cloud_provider::{CloudError, CloudResult},
    runtime::store::{InformerStore, WatchStatus},
};

/// Time limit of the relist that adds newly read labels.
pub(super) const RELIST_TIMEOUT: Duration = Duration::from_secs(60);

/// Keys of labels that some configuration has named so far, and the relist that adds them ([`InformerStore::request_relist`]).
pub(super) struct LabelKeys {
    keys: ArcSwap<BTreeMap<String, u64>>,
    /// The objects and the field that names their labels, for errors.
    subject: &'static str,
}

impl LabelKeys {
    /// Creates the set of the labels that are `read` from the beginning. They are in the first list.
    pub(super) fn new(subject: &'static str, read: BTreeSet<String>) -> Self {
        Self { keys: ArcSwap::from_pointee(read.into_iter().map(|key| (key, 0)).collect()), subject }
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.keys.load().contains_key(key)
    }

    /// Resolves when the store has the labels that are `read`. A repeated call waits for the same list, however the first wait ended.
    pub(super) async fn demand<K>(&self, read: &BTreeSet<String>, objects: &InformerStore<K>) -> CloudResult<()> {
        let is_unused = objects.status() == WatchStatus::default();
        let list = self.list_with(read, objects);
        if is_unused {
            // No controller needs the store, or its first list, which will have these labels, has not begun.
            return Ok(());
        }
        tokio::time::timeout(RELIST_TIMEOUT, objects.wait_for_relist(list)).await.map_err(|_| {
            let Self { subject, .. } = self;
            let seconds = RELIST_TIMEOUT.as_secs();
            CloudError::failed(format!(
                "cannot list the {subject} names: no complete answer of the API server for {seconds} s; it is tried again"
            ))
        })
    }

    /// Returns the list that brings all that is `read`.
    fn list_with<K>(&self, read: &BTreeSet<String>, objects: &InformerStore<K>) -> u64 {
        let mut keys = BTreeMap::clone(&self.keys.load());
        let new: Vec<_> = read.iter().filter(|key| !keys.contains_key(*key)).cloned().collect();
        if !new.is_empty() {
            // The informer must keep them before the list begins.
            keys.extend(new.iter().map(|key| (key.clone(), u64::MAX)));
            self.keys.store(Arc::new(keys.clone()));
            let list = objects.request_relist();
            keys.extend(new.into_iter().map(|key| (key, list)));
            self.keys.store(Arc::new(keys.clone()));
        }
        read.iter().filter_map(|key| keys.get(key).copied()).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;

    use super::*;

    fn labels(keys: &[&str]) -> BTreeSet<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_was_given_up_does_not_count_as_the_list() {
        let subject = "Services with the labels that serviceLabelSelector";
        let (keys, services) = (LabelKeys::new(subject, labels(&["team"])), InformerStore::<Service>::of([]));
        assert_eq!(keys.demand(&labels(&["team"]), &services).await, Ok(()));
        let moment = Duration::from_secs(1);
        assert!(tokio::time::timeout(moment, keys.demand(&labels(&["tier"]), &services)).await.is_err());
        assert!(keys.contains("tier") && keys.contains("team"), "the list would drop it");
        let error = keys.demand(&labels(&["tier"]), &services).await.unwrap_err().to_string();
        assert!(error.contains("serviceLabelSelector names") && error.contains("60 s"), "{error}");
        services.relisted(1);
        assert_eq!(keys.demand(&labels(&["tier"]), &services).await, Ok(()), "a further try asks for no further list");
        assert!(keys.demand(&labels(&["zone"]), &services).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_nothing_fills_is_not_waited_for() {
        let (keys, services) = (LabelKeys::new("Services", BTreeSet::new()), InformerStore::<Service>::default());
        assert_eq!(keys.demand(&labels(&["tier"]), &services).await, Ok(()));
        assert!(keys.contains("tier"), "a first list to come has it");
    }
}
