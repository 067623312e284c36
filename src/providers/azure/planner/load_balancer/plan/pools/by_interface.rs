//! Backend pools that network interfaces list. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;

use super::{
    super::{
        super::pools::{
            claims::is_own_node,
            located,
            managed_pool::{ManagedPool, without_addresses},
            member_resource::PoolMemberResource,
            member_updates::{self, LeaveReason, PoolMember},
            nodes::{machine_query, pool_node},
            orphans::{PoolMemberOwners, members_of_node_sets},
        },
        waiting::WaitingFor,
    },
    INCOMPLETE_RESYNC, POWERED_OFF_RESYNC, PoolChange, PoolPlanner,
};
use crate::providers::azure::{model::LookupError, node};

impl PoolPlanner<'_> {
    pub(super) fn by_interface(&mut self, pools: &[ManagedPool], hosts: &[Arc<Node>]) {
        let members = self.members(pools, hosts);
        if !members.is_empty() {
            let emptied = pools.iter().filter(|pool| pool.has_addresses()).filter_map(|pool| {
                Some(PoolChange::of_pool(pool.id.clone(), &pool.document, without_addresses(&pool.document)?))
            });
            self.plan.changes.extend(emptied);
        }
        let models = member_updates::models(pools, &members, self.settings, self.input.group);
        self.push_models(models, &LeaveReason::NotInPool);
        let mut updates = member_updates::joins(pools, &members, self.settings);
        let mut leaving = self.excluded(pools);
        // An excluded Node does not remove the machine of another Node from the pools.
        members.iter().for_each(|member| drop(leaving.remove(&member.resource.key())));
        let orphans = self.orphans(pools, &members);
        leaving.extend(orphans.clone());
        member_updates::leaves(pools, &leaving, self.settings, &mut updates);
        member_updates::mark_orphans(&mut updates, |key| orphans.contains_key(key));
        self.push_members(updates);
        let is_off = |member: &PoolMember| !member.is_active && member.lacks(pools, self.settings);
        let off = members.iter().any(is_off).then_some(POWERED_OFF_RESYNC);
        self.plan.resync_after = off.into_iter().chain(self.plan.resync_after).min();
    }

    /// Returns the machines of the Nodes that belong in the pools.
    fn members(&mut self, pools: &[ManagedPool], hosts: &[Arc<Node>]) -> Vec<PoolMember> {
        let settings = self.settings;
        let (mut members, mut looked_up) = (Vec::new(), Vec::new());
        for node in hosts.iter().filter(|node| pool_node(node, settings).belongs(settings)) {
            let query = machine_query(node);
            let by_id = query.id.as_ref().and_then(|id| PoolMember::of_instance(&query.node_name, id));
            if let Some(member) = by_id.clone().filter(|member| !member.lacks(pools, settings)) {
                members.push(member);
                continue;
            }
            match self.machine(&query) {
                None => {}
                Some(Ok(machine)) if !is_own_node(machine, &query.node_name) => {}
                Some(Ok(machine)) => looked_up.extend(PoolMember::of(&query.node_name, machine)),
                // The provider id names the instance to write, and the read before the write shows whether the write is possible. A list
                // may be older than the machine.
                Some(Err(LookupError::NoAddress(_) | LookupError::NotListed(_))) if by_id.is_some() => {
                    looked_up.extend(by_id)
                }
                // A machine that does not exist delays nothing. A later plan finds the machine once it exists.
                Some(Err(LookupError::NotListed(_))) => {}
                Some(Err(error)) => {
                    self.plan.waiting.insert(WaitingFor::Machine(query.node_name.clone(), error.to_string()));
                    self.plan.unlocated.push((query.node_name, error.clone()));
                }
            }
        }
        members.extend(looked_up);
        members
    }

    /// Returns the members that must leave because their Nodes are excluded: the key of each resource and the name of its Node.
    fn excluded(&mut self, pools: &[ManagedPool]) -> BTreeMap<String, String> {
        let (settings, mut excluded) = (self.settings, BTreeMap::new());
        let has_members = pools.iter().any(|pool| !pool.members.is_empty());
        let stays_out = |node: &&Arc<Node>| !pool_node(node, settings).belongs(settings);
        // A Node of another cloud has no machine in Azure that could be found by name.
        let is_azures = |node: &&Arc<Node>| node::is_azures(node) || machine_query(node).id.is_some();
        for query in self.input.all_nodes.iter().filter(stays_out).filter(is_azures).map(|node| machine_query(node)) {
            let resource = match query.id.as_ref().and_then(PoolMemberResource::of_instance) {
                None if has_members => {
                    self.machine(&query).and_then(|answer| PoolMemberResource::of(answer.as_deref().ok()?))
                }
                known => known,
            };
            excluded.extend(resource.map(|resource| (resource.key(), query.node_name)));
        }
        excluded
    }

    /// Returns the members that no Node claims and that must leave.
    fn orphans(&mut self, pools: &[ManagedPool], members: &[PoolMember]) -> BTreeMap<String, String> {
        let keys = located::member_keys(pools);
        let owners = self.owners(&keys, members);
        let sets = self.sets_of_members(&keys, &owners);
        let companions = members_of_node_sets(&keys, &owners.by_resource, &sets);
        let (leaving, next) = self.plan.orphans.update(owners, &keys, &companions, self.input.now);
        if self.input.reads.may_lack_nodes {
            self.plan.resync_after = Some(INCOMPLETE_RESYNC);
            return BTreeMap::new();
        }
        self.plan.resync_after = next;
        leaving
    }

    /// Returns the owners of the members. Machines are looked up only if a member has no Node otherwise.
    fn owners(&mut self, keys: &BTreeSet<String>, members: &[PoolMember]) -> PoolMemberOwners {
        let (mut owners, unknown) = located::member_owners(self.input.all_nodes, members);
        // Pending reads of machines may cover the remaining members.
        if !owners.cover(keys) && self.plan.needs.machines.is_empty() {
            for query in unknown {
                if let Some(answer) = self.machine(&query) {
                    located::add_owner(&mut owners, query, answer.clone());
                }
            }
        }
        owners
    }

    /// Returns the keys of the scale sets and availability sets of members and of Nodes, by resource key. The map is empty while all
    /// members have Nodes.
    fn sets_of_members(&mut self, keys: &BTreeSet<String>, owners: &PoolMemberOwners) -> BTreeMap<String, String> {
        // The interfaces to read depend on the locations of the Nodes' machines, which are read first.
        if owners.cover(keys) || !self.plan.needs.machines.is_empty() {
            return BTreeMap::new();
        }
        let all: BTreeSet<&str> = owners.by_resource.keys().chain(keys).map(String::as_str).collect();
        let Some(machines) = &self.input.reads.machines_at else {
            self.plan.needs.interfaces = all.into_iter().map(str::to_owned).collect();
            return BTreeMap::new();
        };
        located::sets_of_members(&all, machines)
    }
}
