use serde_json::json;

use super::{
    super::{context::ensured_spec, samples::*},
    *,
};
use crate::providers::azure::planner::load_balancer::spec::{PerFamily, PortProbe, Protocol};

mod documents;
mod entries;
mod histories;
mod last_frontends;
mod own_pools;
mod properties;
mod quirks;
mod sharing;

/// Plans the requests, each Service with the public IP that it would have by default.
fn plan(observed: &ObservedNetwork, asks: &[ServiceRequest]) -> LoadBalancerPlan {
    plan_with(observed, asks, &settings())
}

fn plan_with(observed: &ObservedNetwork, asks: &[ServiceRequest], settings: &LoadBalancerSettings) -> LoadBalancerPlan {
    let specs: Vec<&ServiceSpec> = asks.iter().filter_map(ensured_spec).collect();
    plan_load_balancers(observed, asks, &[], &public_ips(&specs), settings)
}

/// Returns the observed state after the writes of `outcome`.
fn applied(observed: &ObservedNetwork, outcome: &LoadBalancerPlan) -> ObservedNetwork {
    let mut after = observed.clone();
    for change in &outcome.changes {
        let is_it = |document: &ArmLoadBalancer| {
            document.name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(change.id.name()))
        };
        after.load_balancers.retain(|document| !is_it(document));
        if let LoadBalancerWrite::Put(document) = &change.write {
            after.load_balancers.push((**document).clone());
        }
    }
    after
}

/// Plans and writes until the plan is complete. Returns the observed state after that.
fn settle(there: &ObservedNetwork, plan: impl Fn(&ObservedNetwork) -> LoadBalancerPlan) -> ObservedNetwork {
    let mut there = there.clone();
    for _ in 0..4 {
        let outcome = plan(&there);
        there = applied(&there, &outcome);
        if !outcome.is_interim {
            return there;
        }
    }
    panic!("it does not settle");
}

/// Returns the observed state after all requests of `specs` have succeeded.
fn made(specs: &[&ServiceSpec]) -> ObservedNetwork {
    let empty = observed(Vec::new());
    let outcome = plan(&empty, &specs.iter().map(|spec| ensure(spec)).collect::<Vec<_>>());
    assert!(outcome.services.values().all(Result::is_ok), "{:?}", outcome.services);
    applied(&empty, &outcome)
}

fn put<'a>(outcome: &'a LoadBalancerPlan, name: &str) -> &'a ArmLoadBalancer {
    match outcome.changes.iter().find(|change| change.id.name() == name).map(|change| &change.write) {
        Some(LoadBalancerWrite::Put(document)) => document,
        other => panic!("{name}: {other:?}"),
    }
}

fn deletes(outcome: &LoadBalancerPlan, name: &str) -> bool {
    outcome.changes.iter().any(|change| change.id.name() == name && change.write == LoadBalancerWrite::Delete)
}

fn frontend_names(document: &ArmLoadBalancer) -> Vec<&str> {
    draft::frontends(document).iter().filter_map(|part| part.name.as_deref()).collect()
}

fn rule_names(document: &ArmLoadBalancer) -> Vec<&str> {
    draft::rules(document).iter().filter_map(|part| part.name.as_deref()).collect()
}

/// Returns for each rule the name of its frontend, and the public IP or private address of that frontend.
fn seats_of_rules(document: &ArmLoadBalancer) -> BTreeMap<String, (String, Option<frontends::FrontendAddress>)> {
    let by_id = |id: &str| {
        let mut parts = draft::frontends(document).iter();
        let part = parts.find(|part| part.name.as_deref() == id.rsplit('/').next()).unwrap();
        (part.name.clone().unwrap(), frontends::frontend_address(part))
    };
    let rules = draft::rules(document).iter();
    let seat = |rule: &crate::providers::azure::model::network::LoadBalancingRule| {
        rule.properties.as_ref().unwrap().frontend_ip_configuration.as_ref().unwrap().id.clone().unwrap()
    };
    rules.map(|rule| (rule.name.clone().unwrap(), by_id(&seat(rule)))).collect()
}

fn refusal<'a>(outcome: &'a LoadBalancerPlan, spec: &ServiceSpec) -> &'a ServiceRefusal {
    outcome.services[&spec.identity].as_ref().unwrap_err()
}
