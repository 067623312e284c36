//! Routes of a fake cloud.

use async_trait::async_trait;
use ipnet::IpNet;

use super::{
    FakeCloud,
    calls::CallName,
    config::FakeConfig,
    state::{FakeCloudState, FakeRoute},
};
use crate::cloud_provider::{
    CloudError, CloudResult, PlannedWrite, Route, RouteChanges, RouteOutcomes, Routes, WritePlan,
    write_plan::{DELETE, PUT},
};

/// Returns the key of a route. All spellings of a destination have the same key.
fn key(cluster: &str, cidr: &str) -> CloudResult<String> {
    let invalid = |_| CloudError::invalid(format!("route destination {cidr:?} is not a CIDR, e.g. 10.244.1.0/24"));
    Ok(format!("{cluster} {}", cidr.parse::<IpNet>().map_err(invalid)?.trunc()))
}

/// Returns the subject of recorded calls: the target Node, or the destination if the route names no Node.
fn object(route: &Route) -> &str {
    if route.target_node.is_empty() { &route.destination_cidr } else { &route.target_node }
}

fn listed(config: &FakeConfig, route: &FakeRoute) -> Route {
    let with_addresses = config.routes.enable_node_addresses;
    Route {
        name: route.name.clone(),
        target_node: route.target_node.clone(),
        enable_node_addresses: with_addresses,
        target_node_addresses: if with_addresses { route.target_node_addresses.clone() } else { Vec::new() },
        destination_cidr: route.destination_cidr.clone(),
        blackhole: config.by_name(&route.target_node) == Err(CloudError::InstanceNotFound),
    }
}

fn create(config: &FakeConfig, state: &mut FakeCloudState, cluster: &str, hint: &str, route: &Route) -> CloudResult<bool> {
    let key = key(cluster, &route.destination_cidr)?;
    if config.by_name(&route.target_node) == Err(CloudError::InstanceNotFound) {
        return Err(CloudError::failed(format!("the target Node {:?} has no instance", route.target_node)));
    }
    let conflicting = state.routes.get(&key).filter(|existing| existing.target_node != route.target_node);
    if let Some(existing) = conflicting {
        let (cidr, name, node) = (&route.destination_cidr, &existing.name, &existing.target_node);
        return Err(CloudError::failed(format!(
            "route {name} already sends {cidr} to Node {node:?}: delete that route first"
        )));
    }
    let named = || format!("{cluster}-{hint}-{}", route.destination_cidr.replace('/', "_"));
    let stored = FakeRoute {
        cluster: cluster.to_owned(),
        name: if route.name.is_empty() { named() } else { route.name.clone() },
        target_node: route.target_node.clone(),
        target_node_addresses: route.target_node_addresses.clone(),
        destination_cidr: route.destination_cidr.clone(),
    };
    Ok(state.routes.insert(key, stored.clone()).as_ref() != Some(&stored))
}

fn delete(state: &mut FakeCloudState, cluster: &str, route: &Route) -> CloudResult<bool> {
    let key = key(cluster, &route.destination_cidr)?;
    let matches = |existing: &FakeRoute| route.name.is_empty() || existing.name == route.name;
    let exists = state.routes.get(&key).is_some_and(matches);
    Ok(exists && state.routes.remove(&key).is_some())
}

/// Plans all changes by applying them to `state`.
fn plan(config: &FakeConfig, state: &mut FakeCloudState, cluster: &str, changes: &RouteChanges) -> WritePlan {
    let mut plan = WritePlan::default();
    let mut record = |method: &'static str, verb: &str, route: &Route, result: CloudResult<bool>| {
        let target = format!("route to {} of Node {:?}", route.destination_cidr, route.target_node);
        match result {
            Ok(false) => {}
            Ok(true) => {
                let (kind, reasons, leftover) = ("route", vec![format!("{verb} it")], method == DELETE);
                let write = PlannedWrite { kind, method, target, reasons, leftover, ..PlannedWrite::default() };
                plan.writes.push(write);
            }
            Err(error) => {
                plan.refused.insert(format!("{target}: {error}"));
            }
        }
    };
    changes.delete.iter().for_each(|route| record(DELETE, "delete", route, delete(state, cluster, route)));
    for (hint, route) in &changes.create {
        record(PUT, "create", route, create(config, state, cluster, hint, route));
    }
    plan
}

#[async_trait]
impl Routes for FakeCloud {
    async fn list_routes(&self, cluster: &str) -> CloudResult<Vec<Route>> {
        let list = |config: &FakeConfig, state: &FakeCloudState| {
            Ok(state.routes.values().filter(|route| route.cluster == cluster).map(|route| listed(config, route)).collect())
        };
        self.call(CallName::ListRoutes, cluster, async { self.with_state(list) }).await
    }

    async fn create_route(&self, cluster: &str, name_hint: &str, route: &Route) -> CloudResult<()> {
        let body = async { self.write(|config, state| create(config, state, cluster, name_hint, route)) };
        self.call(CallName::CreateRoute, object(route), body).await
    }

    async fn delete_route(&self, cluster: &str, route: &Route) -> CloudResult<()> {
        let body = async { self.write(|_, state| delete(state, cluster, route)) };
        self.call(CallName::DeleteRoute, object(route), body).await
    }

    async fn apply_routes(&self, cluster: &str, changes: &RouteChanges) -> RouteOutcomes {
        let body = async {
            let mut outcomes = RouteOutcomes::default();
            for route in &changes.delete {
                let change = || self.write(|_, state| delete(state, cluster, route));
                outcomes.deleted.push(self.batch_item(CallName::DeleteRoute, object(route), change).await);
            }
            for (hint, route) in &changes.create {
                let change = || self.write(|config, state| create(config, state, cluster, hint, route));
                outcomes.created.push(self.batch_item(CallName::CreateRoute, object(route), change).await);
            }
            Ok(outcomes)
        };
        let summary = format!("{} deleted, {} created", changes.delete.len(), changes.create.len());
        let outcomes = self.call(CallName::ApplyRoutes, &summary, body).await;
        outcomes.unwrap_or_else(|error| RouteOutcomes::failed(changes, &error))
    }

    async fn plan_changes(&self, cluster: &str, changes: &RouteChanges) -> CloudResult<WritePlan> {
        let body = async { self.with_state(|config, state| Ok(plan(config, &mut state.clone(), cluster, changes))) };
        self.call(CallName::PlanRoutes, cluster, body).await
    }
}
