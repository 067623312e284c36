//! Pod routes: one route in the route table for each pod CIDR of each Node.
//!
//! In: what the route controller wants, in batches. Out: at most one write of the table for all that wait, and an answer for each
//! change.
//!
//! ```text
//! Routes ─► next_hop (where to?) ─► commit (who waits?) ─► plan ─► table ◄─► ARM
//!        ─► listing ◄── node_history, table
//! ```
//! [`super::planner::routes`] decides and is pure; `table` reads, caches and writes; `commit` gathers what comes while a write is in
//! flight, as [`super::arm::batch`] has it. The table's association with subnets is never touched.
//!
//! Upstream: `pkg/provider/azure_routes.go`.

mod commit;
mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use self::{commit::RouteCommitter, table::RouteTableStore};
use super::{
    arm::{ArmClient, ResourceId},
    instances::{errors, ownership},
    inventory::{Freshness, Inventory, LookupError, Machine, MachineQuery},
    node,
    operation_metrics::{OperationLabels, OperationTimer},
    planner::routes::{
        listing, names, next_hop,
        node_history::RouteNodeHistory,
        plan::{DesiredRoute, RouteChange, RouteTablePlan, RouteTableStep},
        settings::RouteSettings,
    },
};
use crate::{
    cloud_provider::{
        CloudError, CloudResult, PlannedWrite, Route, RouteChanges, RouteOutcomes, Routes, WritePlan, write_plan::PUT,
    },
    metrics::Metrics,
    runtime::{
        clock::Clock,
        store::{InformerStore, ObjectKey},
    },
};

/// What is said when no table is configured.
const NO_TABLE: &str = "routeTableName is empty in azure.json: name the route table of the nodes' subnet, or set \
                        --configure-cloud-routes=false";

/// Routes in one route table of Azure.
pub struct AzureRoutes {
    inventory: Arc<Inventory>,
    nodes: InformerStore<Node>,
    /// `None` when no table is configured.
    committer: Option<RouteCommitter>,
    node_history: Mutex<RouteNodeHistory>,
    subscription: String,
    metrics: Arc<Metrics>,
    clock: Clock,
}

type RouteMachineResult = Result<Arc<Machine>, LookupError>;

