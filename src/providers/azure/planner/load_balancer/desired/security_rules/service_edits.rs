//! Edits of a network security group for one Service: destinations to remove and to add, within ARM's limits.
//!
//! In: the group after the edits of the Services before it, and the claims of all Services. Out: [`SecurityRuleEdits`], or a refusal that
//! leaves the group unchanged. Upstream: `reconcileSecurityGroup` in `pkg/provider/azure_loadbalancer.go`, and `RuleHelper` in
//! `pkg/provider/securitygroup/securitygroup.go`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    super::super::spec::{IpFamily, ServiceRefusal, refusal},
    destination_claims::DestinationClaims,
    group::{SecurityGroupDraft, SecurityRuleEdits},
    rule::{SecurityRuleKind, WantedSecurityRule},
    service_rules::{NodeAddresses, ServiceRules},
};

/// Largest number of rules in a network security group. ARM's limit.
const MAX_RULES: usize = 1000;
/// Largest number of sources, and of destinations, in all rules of a network security group. ARM's limit.
const MAX_ADDRESSES: usize = 4000;
/// Priorities of new rules: allowing rules get the first free priority, denying rules the last.
const NEW_RULE_PRIORITIES: std::ops::Range<i64> = 500..4096;

/// Plans the edits of `group` for one Service, whose claims are at `index`.
pub(super) fn plan_edits(
    group: &SecurityGroupDraft,
    claims: &DestinationClaims<'_>,
    (index, reach): (usize, &ServiceRules),
    nodes: &NodeAddresses,
) -> Result<SecurityRuleEdits, ServiceRefusal> {
    if reach.is_unknown() {
        return Ok(SecurityRuleEdits::default());
    }
    let mut clean =
        RuleEditBuilder { group, claims, edits: SecurityRuleEdits::default(), additions: RuleAdditions::default() };
    for address in reach.destinations.union(&reach.former).filter(|address| !reach.claimed.contains(address)) {
        clean.remove_destination(*address, Some(index), |_, _| true);
    }
    for address in &reach.claimed {
        clean.remove_destination(*address, Some(index), |name, kind| reach.ownership.covers(name, kind));
    }
    for address in &nodes.present {
        clean.remove_destination(*address, Some(index), |_, kind| concerns_node_port(kind, reach));
    }
    for grant in claims.rules_of(index) {
        clean.additions.add(grant.rule.clone(), grant.destinations.iter().copied());
    }
    let edits = clean.finish()?;
    check(group, &edits)?;
    Ok(edits)
}

/// Plans the removal of former Nodes from all rules, and of current Nodes from rules that no Service needs there.
///
/// A Node's address is unique in its virtual network, so current Nodes are removed only if the group serves no other network
/// (`is_alone`). They are always removed from a rule that denies everything, because it cuts Nodes off from all traffic.
pub(super) fn stale_node_edits(
    group: &SecurityGroupDraft,
    claims: &DestinationClaims<'_>,
    nodes: &NodeAddresses,
    is_alone: bool,
) -> Result<SecurityRuleEdits, ServiceRefusal> {
    let mut clean =
        RuleEditBuilder { group, claims, edits: SecurityRuleEdits::default(), additions: RuleAdditions::default() };
    for address in nodes.gone.difference(&nodes.present) {
        clean.remove_destination(*address, None, |_, _| true);
    }
    for address in &nodes.present {
        clean.exempt_from_deny_all(*address);
        if is_alone {
            clean.remove_destination(*address, None, |_, _| true);
        }
    }
    clean.finish()
}

/// Returns `true` if a rule of this kind opens or denies a NodePort of the Service.
///
/// NodePorts are unique in a cluster for each protocol, so such a rule belongs to the Service.
fn concerns_node_port(kind: &SecurityRuleKind, reach: &ServiceRules) -> bool {
    match kind {
        SecurityRuleKind::Allow { protocol, ports, .. } | SecurityRuleKind::DenyPorts { protocol, ports } => {
            reach.node_ports.get(protocol).is_some_and(|own| !own.is_disjoint(ports))
        }
        SecurityRuleKind::DenyAll => false,
    }
}

/// Edits that were collected so far.
struct RuleEditBuilder<'a> {
    group: &'a SecurityGroupDraft,
    claims: &'a DestinationClaims<'a>,
    edits: SecurityRuleEdits,
    additions: RuleAdditions,
}

