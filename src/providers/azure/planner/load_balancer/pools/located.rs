//! Machines of Nodes, and the member resources of these machines. Pure.
//!
//! In: Nodes, and results of the inventory for their machines. Out: owners of member resources in two steps: those that
//! Nodes themselves show, with [`MachineQuery`]s for the other Nodes; then an owner from each result.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;

use super::{
    managed_pool::ManagedPool, member_resource::PoolMemberResource, member_updates::PoolMember, nodes::machine_query,
    orphans::PoolMemberOwners,
};
use crate::providers::azure::{
    model::{LookupError, Machine, MachineKind, MachineQuery, ResourceId},
    node,
};

/// Result of the inventory for one [`MachineQuery`].
pub type MachineAnswer = Result<Arc<Machine>, LookupError>;

/// Returns the scale set or availability set of a machine.
pub fn vm_set(machine: &Machine) -> Option<&ResourceId> {
    match &machine.kind {
        MachineKind::ScaleSetInstance { scale_set: set, .. }
        | MachineKind::FlexInstance { scale_set: set }
        | MachineKind::AvailabilitySet { set } => Some(set),
        MachineKind::Standalone => None,
    }
}

/// Returns the member resources that the ids of Nodes name, and queries for the other Nodes.
pub fn member_owners(nodes: &[Arc<Node>], members: &[PoolMember]) -> (PoolMemberOwners, Vec<MachineQuery>) {
    let mut owners = PoolMemberOwners::default();
    owners.by_resource.extend(members.iter().map(|member| (member.resource.key(), member.node.clone())));
    let located: BTreeSet<&str> = members.iter().map(|member| member.node.as_str()).collect();
    let mut unknown = Vec::new();
    for node in nodes.iter().filter(|node| !located.contains(node::name(node))) {
        let wanted = machine_query(node);
        match wanted.id.as_ref().and_then(PoolMemberResource::of_instance) {
            Some(place) => drop(owners.by_resource.insert(place.key(), wanted.node_name)),
            // A Node that is unmanaged, or has an id of another kind, has no machine to look up by name.
            None if wanted.id.is_none() && (node::is_unmanaged(node) || node::provider_id(node).is_some()) => {}
            None => unknown.push(wanted),
        }
    }
    (owners, unknown)
}

/// Adds the result for one Node.
pub fn add_owner(owners: &mut PoolMemberOwners, wanted: MachineQuery, found: MachineAnswer) {
    match found {
        Ok(machine) => {
            let place = PoolMemberResource::of(&machine).map(|place| (place.key(), wanted.node_name));
            owners.by_resource.extend(place);
        }
        // The machine with this id no longer exists.
        Err(LookupError::NotListed(_)) if wanted.id.is_some() => {}
        Err(_) => drop(owners.unlocated_nodes.insert(wanted.node_name)),
    }
}

/// Returns the keys of all members of `pools`.
pub fn member_keys(pools: &[ManagedPool]) -> BTreeSet<String> {
    pools.iter().flat_map(|pool| pool.members.iter().cloned()).collect()
}

/// Returns the keys of the scale sets and availability sets of members, by key of the member resource. `machines` are those
/// with network interfaces.
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
