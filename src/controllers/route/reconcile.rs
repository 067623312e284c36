//! One reconcile of all routes: list, plan, one batch, conditions and events.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use serde_json::Value;

use super::{
    config::{NodeMaskSizes, RouteControllerConfig, RouteLimits},
    drift::{KnownRoutes, RouteDrift, RouteDriftChange},
    events,
    outcomes::{RouteRetry, RouteSyncResult, condition_of, condition_patch, evaluate, outcome, planned_conditions},
    plan::{RefusedRoute, RoutePlan, UnlistedNode, keep_routes_of_unlisted, plan_within, unlisted_nodes},
    repair_interval::ConditionRepairs,
};
use crate::{
    cloud_provider::{
        CloudError, CloudProvider, CloudResult, RouteOutcomes, Routes, WritePlan,
        drift::{DriftLog, DriftOutcome},
    },
    controllers::{ControllerContext, ControllerStatus},
    node::pod_cidrs,
    runtime::{
        patch::{ApiError, PatchKind, PatchTarget},
        store::{InformerStore, ObjectKey},
        work_queue::ReconcileResult,
    },
};

/// How many conditions are written at once. Upstream: `maxConcurrentRouteOperations`.
const MAX_CONCURRENT_PATCHES: usize = 200;

/// How many Nodes that the informer's selector hides a dry run reads.
const MAX_DRY_RUN_READS: usize = 100;

/// Most events and lines of the log about routes that somebody else changed, for one reconcile. The metric counts all.
const MAX_DRIFT_EVENTS: usize = 20;

/// Conflicts are retried this often, each time after 100 to 200 ms. Upstream: `updateNetworkConditionBackoff`.
const CONFLICT_RETRIES: u32 = 5;
const CONFLICT_DELAY_MILLIS: std::ops::Range<u64> = 100..200;

pub(super) struct RouteReconciler {
    pub(super) context: ControllerContext,
    provider: Arc<dyn CloudProvider>,
    routes: Arc<dyn Routes>,
    pub(super) nodes: InformerStore<Node>,
    cluster_cidrs: Vec<IpNet>,
    node_masks: Option<NodeMaskSizes>,
    nodes_are_filtered: bool,
    /// Of the last reconcile, for status pages.
    last_reconcile: Mutex<LastRouteReconcile>,
    pub(super) condition_repairs: Mutex<ConditionRepairs>,
}

#[derive(Default)]
pub(super) struct LastRouteReconcile {
    list_error: Option<String>,
    summary: Option<String>,
    /// What there was when it ended.
    pub(super) known: Option<KnownRoutes>,
    drift: DriftLog,
    /// Pod CIDRs without route, by the UID of the Node, as far as events report them.
    refused: BTreeSet<(String, IpNet)>,
}

/// `plan`, and what the cloud makes of it.
pub(super) async fn print(routes: &dyn Routes, cluster: &str, plan: &RoutePlan) -> CloudResult<String> {
    let in_cloud = match routes.plan_routes(cluster, &plan.changes).await {
        Err(CloudError::NotImplemented) => String::new(),
        told => told?,
    };
    let heading = (!in_cloud.is_empty()).then_some("in the cloud:\n");
    let indented = in_cloud.lines().fold(String::new(), |text, line| text + "  " + line + "\n");
    Ok(format!("{plan}{}{indented}", heading.unwrap_or_default()))
}

impl RouteReconciler {
    pub(super) fn new(
        context: &ControllerContext,
        provider: Arc<dyn CloudProvider>,
        routes: Arc<dyn Routes>,
        nodes: InformerStore<Node>,
        config: &RouteControllerConfig,
    ) -> Self {
        for change in RouteDriftChange::ALL {
            drop(context.metrics.route_drift_total.with_label_values(&[change.as_str()]));
        }
        Self {
            context: context.clone(),
            provider,
            routes,
            nodes,
            cluster_cidrs: config.cluster_cidrs.clone(),
            node_masks: config.node_masks,
            nodes_are_filtered: config.nodes_are_filtered,
            last_reconcile: Mutex::default(),
            condition_repairs: Mutex::default(),
        }
    }