impl RuleEditBuilder<'_> {
    /// Removes `address` from the rules that `is_own` selects and in which no Service claims it. Ports that other Services need get a
    /// separate rule.
    ///
    /// `but`: index of the Service that releases the address.
    fn remove_destination(&mut self, address: IpAddr, but: Option<usize>, is_own: impl Fn(&str, &SecurityRuleKind) -> bool) {
        let rules = self.group.rules_at(address).into_iter();
        for (index, rule, kind) in rules.filter(|(_, rule, kind)| is_own(&rule.name, kind)) {
            let Some(retained) = self.claims.decide(&rule.name, kind, address, but) else { continue };
            if let (SecurityRuleKind::Allow { protocol, sources, .. }, false) = (kind, retained.is_empty()) {
                let rest = WantedSecurityRule::allow(IpFamily::of(address), *protocol, sources.clone(), retained);
                self.additions.add(rest, [address]);
            }
            self.edits.removed.insert((index, address));
        }
    }

    /// Removes a Node's address from rules that deny everything, unless a Service claims it there.
    fn exempt_from_deny_all(&mut self, machine: IpAddr) {
        let denying = self.group.rules_at(machine).into_iter().filter(|(_, _, kind)| **kind == SecurityRuleKind::DenyAll);
        let spared = denying.filter(|(_, rule, _)| !self.claims.is_claimed(&rule.name, machine));
        self.edits.removed.extend(spared.map(|(index, _, _)| (index, machine)));
    }

    fn finish(mut self) -> Result<SecurityRuleEdits, ServiceRefusal> {
        let mut chosen = BTreeSet::new();
        for (wanted, addresses) in self.additions.list {
            if let Some(index) = self.group.find(&wanted.name) {
                self.edits.extended.push((index, wanted, addresses));
                continue;
            }
            let is_free = |priority: &i64| !self.group.is_taken(*priority) && !chosen.contains(priority);
            let priority = match wanted.kind {
                SecurityRuleKind::Allow { .. } => NEW_RULE_PRIORITIES.clone().find(is_free),
                SecurityRuleKind::DenyAll | SecurityRuleKind::DenyPorts { .. } => {
                    NEW_RULE_PRIORITIES.clone().rev().find(is_free)
                }
            };
            let priority = priority.ok_or_else(no_priority)?;
            chosen.insert(priority);
            self.edits.created.push((wanted, addresses, priority));
        }
        Ok(self.edits)
    }
}

/// Destinations to add, by rule, in the order in which the rules were first named.
#[derive(Default)]
struct RuleAdditions {
    list: Vec<(WantedSecurityRule, BTreeSet<IpAddr>)>,
    /// Positions in `list`, by the name of the rule.
    positions: BTreeMap<String, usize>,
}

impl RuleAdditions {
    /// Adds `addresses` to the destinations of a rule.
    fn add(&mut self, wanted: WantedSecurityRule, addresses: impl IntoIterator<Item = IpAddr>) {
        let position = *self.positions.entry(wanted.name.clone()).or_insert(self.list.len());
        if position == self.list.len() {
            self.list.push((wanted, BTreeSet::new()));
        }
        self.list[position].1.extend(addresses);
    }
}

/// Numbers of rules, sources and destinations.
type SecurityGroupSize = [usize; 3];

/// Returns the size of a rule. A rule without destinations will be removed and has no size.
fn rule_size(sources: usize, destinations: usize) -> SecurityGroupSize {
    if destinations == 0 { [0; 3] } else { [1, sources, destinations] }
}

fn sum(size: SecurityGroupSize, other: SecurityGroupSize) -> SecurityGroupSize {
    std::array::from_fn(|part| size[part] + other[part])
}

/// Refuses edits that make the group larger than ARM allows. A group that is already too large may shrink.
fn check(group: &SecurityGroupDraft, edits: &SecurityRuleEdits) -> Result<(), ServiceRefusal> {
    if edits.created.is_empty() && edits.extended.is_empty() {
        return Ok(());
    }
    let (before, after) = sizes(group, edits);
    let limits = [("rules", MAX_RULES), ("sources", MAX_ADDRESSES), ("destinations", MAX_ADDRESSES)];
    let mut parts = limits.into_iter().zip(before).zip(after);
    match parts.find(|(((_, limit), before), after)| after > limit && after > before) {
        Some((((what, limit), before), after)) => Err(too_large(what, before, after, limit)),
        None => Ok(()),
    }
}

fn sizes(group: &SecurityGroupDraft, edits: &SecurityRuleEdits) -> (SecurityGroupSize, SecurityGroupSize) {
    let mut changes = BTreeMap::<usize, (isize, Option<usize>)>::new();
    for (index, _) in &edits.removed {
        changes.entry(*index).or_default().0 -= 1;
    }
    for (index, wanted, addresses) in &edits.extended {
        let known = group.rule(*index).map_or(0, |rule| addresses.intersection(&rule.addresses).count());
        let change = changes.entry(*index).or_default();
        *change = (change.0 + (addresses.len() - known).cast_signed(), Some(wanted.sources()));
    }
    let mut size = group.rules().map(|rule| rule_size(rule.sources, rule.size())).fold([0; 3], sum);
    let before = size;
    for (index, (difference, sources)) in changes {
        let Some(rule) = group.rule(index) else { continue };
        let changed = rule.size().saturating_add_signed(difference);
        let old = rule_size(rule.sources, rule.size());
        let new = rule_size(sources.unwrap_or(rule.sources), changed);
        size = std::array::from_fn(|part| size[part] + new[part] - old[part]);
    }
    let created = edits.created.iter().map(|(wanted, addresses, _)| rule_size(wanted.sources(), addresses.len()));
    (before, created.fold(size, sum))
}

fn no_priority() -> ServiceRefusal {
    refusal("securityGroupName", "the security group has no free priority from 500 to 4095: remove rules from it")
}

fn too_large(what: &str, before: usize, after: usize, limit: usize) -> ServiceRefusal {
    let message = format!(
        "the security group has {before} {what} and would have {after}, of which ARM accepts {limit}: remove rules from it, \
         or give Services fewer or the same allowed ranges, service tags and ports"
    );
    refusal("securityGroupName", message)
}
