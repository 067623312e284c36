//! What would be written now, on any replica, leading or not.
//!
//! In: requests, and the Nodes that shall be behind load balancers. Out: a [`Plan`]. Documents and machines are read like before a write;
//! what is remembered is copied, and stays as it is.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Node;

use super::{
    claims,
    stage_context::{StageContext, StageInput},
};
#[cfg(feature = "sandbox")]
use crate::providers::azure::planner::load_balancer::plan::writes;
use crate::{
    cloud_provider::CloudResult,
    providers::azure::{
        arm::{ResourceId, Urgency},
        planner::load_balancer::{
            desired::ServiceRequest,
            plan::{
                Plan, PlanInput,
                network::plan_network,
                plan,
                pools::{PoolInput, PoolReads},
            },
        },
    },
};

/// Plans everything for these requests.
pub(super) async fn plan_requests(
    context: &StageContext,
    requests: &[ServiceRequest],
    hosts: &[Arc<Node>],
) -> CloudResult<Plan> {
    let mut input = context.peek(requests, Urgency::Change).await?;
    let others: Vec<_> = input.others.iter().map(|other| Arc::clone(other.spec())).collect();
    let network = plan_network(&input.observed, requests, &others, &context.settings);
    if let Some(more) = context.with_private_links(requests, &input, &network, Urgency::Change).await? {
        input = more;
    }
    Ok(plan_on(context, &input, requests, hosts).await)
}

/// Shows a witness everything that is planned for these requests, before any of it is written.
#[cfg(feature = "sandbox")]
pub(super) async fn show_plan(context: &StageContext, input: &StageInput, requests: &[ServiceRequest]) {
    let Some(witness) = context.compute.witness() else { return };
    let hosts = context.hosts().unwrap_or_default();
    let plan = plan_on(context, input, requests, &hosts).await;
    witness.planned(&writes::requests(&input.observed, &plan));
}

/// The same on what was read.
pub(super) async fn plan_on(
    context: &StageContext,
    input: &StageInput,
    requests: &[ServiceRequest],
    hosts: &[Arc<Node>],
) -> Plan {
    let ignored = context.false_claims().await;
    let (hosts, all_nodes) = (claims::without(hosts, &ignored), claims::without(&context.service_index.nodes(), &ignored));
    let (memory, (local, _)) = (context.backend_pools.memory(), context.local_pools());
    let unfilled: Vec<ResourceId> = context.unfilled_pools().iter().cloned().collect();
    let mut rules = context.service_index.memory();
    rules.restore(context.rule_records.peek(&context.service_index).await, BTreeSet::new());
    let planned = |reads: &PoolReads| {
        let pools = PoolInput {
            hosts: Some(&hosts),
            all_nodes: &all_nodes,
            unfilled: &unfilled,
            ..context.backend_pools.input(reads, &memory, &local)
        };
        plan(&PlanInput {
            observed: &input.observed,
            requests,
            others: &input.others,
            memory: &rules,
            pools: &pools,
            settings: &context.settings,
        })
    };
    context.backend_pools.plan_on_reads(planned, |plan| &plan.pools.needs, Urgency::Resync).await
}
