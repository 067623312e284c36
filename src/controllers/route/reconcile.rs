//! Reconcile of all routes: list, plan, one batch, conditions and events.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt, api::Patch};
use serde_json::Value;

use super::{
    RouteController,
    config::RouteLimits,
    drift::{KnownRoutes, RouteDrift},
    events,
    outcomes::{RouteSyncResult, api_failure, condition_of, condition_patch, evaluate, outcome, retry_after_cloud_error},
    plan::{RefusedRoute, RoutePlan, UnlistedNode, plan_within, retain_routes_of_unlisted_nodes, unlisted_nodes},
};
use crate::{
    cloud_provider::{CloudError, RouteOutcomes},
    node::pod_cidrs,
    runtime::{
        patch::{ApiError, PatchTarget},
        store::ObjectKey,
        work_queue::ReconcileResult,
    },
    status::{ControllerStatus, DriftOutcome},
};

/// Number of conditions written concurrently. Upstream: `maxConcurrentRouteOperations`.
const MAX_CONCURRENT_PATCHES: usize = 200;

/// Largest number of events and log lines about externally changed routes for one reconcile. The metric counts all.
const MAX_DRIFT_EVENTS: usize = 20;

/// Maximum number of retries after conflicts, each after 100 to 200 ms. Upstream: `updateNetworkConditionBackoff`.
const CONFLICT_RETRIES: u32 = 5;
const MIN_CONFLICT_DELAY: Duration = Duration::from_millis(100);
const MAX_CONFLICT_DELAY: Duration = Duration::from_millis(200);

/// Nodes whose routes other controllers manage.
pub(super) struct OtherNodes {
    /// Nodes of other clouds.
    foreign: Vec<Arc<Node>>,
    /// Whether Nodes may exist that the store lacks: the informer's selector excludes them, or a list is pending.
    may_be_hidden: bool,
}

impl RouteController {
    /// Reconciles all routes and conditions with the nodes.
    pub(super) async fn reconcile(self: Arc<Self>) -> ReconcileResult {
        // Before the first list the store is empty, and every route would be deleted.
        self.nodes.synced().await;
        self.context.metrics.route_sync_total.with_label_values::<&str>(&[]).inc();
        let routes = match self.routes.list_routes(&self.context.cluster_name).await {
            Ok(routes) => routes,
            Err(error) => return self.handle_list_error(&error),
        };
        // Nodes are read after the routes, so that a node that appears in between is not considered deleted.
        let (nodes, others) = self.own_and_other_nodes();
        let mut plan = plan_within(&routes, &nodes, self.limits());
        let unresolved = self.retain_routes_of_others(&mut plan, &others).await;
        self.report_drift(&plan, &nodes);
        self.report_refused(&plan);
        let started = self.context.clock.now();
        let outcomes = self.apply(&plan).await;
        let mut settled = evaluate(&plan, &outcomes);
        self.report(&plan, &settled, started.elapsed());
        let baseline = KnownRoutes::new(&routes, &nodes, &plan, &settled.node_results, self.context.clock.wall());
        self.last_reconcile.lock().baseline = Some(baseline);
        let unwritten = self.write_conditions(&settled).await;
        settled.retries.extend(unresolved.into_iter().chain(unwritten).map(ReconcileResult::Failed));
        outcome(&settled.retries)
    }

