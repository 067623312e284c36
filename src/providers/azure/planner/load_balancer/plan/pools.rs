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
            LAST_CHANGE_FAILED,
            load_balancers::{LoadBalancerChange, LoadBalancerWrite},
            pool_members::{
                PoolNode,
                node_ip::PoolUpdate,
                node_ip_configuration::{self, PoolEntryStatus, PoolMembershipPatch},
            },
        },
        observed::ObservedNetwork,
        pools::{
            local_pools::LocalPools,
            located::{self, MachineAnswer},
            managed_pool::{self, ManagedPool, managed_pools, without_addresses},
            member_addresses::PoolMemberAddresses,
            member_updates::{self, LeaveReason, PoolMember, PoolMemberUpdate, PoolMemberUpdates},
            node_placement::place_nodes,
            nodes::pool_node,
            orphans::{OrphanedPoolMembers, members_of_node_sets},
        },
        settings::LoadBalancerSettings,
    },
    network::NetworkPlan,
    waiting::WaitingFor,
};
use crate::providers::azure::{
    arm::{
        ResourceId,
        compute::VirtualMachineScaleSet,
        network::{ArmLoadBalancer, BackendAddressPool},
        spelling,
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
    /// Pools that Services have for themselves.
    pub local: &'a LocalPools,
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
}

/// What has to become of the members of pools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolPlan {
    /// Documents to write.
    pub changes: Vec<PoolChange>,
    /// Nodes whose machines are not known.
    pub waiting: BTreeSet<WaitingFor>,
}

/// Pools that a load balancer has once it is written, and had not before.
pub fn new_pools(observed: &ObservedNetwork, change: &LoadBalancerChange) -> Vec<ResourceId> {
    let LoadBalancerWrite::Put(after) = &change.write else { return Vec::new() };
    let before = observed.load_balancer(&change.id).map(pool_names).unwrap_or_default();
    let new = pool_names(after).into_iter().filter(|name| !before.iter().any(|known| spelling::same_name(known, name)));
    new.map(|name| change.id.child("backendAddressPools", name)).collect()
}

fn pool_names(balancer: &ArmLoadBalancer) -> Vec<&str> {
    let pools = balancer.properties.iter().flat_map(|properties| properties.backend_address_pools.iter().flatten());
    pools.filter_map(|pool| pool.name.as_deref()).collect()
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
        let new = network.load_balancers.changes.iter().flat_map(|change| new_pools(observed, change));
        let created: Vec<ResourceId> = new.chain(input.unfilled.to_vec()).collect();
        let pools = managed_pools(written, settings, input.local, &created);
        match settings.pool_type {
            BackendPoolType::NodeIp => by_address(written, &pools, hosts, input, settings, &mut plan),
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
        let pools = observed.load_balancer(&change.id).map(managed_pool::all_of).unwrap_or_default();
        let why = LeaveReason::LoadBalancersGo(vec![change.id.name().to_owned()]);
        evict(&pools, &why, input, settings, plan);
    }
}

fn evict(
    pools: &[ManagedPool],
    why: &LeaveReason,
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
    plan: &mut PoolPlan,
) {
    let leave: Vec<ResourceId> = pools.iter().map(|pool| pool.id.clone()).collect();
    let patch = PoolMembershipPatch { leave, ..member_updates::empty_patch(settings) };
    for (id, set) in &input.machines.scale_sets {
        if let (Ok(id), true) = (ResourceId::parse(id), node_ip_configuration::model(set, &patch).is_ok()) {
            plan.changes.push(PoolChange::of_model(id, &patch, why));
        }
    }
    plan.changes.extend(member_updates::evict(pools, why, settings).into_values().map(PoolChange::of_member));
}

