//! Pod routes: one route in the route table for each pod CIDR of each Node.
//!
//! In: the changes of the route controller, in batches. Out: at most one write of the table for all pending changes, and a
//! result for each.
//!
//! ```text
//! Routes ─► next_hop (target) ─► commit (batch) ─► plan ─► table ◄─► ARM
//!        ─► listing ◄── node_history, table
//! ```
//! [`super::planner::routes`] decides and is pure; `table` reads, caches and writes; `commit` batches the changes that
//! arrive while a write is in flight, with [`super::arm::batch`]; `blame` finds the changes that a rejection names.
//! The table's association with subnets is never touched.
//!
//! Upstream: `pkg/provider/azure_routes.go`.

mod blame;
mod commit;
mod table;

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;

use self::{commit::RouteCommitter, table::RouteTableStore};
use super::{
    arm::ArmClient,
    instances::{errors, ownership},
    inventory::{Freshness, Inventory},
    model::{LookupError, Machine, MachineQuery, ResourceId},
    node,
    operation_metrics::{OperationLabels, OperationTimer},
    planner::routes::{
        listing, names, next_hop,
        node_history::RouteNodeHistory,
        plan::{DesiredRoute, RouteChange, RouteTableStep},
        settings::RouteSettings,
        writes,
    },
};
use crate::{
    cloud_provider::{CloudError, CloudResult, Route, RouteChanges, RouteOutcomes, Routes, WritePlan},
    metrics::Metrics,
    runtime::{
        clock::Clock,
        store::{InformerStore, ObjectKey},
    },
    status::{RoutesProblem, RoutesStatus},
};

/// Message without a configured table.
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
    /// Creates the routes of the Nodes in `nodes`, whose machines are in `inventory`, written through `arm` and counted in
    /// `metrics`.
    pub fn new(
        settings: RouteSettings,
        arm: &ArmClient,
        inventory: Arc<Inventory>,
        nodes: InformerStore<Node>,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Self {
        let subscription = settings.table.as_ref().map(ResourceId::subscription).unwrap_or_default().to_owned();
        let existing = nodes.clone();
        let cidrs_of = move |name: &str| {
            existing.get(&ObjectKey::cluster(name)).map_or_else(Vec::new, |node| node::pod_cidrs(&node).to_vec())
        };
        let table = settings.table.clone().map(|id| RouteTableStore::new(id, settings, arm, clock));
        let committer = table.map(|table| RouteCommitter::new(table, Box::new(cidrs_of)));
        Self { inventory, nodes, committer, node_history: Mutex::default(), subscription, metrics, clock }
    }

    /// Returns the state for the status page.
    pub fn status(&self) -> RoutesStatus {
        match &self.committer {
            Some(committer) => RoutesStatus::Table(committer.status()),
            None => RoutesStatus::Unconfigured(RoutesProblem { problem: NO_TABLE.to_owned() }),
        }
    }

    fn committer(&self) -> CloudResult<&RouteCommitter> {
        self.committer.as_ref().ok_or_else(|| CloudError::invalid(NO_TABLE))
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&ObjectKey::cluster(name))
    }

    /// Returns the desired form of each route to create. `Ok(None)` for those of unmanaged Nodes, which are only recorded.
    async fn desired_routes(&self, routes: &[&Route]) -> Vec<CloudResult<Option<DesiredRoute>>> {
        let sources: Vec<Option<MachineQuery>> = routes.iter().map(|route| self.machine_query(route)).collect();
        let mut found = self.machines(routes, &sources).await.into_iter();
        let desired = |(route, source): (&&Route, &Option<MachineQuery>)| {
            if source.is_none() {
                return Ok(None);
            }
            let result = found.next().ok_or_else(|| CloudError::failed("the inventory did not answer"))?;
            let machine = result.map_err(|error| errors::from_lookup(&error))?;
            next_hop::desired_route(route, &machine).map(Some).map_err(CloudError::Failed)
        };
        routes.iter().zip(&sources).map(desired).collect()
    }

    /// Returns the query for the machine that the route leads to; `None` for an unmanaged Node.
    fn machine_query(&self, route: &Route) -> Option<MachineQuery> {
        match self.node(&route.target_node) {
            Some(node) => ownership::metadata_query(&node),
            None => Some(MachineQuery { node_name: route.target_node.clone(), id: None, resource_group: None }),
        }
    }

    /// Returns the machines of those `sources` that are `Some`. If the Node has other addresses, the machine is read again.
    async fn machines(&self, routes: &[&Route], sources: &[Option<MachineQuery>]) -> Vec<RouteMachineResult> {
        let (queries, routes): (Vec<MachineQuery>, Vec<&Route>) =
            sources.iter().zip(routes).filter_map(|(source, route)| Some((source.clone()?, *route))).unzip();
        let began = self.clock.now();
        let mut found = self.inventory.lookup(&queries, Freshness::Cached).await;
        let is_outdated = |at: &usize| matches!(&found[*at], Ok(machine) if next_hop::is_outdated(routes[*at], machine));
        let outdated: Vec<usize> = (0..queries.len().min(found.len())).filter(is_outdated).collect();
        if !outdated.is_empty() {
            let outdated_queries: Vec<MachineQuery> = outdated.iter().map(|at| queries[*at].clone()).collect();
            let newer = self.inventory.lookup(&outdated_queries, Freshness::Within(self.clock.now() - began)).await;
            outdated.into_iter().zip(newer).for_each(|(at, newer)| found[at] = newer);
        }
        found
    }

    /// Returns the name under which a route is in the table: as it was listed, or as it would be created.
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
            resource_group: self.inventory.settings.group.name(),
            subscription: &self.subscription,
            source: &route.target_node,
        };
        OperationTimer::begin(&self.metrics, self.clock, operation)
    }

    /// Returns the deletions, followed by the routes to set.
    fn table_changes(changes: &RouteChanges, desired: &[CloudResult<Option<DesiredRoute>>]) -> Vec<RouteChange> {
        let removals = changes.delete.iter().map(|route| RouteChange::Remove(Self::name_of(route)));
        removals.chain(desired.iter().flatten().flatten().cloned().map(RouteChange::Set)).collect()
    }

    /// Returns the node history after the next list and batch, including the pod CIDRs of unmanaged Nodes.
    fn history_for_plan(&self) -> RouteNodeHistory {
        let nodes = self.nodes.list();
        let mut history = self.node_history.lock().clone();
        history.observe(nodes.iter().map(Arc::as_ref));
        for node in nodes.iter().filter(|node| node::is_unmanaged(node)) {
            node::pod_cidrs(node).iter().for_each(|cidr| history.remember(node::name(node), cidr));
        }
        history
    }

    async fn apply(&self, changes: &RouteChanges) -> CloudResult<RouteOutcomes> {
        let committer = self.committer()?;
        changes.delete.iter().for_each(|route| self.node_history.lock().forget(&route.target_node, &route.destination_cidr));
        let creations: Vec<&Route> = changes.create.iter().map(|(_, route)| route).collect();
        let desired = self.desired_routes(&creations).await;
        let unmanaged = creations.iter().zip(&desired).filter(|(_, desired)| matches!(desired, Ok(None)));
        unmanaged.for_each(|(route, _)| self.node_history.lock().remember(&route.target_node, &route.destination_cidr));
        let all = Self::table_changes(changes, &desired);
        if all.is_empty() {
            let created = desired.into_iter().map(|desired| desired.map(|_| ())).collect();
            return Ok(RouteOutcomes { deleted: Vec::new(), created });
        }
        let mut results = committer.commit(all).await.into_iter();
        let mut next_result = || results.next().unwrap_or_else(|| Err(CloudError::failed("the route was not tried")));
        let deleted = changes.delete.iter().map(|_| next_result()).collect();
        let created =
            desired.into_iter().map(|desired| desired.and_then(|desired| desired.map_or(Ok(()), |_| next_result())));
        Ok(RouteOutcomes { deleted, created: created.collect() })
    }
}

