//! Placement of Nodes on the load balancers of entries. Pure, and nothing is remembered.
//!
//! In: entries, load balancers, and Nodes with the scale sets, availability sets and labels of their machines. Out:
//! [`NodePlacement`]. A Node whose set is the primary one of an entry with a load balancer is placed there. Every other Node
//! is placed where a selector matches, or else on an entry without selector. Among several such entries it remains on the
//! one whose pools have it already; a new Node joins the one with the fewest Nodes.
//!
//! An entry with a load balancer and without Nodes of its own has all Nodes as stand-ins, so that its Services are served.
//! Membership as a stand-in does not keep a Node on the entry. When the entry gets Nodes of its own, they join at once. The
//! stand-ins leave in a later pass, when all its own Nodes are members and ready.
//!
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `accommodateNodesByPrimaryVMSet`, `accommodateNodesByNodeSelector`.
//! Upstream remembers placements.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::managed_pool::{self, ManagedPool, PoolScope};
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{ArmLoadBalancer, BackendAddressPool},
        spelling,
    },
    planner::load_balancer::{
        desired::pool_members::{
            PoolNode,
            node_ip::{self, PoolUpdate},
        },
        entries::LoadBalancerEntry,
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
    },
};

/// Reason why a Node is placed on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PlacementReason {
    PrimaryVmSet,
    /// The selector of the entry matches.
    Selector,
    AlreadyThere,
    FewestNodes,
}

/// Nodes by the entry whose load balancers they are behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePlacement {
    /// Names of the Nodes of each entry with a load balancer, by its name in lower case.
    by_entry: BTreeMap<String, BTreeMap<String, PlacementReason>>,
    /// Nodes that cannot be placed now: they remain in the pools that have them.
    waiting: BTreeSet<String>,
    /// Entries whose pools have such a Node, by name in lower case. They get no stand-ins, because that Node may be theirs.
    held: BTreeSet<String>,
    /// Names of the stand-ins that remain until the own Nodes of an entry are ready members, by its name in lower case.
    stand_ins: BTreeMap<String, BTreeSet<String>>,
    /// Stand-ins of entries whose own Nodes are ready members.
    released_stand_ins: BTreeMap<String, BTreeSet<String>>,
    /// Nodes that no entry accepts, although there are load balancers.
    pub unplaced: BTreeSet<String>,
}

/// Load balancer and pool members of one entry.
struct EntryState<'a> {
    entry: &'a LoadBalancerEntry,
    /// Whether the entry has an internal or an external load balancer.
    exists: bool,
    /// Addresses that the pools of the entry list.
    listed: BTreeSet<IpAddr>,
}

impl EntryState<'_> {
    fn holds(&self, node: &PoolNode) -> bool {
        node.addresses.iter().any(|address| self.listed.contains(address))
    }
}

/// Places `hosts`, the Nodes that may be behind load balancers. Load balancers that are about to be deleted count as
/// missing.
pub fn place_nodes(
    observed: &ObservedNetwork,
    gone: &[ResourceId],
    hosts: &[PoolNode],
    settings: &LoadBalancerSettings,
) -> NodePlacement {
    if !settings.has_entries() {
        return NodePlacement::default();
    }
    let states: Vec<EntryState<'_>> =
        settings.entries.iter().map(|entry| entry_state(entry, observed, gone, settings)).collect();
    let mut hosts: Vec<&PoolNode> = hosts.iter().filter(|node| node.belongs(settings)).collect();
    hosts.sort_by(|first, second| first.name.cmp(&second.name));
    Placing::new(&states, &hosts).place(&hosts)
}

fn entry_state<'a>(
    entry: &'a LoadBalancerEntry,
    observed: &ObservedNetwork,
    gone: &[ResourceId],
    settings: &LoadBalancerSettings,
) -> EntryState<'a> {
    let is_its = |document: &&ArmLoadBalancer| {
        let (external, _) = naming::split_load_balancer(document.name.as_deref().unwrap_or_default());
        let is_gone = document.id.as_deref().is_some_and(|id| gone.iter().any(|gone| gone.same_as(id)));
        entry.is_called(external) && managed_pool::is_managed(document, settings) && !is_gone
    };
    let documents: Vec<&ArmLoadBalancer> = observed.load_balancers.iter().filter(is_its).collect();
    let listed = documents.iter().flat_map(|document| managed_pool::cluster_addresses(document, settings)).collect();
    EntryState { entry, exists: !documents.is_empty(), listed }
}

/// State while Nodes are placed one after the other. Each list has one element per entry.
struct Placing<'s, 'e> {
    states: &'s [EntryState<'e>],
    /// Flags of the entries whose pools have every Node that is in any pool.
    is_full: Vec<bool>,
    /// Flags of the entries with a member that does not belong there, so that all members may be stand-ins.
    has_stand_ins: Vec<bool>,
    placed: Vec<BTreeMap<String, PlacementReason>>,
}

/// Entries on which a Node may be placed, by index.
enum Choice {
    Primary(usize),
    OneOf(Vec<usize>),
}

