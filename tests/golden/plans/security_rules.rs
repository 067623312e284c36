//! Security rules: planned as recorded, without the leftovers that the recording lists.

use std::collections::BTreeSet;

use cloud_controller_manager::providers::azure::{
    arm::network::NetworkSecurityGroup,
    planner::load_balancer::{
        desired::{
            ServiceRequest,
            security_rules::{NodeAddresses, SecurityRulePlan, ServiceRules, plan_security_rules},
            status::frontend_addresses,
        },
        observed::ObservedNetwork,
        pools::member_addresses::listed_in_pools,
        spec::ServiceSpec,
    },
};

use super::{
    assert_only,
    cloud::{Cloud, SECURITY_GROUP},
    cluster::Turn,
    of_type, scenes,
};
use crate::golden::deviations;

/// Plans the security group and writes it, when there is one.
pub(super) fn apply(cloud: &mut Cloud<'_>, turn: &Turn) {
    let observed = cloud.observed(turn);
    let Some(outcome) = observed.security_group.as_ref().map(|group| plan(group, &observed, turn)) else { return };
    cloud.answered(&outcome.services);
    if let (Some(document), Some(id)) = (outcome.document, &turn.settings.security_group) {
        cloud.put(id, &document);
    }
}

fn plan(group: &NetworkSecurityGroup, observed: &ObservedNetwork, turn: &Turn) -> SecurityRulePlan {
    let asks: Vec<ServiceRules> = turn.asks.iter().filter_map(|ask| reach(ask, observed, turn)).collect();
    let others: Vec<ServiceRules> = turn.others.iter().filter_map(|spec| wanted(spec, observed, turn)).collect();
    plan_security_rules(group, &asks, &others, &nodes(observed, turn), &turn.settings)
}

/// Those that pools list were given to Nodes of this cluster, too.
fn nodes(observed: &ObservedNetwork, turn: &Turn) -> NodeAddresses {
    let mut nodes = turn.nodes.clone();
    let listed = listed_in_pools(observed, &turn.settings).into_iter();
    nodes.gone.extend(listed.filter(|address| !turn.nodes.present.contains(address)));
    nodes
}

fn reach(ask: &ServiceRequest, observed: &ObservedNetwork, turn: &Turn) -> Option<ServiceRules> {
    let mut reach = match ask {
        ServiceRequest::Ensure(spec) => wanted(spec, observed, turn)?,
        ServiceRequest::Delete(identity, last) => ServiceRules::removed(identity.clone(), last.as_deref(), &[]),
    };
    let remembered: BTreeSet<_> = turn.memory.get(&reach.identity.key).into_iter().flatten().copied().collect();
    // Whatever it had was its own: the recorded cluster has the security group alone.
    reach.claimed.retain(|address| !remembered.contains(address));
    let former: Vec<_> = remembered.difference(&reach.destinations).copied().collect();
    reach.former.extend(former);
    Some(reach)
}

/// `None`: the Service has no address yet.
fn wanted(spec: &ServiceSpec, observed: &ObservedNetwork, turn: &Turn) -> Option<ServiceRules> {
    let members: Vec<_> = turn.members.iter().copied().collect();
    ServiceRules::wanted(spec, &frontend_addresses(observed, spec, &turn.settings), &members).ok()
}

#[test]
fn security_rules_become_as_recorded() {
    assert_only(deviations::SECURITY_RULES, |scene| scene.differences(SECURITY_GROUP, |_| {}));
}

#[test]
fn recorded_security_rules_are_left_alone() {
    assert_only(deviations::PUT_RIGHT, |scene| {
        let (cloud, turn) = scene.end();
        let observed = cloud.observed(&turn);
        let Some(group) = observed.security_group.as_ref() else { return Vec::new() };
        let is_littered = !scene.step.oddities.stale_security_destinations.is_empty();
        if is_littered { Vec::new() } else { plan(group, &observed, &turn).reasons }
    });
}

#[test]
fn leftovers_are_cleaned() {
    assert_only(deviations::LEFTOVERS_STAY, |scene| {
        let groups = of_type(SECURITY_GROUP, &scene.found);
        let rules = || groups.values().filter_map(|group| group["properties"]["securityRules"].as_array()).flatten();
        let remains = |(rule, address): &(&str, &str)| {
            let mut same = rules().filter(|found| found["name"] == *rule);
            same.any(|found| found["properties"].to_string().contains(&format!("\"{address}\"")))
        };
        let remaining = scene.step.oddities.stale().filter(remains);
        remaining.map(|(rule, address)| format!("{address} remains in {rule}")).collect()
    });
}

#[test]
fn the_recording_has_leftovers() {
    let littered = scenes().iter().filter(|scene| scene.step.oddities.stale().next().is_some()).count();
    assert!(littered > 10, "{littered}");
}
