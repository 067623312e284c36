//! Security rules: who may reach which ports of which Services, as rules of one security group.
//!
//! In: the group as ARM sent it, the Services whose rules shall be put right, and all others of the cluster. Out: the group as it has
//! to be, why, and an answer for each Service. What comes out is what doing the Services one after the other, in the order of their
//! names, would reach. Services with the same sources and ports share a rule, so that a rule is nobody's and only its destinations
//! belong to somebody. Upstream: `pkg/provider/securitygroup`, `pkg/provider/loadbalancer/accesscontrol.go`.
//!
//! A destination is taken out of a rule only if all this is so: the rule is managed (name and priority); no Service claims it there,
//! nor a port of the rule for the same protocol and sources; and it is known to be this cluster's: the Service whose turn it is
//! has or had a front end with the address, or only claims it and the rule is one that it made or opens no port but its own, or the
//! address is a Node's, or the cluster had a Node with it that is gone. Where the group serves another virtual network too, a Node's
//! address leaves only rules that open a NodePort of the Service. Whatever else stands in a rule may be another cluster's and stays.

mod destination_claims;
mod group;
mod rule;
mod service_edits;
mod service_rules;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

pub use self::service_rules::{NodeAddresses, PortsByProtocol, RuleOwnership, ServiceRules, add_ports, denies_rest};
use self::{destination_claims::DestinationClaims, group::SecurityGroupDraft};
use super::{
    super::{
        rule_records::{ListedDestinations, RuleHash},
        settings::LoadBalancerSettings,
        spec::{ServiceIdentity, ServiceRefusal},
    },
    LAST_CHANGE_FAILED,
};
use crate::providers::azure::{
    model::{ResourceId, document::SubResource, network::NetworkSecurityGroup},
    planner::tags,
};

/// What becomes of a security group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SecurityRulePlan {
    /// The document to write; `None` when it is as it should be.
    pub document: Option<NetworkSecurityGroup>,
    /// What changes, for people.
    pub reasons: Vec<String>,
    /// Whether each asking Service has got its rules.
    pub services: BTreeMap<ServiceIdentity, Result<(), ServiceRefusal>>,
    /// For which of them something changes. None of them, although something changes: for Nodes, or for the group itself.
    pub causes: BTreeSet<ServiceIdentity>,
}

/// Where those rules lead to that a destination may be taken out of.
pub fn managed_destinations(group: &NetworkSecurityGroup) -> BTreeSet<IpAddr> {
    listed_destinations([group]).into_values().flatten().collect()
}

/// The same for each rule of several groups.
pub fn listed_destinations<'a>(groups: impl IntoIterator<Item = &'a NetworkSecurityGroup>) -> ListedDestinations {
    let mut listed = ListedDestinations::new();
    for group in groups.into_iter().map(SecurityGroupDraft::new) {
        for rule in group.rules().filter(|rule| rule.kind.is_some()) {
            listed.entry(RuleHash::of(&rule.name)).or_default().extend(&rule.addresses);
        }
    }
    listed
}

/// The rules of which destinations may be taken out, by name, with the addresses that each leads to. One that leads to anything else, such
/// as a range, is left out.
pub fn managed_rules(group: &NetworkSecurityGroup) -> Vec<(String, BTreeSet<IpAddr>)> {
    let rules = group.properties.iter().flat_map(|properties| properties.security_rules.iter().flatten());
    let managed = rules.filter(|rule| rule::is_managed(rule)).filter_map(|rule| {
        let (addresses, others) = rule::destinations(rule.properties.as_ref()?);
        others.is_empty().then(|| (rule.name.clone().unwrap_or_default(), addresses))
    });
    managed.collect()
}

