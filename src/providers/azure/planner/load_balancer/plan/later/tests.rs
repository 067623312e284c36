use super::*;
use crate::providers::azure::planner::load_balancer::{
    desired::samples::{ensure, observed, service, settings},
    entries::LoadBalancerEntry,
    plan::{Plan, network::plan_network},
};

fn named(name: &str, entry: &str) -> ServiceSpec {
    ServiceSpec { configurations: Some(vec![entry.to_owned()]), ..service(name) }
}

#[test]
fn services_that_change_places_are_told_to_the_end() {
    let entries = ["kubernetes", "lb2"].map(LoadBalancerEntry::implied).to_vec();
    let settings = LoadBalancerSettings { entries, ..settings() };
    let first = [named("a", "kubernetes"), named("b", "lb2")];
    let start = observed(Vec::new());
    let there = after::after_network(&start, &plan_network(&start, &first.each_ref().map(ensure), &[], &settings));
    let asks = [ensure(&named("a", "lb2")), ensure(&named("b", "kubernetes"))];
    let mut network = plan_network(&there, &asks, &[], &settings);
    let mut written = after::after_network(&there, &network);
    assert!(network.load_balancers.is_interim);
    let later = later_steps(&mut network, &mut written, &asks, &[], &settings);
    let text = Plan { network, later, ..Plan::default() }.to_string();
    let (given, taken): (Vec<&str>, Vec<&str>) =
        text.lines().filter(|line| line.contains("/loadBalancers/")).partition(|line| line.starts_with("delete "));
    assert!(given.len() == 1 && given.iter().all(|line| line.contains("give addresses back")), "{text}");
    assert!(taken.len() == 2 && taken.iter().all(|line| line.starts_with("then: put ")), "{text}");
    assert!(plan_network(&written, &asks, &[], &settings).load_balancers.changes.is_empty(), "that is all");
}