impl AzureRoutes {
    /// Routes of the Nodes in `nodes`, whose machines `inventory` knows, written through `arm` and counted in `metrics`.
    pub fn new(
        settings: RouteSettings,
        arm: &ArmClient,
        inventory: Arc<Inventory>,
        nodes: InformerStore<Node>,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Self {
        let subscription = settings.table.as_ref().map(ResourceId::subscription).unwrap_or_default().to_owned();
        let known = nodes.clone();
        let cidrs_of = move |name: &str| known.get(&ObjectKey::cluster(name)).map_or_else(Vec::new, |node| pod_cidrs(&node));
        let table = settings.table.clone().map(|id| RouteTableStore::new(id, settings, arm, clock));
        let committer = table.map(|table| RouteCommitter::new(table, Box::new(cidrs_of)));
        Self { inventory, nodes, committer, node_history: Mutex::default(), subscription, metrics, clock }
    }

    /// For the status page.
    pub fn status(&self) -> Value {
        match &self.committer {
            Some(committer) => committer.status(),
            None => json!({"problem": NO_TABLE}),
        }
    }

    fn committer(&self) -> CloudResult<&RouteCommitter> {
        self.committer.as_ref().ok_or_else(|| CloudError::invalid(NO_TABLE))
    }

    fn node_history(&self) -> MutexGuard<'_, RouteNodeHistory> {
        self.node_history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&ObjectKey::cluster(name))
    }

    /// What to write for each route to create. `Ok(None)` for those of unmanaged Nodes, which are only to be remembered.
    async fn desired_routes(&self, routes: &[&Route]) -> Vec<CloudResult<Option<DesiredRoute>>> {
        let sources: Vec<Option<MachineQuery>> = routes.iter().map(|route| self.machine_query(route)).collect();
        let mut found = self.machines(routes, &sources).await.into_iter();
        let mut wanted = Vec::new();
        for (route, source) in routes.iter().zip(&sources) {
            wanted.push(match source {
                None => Ok(None),
                Some(_) => match found.next() {
                    Some(Ok(machine)) => next_hop::desired_route(route, &machine).map(Some).map_err(CloudError::Failed),
                    Some(Err(error)) => Err(errors::from_lookup(&error)),
                    None => Err(CloudError::failed("the inventory did not answer")),
                },
            });
        }
        wanted
    }

    /// How the machine is found that the route leads to; `None` for an unmanaged Node.
    fn machine_query(&self, route: &Route) -> Option<MachineQuery> {
        match self.node(&route.target_node) {
            Some(node) => ownership::metadata_query(&node),
            None => Some(MachineQuery { node_name: route.target_node.clone(), id: None, resource_group: None }),
        }
    }

    /// The machines of those `sources` that are some. One whose Node has other addresses is asked for afresh.
    async fn machines(&self, routes: &[&Route], sources: &[Option<MachineQuery>]) -> Vec<RouteMachineResult> {
        let (asked, routes): (Vec<MachineQuery>, Vec<&Route>) =
            sources.iter().zip(routes).filter_map(|(source, route)| Some((source.clone()?, *route))).unzip();
        let began = self.clock.now();
        let mut found = self.inventory.look_up(&asked, Freshness::Cached).await;
        let is_outdated = |at: &usize| matches!(&found[*at], Ok(machine) if next_hop::is_outdated(routes[*at], machine));
        let outdated: Vec<usize> = (0..asked.len().min(found.len())).filter(is_outdated).collect();
        if !outdated.is_empty() {
            let again: Vec<MachineQuery> = outdated.iter().map(|at| asked[*at].clone()).collect();
            let newer = self.inventory.look_up(&again, Freshness::Within(self.clock.now() - began)).await;
            outdated.into_iter().zip(newer).for_each(|(at, newer)| found[at] = newer);
        }
        found
    }

    /// The name under which a route is in the table: as it was listed, or as it would be created.
    fn name_of(route: &Route) -> String {
        if route.name.is_empty() {
            names::route_name(&route.target_node, &route.destination_cidr)
        } else {
            route.name.clone()
        }
    }

    fn begin<'a>(&'a self, request: &'a str, route: &'a Route) -> OperationTimer<'a> {
        let operation = OperationLabels {
            area: "routes",
            request,
            resource_group: self.inventory.settings().group.name(),
            subscription: &self.subscription,
            source: &route.target_node,
        };
        OperationTimer::begin(&self.metrics, self.clock, operation)
    }

    /// Deletions, then what to set.
    fn table_changes(changes: &RouteChanges, wanted: &[CloudResult<Option<DesiredRoute>>]) -> Vec<RouteChange> {
        let removals = changes.delete.iter().map(|route| RouteChange::Remove(Self::name_of(route)));
        removals.chain(wanted.iter().flatten().flatten().cloned().map(RouteChange::Set)).collect()
    }

    /// The memory as it would be after the next list and batch: also the pod CIDRs of unmanaged Nodes are in it.
    fn foreseen_history(&self) -> RouteNodeHistory {
        let nodes = self.nodes.list();
        let mut history = self.node_history().clone();
        history.observe(nodes.iter().map(Arc::as_ref));
        for node in nodes.iter().filter(|node| node::is_unmanaged(node)) {
            pod_cidrs(node).iter().for_each(|cidr| history.remember(node::name(node), cidr));
        }
        history
    }

    /// What the table would be, and the routes of which nobody knows where they lead.
    async fn plan_table(&self, changes: &RouteChanges) -> CloudResult<(RouteTablePlan, Vec<RouteTableStep>)> {
        let committer = self.committer()?;
        let creations: Vec<&Route> = changes.create.iter().map(|(_, route)| route).collect();
        let wanted = self.desired_routes(&creations).await;
        let plan = committer.plan(&Self::table_changes(changes, &wanted)).await?;
        let failed = creations.iter().zip(&wanted).filter_map(|(route, wanted)| Some((route, wanted.as_ref().err()?)));
        let waits = failed.map(|(route, why)| RouteTableStep::Wait { name: Self::name_of(route), why: why.to_string() });
        Ok((plan, waits.collect()))
    }

    async fn apply(&self, changes: &RouteChanges) -> CloudResult<RouteOutcomes> {
        let committer = self.committer()?;
        changes.delete.iter().for_each(|route| self.node_history().forget(&route.target_node, &route.destination_cidr));
        let creations: Vec<&Route> = changes.create.iter().map(|(_, route)| route).collect();
        let wanted = self.desired_routes(&creations).await;
        let unmanaged = creations.iter().zip(&wanted).filter(|(_, wanted)| matches!(wanted, Ok(None)));
        unmanaged.for_each(|(route, _)| self.node_history().remember(&route.target_node, &route.destination_cidr));
        let all = Self::table_changes(changes, &wanted);
        if all.is_empty() {
            let created = wanted.into_iter().map(|wanted| wanted.map(|_| ())).collect();
            return Ok(RouteOutcomes { deleted: Vec::new(), created });
        }
        let mut answers = committer.commit(all).await.into_iter();
        let mut answer = || answers.next().unwrap_or_else(|| Err(CloudError::failed("the route was not tried")));
        let deleted = changes.delete.iter().map(|_| answer()).collect();
        let created = wanted.into_iter().map(|wanted| wanted.and_then(|wanted| wanted.map_or(Ok(()), |_| answer())));
        Ok(RouteOutcomes { deleted, created: created.collect() })
    }
}