/// Plans the rules of `rules` in `group`.
///
/// `others`: every other Service of the cluster that has or may have rules; nothing of theirs is made, and nothing that they need
/// is taken away. One whose rules may not be as its spec says is given as [`ServiceRules::unknown`]. A refused Service keeps what it had.
/// Without `rules` nothing changes.
pub fn plan_security_rules(
    group: &NetworkSecurityGroup,
    rules: &[ServiceRules],
    others: &[ServiceRules],
    nodes: &NodeAddresses,
    settings: &LoadBalancerSettings,
) -> SecurityRulePlan {
    let rules = by_name(rules);
    if rules.is_empty() {
        return SecurityRulePlan::default();
    }
    let asking: BTreeSet<_> = rules.iter().map(|request| &request.identity).collect();
    let is_other = |other: &&ServiceRules| !asking.contains(&other.identity);
    let claims = DestinationClaims::new(rules.iter().copied().chain(others.iter().filter(is_other)));
    let mut work = SecurityGroupDraft::new(group);
    work.apply(
        service_edits::stale_node_edits(&work, &claims, nodes, serves_alone(group, &settings.virtual_network))
            .unwrap_or_default(),
    );
    work.drop_emptied();
    let (services, mut causes) = apply_in_order(&mut work, &claims, &rules, nodes);
    let (mut document, mut reasons) = work.finish(group);
    let is_tagged = !settings.tags.is_empty() && services.values().any(Result::is_ok);
    if is_tagged && tags::merge(&mut document.tags, &settings.tags, &settings.system_tags) {
        reasons.push("tags: set those of the configuration".to_owned());
    }
    if group.has_failed() {
        reasons.push(LAST_CHANGE_FAILED.to_owned());
    }
    if reasons.is_empty() {
        causes.clear();
    }
    SecurityRulePlan { document: (!reasons.is_empty()).then_some(document), reasons, services, causes }
}

/// Whether the group is on subnets of this virtual network and on nothing else. Interfaces that have it may be in another network, where
/// the same addresses are other machines'.
fn serves_alone(group: &NetworkSecurityGroup, network: &ResourceId) -> bool {
    let Some(properties) = &group.properties else { return false };
    let subnets: Vec<_> = properties.subnets.iter().flatten().collect();
    let is_here = |subnet: &&SubResource| subnet.resource_id().and_then(|id| id.parent()).is_some_and(|id| id == *network);
    let has_interfaces = properties.network_interfaces.as_ref().is_some_and(|list| !list.is_empty());
    !subnets.is_empty() && subnets.iter().all(is_here) && !has_interfaces
}

/// In the order of their names. Of two with the same name the one that goes is first.
fn by_name(rules: &[ServiceRules]) -> Vec<&ServiceRules> {
    let mut rules: Vec<_> = rules.iter().collect();
    rules.sort_by(|a, b| (&a.identity.key, a.wanted, &a.identity).cmp(&(&b.identity.key, b.wanted, &b.identity)));
    rules.dedup_by(|a, b| a.identity == b.identity);
    rules
}

/// Lets everybody have a turn, and those that were refused another one as long as that helps somebody: what one Service gives up
/// may be what another one needs.
fn apply_in_order(
    group: &mut SecurityGroupDraft,
    claims: &DestinationClaims<'_>,
    rules: &[&ServiceRules],
    nodes: &NodeAddresses,
) -> (BTreeMap<ServiceIdentity, Result<(), ServiceRefusal>>, BTreeSet<ServiceIdentity>) {
    let (mut services, mut causes) = (BTreeMap::new(), BTreeSet::new());
    let mut waiting: Vec<_> = rules.iter().copied().enumerate().collect();
    loop {
        let before = waiting.len();
        waiting.retain(|request| {
            let answer = service_edits::plan_edits(group, claims, *request, nodes).map(|edits| group.apply(edits));
            if answer == Ok(true) {
                causes.insert(request.1.identity.clone());
            }
            group.drop_emptied();
            let is_refused = answer.is_err();
            services.insert(request.1.identity.clone(), answer.map(|_| ()));
            is_refused
        });
        if waiting.is_empty() || waiting.len() == before {
            return (services, causes);
        }
    }
}

#[cfg(test)]
mod tests;
