//! Tags that name the cluster that created a document, and the Service that decides about it. Pure.
//!
//! In: the tags of a document as ARM sent it. Out: the value of a tag, and whether this cluster created the document.

use crate::providers::azure::{
    model::{document::Tags, spelling},
    planner::load_balancer::settings::LoadBalancerSettings,
};

pub(super) const CLUSTER_TAG: &str = "k8s-azure-cluster-name";
pub(super) const OWNER_TAG: &str = "k8s-azure-owner-service";

pub(super) fn tag<'a>(tags: Option<&'a Tags>, key: &str) -> Option<&'a str> {
    tags?.iter().find(|(known, _)| spelling::same_name(known, key)).and_then(|(_, value)| value.as_deref())
}

/// Returns `true` if this cluster created the document.
pub(super) fn is_clusters(tags: Option<&Tags>, settings: &LoadBalancerSettings) -> bool {
    tag(tags, CLUSTER_TAG).is_some_and(|cluster| spelling::same_name(cluster, &settings.cluster))
}