impl<'s, 'e> Placing<'s, 'e> {
    fn new(states: &'s [EntryState<'e>], hosts: &[&PoolNode]) -> Self {
        let seated: Vec<&&PoolNode> = hosts.iter().filter(|node| states.iter().any(|state| state.holds(node))).collect();
        let is_full = states.iter().map(|state| seated.iter().all(|node| state.holds(node))).collect();
        let mut placing = Self { states, is_full, has_stand_ins: Vec::new(), placed: vec![BTreeMap::new(); states.len()] };
        let belongs = |node: &PoolNode, place: usize| match placing.choice(node) {
            Choice::Primary(primary) => primary == place,
            Choice::OneOf(places) => places.contains(&place),
        };
        let stands_in = |place: usize| {
            seated.iter().any(|node| states[place].holds(node) && !node.is_unlocated && !belongs(node, place))
        };
        placing.has_stand_ins = (0..states.len()).map(stands_in).collect();
        placing
    }

    fn choice(&self, node: &PoolNode) -> Choice {
        let open = || self.states.iter().enumerate().filter(|(_, state)| state.exists);
        let is_primary = |state: &EntryState<'_>| {
            node.vm_set.as_deref().is_some_and(|set| spelling::same_name(set, &state.entry.primary_vm_set))
        };
        if let Some((place, _)) = open().find(|(_, state)| is_primary(state)) {
            return Choice::Primary(place);
        }
        let selects = |state: &EntryState<'_>| {
            state.entry.node_selector.as_ref().is_some_and(|selector| selector.matches(&node.labels))
        };
        let selected: Vec<usize> = open().filter(|(_, state)| selects(state)).map(|(place, _)| place).collect();
        let unselective = || open().filter(|(_, state)| state.entry.node_selector.is_none()).map(|(place, _)| place);
        Choice::OneOf(if selected.is_empty() { unselective().collect() } else { selected })
    }

    /// Returns the entry, among those at these indices, that the Node is a member of. Entries without stand-ins come first.
    fn kept(&self, node: &PoolNode, places: &[usize]) -> Option<usize> {
        let held = places.iter().copied().filter(|place| self.states[*place].holds(node));
        held.min_by_key(|place| (self.has_stand_ins[*place], self.is_full[*place], *place))
    }

    fn place(mut self, hosts: &[&PoolNode]) -> NodePlacement {
        let mut placement = NodePlacement::default();
        let mut new = Vec::new();
        for node in hosts {
            match self.choice(node) {
                _ if node.is_unlocated => {
                    placement.waiting.insert(node.name.clone());
                    let seats = self.states.iter().filter(|state| state.holds(node));
                    placement.held.extend(seats.map(|state| state.entry.name.to_lowercase()));
                }
                Choice::Primary(place) => self.add(place, node, PlacementReason::PrimaryVmSet),
                Choice::OneOf(places) => match self.kept(node, &places) {
                    Some(place) => self.add(place, node, self.reason(place, PlacementReason::AlreadyThere)),
                    None => new.push((node, places)),
                },
            }
        }
        for (node, places) in new {
            match places.iter().copied().min_by_key(|place| (self.placed[*place].len(), *place)) {
                Some(place) => self.add(place, node, self.reason(place, PlacementReason::FewestNodes)),
                None if self.states.iter().any(|state| state.exists) => _ = placement.unplaced.insert(node.name.clone()),
                None => {}
            }
        }
        (placement.stand_ins, placement.released_stand_ins) = self.stand_ins(hosts);
        let existing = self.states.iter().zip(self.placed).filter(|(state, _)| state.exists);
        placement.by_entry = existing.map(|(state, nodes)| (state.entry.name.to_lowercase(), nodes)).collect();
        placement
    }

    /// Returns the stand-ins of entries with Nodes of their own: first for entries whose own Nodes are not all ready
    /// members, then for the others.
    ///
    /// A stand-in is a member both there and at its own entry.
    fn stand_ins(&self, hosts: &[&PoolNode]) -> (BTreeMap<String, BTreeSet<String>>, BTreeMap<String, BTreeSet<String>>) {
        let own_place = |node: &PoolNode| self.placed.iter().position(|own| own.contains_key(&node.name));
        let places: Vec<(&PoolNode, usize)> = hosts.iter().filter_map(|node| Some((*node, own_place(node)?))).collect();
        let has_own = |place: usize| places.iter().any(|(_, own)| *own == place);
        let waits = |place: usize| {
            let mut own = places.iter().filter(|(_, own)| *own == place);
            own.any(|(node, _)| !node.is_ready || !self.states[place].holds(node))
        };
        let of_entry = |(place, state): (usize, &EntryState<'_>)| {
            let stands_in =
                |(node, own): &&(&PoolNode, usize)| *own != place && state.holds(node) && self.states[*own].holds(node);
            let names: BTreeSet<String> = places.iter().filter(stands_in).map(|(node, _)| node.name.clone()).collect();
            (!names.is_empty()).then(|| (state.entry.name.to_lowercase(), names))
        };
        let (waiting, ready): (Vec<_>, Vec<_>) =
            self.states.iter().enumerate().filter(|(place, _)| has_own(*place)).partition(|(place, _)| waits(*place));
        (waiting.into_iter().filter_map(of_entry).collect(), ready.into_iter().filter_map(of_entry).collect())
    }

    fn reason(&self, place: usize, otherwise: PlacementReason) -> PlacementReason {
        if self.states[place].entry.node_selector.is_some() { PlacementReason::Selector } else { otherwise }
    }

    fn add(&mut self, place: usize, node: &PoolNode, reason: PlacementReason) {
        self.placed[place].insert(node.name.clone(), reason);
    }
}

