use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::*;
use crate::{
    node::fixtures::{With, address, node, status},
    providers::azure::{
        config::BackendPoolType,
        planner::load_balancer::{
            desired::samples::{ensure, internal, network, observed, pinned, remove, settings},
            entries::LoadBalancerEntry,
            spec::AccessControl,
        },
    },
};

fn named(name: &str, entry: &str, address: &str) -> ServiceSpec {
    ServiceSpec { configurations: Some(vec![entry.to_owned()]), ..pinned(address, internal(name)) }
}

fn nodes() -> Vec<Arc<Node>> {
    let node = |(name, of_node): (&str, &str)| {
        let addresses = vec![address("InternalIP", of_node)];
        Arc::new(node(name).with(|node| status(node).addresses = Some(addresses)))
    };
    [("n1", "10.0.0.1"), ("n2", "10.0.0.2")].map(node).to_vec()
}

fn planned(
    observed: &ObservedNetwork,
    requests: &[ServiceRequest],
    others: &[ParsedService],
    settings: &LoadBalancerSettings,
) -> Plan {
    let nodes = nodes();
    let pools = PoolInput {
        hosts: Some(&nodes),
        all_nodes: &nodes,
        reads: &pools::PoolReads { models: Some(Ok(Default::default())), ..Default::default() },
        memory: &Default::default(),
        local: &Default::default(),
        unfilled: &[],
        deleting: &[],
        group: &settings.group,
        migrate_api: false,
        now: tokio::time::Instant::now(),
    };
    plan(&PlanInput { observed, requests, others, memory: &RuleMemory::default(), pools: &pools, settings })
}

/// What there is when the plan is carried out.
fn carried_out(before: &ObservedNetwork, plan: &Plan) -> ObservedNetwork {
    let mut after = after::after_network(before, &plan.network);
    after::apply_pools(&mut after, &plan.pools);
    let group = plan.rules.as_ref().and_then(|rules| rules.document.clone());
    after.security_group = group.or(after.security_group);
    after
}

#[test]
fn nodes_that_come_behind_another_load_balancer_are_opened_to_the_services_there() {
    let entries = ["kubernetes", "lb2"].map(LoadBalancerEntry::implied).to_vec();
    let settings = LoadBalancerSettings { entries, pool_type: BackendPoolType::NodeIp, ..settings() };
    let access = AccessControl { ranges: vec!["192.0.2.0/24".parse().unwrap()], ..AccessControl::default() };
    let web = ServiceSpec { floating_ip: false, access, ..named("web", "kubernetes", "10.0.0.100") };
    let last = named("last", "lb2", "10.0.0.101");
    let group = json!({"id": network("networkSecurityGroups/nsg"), "name": "nsg", "properties": {"securityRules": []}});
    let start = ObservedNetwork { security_group: Some(serde_json::from_value(group).unwrap()), ..observed(Vec::new()) };
    let asks = [ensure(&web), ensure(&last)];
    let there = carried_out(&start, &planned(&start, &asks, &[], &settings));
    assert!(planned(&there, &asks, &[], &settings).is_empty(), "{}", planned(&there, &asks, &[], &settings));

    let others = [ParsedService::Valid(Arc::new(web.clone()))];
    let goes = planned(&there, &[remove(&last)], &others, &settings);
    let rules = goes.rules.as_ref().unwrap();
    assert!(rules.causes.contains(&web.identity), "{goes}");
    let after = carried_out(&there, &goes);
    let again = planned(&after, &[ensure(&web)], &[], &settings);
    assert!(again.is_empty(), "{goes}\nand then\n{again}");
}
