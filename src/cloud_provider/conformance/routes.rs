//! Checks of [`Routes`]. In: a fixture. Out: whether routes are created and deleted, singly and in batches.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::{
    CLUSTER, CloudFixture,
    process::Process,
    report::{AtStep, CheckResult, require},
};
use crate::cloud_provider::{Route, RouteChanges, Routes, node_fields::name};

struct RouteSetting {
    nodes: Vec<Node>,
    routes: Arc<dyn Routes>,
    before: Vec<Route>,
    /// Kept alive for its routes.
    _process: Process,
}

impl RouteSetting {
    async fn new(fixture: &dyn CloudFixture) -> CheckResult<Self> {
        let mut nodes = Vec::new();
        for name in ["routed-a", "routed-b"] {
            nodes.push(fixture.add_machine(name).await.at("add_machine")?);
        }
        let process = Process::start(fixture, &nodes, &[]).await?;
        let routes = process.routes()?;
        let before = routes.list_routes(CLUSTER).await.at("list_routes")?;
        Ok(Self { nodes, routes, before, _process: process })
    }

    fn desired_routes(&self) -> Vec<Route> {
        let cidrs = ["10.244.201.0/24", "10.244.202.0/24"];
        let pairs = self.nodes.iter().zip(cidrs);
        let route = |(node, cidr): (&Node, &str)| Route {
            target_node: name(node).to_owned(),
            destination_cidr: cidr.to_owned(),
            ..Route::default()
        };
        pairs.map(route).collect()
    }

    /// Returns the listed route with the destination of `desired`.
    async fn found(&self, desired: &Route) -> CheckResult<Option<Route>> {
        let listed = self.routes.list_routes(CLUSTER).await.at("list_routes")?;
        Ok(listed.into_iter().find(|route| route.destination_cidr == desired.destination_cidr))
    }

    async fn require_as_before(&self) -> CheckResult {
        let after = self.routes.list_routes(CLUSTER).await.at("list_routes")?;
        require(after == self.before, || format!("before {:?}, after {after:?}", self.before))
    }
}

pub(super) async fn a_deleted_route_leaves_no_trace(fixture: &dyn CloudFixture) -> CheckResult {
    let setting = RouteSetting::new(fixture).await?;
    let desired = setting.desired_routes().remove(0);
    // The call is repeated because a process may end after the first call.
    for _ in 0..2 {
        setting.routes.create_route(CLUSTER, "hint", &desired).await.at("create_route")?;
    }
    let found = setting.found(&desired).await?;
    let matches = found.as_ref().is_some_and(|found| found.target_node == desired.target_node && !found.blackhole);
    require(matches, || format!("expected {desired:?}, listed {found:?}"))?;
    let found = found.unwrap_or_default();
    for _ in 0..2 {
        setting.routes.delete_route(CLUSTER, &found).await.at("delete_route")?;
    }
    setting.require_as_before().await
}

pub(super) async fn a_batch_of_routes_returns_results_in_order(fixture: &dyn CloudFixture) -> CheckResult {
    let setting = RouteSetting::new(fixture).await?;
    let desired = setting.desired_routes();
    let create = desired.iter().map(|route| (route.target_node.clone(), route.clone())).collect();
    let outcomes = setting.routes.apply_routes(CLUSTER, &RouteChanges { delete: Vec::new(), create }).await;
    require(outcomes.created.len() == desired.len(), || {
        format!("{} results, expected {}", outcomes.created.len(), desired.len())
    })?;
    for outcome in outcomes.created {
        outcome.at("apply_routes")?;
    }
    let mut delete = Vec::new();
    for route in &desired {
        let found = setting.found(route).await?;
        require(found.is_some(), || format!("{route:?} is not listed"))?;
        delete.extend(found);
    }
    let outcomes = setting.routes.apply_routes(CLUSTER, &RouteChanges { delete, create: Vec::new() }).await;
    for outcome in outcomes.deleted {
        outcome.at("apply_routes")?;
    }
    setting.require_as_before().await
}

pub(super) async fn a_plan_of_routes_writes_nothing(fixture: &dyn CloudFixture) -> CheckResult {
    let setting = RouteSetting::new(fixture).await?;
    let contents = fixture.contents().await;
    let planned_on = setting.routes.routes_for_plan(CLUSTER).await.at("routes_for_plan")?;
    require(planned_on == setting.before, || {
        format!("routes_for_plan returned {planned_on:?}, list_routes {:?}", setting.before)
    })?;
    let after = fixture.contents().await;
    require(contents == after, || "routes_for_plan changed the cloud".to_owned())
}