    /// Brings all routes and conditions in line with the nodes.
    pub(super) async fn reconcile(&self) -> ReconcileResult {
        // An empty store before the first list would read as "all nodes are gone".
        self.nodes.synced().await;
        self.context.metrics.route_sync_total.with_label_values::<&str>(&[]).inc();
        let routes = match self.routes.list_routes(&self.context.cluster_name).await {
            Ok(routes) => routes,
            Err(error) => return self.cannot_list(&error),
        };
        // Nodes are read after the routes: a node that appears in between is not taken for one that is gone.
        let (nodes, foreign) = self.own_and_foreign_nodes();
        let mut plan = plan_within(&routes, &nodes, self.limits());
        let unsure = self.retain_routes_of_others(&mut plan, &foreign, usize::MAX).await;
        self.tell_drift(&plan, &nodes);
        self.report_refused(&plan);
        let started = self.context.clock.now();
        let outcomes = self.apply(&plan).await;
        let mut settled = evaluate(&plan, &outcomes);
        self.report(&plan, &settled, started.elapsed());
        let known = KnownRoutes::new(&routes, &nodes, &plan, &settled.node_results, self.context.clock.wall());
        self.last_reconcile().known = Some(known);
        settled.retries.extend(unsure);
        settled.retries.extend(self.write_conditions(&settled).await);
        outcome(&settled.retries)
    }