/// `<load balancer>/<pool>`, for people.
fn names(pools: &[ResourceId]) -> String {
    let name = |pool: &ResourceId| {
        format!("{}/{}", pool.parent().map(|parent| parent.name().to_owned()).unwrap_or_default(), pool.name())
    };
    pools.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Most entries of a pool that one sentence names: a pool may have thousands.
const MAX_NAMED: usize = 10;

/// The first of them, and how many more there are.
fn first_names(names: &[&str]) -> String {
    let named = names[..names.len().min(MAX_NAMED)].join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

impl PoolChange {
    /// The model of a scale set. `why`: why new instances leave pools, if they do.
    pub fn of_model(id: ResourceId, patch: &PoolMembershipPatch, why: &LeaveReason) -> Self {
        let joins = (!patch.join.is_empty()).then(|| format!("new instances begin in {}", names(&patch.join)));
        let leaves = (!patch.leave.is_empty()).then(|| format!("new instances leave {}: {why}", names(&patch.leave)));
        Self::new(id, PoolChangeKind::Model, joins.into_iter().chain(leaves).collect())
    }

    /// An instance or an interface.
    pub fn of_member(update: PoolMemberUpdate) -> Self {
        let who = if update.node.is_empty() { "its machine".to_owned() } else { format!("Node {}", update.node) };
        let PoolMembershipPatch { join, leave, .. } = &update.patch;
        let joins = (!join.is_empty()).then(|| format!("{who} joins {}", names(join)));
        let leaves = (!leave.is_empty()).then(|| format!("{who} leaves {}: {}", names(leave), update.leave_reason));
        let reasons = joins.into_iter().chain(leaves).collect();
        Self::new(update.resource.id().clone(), PoolChangeKind::Member(Box::new(update)), reasons)
    }

    /// A pool that lists other addresses than `before`.
    pub fn of_pool(id: ResourceId, before: &BackendAddressPool, document: BackendAddressPool) -> Self {
        let (before, after) = (listed(before), listed(&document));
        let of = |names: &BTreeSet<String>, others: &BTreeSet<String>, verb: &str| {
            let names: Vec<&str> = names.difference(others).map(String::as_str).collect();
            (!names.is_empty()).then(|| format!("{} {verb}", first_names(&names)))
        };
        let mut reasons: Vec<String> =
            of(&after, &before, "joins").into_iter().chain(of(&before, &after, "leaves")).collect();
        if reasons.is_empty() {
            reasons.push("its entries are put in order".to_owned());
        }
        Self::new(id, PoolChangeKind::Pool(Box::new(document)), reasons)
    }

    /// With a reason more, if there is one.
    #[must_use]
    pub fn because(mut self, why: Option<String>) -> Self {
        self.reasons.extend(why);
        self
    }

    /// What changes nothing in its lists is written because ARM has not carried out what was sent before.
    fn new(id: ResourceId, kind: PoolChangeKind, mut reasons: Vec<String>) -> Self {
        if reasons.is_empty() {
            reasons.push(LAST_CHANGE_FAILED.to_owned());
        }
        Self { id, kind, reasons }
    }
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
    written: &ObservedNetwork,
    pools: &[ManagedPool],
    hosts: &[Arc<Node>],
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
    plan: &mut PoolPlan,
) {
    let joining = located_nodes(hosts, input, settings, plan);
    let staying: Vec<PoolNode> = input.all_nodes.iter().map(|node| pool_node(node, settings)).collect();
    let placement = place_nodes(written, &[], &joining, settings);
    plan.waiting.extend(placement.unplaced.iter().cloned().map(WaitingFor::Entry));
    let is_ready = |pool: &ManagedPool| pool.members.is_empty() || pool.will_have_members(&joining, settings);
    let ready: Vec<ManagedPool> = pools.iter().filter(|pool| is_ready(pool)).cloned().collect();
    evict(&ready, &LeaveReason::ByAddress, input, settings, plan);
    for pool in &ready {
        let mut document = pool.document.clone();
        if let Some(properties) = &mut document.properties {
            properties.backend_ip_configurations = None;
        }
        if let PoolUpdate::Changed(mut changed) = placement.update(pool, &document, (&joining, &staying), settings) {
            if pool.members.is_empty()
                && let (Some(properties), Some(known)) = (&mut changed.properties, &pool.document.properties)
            {
                properties.backend_ip_configurations.clone_from(&known.backend_ip_configurations);
            }
            let why = placement.reason(&pool.scope);
            plan.changes.push(PoolChange::of_pool(pool.id.clone(), &pool.document, *changed).because(why));
        }
    }
}

/// Nodes with the VM sets of their machines, as far as placing them needs these.
fn located_nodes(
    nodes: &[Arc<Node>],
    input: &PoolInput<'_>,
    settings: &LoadBalancerSettings,
    plan: &mut PoolPlan,
) -> Vec<PoolNode> {
    let (mut known, unknown) = located::pool_nodes(nodes, settings);
    for (place, wanted) in unknown {
        let found = answer(input, &wanted);
        located::set_vm_set(&mut known[place], &found);
        if let (Err(error), true) = (&found, known[place].is_unlocated) {
            plan.waiting.insert(WaitingFor::Machine(wanted.node_name, error.to_string()));
        }
    }
    known
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
        let emptied = with_addresses.filter_map(|pool| {
            Some(PoolChange::of_pool(pool.id.clone(), &pool.document, without_addresses(&pool.document)?))
        });
        plan.changes.extend(emptied);
    }
    let mut updates = member_updates::joins(pools, &members, settings);
    push_models(pools, &members, &updates, input, settings, plan);
    let mut leaving = located::without_members(excluded(pools, input, settings), &members);
    let orphans = orphans(pools, &members, input);
    leaving.extend(orphans.iter().map(|(key, node)| (key.clone(), (PoolEntryStatus::Excluded, node.clone()))));
    member_updates::leaves(pools, &leaving, settings, &mut updates);
    member_updates::mark_orphans(&mut updates, |key| orphans.contains_key(key));
    plan.changes.extend(updates.into_values().map(PoolChange::of_member));
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
            plan.changes.push(PoolChange::of_model(set, &patch, &LeaveReason::NotInPool));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sentence_about_a_pool_names_the_first_entries_and_counts_the_rest() {
        let pool = |addresses: u8| -> BackendAddressPool {
            let entry = |last: u8| json!({"properties": {"ipAddress": format!("10.0.0.{}", 100 + last)}});
            let entries: Vec<_> = (0..addresses).map(entry).collect();
            serde_json::from_value(json!({"properties": {"loadBalancerBackendAddresses": entries}})).unwrap()
        };
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/l/backendAddressPools/p";
        let reasons =
            |before, after| PoolChange::of_pool(ResourceId::parse(id).unwrap(), &pool(before), pool(after)).reasons;
        let first: Vec<String> = (100..110).map(|last| format!("10.0.0.{last}")).collect();
        assert_eq!(reasons(0, 10), [format!("{} joins", first.join(", "))]);
        assert_eq!(reasons(0, 13), [format!("{} and 3 more joins", first.join(", "))]);
        assert_eq!(reasons(15, 14), ["10.0.0.114 leaves"]);
    }
}
