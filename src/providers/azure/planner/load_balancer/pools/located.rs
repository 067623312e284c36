//! Which machines Nodes have, and where it is written in which pools those are. Pure.
//!
//! In: Nodes, and what the inventory answers about their machines. Out: members, owners of members and who has to stay out. Each question
//! comes in two steps: what Nodes tell by themselves, with [`MachineQuery`]s for the rest; and what an answer adds to that.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;

use super::{
    claims::is_own_node,
    managed_pool::ManagedPool,
    member_resource::PoolMemberResource,
    member_updates::PoolMember,
    nodes::{machine_query, pool_node},
    orphans::PoolMemberOwners,
};
use crate::providers::azure::{
    arm::ResourceId,
    inventory::{LookupError, Machine, MachineKind, MachineQuery},
    node,
    planner::load_balancer::{
        desired::pool_members::{PoolNode, node_ip_configuration::PoolEntryStatus},
        settings::LoadBalancerSettings,
    },
};

/// What the inventory answers to one [`MachineQuery`].
pub type MachineAnswer = Result<Arc<Machine>, LookupError>;

/// Places that may not stay in pools, by key, with the name of their Node.
pub type ExcludedMembers = BTreeMap<String, (PoolEntryStatus, String)>;

/// The scale set or availability set of a machine.
pub fn vm_set(machine: &Machine) -> Option<&ResourceId> {
    match &machine.kind {
        MachineKind::ScaleSetInstance { scale_set: set, .. }
        | MachineKind::FlexInstance { scale_set: set }
        | MachineKind::AvailabilitySet { set } => Some(set),
        MachineKind::Standalone => None,
    }
}

/// Nodes as pools know them, and queries for those of which only the inventory knows the VM set, with their place in the list. Nobody
/// asks for VM sets unless Nodes are placed on entries.
pub fn pool_nodes(nodes: &[Arc<Node>], settings: &LoadBalancerSettings) -> (Vec<PoolNode>, Vec<(usize, MachineQuery)>) {
    let known: Vec<PoolNode> = nodes.iter().map(|node| pool_node(node, settings)).collect();
    // What has another cloud's id has no machine to be asked for by name.
    let has_machine = |node: &Node, query: &MachineQuery| query.id.is_some() || node::provider_id(node).is_none();
    let unknown = nodes.iter().zip(&known).enumerate().filter_map(|(place, (node, known))| {
        let query = machine_query(node);
        let is_asked = settings.has_entries() && known.vm_set.is_none() && known.belongs(settings);
        (is_asked && has_machine(node, &query)).then_some((place, query))
    });
    let unknown = unknown.collect();
    (known, unknown)
}

/// Adds the answer about one of them. What no list shows has no VM set.
pub fn set_vm_set(node: &mut PoolNode, found: &MachineAnswer) {
    match found {
        Ok(machine) => node.vm_set = vm_set(machine).map(|set| set.name().to_owned()),
        Err(LookupError::NotListed(_)) => {}
        Err(_) => node.is_unlocated = true,
    }
}

/// The machines of the Nodes that belong into pools, as far as the pools show them, and queries for the others.
pub fn shown_members(
    nodes: &[Arc<Node>],
    pools: &[ManagedPool],
    settings: &LoadBalancerSettings,
) -> (Vec<PoolMember>, Vec<MachineQuery>) {
    let belongs = |node: &&Arc<Node>| pool_node(node, settings).belongs(settings);
    let (mut members, mut unknown) = (Vec::new(), Vec::new());
    for node in nodes.iter().filter(belongs) {
        let wanted = machine_query(node);
        let member = wanted.id.as_ref().and_then(|id| PoolMember::of_instance(&wanted.node_name, id));
        match member.filter(|member| !member.lacks(pools, settings)) {
            Some(member) => members.push(member),
            None => unknown.push(wanted),
        }
    }
    (members, unknown)
}

/// The machine of a Node that belongs into pools; `Ok(None)`: it has no network interface, or is another Node's. An error says why nobody
/// can tell.
pub fn looked_up_member(wanted: &MachineQuery, found: MachineAnswer) -> Result<Option<PoolMember>, LookupError> {
    let by_id = || wanted.id.as_ref().and_then(|id| PoolMember::of_instance(&wanted.node_name, id));
    match found {
        Ok(machine) if !is_own_node(&machine, &wanted.node_name) => Ok(None),
        Ok(machine) => Ok(PoolMember::of(&wanted.node_name, &machine)),
        // The id says where to write, and the instance itself whether that can be: a list may be older than the machine.
        Err(LookupError::NoAddress(_) | LookupError::NotListed(_)) if by_id().is_some() => Ok(by_id()),
        Err(error) => Err(error),
    }
}

