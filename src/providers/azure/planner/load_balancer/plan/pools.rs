//! Who joins and leaves back-end pools, once load balancers are as planned. Pure.
//!
//! In: documents before and after the load balancers are written, Nodes, and what is known of their machines. Out: a [`PoolPlan`]. The same
//! functions decide for the stage that writes; it reads each document of a machine first and may find that nothing has to change in it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::{
    super::{
        desired::{
            load_balancers::LoadBalancerWrite,
            pool_members::{
                PoolNode,
                node_ip::{self, PoolUpdate},
                node_ip_configuration::{self, PoolEntryStatus, PoolMembershipPatch},
            },
        },
        observed::ObservedNetwork,
        pools::{
            located::{self, MachineAnswer},
            managed_pool::{self, ManagedPool, managed_pools, without_addresses},
            member_addresses::PoolMemberAddresses,
            member_updates::{self, PoolMember, PoolMemberUpdate, PoolMemberUpdates},
            nodes::pool_node,
            orphans::{OrphanedPoolMembers, members_of_node_sets},
        },
        settings::LoadBalancerSettings,
    },
    network::NetworkPlan,
    owner::ChangeOwner,
    waiting::WaitingFor,
};
use crate::providers::azure::{
    arm::{
        ResourceId,
        compute::VirtualMachineScaleSet,
        network::{ArmLoadBalancer, BackendAddressPool},
    },
    config::BackendPoolType,
    inventory::{LookupError, Machine, MachineQuery},
};

/// What is known of machines, by value.
#[derive(Debug, Clone, Default)]
pub struct KnownMachines {
    /// The answer about each Node's machine, by the Node's name, as far as it was asked for.
    pub by_node: BTreeMap<String, MachineAnswer>,
    /// Machines whose interfaces are in pools.
    pub in_pools: Vec<Arc<Machine>>,
    /// Scale sets whose models are known, by lower-cased id.
    pub scale_sets: BTreeMap<String, Arc<VirtualMachineScaleSet>>,
}

/// What members of pools are planned on.
pub struct PoolInput<'a> {
    /// The Nodes that shall be behind load balancers; `None`: nobody has said yet.
    pub hosts: Option<&'a [Arc<Node>]>,
    /// Every Node of the cluster.
    pub all_nodes: &'a [Arc<Node>],
    /// Their machines.
    pub machines: &'a KnownMachines,
    /// What is remembered of members without a Node.
    pub orphans: &'a OrphanedPoolMembers,
    /// Pools that were made and not filled yet.
    pub unfilled: &'a [ResourceId],
    /// The group whose scale sets get new models.
    pub group: &'a ResourceId,
    /// The time.
    pub now: Instant,
}

/// What is written so that pools have other members.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolChangeKind {
    /// The model of a scale set, which new instances follow.
    Model,
    /// An instance or a network interface.
    Member(Box<PoolMemberUpdate>),
    /// The pool itself, with addresses.
    Pool(Box<BackendAddressPool>),
}

/// One document that changes.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolChange {
    /// Which.
    pub id: ResourceId,
    /// How.
    pub kind: PoolChangeKind,
    /// Why, one line each.
    pub reasons: Vec<String>,
    /// For whom.
    pub owner: ChangeOwner,
}

/// What has to become of the members of pools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolPlan {
    /// Documents to write.
    pub changes: Vec<PoolChange>,
    /// Nodes whose machines are not known.
    pub waiting: BTreeSet<WaitingFor>,
}

/// Pools that the planned load balancers have and those that there are have not.
pub(super) fn new_pools(observed: &ObservedNetwork, network: &NetworkPlan) -> Vec<ResourceId> {
    let known: BTreeSet<String> =
        observed.load_balancers.iter().flat_map(managed_pool::all_of).map(|pool| pool.id.key()).collect();
    let written = network.load_balancers.changes.iter().filter_map(|change| match &change.write {
        LoadBalancerWrite::Put(document) => {
            Some(ArmLoadBalancer { id: Some(change.id.as_str().to_owned()), ..document.as_ref().clone() })
        }
        LoadBalancerWrite::Delete => None,
    });
    let pools = written.flat_map(|document| managed_pool::all_of(&document)).map(|pool| pool.id);
    pools.filter(|id| !known.contains(&id.key())).collect()
}