    fn limits(&self) -> RouteLimits<'_> {
        RouteLimits { cluster_cidrs: &self.cluster_cidrs, node_masks: self.node_masks }
    }

    /// The Nodes whose routes are made here, and those of other clouds.
    fn own_and_foreign_nodes(&self) -> (Vec<Arc<Node>>, Vec<Arc<Node>>) {
        self.nodes.list().into_iter().partition(|node| !self.provider.is_foreign(node))
    }

    /// Removes from the plan the deletion of routes that `foreign` Nodes or Nodes hidden by the informer's selector need, and of routes to
    /// Nodes of which it is not known whether they exist; returns the reasons for the latter. `limit`: how many Nodes are read at most; the
    /// others are not known.
    async fn retain_routes_of_others(&self, plan: &mut RoutePlan, foreign: &[Arc<Node>], limit: usize) -> Vec<RouteRetry> {
        let hidden = |node: &Arc<Node>| (node.name_any(), UnlistedNode::Hidden(pod_cidrs(node).to_vec()));
        let foreign: HashMap<_, _> = foreign.iter().map(hidden).collect();
        let unlisted = unlisted_nodes(plan).into_iter().filter(|name| !foreign.contains_key(name));
        let (mut seen, unresolved) = match self.nodes_are_filtered {
            true => self.find_nodes(unlisted.take(limit).collect()).await,
            false => (unlisted.map(|name| (name, UnlistedNode::Gone)).collect(), Vec::new()),
        };
        seen.extend(foreign);
        keep_routes_of_unlisted(plan, &seen);
        unresolved
    }

    /// What the API server says of these Nodes, and why it did not say it of some.
    async fn find_nodes(&self, names: Vec<String>) -> (HashMap<String, UnlistedNode>, Vec<RouteRetry>) {
        let looks: Vec<_> = names.into_iter().map(|name| self.find_node(name)).collect();
        let looked: Vec<_> = futures::stream::iter(looks).buffer_unordered(MAX_CONCURRENT_PATCHES).collect().await;
        let mut unsure = Vec::new();
        let known = |(name, seen): (String, Result<UnlistedNode, ApiError>)| {
            let stranger = seen.unwrap_or_else(|error| {
                unsure.extend(RouteRetry::from_api("whether a node exists", &error));
                UnlistedNode::Unknown
            });
            (name, stranger)
        };
        (looked.into_iter().map(known).collect(), unsure)
    }

    /// What [`Self::reconcile`] would write now.
    pub(super) async fn forecast(&self) -> CloudResult<WritePlan> {
        let cluster = &self.context.cluster_name;
        let routes = self.routes.peek_routes(cluster).await?;
        let (nodes, foreign) = self.own_and_foreign_nodes();
        let mut plan = plan_within(&routes, &nodes, self.limits());
        let unsure = self.retain_routes_of_others(&mut plan, &foreign, usize::MAX).await;
        let mut writes = self.routes.forecast_routes(cluster, &plan.changes).await?;
        writes.unread.extend(unsure.iter().map(|retry| retry.reason().to_owned()));
        writes.writes.extend(planned_conditions(&plan, self.context.clock.wall()));
        Ok(writes)
    }

    /// What [`Self::reconcile`] would do to routes now. Of Nodes that the informer's selector hides only the first are read.
    pub(super) async fn dry_run(&self) -> CloudResult<String> {
        let cluster = &self.context.cluster_name;
        let routes = self.routes.peek_routes(cluster).await?;
        let (nodes, foreign) = self.own_and_foreign_nodes();
        let mut plan = plan_within(&routes, &nodes, self.limits());
        let to_read = if self.nodes_are_filtered { unlisted_nodes(&plan).len() } else { 0 };
        let unread = to_read.saturating_sub(MAX_DRY_RUN_READS);
        self.retain_routes_of_others(&mut plan, &foreign, MAX_DRY_RUN_READS).await;
        let text = print(self.routes.as_ref(), cluster, &plan).await?;
        Ok(match unread {
            0 => text,
            _ => {
                format!("{unread} Nodes that the filter hides were not looked at: their routes are shown as waiting\n{text}")
            }
        })
    }

    async fn find_node(&self, name: String) -> (String, Result<UnlistedNode, ApiError>) {
        let api: Api<Node> = Api::all(self.context.writer.client().clone());
        let seen = match self.context.writer.get(&api, &ObjectKey::cluster(&name)).await {
            Ok(node) => Ok(UnlistedNode::Hidden(pod_cidrs(&node).to_vec())),
            Err(ApiError::NotFound(_)) => Ok(UnlistedNode::Gone),
            Err(error) => Err(error),
        };
        (name, seen)
    }

    fn cannot_list(&self, error: &CloudError) -> ReconcileResult {
        let again = RouteRetry::from_cloud("listing routes", error);
        self.last_reconcile().list_error = again.is_some().then(|| format!("routes cannot be listed: {error}"));
        outcome(again.as_slice())
    }

    /// Tells what somebody else did since the last reconcile. The plan puts it right.
    fn tell_drift(&self, plan: &RoutePlan, nodes: &[Arc<Node>]) {
        let mut last = self.last_reconcile();
        let Some((right, drift)) = last.known.as_ref().map(|known| (known.at(), known.drift(plan, nodes))) else { return };
        let found = self.context.clock.wall();
        for (number, RouteDrift { change, route, node }) in drift.iter().enumerate() {
            self.context.metrics.route_drift_total.with_label_values(&[change.as_str()]).inc();
            if number >= MAX_DRIFT_EVENTS {
                continue;
            }
            let what = format!("somebody else {} between {right:.0} and {found:.0}", drift[number]);
            tracing::warn!(node = %route.target_node, what, "found drift");
            let about = node.as_ref().map_or_else(String::new, |node| node.name_any());
            last.drift.note(&about, found, DriftOutcome::Repaired, &what);
            if let Some(node) = node {
                self.context.events.record(events::route_drifted(node, &what));
            }
        }
        if let Some(more) = drift.len().checked_sub(MAX_DRIFT_EVENTS).filter(|more| *more > 0) {
            tracing::warn!(more, "found drift of more routes");
        }
    }

    pub(super) fn last_reconcile(&self) -> MutexGuard<'_, LastRouteReconcile> {
        self.last_reconcile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn apply(&self, plan: &RoutePlan) -> RouteOutcomes {
        let changes = &plan.changes;
        if changes.delete.is_empty() && changes.create.is_empty() {
            return RouteOutcomes::default();
        }
        if let Err(error) = self.context.writer.leadership().check() {
            let refused = || Err(CloudError::NotLeader(error.to_string()));
            return RouteOutcomes {
                deleted: changes.delete.iter().map(|_| refused()).collect(),
                created: changes.create.iter().map(|_| refused()).collect(),
            };
        }
        self.routes.apply_routes(&self.context.cluster_name, changes).await
    }

    /// Records one event for each pod CIDR that gets no route.
    fn report_refused(&self, plan: &RoutePlan) {
        let key = |refused: &RefusedRoute| (refused.node.uid().unwrap_or_default(), refused.cidr);
        let before = std::mem::replace(&mut self.last_reconcile().refused, plan.refused.iter().map(key).collect());
        for refused in plan.refused.iter().filter(|refused| !before.contains(&key(refused))) {
            let RefusedRoute { node, cidr, reason } = refused;
            tracing::warn!(node = %node.name_any(), %cidr, %reason, "pod CIDR gets no route");
            self.context.events.record(events::route_refused(node, cidr, *reason));
        }
    }

    fn report(&self, plan: &RoutePlan, settled: &RouteSyncResult, took: Duration) {
        let (kept, deletions, creations) = (plan.kept, plan.changes.delete.len(), plan.changes.create.len());
        if deletions + creations > 0 {
            let unfinished = settled.retries.len();
            tracing::info!(kept, deletions, creations, unfinished, ?took, "changed routes in one batch");
        }
        for failed in &settled.failed {
            let event = events::failed_to_create_route(&failed.node, &failed.hint, &failed.cidr, took, &failed.error);
            self.context.events.record(event);
        }
        let summary =
            format!("{kept} kept, {deletions} to delete, {creations} to create, {} unfinished", settled.retries.len());
        let mut last = self.last_reconcile();
        (last.list_error, last.summary) = (None, Some(summary));
    }

    async fn write_conditions(&self, settled: &RouteSyncResult) -> Vec<RouteRetry> {
        let now = self.context.clock.wall();
        let patches = settled.node_results.iter().filter_map(|(node, has_all)| {
            let patch = condition_patch(node, *has_all, now)?;
            Some(self.write_condition(Arc::clone(node), patch))
        });
        // Collected first: a stream over a borrowing closure is not `Send` for every lifetime.
        let patches: Vec<_> = patches.collect();
        let written = futures::stream::iter(patches).buffer_unordered(MAX_CONCURRENT_PATCHES);
        written.filter_map(std::future::ready).collect().await
    }

    pub(super) async fn write_condition(&self, node: Arc<Node>, patch: Value) -> Option<RouteRetry> {
        let api: Api<Node> = Api::all(self.context.writer.client().clone());
        let key = ObjectKey::of(node.as_ref());
        let mut retries = 0;
        loop {
            let written =
                self.context.writer.patch(&api, &key, PatchTarget::Status, PatchKind::Strategic, patch.clone()).await;
            match written {
                Ok(_) => return None,
                Err(ApiError::Conflict(_)) if retries < CONFLICT_RETRIES => retries += 1,
                Err(error) => return RouteRetry::from_api(&condition_of(&node), &error),
            }
            let delay = rand::random_range(CONFLICT_DELAY_MILLIS);
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
    }

    /// How it is doing, without the queue.
    pub(super) fn status(&self) -> ControllerStatus {
        let last = self.last_reconcile();
        let cidrs: Vec<_> = self.cluster_cidrs.iter().map(IpNet::to_string).collect();
        let mut facts = vec![("cluster CIDRs".to_owned(), cidrs.join(","))];
        facts.extend(
            (!last.refused.is_empty()).then(|| ("pod CIDRs without route".to_owned(), last.refused.len().to_string())),
        );
        facts.extend(last.summary.clone().map(|summary| ("routes at the last reconcile".to_owned(), summary)));
        ControllerStatus { problem: last.list_error.clone(), unsettled: Vec::new(), facts, drift: last.drift.latest() }
    }
}
