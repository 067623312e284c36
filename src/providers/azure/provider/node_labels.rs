//! Labels of Nodes that the provider reads, and the relist when they change.
//!
//! In: configurations, in their order. Out: a decision for each label of each Node, whose informer drops the others; and for
//! each configuration whether the store of Nodes has all that it reads. A configuration is not used before that: without its
//! labels, machines would leave their pools.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Node;

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{config::AzureConfig, load_balancer::cluster_watches::node_labels_read},
    runtime::store::InformerStore,
};

/// Longest wait for a list of the Nodes with labels that are read from now on.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Keys of labels that some configuration has named so far, and the list that brings them ([`InformerStore::want_relist`]).
pub(super) struct NodeLabelKeys(ArcSwap<BTreeMap<String, u64>>);

impl NodeLabelKeys {
    /// Creates the set of labels that are always read, and those of the initial configuration, if there is one. They are in
    /// the first list.
    pub(super) fn of(first: Option<&AzureConfig>) -> Self {
        let read = first.map_or_else(|| node_labels_read(&AzureConfig::default()), node_labels_read);
        Self(ArcSwap::from_pointee(read.into_iter().map(|key| (key, 0)).collect()))
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.0.load().contains_key(key)
    }

    /// Resolves when the store has the labels that `config` reads. A repeated call waits for the same list, however the
    /// first wait ended.
    pub(super) async fn demand(&self, config: &AzureConfig, nodes: &InformerStore<Node>) -> CloudResult<()> {
        let list = self.list_with(config, nodes);
        tokio::time::timeout(PATIENCE, nodes.relist_met(list)).await.map_err(|_| {
            let reason = "the Nodes could not be listed with the labels that nodeSelector names";
            CloudError::failed(format!("{reason}: no complete answer of the API server for {} s", PATIENCE.as_secs()))
        })
    }

    /// Returns the list that brings all that `config` reads.
    fn list_with(&self, config: &AzureConfig, nodes: &InformerStore<Node>) -> u64 {
        let (mut keys, read) = (BTreeMap::clone(&self.0.load()), node_labels_read(config));
        let new: Vec<_> = read.iter().filter(|key| !keys.contains_key(*key)).cloned().collect();
        if !new.is_empty() {
            // The informer has to keep them before the list begins.
            keys.extend(new.iter().map(|key| (key.clone(), u64::MAX)));
            self.0.store(Arc::new(keys.clone()));
            let list = nodes.want_relist();
            keys.extend(new.into_iter().map(|key| (key, list)));
            self.0.store(Arc::new(keys.clone()));
        }
        read.iter().filter_map(|key| keys.get(key).copied()).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    use super::*;
    use crate::providers::azure::config::{LoadBalancerSku, MultipleStandardLoadBalancer};

    fn selecting(label: &str) -> AzureConfig {
        let labels = BTreeMap::from([(label.to_owned(), "x".to_owned())]);
        let selector = LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
        let entry =
            MultipleStandardLoadBalancer { node_selector: Some(selector), ..MultipleStandardLoadBalancer::default() };
        AzureConfig {
            load_balancer_sku: LoadBalancerSku::Standard,
            multiple_standard_load_balancer_configurations: vec![entry],
            ..AzureConfig::default()
        }
    }

    #[test]
    fn labels_that_are_always_read_are_kept_before_there_is_a_configuration() {
        let keys = NodeLabelKeys::of(None);
        assert!(keys.contains("kubernetes.azure.com/managed") && !keys.contains("tier"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_was_given_up_does_not_count_as_the_list() {
        let (keys, nodes) = (NodeLabelKeys::of(None), InformerStore::of([]));
        assert_eq!(keys.demand(&AzureConfig::default(), &nodes).await, Ok(()));
        let moment = Duration::from_secs(1);
        assert!(tokio::time::timeout(moment, keys.demand(&selecting("tier"), &nodes)).await.is_err());
        assert!(keys.contains("tier"), "the list would drop it");
        let error = keys.demand(&selecting("tier"), &nodes).await.unwrap_err().to_string();
        assert!(error.contains("nodeSelector") && error.contains("60 s"), "{error}");
        nodes.relisted(1);
        assert_eq!(keys.demand(&selecting("tier"), &nodes).await, Ok(()), "a further try asks for no further list");
        assert!(keys.demand(&selecting("zone"), &nodes).await.is_err());
    }
}
