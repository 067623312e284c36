//! Which machines Nodes have, and where it is written in which pools those are. Pure.
//!
//! In: Nodes, and what the inventory answers about their machines. Out: owners of members, in two steps: what Nodes tell by themselves, with
//! [`MachineQuery`]s for the rest; and what an answer adds to that.

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

/// What the inventory answers to one [`MachineQuery`].
pub type MachineAnswer = Result<Arc<Machine>, LookupError>;

/// The scale set or availability set of a machine.
pub fn vm_set(machine: &Machine) -> Option<&ResourceId> {
    match &machine.kind {
        MachineKind::ScaleSetInstance { scale_set: set, .. }
        | MachineKind::FlexInstance { scale_set: set }
        | MachineKind::AvailabilitySet { set } => Some(set),
        MachineKind::Standalone => None,
    }
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