impl NodePlacement {
    /// Returns the Nodes that join a pool and those that may remain in it. `hosts` are the Nodes that may be behind load
    /// balancers; `all` has every Node.
    pub fn of_pool<'n>(
        &self,
        scope: &PoolScope,
        hosts: &'n [PoolNode],
        all: &'n [PoolNode],
    ) -> (Vec<&'n PoolNode>, Vec<&'n PoolNode>) {
        let PoolScope::Entry(entry) = scope else { return (hosts.iter().collect(), all.iter().collect()) };
        let entry = entry.to_lowercase();
        let own = self.by_entry.get(&entry).filter(|own| !own.is_empty());
        if own.is_none() && self.held.contains(&entry) {
            return (Vec::new(), all.iter().collect());
        }
        let joins =
            |node: &&PoolNode| own.is_none_or(|own| own.contains_key(&node.name)) && !self.waiting.contains(&node.name);
        let names: BTreeSet<&str> = hosts.iter().map(|node| node.name.as_str()).collect();
        let stand_ins = self.stand_ins.get(&entry);
        let is_free = |node: &&PoolNode| {
            !names.contains(node.name.as_str())
                || self.waiting.contains(&node.name)
                || stand_ins.is_some_and(|stand_ins| stand_ins.contains(&node.name))
        };
        (hosts.iter().filter(joins).collect(), all.iter().filter(|node| is_free(node) || joins(node)).collect())
    }

    /// Returns the required change of a pool. `document` is the observed pool. `hosts` may be behind load balancers; `all`
    /// has every Node.
    pub fn update(
        &self,
        pool: &ManagedPool,
        document: &BackendAddressPool,
        (hosts, all): (&[PoolNode], &[PoolNode]),
        settings: &LoadBalancerSettings,
    ) -> PoolUpdate {
        if let PoolScope::Service(endpoints) = &pool.scope {
            let has_endpoints = |node: &&PoolNode| endpoints.contains(&node.name);
            let (joining, staying) = (hosts.iter().filter(has_endpoints), all.iter().filter(has_endpoints));
            return node_ip::pool(document, Some(pool.family), joining, staying, settings);
        }
        let (joining, staying) = self.of_pool(&pool.scope, hosts, all);
        node_ip::pool(document, None, joining, staying, settings)
    }

    /// Returns `true` if stand-ins serve an entry until its own Nodes are ready.
    pub fn has_stand_ins(&self) -> bool {
        !self.stand_ins.is_empty()
    }

    /// Returns the entries, in lower case, whose stand-ins leave.
    pub fn released_entries(&self) -> BTreeSet<String> {
        self.released_stand_ins.keys().cloned().collect()
    }

    /// Moves the stand-ins of a released entry back to those that remain.
    pub fn keep_stand_ins(&mut self, entry: &str) {
        self.stand_ins.extend(self.released_stand_ins.remove_entry(entry));
    }

    /// Returns the reason for the members of a pool, for people. `None` if the pool is of no entry with a load balancer.
    pub fn reason(&self, scope: &PoolScope) -> Option<String> {
        let PoolScope::Entry(entry) = scope else { return None };
        let own = self.by_entry.get(&entry.to_lowercase())?;
        if own.is_empty() && self.held.contains(&entry.to_lowercase()) {
            return Some(format!("nobody can tell now which Nodes are of entry {entry}, so that none joins"));
        }
        if own.is_empty() {
            return Some(format!("no Node is placed on entry {entry}, so that all stand in"));
        }
        let mut counts: BTreeMap<PlacementReason, usize> = BTreeMap::new();
        own.values().for_each(|reason| *counts.entry(*reason).or_default() += 1);
        let words = |(reason, count): (&PlacementReason, &usize)| match reason {
            PlacementReason::PrimaryVmSet => format!("{count} by primaryVMSet"),
            PlacementReason::Selector => format!("{count} by nodeSelector"),
            PlacementReason::AlreadyThere => format!("{count} that were there"),
            PlacementReason::FewestNodes => format!("{count} where the fewest were"),
        };
        let stand_ins = self.stand_ins.get(&entry.to_lowercase()).map(BTreeSet::len);
        let stand_ins = stand_ins.map(|count| format!("{count} that stand in until these are ready"));
        let counts: Vec<String> = counts.iter().map(words).chain(stand_ins).collect();
        Some(format!("Nodes of entry {entry}: {}", counts.join(", ")))
    }
}

#[cfg(test)]
mod tests;
