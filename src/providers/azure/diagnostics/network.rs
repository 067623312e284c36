//! Checks whether the cluster's network exists in Azure, and whether quotas are used up.
//!
//! In: a session that works. Out: a finding for each check; a forbidden read is a finding, too.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde::de::IgnoredAny;

use super::{
    checks::{NODE_NAMES, QUOTA, ROUTE_TABLE, SECURITY_GROUP, SUBNET},
    opened::{OpenedCloud, READ_RIGHT},
    verdicts,
};
use crate::{
    cloud_provider::diagnostics::{DiagnosticFinding, DiagnosticRequest},
    providers::azure::{
        arm::{ArmClient, Urgency},
        config::BackendPoolType,
        inventory::Freshness,
        model::{ApiType, ArmErrorClass, LookupError, MachineQuery, ResourceId, api},
        node,
        planner::{
            load_balancer::pools::{claims::NodeClaims, nodes::machine_query},
            routes::settings::RouteSettings,
        },
    },
};

pub(super) async fn examine(cloud: &OpenedCloud, request: &DiagnosticRequest, findings: &mut Vec<DiagnosticFinding>) {
    let settings = &cloud.settings;
    let config = &cloud.session.config;
    let arm = cloud.session.network.with_urgency(Urgency::Change);
    findings.push(match &settings.security_group {
        Some(id) => existence(&arm, SECURITY_GROUP, &api::SECURITY_GROUPS, id, "securityGroupName").await,
        None => DiagnosticFinding::warning(
            SECURITY_GROUP,
            "securityGroupName is empty: no rules are written, so what Services allow or deny has no effect",
            "set it to the name of the nodes' security group",
        ),
    });
    findings.push(match config.vnet_name.is_empty() || settings.subnet.is_empty() {
        true => DiagnosticFinding::warning(
            SUBNET,
            "vnetName or subnetName is empty: internal Services have no subnet",
            "set both fields of azure.json",
        ),
        false => {
            let id = settings.virtual_network.child("subnets", &settings.subnet);
            existence(&arm, SUBNET, &api::SUBNETS, &id, "vnetName, vnetResourceGroup and subnetName").await
        }
    });
    findings.push(match (request.routes, RouteSettings::new(config).table) {
        (false, _) => DiagnosticFinding::ok(ROUTE_TABLE, "the manager writes no routes (--configure-cloud-routes=false)"),
        (true, None) => DiagnosticFinding::problem(
            ROUTE_TABLE,
            "routeTableName is empty: no Node gets a route to its pods",
            "set it, or --configure-cloud-routes=false where something else makes pods reachable",
        ),
        (true, Some(id)) => existence(&arm, ROUTE_TABLE, &api::ROUTE_TABLES, &id, "routeTableName").await,
    });
    findings.push(quotas(&arm, config.location.as_str(), settings.group.subscription()).await);
    findings.push(node_names(cloud, &request.nodes).await);
    findings.push(verdicts::services(&request.services, settings));
}

/// Checks whether Nodes have the names of their machines, without which pools of type `nodeIP` leave them out.
async fn node_names(cloud: &OpenedCloud, nodes: &Result<Vec<Node>, String>) -> DiagnosticFinding {
    if cloud.settings.pool_type != BackendPoolType::NodeIp {
        return DiagnosticFinding::ok(NODE_NAMES, "not needed: backend pools are not of type nodeIP");
    }
    let nodes: Vec<Arc<Node>> = match nodes {
        Ok(nodes) => nodes.iter().filter(|node| node::is_azures(node)).cloned().map(Arc::new).collect(),
        Err(reason) => return DiagnosticFinding::undetermined(NODE_NAMES, reason, "grant list on nodes"),
    };
    let queries: Vec<MachineQuery> =
        nodes.iter().map(|node| machine_query(node)).filter(|query| query.id.is_some()).collect();
    let results = cloud.session.inventory.lookup(&queries, Freshness::Cached).await;
    let failure = results.iter().find_map(|result| match result {
        Err(LookupError::Arm(error)) => Some(error.to_string()),
        _ => None,
    });
    let claims = NodeClaims::new(&nodes, |queries| cloud.session.inventory.cached(queries));
    verdicts::node_names(&claims.rejected, nodes.len(), failure)
}

/// Checks whether one document exists. `field` is the field of azure.json that names it.
async fn existence(
    arm: &ArmClient,
    check: &'static str,
    kind: &'static ApiType,
    id: &ResourceId,
    field: &str,
) -> DiagnosticFinding {
    match arm.get::<IgnoredAny>(kind, id, &[]).await {
        Ok(_) => DiagnosticFinding::ok(check, format!("{id} exists")),
        Err(error) if matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound) => {
            let more = if check == ROUTE_TABLE { " and associate it with the nodes' subnet" } else { "" };
            let remedy = format!("create it{more}, or correct {field} in azure.json");
            DiagnosticFinding::problem(check, format!("{id} does not exist: {}", error.code), remedy)
        }
        Err(error) => DiagnosticFinding::undetermined(check, error.to_string(), READ_RIGHT),
    }
}

async fn quotas(arm: &ArmClient, location: &str, subscription: &str) -> DiagnosticFinding {
    let path = format!("/subscriptions/{subscription}/providers/Microsoft.Network/locations/{location}/usages");
    match arm.list(&api::NETWORK_USAGES, &path, &[]).await {
        Ok(usages) => verdicts::quotas(&usages, location),
        Err(error) => {
            let remedy = "assign Reader at the subscription, or check with `az network list-usages --location`";
            DiagnosticFinding::undetermined(QUOTA, error.to_string(), remedy)
        }
    }
}
