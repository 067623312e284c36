//! The turn of one Service: what it gives up, what it gets, and whether the security group has room for it.
//!
//! In: the group as the Services before it left it, and the claims of all. Out: [`Edits`], or a refusal that leaves the group as it is.
//! Upstream: `reconcileSecurityGroup` in `pkg/provider/azure_loadbalancer.go`, and `RuleHelper` in
//! `pkg/provider/securitygroup/securitygroup.go`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    super::super::spec::{Family, Refusal},
    claims::{Claims, Fate},
    group::{Edits, Group},
    reach::{NodeAddresses, Reach},
    rule::{Kind, Wanted},
};

/// ARM's limits for a security group: rules, sources and destinations of all of them.
const RULES: usize = 1000;
const ADDRESSES: usize = 4000;
/// Priorities of new rules, from the first for allowing ones, from the last for denying ones.
const PRIORITIES: std::ops::Range<i64> = 500..4096;

/// What the Service `reach`, which has its claims at `index`, changes in `group`.
pub(super) fn turn(
    group: &Group,
    claims: &Claims<'_>,
    (index, reach): (usize, &Reach),
    nodes: &NodeAddresses,
) -> Result<Edits, Refusal> {
    if reach.is_unsettled() {
        return Ok(Edits::default());
    }
    let mut clean = Clean { group, claims, edits: Edits::default(), additions: Additions::default() };
    for address in reach.destinations.union(&reach.former).filter(|address| !reach.claimed.contains(address)) {
        clean.give_up(*address, Some(index), |_, _| true);
    }
    for address in &reach.claimed {
        clean.give_up(*address, Some(index), |name, kind| reach.proof.shows(name, kind));
    }
    for address in &nodes.present {
        clean.give_up(*address, Some(index), |_, kind| opens(kind, reach));
    }
    for grant in claims.grants(index) {
        clean.additions.add(grant.rule.clone(), grant.destinations.iter().copied());
    }
    let edits = clean.finish()?;
    check(group, &edits)?;
    Ok(edits)
}

/// Takes away the machines that this cluster had and has no more, and those that it has from rules that nobody needs there: an address
/// of a Node is nobody else's in its virtual network (`is_alone`: the group serves no other one). A rule that denies everything cuts machines off from all, whoever asked for it.
pub(super) fn sweep(group: &Group, claims: &Claims<'_>, nodes: &NodeAddresses, is_alone: bool) -> Result<Edits, Refusal> {
    let mut clean = Clean { group, claims, edits: Edits::default(), additions: Additions::default() };
    for address in nodes.gone.difference(&nodes.present) {
        clean.give_up(*address, None, |_, _| true);
    }
    for address in &nodes.present {
        clean.spare(*address);
        if is_alone {
            clean.give_up(*address, None, |_, _| true);
        }
    }
    clean.finish()
}

/// Whether a rule of this kind opens or closes a NodePort of the Service. NodePorts are unique in a cluster for each protocol, so that
/// it is its own then.
fn opens(kind: &Kind, reach: &Reach) -> bool {
    match kind {
        Kind::Allow { protocol, ports, .. } | Kind::DenyAt { protocol, ports } => {
            reach.node_ports.get(protocol).is_some_and(|own| !own.is_disjoint(ports))
        }
        Kind::Deny => false,
    }
}

/// Edits in the making.
struct Clean<'a> {
    group: &'a Group,
    claims: &'a Claims<'a>,
    edits: Edits,
    additions: Additions,
}

impl Clean<'_> {
    /// Takes `address` out of the rules that `is_own` picks, where nobody claims it; ports that others need get a rule without
    /// the rest. `but`: whose turn it is.
    fn give_up(&mut self, address: IpAddr, but: Option<usize>, is_own: impl Fn(&str, &Kind) -> bool) {
        let rules = self.group.rules_at(address).into_iter();
        for (index, rule, kind) in rules.filter(|(_, rule, kind)| is_own(&rule.name, kind)) {
            let Fate::Goes(retained) = self.claims.fate(&rule.name, kind, address, but) else { continue };
            if let (Kind::Allow { protocol, sources, .. }, false) = (kind, retained.is_empty()) {
                let rest = Wanted::allow(Family::of(address), *protocol, sources.clone(), retained);
                self.additions.add(rest, [address]);
            }
            self.edits.removed.insert((index, address));
        }
    }

    /// Takes a machine out of rules that deny everything.
    fn spare(&mut self, machine: IpAddr) {
        let denying = self.group.rules_at(machine).into_iter().filter(|(_, _, kind)| **kind == Kind::Deny);
        let spared = denying.filter(|(_, rule, _)| !self.claims.is_claimed(&rule.name, machine));
        self.edits.removed.extend(spared.map(|(index, _, _)| (index, machine)));
    }

    fn finish(mut self) -> Result<Edits, Refusal> {
        let mut chosen = BTreeSet::new();
        for (wanted, addresses) in self.additions.into_list() {
            if let Some(index) = self.group.find(&wanted.name) {
                self.edits.extended.push((index, wanted, addresses));
                continue;
            }
            let is_free = |priority: &i64| !self.group.is_taken(*priority) && !chosen.contains(priority);
            let priority = match wanted.kind {
                Kind::Allow { .. } => PRIORITIES.clone().find(is_free),
                Kind::Deny | Kind::DenyAt { .. } => PRIORITIES.clone().rev().find(is_free),
            };
            let priority = priority.ok_or_else(no_priority)?;
            chosen.insert(priority);
            self.edits.created.push((wanted, addresses, priority));
        }
        Ok(self.edits)
    }
}