    pub(super) fn limits(&self) -> RouteLimits<'_> {
        RouteLimits { cluster_cidrs: &self.config.cluster_cidrs, node_masks: self.config.node_masks }
    }

    /// Returns the Nodes whose routes this controller manages, and the others.
    pub(super) fn own_and_other_nodes(&self) -> (Vec<Arc<Node>>, OtherNodes) {
        let may_be_hidden = self.config.nodes_are_filtered || !self.nodes.proves_absence();
        let (own, foreign) = self.nodes.list().into_iter().partition(|node| !self.provider.is_foreign(node));
        (own, OtherNodes { foreign, may_be_hidden })
    }

    /// Removes from the plan the deletion of routes that foreign, hidden or unconfirmed Nodes may need. Returns the reasons why
    /// Nodes are unconfirmed.
    pub(super) async fn retain_routes_of_others(&self, plan: &mut RoutePlan, others: &OtherNodes) -> Vec<String> {
        let hidden = |node: &Arc<Node>| (node.name_any(), UnlistedNode::Hidden(pod_cidrs(node).to_vec()));
        let foreign: HashMap<_, _> = others.foreign.iter().map(hidden).collect();
        let unlisted = unlisted_nodes(plan).into_iter().filter(|name| !foreign.contains_key(name));
        let (mut seen, unresolved) = match others.may_be_hidden {
            true => self.find_nodes(unlisted.collect()).await,
            false => (unlisted.map(|name| (name, UnlistedNode::Gone)).collect(), Vec::new()),
        };
        seen.extend(foreign);
        retain_routes_of_unlisted_nodes(plan, &seen);
        unresolved
    }

    /// Reads these Nodes from the API server. Returns their states, and the failed reads.
    async fn find_nodes(&self, names: Vec<String>) -> (HashMap<String, UnlistedNode>, Vec<String>) {
        let lookups: Vec<_> = names.into_iter().map(|name| self.find_node(name)).collect();
        let lookup_results: Vec<_> = futures::stream::iter(lookups).buffer_unordered(MAX_CONCURRENT_PATCHES).collect().await;
        let mut unresolved = Vec::new();
        let or_unknown = |(name, seen): (String, Result<UnlistedNode, ApiError>)| {
            let existence = seen.unwrap_or_else(|error| {
                unresolved.extend(api_failure("whether a node exists", &error));
                UnlistedNode::Unknown
            });
            (name, existence)
        };
        (lookup_results.into_iter().map(or_unknown).collect(), unresolved)
    }

    async fn find_node(&self, name: String) -> (String, Result<UnlistedNode, ApiError>) {
        let seen = match self.context.writer.get(&self.context.nodes(), &ObjectKey::cluster(&name)).await {
            Ok(node) => Ok(UnlistedNode::Hidden(pod_cidrs(&node).to_vec())),
            Err(ApiError::NotFound(_)) => Ok(UnlistedNode::Gone),
            Err(error) => Err(error),
        };
        (name, seen)
    }

    fn handle_list_error(&self, error: &CloudError) -> ReconcileResult {
        let retry = retry_after_cloud_error("listing routes", error);
        self.last_reconcile.lock().list_error = retry.is_some().then(|| format!("routes cannot be listed: {error}"));
        retry.unwrap_or(ReconcileResult::Done)
    }

    /// Reports external changes since the last reconcile. The plan reverts them.
    fn report_drift(&self, plan: &RoutePlan, nodes: &[Arc<Node>]) {
        let mut last = self.last_reconcile.lock();
        let Some((since, drift)) = last.baseline.as_ref().map(|baseline| (baseline.at, baseline.drift(plan, nodes))) else {
            return;
        };
        let found = self.context.clock.wall();
        for (number, RouteDrift { change, route, node }) in drift.iter().enumerate() {
            self.context.metrics.route_drift_total.with_label_values(&[change.as_str()]).inc();
            if number >= MAX_DRIFT_EVENTS {
                continue;
            }
            let detail = format!("another writer {} between {since:.0} and {found:.0}", drift[number]);
            tracing::warn!(node = %route.target_node, detail, "found drift");
            let about = node.as_ref().map_or_else(String::new, |node| node.name_any());
            last.drift.note(&about, found, DriftOutcome::Repaired, &detail);
            if let Some(node) = node {
                self.context.events.record(events::route_drifted(node, &detail));
            }
        }
        if let Some(omitted) = drift.len().checked_sub(MAX_DRIFT_EVENTS).filter(|omitted| *omitted > 0) {
            tracing::warn!(omitted, "found drift of more routes");
        }
    }

    async fn apply(&self, plan: &RoutePlan) -> RouteOutcomes {
        let changes = &plan.changes;
        if changes.delete.is_empty() && changes.create.is_empty() {
            return RouteOutcomes::default();
        }
        if let Err(error) = self.context.writer.leadership().check() {
            return RouteOutcomes::failed(changes, &CloudError::NotLeader(error.to_string()));
        }
        self.routes.apply_routes(&self.context.cluster_name, changes).await
    }

    /// Records one event for each pod CIDR that gets no new route.
    fn report_refused(&self, plan: &RoutePlan) {
        let key = |refused: &RefusedRoute| (refused.node.uid().unwrap_or_default(), refused.cidr, refused.has_route);
        let before = std::mem::replace(&mut self.last_reconcile.lock().refused, plan.refused.iter().map(key).collect());
        for refused in plan.refused.iter().filter(|refused| !before.contains(&key(refused))) {
            let RefusedRoute { node, cidr, reason, has_route } = refused;
            tracing::warn!(node = %node.name_any(), %cidr, %reason, has_route, "pod CIDR gets no new route");
            self.context.events.record(events::route_refused(refused));
        }
    }

    fn report(&self, plan: &RoutePlan, settled: &RouteSyncResult, took: Duration) {
        let (unchanged, deletions, creations) = (plan.unchanged, plan.changes.delete.len(), plan.changes.create.len());
        if deletions + creations > 0 {
            let unfinished = settled.retries.len();
            tracing::info!(unchanged, deletions, creations, unfinished, ?took, "changed routes in one batch");
        }
        for (node, index, error) in &settled.failed {
            let (hint, route) = &plan.changes.create[*index];
            let event = events::failed_to_create_route(node, hint, &route.destination_cidr, took, &error.to_string());
            self.context.events.record(event);
        }
        let summary =
            format!("{unchanged} kept, {deletions} to delete, {creations} to create, {} unfinished", settled.retries.len());
        let mut last = self.last_reconcile.lock();
        (last.list_error, last.summary) = (None, Some(summary));
    }

    async fn write_conditions(&self, settled: &RouteSyncResult) -> Vec<String> {
        let now = self.context.clock.wall();
        let is_due = |(node, has_all): &&(Arc<Node>, bool)| !(*has_all && self.waits_for_repair(node));
        let patches = settled.node_results.iter().filter(is_due).filter_map(|(node, has_all)| {
            let patch = condition_patch(node, *has_all, now)?;
            Some(self.write_condition(Arc::clone(node), patch))
        });
        // Collected first: a stream over a borrowing closure is not `Send` for every lifetime.
        let patches: Vec<_> = patches.collect();
        let written = futures::stream::iter(patches).buffer_unordered(MAX_CONCURRENT_PATCHES);
        written.filter_map(std::future::ready).collect().await
    }

    pub(super) async fn write_condition(&self, node: Arc<Node>, patch: Value) -> Option<String> {
        let (key, patch) = (ObjectKey::of(node.as_ref()), Patch::Strategic(patch));
        let mut retries = 0;
        loop {
            match self.context.writer.patch(&self.context.nodes(), &key, PatchTarget::Status, &patch).await {
                Ok(_) => return None,
                Err(ApiError::Conflict(_)) if retries < CONFLICT_RETRIES => retries += 1,
                Err(error) => return api_failure(&condition_of(&node), &error),
            }
            let range = MAX_CONFLICT_DELAY - MIN_CONFLICT_DELAY;
            let chance = self.context.clock.chance((&key, retries));
            tokio::time::sleep(MIN_CONFLICT_DELAY + range.mul_f64(chance)).await;
        }
    }

    /// Returns the status of the controller without its queues.
    pub(super) fn reconcile_status(&self) -> ControllerStatus {
        let last = self.last_reconcile.lock();
        let cidrs: Vec<_> = self.config.cluster_cidrs.iter().map(IpNet::to_string).collect();
        let mut facts = BTreeMap::from([("cluster CIDRs".to_owned(), cidrs.join(","))]);
        let count = last.refused.iter().filter(|(_, _, has_route)| !has_route).count();
        facts.extend((count > 0).then(|| ("pod CIDRs without route".to_owned(), count.to_string())));
        facts.extend(last.summary.clone().map(|summary| ("routes at the last reconcile".to_owned(), summary)));
        ControllerStatus {
            problem: last.list_error.clone(),
            facts,
            drift: last.drift.latest(),
            ..ControllerStatus::default()
        }
    }
}