/// Where the machines of all Nodes are in pools.
pub(super) fn member_addresses(input: &PoolInput<'_>, settings: &LoadBalancerSettings) -> PoolMemberAddresses {
    let (mut addresses, unknown) = PoolMemberAddresses::of_nodes(input.all_nodes, settings);
    for (wanted, node) in unknown {
        let machine = input.machines.by_node.get(&wanted.node_name).and_then(|answer| answer.as_ref().ok());
        addresses.add(node, machine.map(Arc::as_ref), settings);
    }
    addresses
}

/// Plans. `observed`: what there is; `written`: what there will be when `network` is.
pub(super) fn plan_pools(
    observed: &ObservedNetwork,
    written: &ObservedNetwork,
    network: &NetworkPlan,
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
) -> PoolPlan {
    let mut plan = PoolPlan::default();
    evict_deleted(observed, network, input, settings, &mut plan);
    if let Some(hosts) = input.hosts {
        let created: Vec<ResourceId> = new_pools(observed, network).into_iter().chain(input.unfilled.to_vec()).collect();
        let pools = managed_pools(written, settings, &created);
        match settings.pool_type {
            BackendPoolType::NodeIp => by_address(&pools, hosts, input, settings, &mut plan),
            BackendPoolType::NodeIpConfiguration | BackendPoolType::PodIp => {
                by_interface(&pools, hosts, input, settings, &mut plan);
            }
        }
    }
    plan
}

/// Everybody leaves the pools of load balancers that go.
fn evict_deleted(
    observed: &ObservedNetwork,
    network: &NetworkPlan,
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
    plan: &mut PoolPlan,
) {
    for change in network.load_balancers.changes.iter().filter(|change| change.write == LoadBalancerWrite::Delete) {
        let is_it = |known: &&ArmLoadBalancer| known.is(&change.id);
        let pools = observed.load_balancers.iter().find(is_it).map(managed_pool::all_of).unwrap_or_default();
        let why = format!("load balancer {} goes", change.id.name());
        evict(&pools, &why, input, settings, plan);
    }
}

fn evict(pools: &[ManagedPool], why: &str, input: &PoolInput<'_>, settings: &LoadBalancerSettings, plan: &mut PoolPlan) {
    let leave: Vec<ResourceId> = pools.iter().map(|pool| pool.id.clone()).collect();
    let patch = PoolMembershipPatch { leave, ..member_updates::empty_patch(settings) };
    for (id, set) in &input.machines.scale_sets {
        if let (Ok(id), true) = (ResourceId::parse(id), lists_one_of(set, &patch)) {
            plan.changes.push(model_change(id, format!("new instances leave {}: {why}", names(&patch.leave))));
        }
    }
    push_members(member_updates::evict(pools, settings), why, plan);
}

fn lists_one_of(set: &VirtualMachineScaleSet, patch: &PoolMembershipPatch) -> bool {
    node_ip_configuration::model(set, patch).is_ok()
}

fn model_change(id: ResourceId, reason: String) -> PoolChange {
    PoolChange { id, kind: PoolChangeKind::Model, reasons: vec![reason], owner: ChangeOwner::Nodes }
}