#[async_trait]
impl Routes for AzureRoutes {
    async fn list_routes(&self, _cluster: &str) -> CloudResult<Vec<Route>> {
        let table = self.committer()?.list().await?;
        let nodes = self.nodes.list();
        let mut memory = self.node_history();
        memory.observe(nodes.iter().map(Arc::as_ref));
        let is_unmanaged = |name: &str| self.node(name).is_some_and(|node| node::is_unmanaged(&node));
        Ok(listing::list(table.as_deref(), &memory, is_unmanaged))
    }

    async fn create_route(&self, cluster: &str, name_hint: &str, route: &Route) -> CloudResult<()> {
        let changes = RouteChanges { create: vec![(name_hint.to_owned(), route.clone())], ..RouteChanges::default() };
        single_result(self.apply_routes(cluster, &changes).await.created)
    }

    async fn delete_route(&self, cluster: &str, route: &Route) -> CloudResult<()> {
        let changes = RouteChanges { delete: vec![route.clone()], ..RouteChanges::default() };
        single_result(self.apply_routes(cluster, &changes).await.deleted)
    }

    async fn apply_routes(&self, _cluster: &str, changes: &RouteChanges) -> RouteOutcomes {
        let deletions: Vec<_> = changes.delete.iter().map(|route| self.begin("delete_route", route)).collect();
        let creations: Vec<_> = changes.create.iter().map(|(_, route)| self.begin("create_route", route)).collect();
        let outcomes = self.apply(changes).await.unwrap_or_else(|error| RouteOutcomes {
            deleted: vec![Err(error.clone()); changes.delete.len()],
            created: vec![Err(error); changes.create.len()],
        });
        deletions.into_iter().zip(&outcomes.deleted).for_each(|(running, outcome)| running.end(outcome.is_ok()));
        creations.into_iter().zip(&outcomes.created).for_each(|(running, outcome)| running.end(outcome.is_ok()));
        outcomes
    }

    async fn peek_routes(&self, _cluster: &str) -> CloudResult<Vec<Route>> {
        let table = self.committer()?.peek().await?;
        let is_unmanaged = |name: &str| self.node(name).is_some_and(|node| node::is_unmanaged(&node));
        Ok(listing::list(table.as_deref(), &self.foreseen_history(), is_unmanaged))
    }

    async fn plan_routes(&self, _cluster: &str, changes: &RouteChanges) -> CloudResult<String> {
        let (mut plan, failed) = self.plan_table(changes).await?;
        plan.steps.extend(failed);
        Ok(plan.to_string())
    }

    async fn forecast_routes(&self, _cluster: &str, changes: &RouteChanges) -> CloudResult<WritePlan> {
        let (plan, failed) = self.plan_table(changes).await?;
        let unread = failed.iter().map(ToString::to_string).collect();
        let (waits, steps): (Vec<_>, Vec<_>) =
            plan.steps.iter().partition(|step| matches!(step, RouteTableStep::Wait { .. }));
        let refused = waits.iter().map(ToString::to_string).collect();
        let leftover = steps.iter().all(|step| matches!(step, RouteTableStep::Delete(_)));
        let before = self.committer()?.peek().await?;
        let (reasons, json) = (steps.iter().map(ToString::to_string).collect(), |table| serde_json::to_value(table).ok());
        let write = plan.document.as_ref().map(|document| PlannedWrite {
            kind: "route_table",
            method: PUT,
            target: self.committer.as_ref().map(|committer| committer.table_id().as_str().to_owned()).unwrap_or_default(),
            reasons,
            subjects: Vec::new(),
            leftover,
            before: before.as_deref().and_then(json),
            after: json(document),
        });
        Ok(WritePlan { writes: write.into_iter().collect(), refused, unread, ..WritePlan::default() })
    }
}

fn pod_cidrs(node: &Node) -> Vec<String> {
    node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default()
}

fn single_result(mut answers: Vec<CloudResult<()>>) -> CloudResult<()> {
    answers.pop().unwrap_or_else(|| Err(CloudError::failed("the route was not tried")))
}
