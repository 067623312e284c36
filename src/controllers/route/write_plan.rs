//! Plan of the writes that the route controller would send now.
//!
//! In: the routes that the provider has, and Nodes. Out: a [`WritePlan`]: the provider's writes, then conditions of Nodes. The notes of
//! the plan are the controller's reasons.

use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

use super::{
    RouteController,
    outcomes::planned_conditions,
    plan::{self, RoutePlan, plan_within},
};
use crate::cloud_provider::{CloudResult, Routes, WritePlan};

/// Plans the routes of `nodes` in the cloud, without conditions. Writes nothing.
///
/// # Errors
///
/// The provider cannot list routes, or cannot plan.
pub async fn plan_of_nodes(
    routes: &dyn Routes,
    cluster: &str,
    nodes: &[Arc<Node>],
    cluster_cidrs: &[IpNet],
) -> CloudResult<WritePlan> {
    let listed = routes.routes_for_plan(cluster).await?;
    plan_writes(routes, cluster, &plan::plan(&listed, nodes, cluster_cidrs)).await
}

impl RouteController {
    /// Plans the writes that [`Self::reconcile`] would send now.
    pub(super) async fn write_plan(&self) -> CloudResult<WritePlan> {
        let cluster = &self.context.cluster_name;
        let routes = self.routes.routes_for_plan(cluster).await?;
        let (nodes, others) = self.own_and_other_nodes();
        let mut plan = plan_within(&routes, &nodes, self.limits());
        let unresolved = self.retain_routes_of_others(&mut plan, &others).await;
        let mut writes = plan_writes(self.routes.as_ref(), cluster, &plan).await?;
        writes.unread.extend(unresolved);
        writes.writes.extend(planned_conditions(&plan, self.context.clock.wall()));
        Ok(writes)
    }
}

/// Plans the writes that carry out `plan` in the cloud.
pub(super) async fn plan_writes(routes: &dyn Routes, cluster: &str, plan: &RoutePlan) -> CloudResult<WritePlan> {
    let mut writes = routes.plan_changes(cluster, &plan.changes).await?;
    writes.notes.extend(plan.reasons());
    let (retained, refused): (Vec<_>, Vec<_>) = plan.refused.iter().partition(|refused| refused.has_route);
    writes.retained.extend(retained.iter().map(ToString::to_string));
    writes.refused.extend(refused.iter().map(ToString::to_string));
    writes.unread.extend(plan.unresolved());
    Ok(writes)
}
