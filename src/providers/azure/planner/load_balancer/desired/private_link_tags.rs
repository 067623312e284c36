//! Tags of private link services: which cluster and which Service one belongs to. Pure.
//!
//! In: a private link service as ARM sent it. Out: what its tags say.

use super::{context::PlanContext, draft::FrontendUse};
use crate::providers::azure::{
    arm::{document::Tags, private_link::PrivateLinkService, spelling},
    planner::load_balancer::settings::LoadBalancerSettings,
};

/// Tags that say whose a private link service is.
pub(super) const CLUSTER_TAG: &str = "k8s-azure-cluster-name";
pub(super) const OWNER_TAG: &str = "k8s-azure-owner-service";

pub(super) fn tag<'a>(tags: Option<&'a Tags>, key: &str) -> Option<&'a str> {
    tags?.iter().find(|(known, _)| spelling::same_name(known, key)).and_then(|(_, value)| value.as_deref())
}

/// Returns the private link services of others that lead to a frontend, as uses of it.
pub(super) fn foreign_uses(context: &PlanContext<'_>, frontend: &str) -> Vec<FrontendUse> {
    let links = context.observed.private_links.services.iter();
    let foreign = links.filter(|link| link.leads_to(frontend) && !is_clusters(link, context.settings));
    let id = |link: &PrivateLinkService| link.id.clone().unwrap_or_default();
    foreign.map(|link| FrontendUse { kind: "private link service", name: id(link) }).collect()
}

/// Whether this cluster made it.
pub(super) fn is_clusters(link: &PrivateLinkService, settings: &LoadBalancerSettings) -> bool {
    tag(link.tags.as_ref(), CLUSTER_TAG).is_some_and(|cluster| spelling::same_name(cluster, &settings.cluster))
}
