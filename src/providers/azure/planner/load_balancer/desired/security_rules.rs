//! Security rules of one network security group: the sources that may reach ports of Services.
//!
//! In: the group as ARM sent it, the Services whose rules are reconciled, and all other Services of the cluster. Out: the desired group,
//! the reasons for its changes, and a result for each Service. The outcome is the same as if the Services were reconciled one by one in
//! the order of their names. Services with the same sources and ports share a rule, so no Service owns a rule: a Service owns only
//! destinations in it. Upstream: `pkg/provider/securitygroup`, `pkg/provider/loadbalancer/accesscontrol.go`.
//!
//! A destination is removed from a rule only if all of these conditions are met:
//!
//! - The rule is managed, by its name and priority.
//! - No Service claims the destination in this rule. Ports of the rule that Services need there for the same protocol and sources remain
//!   open.
//! - The destination belongs to this cluster. Either the reconciled Service has or had a frontend with the address, or it only claims the
//!   address and it created the rule or opens all ports of the rule. Or the address is that of a current or a former Node of the cluster.
//!
//! If the group also serves another virtual network, addresses of current Nodes are removed only from rules that open or deny a NodePort
//! of the Service, and from rules that deny everything. All other destinations may belong to another cluster, so they remain.

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

/// Planned change of a network security group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SecurityRulePlan {
    /// Document to write; `None` if the group needs no change.
    pub document: Option<NetworkSecurityGroup>,
    /// Reasons for the changes, as text for people.
    pub reasons: Vec<String>,
    /// Result of each reconciled Service: its rules are in the group, or it is refused.
    pub services: BTreeMap<ServiceIdentity, Result<(), ServiceRefusal>>,
    /// Services whose rules change. Empty if something changes only for Nodes or for the group itself.
    pub causes: BTreeSet<ServiceIdentity>,
}

/// Returns the destination addresses of all managed rules.
pub fn managed_destinations(group: &NetworkSecurityGroup) -> BTreeSet<IpAddr> {
    listed_destinations([group]).into_values().flatten().collect()
}

/// Returns the destination addresses of the managed rules of several groups, by the hash of the rule's name.
pub fn listed_destinations<'a>(groups: impl IntoIterator<Item = &'a NetworkSecurityGroup>) -> ListedDestinations {
    let mut listed = ListedDestinations::new();
    for group in groups.into_iter().map(SecurityGroupDraft::new) {
        for rule in group.rules().filter(|rule| rule.kind.is_some()) {
            listed.entry(RuleHash::of(&rule.name)).or_default().extend(&rule.addresses);
        }
    }
    listed
}

/// Returns the names and destination addresses of the managed rules. Rules with any other destination, such as a range, are omitted.
pub fn managed_rules(group: &NetworkSecurityGroup) -> Vec<(String, BTreeSet<IpAddr>)> {
    let rules = group.properties.iter().flat_map(|properties| properties.security_rules.iter().flatten());
    let managed = rules.filter(|rule| rule::is_managed(rule)).filter_map(|rule| {
        let (addresses, others) = rule::destinations(rule.properties.as_ref()?);
        others.is_empty().then(|| (rule.name.clone().unwrap_or_default(), addresses))
    });
    managed.collect()
}

/// Plans the security rules of the Services `rules` in `group`. Nothing changes if `rules` is empty.
///
/// `others`: every other Service of the cluster that has or may have rules. No rules are created for these Services, and the destinations
/// that they need are kept. A Service whose existing rules may differ from its spec is a [`ServiceRules::unknown`]. A refused Service
/// keeps its existing rules.
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

/// Returns `true` if the group is associated only with subnets of this virtual network.
///
/// Network interfaces with the group may be in another network, where other instances have the same addresses.
fn serves_alone(group: &NetworkSecurityGroup, network: &ResourceId) -> bool {
    let Some(properties) = &group.properties else { return false };
    let subnets: Vec<_> = properties.subnets.iter().flatten().collect();
    let is_here = |subnet: &&SubResource| subnet.resource_id().and_then(|id| id.parent()).is_some_and(|id| id == *network);
    let has_interfaces = properties.network_interfaces.as_ref().is_some_and(|list| !list.is_empty());
    !subnets.is_empty() && subnets.iter().all(is_here) && !has_interfaces
}

/// Returns the Services in the order of their names, each once. Of two Services with the same name, the deleted one comes first.
fn by_name(rules: &[ServiceRules]) -> Vec<&ServiceRules> {
    let mut rules: Vec<_> = rules.iter().collect();
    rules.sort_by(|a, b| (&a.identity.key, a.wanted, &a.identity).cmp(&(&b.identity.key, b.wanted, &b.identity)));
    rules.dedup_by(|a, b| a.identity == b.identity);
    rules
}

/// Applies the edits of each Service in order. Retries refused Services while a round accepts any, because one Service may release what
/// another needs.
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
