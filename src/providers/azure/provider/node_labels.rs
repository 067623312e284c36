//! Which labels of Nodes the provider looks at, and how it comes by those that it did not look at before.
//!
//! In: configurations, as they come. Out: an answer for each label of each Node, whose informer drops the others.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Node;

use crate::{
    providers::azure::{config::AzureConfig, load_balancer::cluster_watches::node_labels_read},
    runtime::store::InformerStore,
};

/// Longest wait for a list of the Nodes with labels that are read from now on.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keys of labels that some configuration has named so far.
pub(super) struct NodeLabelKeys(ArcSwap<BTreeSet<String>>);

impl NodeLabelKeys {
    /// Those of the configuration that is known at the start, if any.
    pub(super) fn of(first: Option<&AzureConfig>) -> Self {
        Self(ArcSwap::from_pointee(first.map(node_labels_read).unwrap_or_default()))
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.0.load().contains(key)
    }

    /// Labels that `config` is the first to read are fetched before anything is planned without them.
    pub(super) async fn demand(&self, config: &AzureConfig, nodes: &InformerStore<Node>) {
        let (known, read) = (self.0.load_full(), node_labels_read(config));
        if read.is_subset(&known) {
            return;
        }
        self.0.store(Arc::new(&read | &known));
        if tokio::time::timeout(PATIENCE, nodes.relist()).await.is_err() {
            tracing::warn!("the Nodes could not be listed again yet; labels that are read from now on may be missing");
        }
    }
}