/// `<load balancer>/<pool>`, for people.
fn names(pools: &[ResourceId]) -> String {
    let name = |pool: &ResourceId| {
        format!("{}/{}", pool.parent().map(|parent| parent.name().to_owned()).unwrap_or_default(), pool.name())
    };
    pools.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// `left`: why somebody leaves.
fn push_members(updates: PoolMemberUpdates, left: &str, plan: &mut PoolPlan) {
    for update in updates.into_values() {
        let who = if update.node.is_empty() { "its machine".to_owned() } else { format!("Node {}", update.node) };
        let mut reasons = Vec::new();
        if !update.patch.join.is_empty() {
            reasons.push(format!("{who} joins {}", names(&update.patch.join)));
        }
        if !update.patch.leave.is_empty() {
            let why = if update.is_orphan { "no Node claims it" } else { left };
            reasons.push(format!("{who} leaves {}: {why}", names(&update.patch.leave)));
        }
        plan.changes.push(PoolChange {
            id: update.resource.id().clone(),
            kind: PoolChangeKind::Member(Box::new(update)),
            reasons,
            owner: ChangeOwner::Nodes,
        });
    }
}

fn pool_change(pool: &ManagedPool, document: BackendAddressPool) -> PoolChange {
    let (before, after) = (listed(&pool.document), listed(&document));
    let mut reasons = Vec::new();
    let added: Vec<_> = after.difference(&before).cloned().collect();
    let removed: Vec<_> = before.difference(&after).cloned().collect();
    if !added.is_empty() {
        reasons.push(format!("{} joins", added.join(", ")));
    }
    if !removed.is_empty() {
        reasons.push(format!("{} leaves", removed.join(", ")));
    }
    if reasons.is_empty() {
        reasons.push("its entries are put in order".to_owned());
    }
    let kind = PoolChangeKind::Pool(Box::new(document));
    PoolChange { id: pool.id.clone(), kind, reasons, owner: ChangeOwner::Nodes }
}

/// Entries as people know them: name and address.
fn listed(pool: &BackendAddressPool) -> BTreeSet<String> {
    let entries = pool.properties.iter().flat_map(|properties| properties.load_balancer_backend_addresses.iter().flatten());
    let of_entry = |entry: &crate::providers::azure::arm::network::BackendAddress| {
        let address = entry.properties.as_ref()?.ip_address.clone()?;
        Some(entry.name.as_ref().map_or(address.clone(), |name| format!("{name} ({address})")))
    };
    entries.filter_map(of_entry).collect()
}

/// Pools that list addresses, and those that interfaces list until they are migrated.
fn by_address(
    pools: &[ManagedPool],
    hosts: &[Arc<Node>],
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
    plan: &mut PoolPlan,
) {
    let of = |nodes: &[Arc<Node>]| -> Vec<PoolNode> { nodes.iter().map(|node| pool_node(node, settings)).collect() };
    let (joining, staying) = (of(hosts), of(input.all_nodes));
    let is_ready = |pool: &ManagedPool| pool.members.is_empty() || pool.will_have_members(&joining, settings);
    let ready: Vec<ManagedPool> = pools.iter().filter(|pool| is_ready(pool)).cloned().collect();
    evict(&ready, "the pool lists addresses from now on", input, settings, plan);
    for pool in &ready {
        let mut document = pool.document.clone();
        if let Some(properties) = &mut document.properties {
            properties.backend_ip_configurations = None;
        }
        if let PoolUpdate::Changed(mut changed) = node_ip::pool(&document, &joining, &staying, settings) {
            if pool.members.is_empty()
                && let (Some(properties), Some(known)) = (&mut changed.properties, &pool.document.properties)
            {
                properties.backend_ip_configurations.clone_from(&known.backend_ip_configurations);
            }
            plan.changes.push(pool_change(pool, *changed));
        }
    }
}

/// Pools that interfaces list.
fn by_interface(
    pools: &[ManagedPool],
    hosts: &[Arc<Node>],
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
    plan: &mut PoolPlan,
) {
    if pools.is_empty() {
        return;
    }
    let members = members(pools, hosts, input, settings, plan);
    if !members.is_empty() {
        let with_addresses = pools.iter().filter(|pool| pool.has_addresses());
        let emptied = with_addresses.filter_map(|pool| Some(pool_change(pool, without_addresses(&pool.document)?)));
        plan.changes.extend(emptied);
    }
    let mut updates = member_updates::joins(pools, &members, settings);
    push_models(pools, &members, &updates, input, settings, plan);
    let mut leaving = excluded(pools, input, settings);
    let orphans = orphans(pools, &members, input);
    leaving.extend(orphans.iter().map(|(key, node)| (key.clone(), (PoolEntryStatus::Excluded, node.clone()))));
    member_updates::leaves(pools, &leaving, settings, &mut updates);
    updates.iter_mut().for_each(|(key, update)| update.is_orphan = orphans.contains_key(key));
    push_members(updates, "the Node does not belong into it", plan);
}

fn answer(input: &PoolInput<'_>, wanted: &MachineQuery) -> MachineAnswer {
    let unknown = || Err(LookupError::NotListed("its machine was not looked up".to_owned()));
    input.machines.by_node.get(&wanted.node_name).cloned().unwrap_or_else(unknown)
}

/// The machines of the Nodes that belong into the pools.
fn members(
    pools: &[ManagedPool],
    hosts: &[Arc<Node>],
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
    plan: &mut PoolPlan,
) -> Vec<PoolMember> {
    let (mut members, unknown) = located::shown_members(hosts, pools, settings);
    for wanted in unknown {
        match located::looked_up_member(&wanted, answer(input, &wanted)) {
            Ok(member) => members.extend(member),
            // Nothing waits for a machine that is not there: a later sync finds it when it is.
            Err(LookupError::NotListed(_)) => {}
            Err(error) => drop(plan.waiting.insert(WaitingFor::Machine(wanted.node_name, error.to_string()))),
        }
    }
    members
}

/// Models of scale sets that do not list a pool yet. Of one that is not known, that is assumed when an instance joins.
fn push_models(
    pools: &[ManagedPool],
    members: &[PoolMember],
    joins: &PoolMemberUpdates,
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
    plan: &mut PoolPlan,
) {
    let is_joining = |set: &ResourceId| {
        members.iter().any(|member| member.scale_set.as_ref() == Some(set) && joins.contains_key(&member.resource.key()))
    };
    for (set, patch) in member_updates::models(pools, members, settings, input.group) {
        let known = input.machines.scale_sets.get(&set.key());
        if known.map_or_else(|| is_joining(&set), |known| node_ip_configuration::model(known, &patch).is_ok()) {
            plan.changes.push(model_change(set, format!("new instances begin in {}", names(&patch.join))));
        }
    }
}

fn excluded(pools: &[ManagedPool], input: &PoolInput<'_>, settings: &LoadBalancerSettings) -> located::ExcludedMembers {
    let (mut excluded, unknown) = located::excluded_members(input.all_nodes, settings);
    if pools.iter().any(|pool| !pool.members.is_empty()) {
        let found = unknown.into_iter().filter_map(|wanted| {
            let answer = answer(input, &wanted);
            located::looked_up_excluded(wanted, answer)
        });
        excluded.extend(found);
    }
    excluded
}

/// Members that no Node claims and that have to leave. What is remembered of them is changed in a copy only.
fn orphans(pools: &[ManagedPool], members: &[PoolMember], input: &PoolInput<'_>) -> BTreeMap<String, String> {
    let keys = located::member_keys(pools);
    let (mut owners, unknown) = located::member_owners(input.all_nodes, members);
    let mut sets = BTreeMap::new();
    if !owners.cover(&keys) {
        for wanted in unknown {
            let answer = answer(input, &wanted);
            located::add_owner(&mut owners, wanted, answer);
        }
    }
    if !owners.cover(&keys) {
        let all: HashSet<&str> = owners.by_resource.keys().chain(&keys).map(String::as_str).collect();
        sets = located::sets_of_members(&all, &input.machines.in_pools);
    }
    let companions = members_of_node_sets(&keys, &owners.by_resource, &sets);
    input.orphans.clone().update(owners, &keys, &companions, input.now).0
}