/// Places of Nodes that may not stay in pools, and queries for those of which only the inventory knows the place.
pub fn excluded_members(nodes: &[Arc<Node>], settings: &LoadBalancerSettings) -> (ExcludedMembers, Vec<MachineQuery>) {
    let stays_out = |node: &&Arc<Node>| !pool_node(node, settings).belongs(settings);
    let (mut excluded, mut unknown) = (ExcludedMembers::new(), Vec::new());
    // What is none of Azure's has no machine to be asked for by name.
    let is_azures = |node: &&Arc<Node>| node::is_azures(node) || machine_query(node).id.is_some();
    for wanted in nodes.iter().filter(stays_out).filter(is_azures).map(|node| machine_query(node)) {
        match wanted.id.as_ref().and_then(PoolMemberResource::of_instance) {
            Some(place) => drop(excluded.insert(place.key(), (PoolEntryStatus::Excluded, wanted.node_name))),
            None => unknown.push(wanted),
        }
    }
    (excluded, unknown)
}

/// `excluded` without the places of `members`: that one Node is to stay out takes no other Node's machine out of the pools.
pub fn without_members(mut excluded: ExcludedMembers, members: &[PoolMember]) -> ExcludedMembers {
    members.iter().for_each(|member| drop(excluded.remove(&member.resource.key())));
    excluded
}

/// The same for one that was looked up.
pub fn looked_up_excluded(wanted: MachineQuery, found: MachineAnswer) -> Option<(String, (PoolEntryStatus, String))> {
    let place = found.ok().and_then(|machine| PoolMemberResource::of(&machine))?;
    Some((place.key(), (PoolEntryStatus::Excluded, wanted.node_name)))
}

/// The places of all Nodes as far as they tell them themselves, and queries for the others.
pub fn member_owners(nodes: &[Arc<Node>], members: &[PoolMember]) -> (PoolMemberOwners, Vec<MachineQuery>) {
    let mut owners = PoolMemberOwners::default();
    owners.by_resource.extend(members.iter().map(|member| (member.resource.key(), member.node.clone())));
    let located: BTreeSet<&str> = members.iter().map(|member| member.node.as_str()).collect();
    let mut unknown = Vec::new();
    for node in nodes.iter().filter(|node| !located.contains(node::name(node))) {
        let wanted = machine_query(node);
        match wanted.id.as_ref().and_then(PoolMemberResource::of_instance) {
            Some(place) => drop(owners.by_resource.insert(place.key(), wanted.node_name)),
            // A Node with another id, or that is said to be none of Azure's, has no machine to be asked for by name.
            None if wanted.id.is_none() && (node::is_unmanaged(node) || node::provider_id(node).is_some()) => {}
            None => unknown.push(wanted),
        }
    }
    (owners, unknown)
}

/// Adds the answer about one Node.
pub fn add_owner(owners: &mut PoolMemberOwners, wanted: MachineQuery, found: MachineAnswer) {
    match found {
        Ok(machine) => {
            let place = PoolMemberResource::of(&machine).map(|place| (place.key(), wanted.node_name));
            owners.by_resource.extend(place);
        }
        // What the id names is gone.
        Err(LookupError::NotListed(_)) if wanted.id.is_some() => {}
        Err(_) => drop(owners.unlocated_nodes.insert(wanted.node_name)),
    }
}

/// Keys of all members of these pools.
pub fn member_keys(pools: &[ManagedPool]) -> BTreeSet<String> {
    pools.iter().flat_map(|pool| pool.members.iter().cloned()).collect()
}

/// Keys of the sets that the machines at these places are in, by key of the place. `machines`: of those with network interfaces.
pub fn sets_of_members<'a>(
    keys: &BTreeSet<&str>,
    machines: impl IntoIterator<Item = &'a Arc<Machine>>,
) -> BTreeMap<String, String> {
    let of_instance = |key: &str| Some((key.to_owned(), PoolMemberResource::of_key(key)?.scale_set()?.key()));
    let mut sets: BTreeMap<String, String> = keys.iter().filter_map(|key| of_instance(key)).collect();
    for machine in machines {
        let Some(set) = vm_set(machine).map(ResourceId::key) else { continue };
        sets.extend(machine.interfaces.iter().map(|interface| (interface.id.key(), set.clone())));
    }
    sets
}