#[async_trait]
impl Routes for AzureRoutes {
    async fn list_routes(&self, _cluster: &str) -> CloudResult<Vec<Route>> {
        let table = self.committer()?.list().await?;
        let nodes = self.nodes.list();
        let mut memory = self.node_history.lock();
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
        let outcomes = self.apply(changes).await.unwrap_or_else(|error| RouteOutcomes::failed(changes, &error));
        deletions.into_iter().zip(&outcomes.deleted).for_each(|(running, outcome)| running.end(outcome.is_ok()));
        creations.into_iter().zip(&outcomes.created).for_each(|(running, outcome)| running.end(outcome.is_ok()));
        outcomes
    }

    async fn routes_for_plan(&self, _cluster: &str) -> CloudResult<Vec<Route>> {
        let table = self.committer()?.table_for_plan().await?;
        let is_unmanaged = |name: &str| self.node(name).is_some_and(|node| node::is_unmanaged(&node));
        Ok(listing::list(table.as_deref(), &self.history_for_plan(), is_unmanaged))
    }

    async fn plan_changes(&self, _cluster: &str, changes: &RouteChanges) -> CloudResult<WritePlan> {
        let committer = self.committer()?;
        let creations: Vec<&Route> = changes.create.iter().map(|(_, route)| route).collect();
        let desired = self.desired_routes(&creations).await;
        let before = committer.table_for_plan().await?;
        let plan = committer.plan(before.as_deref(), &Self::table_changes(changes, &desired));
        let unresolved =
            creations.iter().zip(&desired).filter_map(|(route, desired)| Some((route, desired.as_ref().err()?)));
        let waiting = |(route, error): (&&Route, &CloudError)| {
            RouteTableStep::Wait { name: Self::name_of(route), why: error.to_string() }.to_string()
        };
        let unread = unresolved.map(waiting).collect();
        Ok(WritePlan { unread, ..writes::write_plan(&committer.table.id, before.as_deref(), &plan) })
    }
}

fn single_result(mut results: Vec<CloudResult<()>>) -> CloudResult<()> {
    results.pop().unwrap_or_else(|| Err(CloudError::failed("the route was not tried")))
}