/// Destinations by the rule they come to, in the order in which the rules were first named.
#[derive(Default)]
struct Additions {
    order: Vec<Wanted>,
    destinations: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl Additions {
    /// `addresses` shall be destinations of `wanted`.
    fn add(&mut self, wanted: Wanted, addresses: impl IntoIterator<Item = IpAddr>) {
        let known = self.destinations.entry(wanted.name.clone()).or_insert_with(|| {
            self.order.push(wanted);
            BTreeSet::new()
        });
        known.extend(addresses);
    }

    /// All of them, in order.
    fn into_list(mut self) -> Vec<(Wanted, BTreeSet<IpAddr>)> {
        let destinations = |wanted: &Wanted| self.destinations.remove(&wanted.name).unwrap_or_default();
        let destinations: Vec<_> = self.order.iter().map(destinations).collect();
        self.order.into_iter().zip(destinations).collect()
    }
}

/// Rules, sources and destinations.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    rules: usize,
    sources: usize,
    destinations: usize,
}

impl Size {
    fn plus(self, sources: usize, destinations: usize) -> Self {
        if destinations == 0 {
            return self;
        }
        Self { rules: self.rules + 1, sources: self.sources + sources, destinations: self.destinations + destinations }
    }
}

/// Refuses edits that make the group larger than ARM allows. A group that is too large already may shrink.
fn check(group: &Group, edits: &Edits) -> Result<(), Refusal> {
    if edits.created.is_empty() && edits.extended.is_empty() {
        return Ok(());
    }
    let (before, after) = sizes(group, edits);
    let limits = [
        ("rules", before.rules, after.rules, RULES),
        ("sources", before.sources, after.sources, ADDRESSES),
        ("destinations", before.destinations, after.destinations, ADDRESSES),
    ];
    match limits.into_iter().find(|(_, before, after, limit)| after > limit && after > before) {
        Some((what, before, after, limit)) => Err(too_large(what, before, after, limit)),
        None => Ok(()),
    }
}

fn sizes(group: &Group, edits: &Edits) -> (Size, Size) {
    let mut changes = BTreeMap::<usize, (isize, Option<usize>)>::new();
    for (index, _) in &edits.removed {
        changes.entry(*index).or_default().0 -= 1;
    }
    for (index, wanted, addresses) in &edits.extended {
        let known = group.rule(*index).map_or(0, |rule| addresses.intersection(&rule.addresses).count());
        let change = changes.entry(*index).or_default();
        *change = (change.0 + (addresses.len() - known).cast_signed(), Some(wanted.sources()));
    }
    let mut size = group.rules().fold(Size::default(), |size, rule| size.plus(rule.sources, rule.size()));
    let before = size;
    for (index, (difference, sources)) in changes {
        let Some(rule) = group.rule(index) else { continue };
        let changed = rule.size().saturating_add_signed(difference);
        let old = Size::default().plus(rule.sources, rule.size());
        let new = Size::default().plus(sources.unwrap_or(rule.sources), changed);
        size.rules = size.rules + new.rules - old.rules;
        size.sources = size.sources + new.sources - old.sources;
        size.destinations = size.destinations + new.destinations - old.destinations;
    }
    let created = edits.created.iter();
    (before, created.fold(size, |size, (wanted, addresses, _)| size.plus(wanted.sources(), addresses.len())))
}

fn no_priority() -> Refusal {
    Refusal {
        field: "securityGroupName".to_owned(),
        message: "no priority from 500 to 4095 is free in the security group: remove rules from it".to_owned(),
    }
}

fn too_large(what: &str, before: usize, after: usize, limit: usize) -> Refusal {
    Refusal {
        field: "securityGroupName".to_owned(),
        message: format!(
            "the security group has {before} {what} and would have {after}, of which ARM accepts {limit}: remove rules from it, \
             or give Services fewer or the same allowed ranges, service tags and ports"
        ),
    }
}
