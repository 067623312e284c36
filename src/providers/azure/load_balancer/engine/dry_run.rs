//! What would be written now, on any replica, leading or not.
//!
//! In: requests, and the Nodes that shall be behind load balancers. Out: a [`Plan`]. Documents and machines are read like before a write;
//! what is remembered is copied, and stays as it is.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::{
    claims,
    stage_context::{StageContext, StageInput},
};
use crate::{
    cloud_provider::CloudResult,
    providers::azure::{
        arm::{ResourceId, Urgency},
        inventory::{Freshness, MachineQuery},
        load_balancer::backend_pools::PoolSyncMemory,
        node,
        planner::load_balancer::{
            desired::ServiceRequest,
            observed::ObservedNetwork,
            plan::{
                Plan, PlanInput,
                network::plan_network,
                plan,
                pools::{KnownMachines, PoolInput},
            },
            pools::{
                located::{MachineAnswer, member_keys},
                managed_pool,
                nodes::machine_query,
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

/// The same on what was read.
pub(super) async fn plan_on(
    context: &StageContext,
    input: &StageInput,
    requests: &[ServiceRequest],
    hosts: &[Arc<Node>],
) -> Plan {
    let ignored = context.false_claims().await;
    let (hosts, all_nodes) = (claims::without(hosts, &ignored), claims::without(&context.service_index.nodes(), &ignored));
    // While a round is on, what it remembers is not at hand; then nobody leaves for want of a Node.
    let PoolSyncMemory { orphans, scale_sets } =
        context.backend_pools.try_lock().map(|pools| pools.memory()).unwrap_or_default();
    let machines = KnownMachines { scale_sets, ..known_machines(context, &all_nodes, &input.observed).await };
    let (local, _) = context.local_pools();
    let unfilled: Vec<ResourceId> = context.unfilled_pools().iter().cloned().collect();
    let pools = PoolInput {
        hosts: Some(&hosts),
        all_nodes: &all_nodes,
        machines: &machines,
        orphans: &orphans,
        local: &local,
        unfilled: &unfilled,
        group: &context.inventory.settings().group,
        now: Instant::now(),
    };
    let mut memory = context.service_index.memory();
    memory.restore(context.rule_records.peek(&context.service_index).await, BTreeSet::new());
    plan(&PlanInput {
        observed: &input.observed,
        requests,
        others: &input.others,
        memory: &memory,
        pools: &pools,
        settings: &context.settings,
    })
}

/// What the inventory knows of the machines of Nodes and of those in pools.
async fn known_machines(context: &StageContext, nodes: &[Arc<Node>], observed: &ObservedNetwork) -> KnownMachines {
    // A Node that is none of Azure's has no machine that could be found by its name.
    let has_machine = |query: &MachineQuery, node: &Node| query.id.is_some() || node::is_azures(node);
    let wanted = nodes.iter().map(|node| (machine_query(node), node));
    let wanted: Vec<_> = wanted.filter(|(query, node)| has_machine(query, node)).map(|(query, _)| query).collect();
    let found = context.inventory.look_up(&wanted, Freshness::Cached).await;
    let by_node: BTreeMap<String, MachineAnswer> =
        wanted.into_iter().zip(found).map(|(wanted, found)| (wanted.node_name, found)).collect();
    let pools: Vec<_> = observed.load_balancers.iter().flat_map(managed_pool::all_of).collect();
    let members = member_keys(&pools);
    let keys: HashSet<&str> = members.iter().map(String::as_str).collect();
    KnownMachines { by_node, in_pools: context.inventory.with_interfaces(&keys), ..KnownMachines::default() }
}
