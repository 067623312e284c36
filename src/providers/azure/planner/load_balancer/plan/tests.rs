use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::{pools::PoolInput, *};
use crate::{
    node::fixtures::{With, address, node, status},
    providers::azure::{
        config::BackendPoolType,
        model::{ArmErrorClass, LookupError, ResourceId},
        planner::load_balancer::{
            desired::samples::{ensure, internal, network, observed, pinned, remove, service, settings},
            entries::LoadBalancerEntry,
            network_query::{NetworkCacheKey, NetworkReadFailure},
            rule_memory::RuleMemory,
            settings::LoadBalancerSettings,
            spec::{AccessControl, ServiceIdentity},
        },
        samples::arm_error,
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

/// Input of a plan in addition to the requests.
#[derive(Default)]
struct Given {
    others: Vec<ParsedService>,
    held: BTreeSet<ServiceIdentity>,
    half_made: BTreeSet<ResourceId>,
    machine_rules: MachineRules,
    reads: NetworkReads,
}

impl Given {
    /// Creates an input with these other Services, without missing reads.
    fn others(others: &[ParsedService]) -> Self {
        let request = |other: &ParsedService| ServiceRequest::Ensure(Arc::clone(other.spec()));
        let machine_rules = MachineRules { are_due: false, services: others.iter().map(request).collect() };
        let reads = NetworkReads { is_complete: true, ..NetworkReads::default() };
        Self { others: others.to_vec(), machine_rules, reads, ..Self::default() }
    }

    fn plan(
        &self,
        scope: PlanScope<'_>,
        observed: &ObservedNetwork,
        requests: &[ServiceRequest],
        settings: &LoadBalancerSettings,
    ) -> Planned {
        let nodes = nodes();
        let unlisted = |node: &Arc<Node>| {
            let name = node.metadata.name.clone().unwrap_or_default();
            (name.clone(), Err(LookupError::NotListed(name)))
        };
        let pools = PoolInput {
            hosts: Some(&nodes),
            all_nodes: &nodes,
            reads: &pools::PoolReads {
                machines: nodes.iter().map(unlisted).collect(),
                models: Some(Ok(Default::default())),
                ..Default::default()
            },
            memory: &Default::default(),
            local: &Default::default(),
            unfilled: &[],
            deleting: &[],
            group: &settings.group,
            migrate_api: false,
            now: tokio::time::Instant::now(),
        };
        plan(&PlanInput {
            scope,
            observed,
            requests,
            others: &self.others,
            held: &self.held,
            network: &self.reads,
            memory: &RuleMemory::default(),
            machine_rules: &self.machine_rules,
            half_made: &self.half_made,
            pools: &pools,
            settings,
        })
    }
}

fn made(planned: Planned) -> Plan {
    match planned {
        Planned::Plan(plan) => *plan,
        Planned::Needs(needs) => panic!("{needs:?}"),
    }
}

fn planned(
    observed: &ObservedNetwork,
    requests: &[ServiceRequest],
    others: &[ParsedService],
    settings: &LoadBalancerSettings,
) -> Plan {
    made(Given::others(others).plan(PlanScope::Everything, observed, requests, settings))
}

/// Returns the documents after the plan is carried out.
fn carried_out(before: &ObservedNetwork, plan: &Plan) -> ObservedNetwork {
    let mut after = after::after_network(before, &plan.network);
    after::apply_pools(&mut after, &plan.pools);
    let group = plan.rules.as_ref().and_then(|rules| rules.plan.document.clone());
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
    assert!(rules.plan.causes.contains(&web.identity), "{goes}");
    let after = carried_out(&there, &goes);
    let again = planned(&after, &[ensure(&web)], &[], &settings);
    assert!(again.is_empty(), "{goes}\nand then\n{again}");
}

#[test]
fn rules_that_are_due_follow_machines_and_are_planned_with_the_others() {
    let settings = settings();
    let web = ServiceSpec { floating_ip: false, ..internal("web") };
    let group = json!({"id": network("networkSecurityGroups/nsg"), "name": "nsg", "properties": {"securityRules": []}});
    let start = ObservedNetwork { security_group: Some(serde_json::from_value(group).unwrap()), ..observed(Vec::new()) };
    let mut there = carried_out(&start, &planned(&start, &[ensure(&pinned("10.0.0.100", web.clone()))], &[], &settings));
    there.security_group.clone_from(&start.security_group);
    let given = |are_due| {
        let machine_rules = MachineRules { are_due, services: vec![ensure(&pinned("10.0.0.100", web.clone()))] };
        Given { machine_rules, ..Given::others(&[ParsedService::Valid(Arc::new(pinned("10.0.0.100", web.clone())))]) }
    };
    for scope in [PlanScope::Everything, PlanScope::SecurityGroup] {
        let rules = |are_due| made(given(are_due).plan(scope, &there, &[], &settings)).rules.unwrap().plan;
        assert!(rules(false).document.is_none());
        assert_eq!(rules(true).services.keys().collect::<Vec<_>>(), [&web.identity]);
    }
    assert_eq!(given(true).machine_rules.due(&there, &settings).len(), 1);
    assert_eq!(given(true).machine_rules.due(&start, &settings), [], "it has no front end");
}

#[test]
fn a_half_made_public_ip_is_finished_before_load_balancers() {
    let (settings, web) = (settings(), service("web"));
    let start = observed(Vec::new());
    let there = carried_out(&start, &planned(&start, &[ensure(&web)], &[], &settings));
    let id = ResourceId::parse(there.public_ips[0].id.as_deref().unwrap()).unwrap();
    let tagged = LoadBalancerSettings { tags: BTreeMap::from([("team".into(), "a".into())]), ..settings };
    let text = |half_made: &[&ResourceId]| {
        let half_made = half_made.iter().copied().cloned().collect();
        let given = Given { half_made, held: BTreeSet::from([web.identity.clone()]), ..Given::others(&[]) };
        made(given.plan(PlanScope::LoadBalancers, &there, &[ensure(&web)], &tagged)).to_string()
    };
    assert_eq!(text(&[]), "", "who is held keeps what it has");
    assert_eq!(text(&[&id]), format!("put {id}: finish what ARM has left half made\n"));
}

/// Repeats a plan until it needs no more reads. Returns the needs of each round, and the plan.
fn rounds(given: &mut Given, requests: &[ServiceRequest], there: &ObservedNetwork) -> (Vec<PlanNeeds>, Plan) {
    let mut rounds = Vec::new();
    for _ in 0..5 {
        match given.plan(PlanScope::Network, there, requests, &settings()) {
            Planned::Plan(plan) => return (rounds, *plan),
            Planned::Needs(needs) => {
                given.reads.query.clone_from(&needs.network);
                given.reads.refreshed.extend(needs.refresh.iter().cloned());
                rounds.push(needs);
            }
        }
    }
    panic!("{rounds:?}");
}

#[test]
fn a_plan_says_what_it_needs_until_it_has_been_read() {
    let (inside, link_group) = (internal("web"), ResourceId::group_of("SUB", "links"));
    let served =
        ServiceSpec { status_addresses: vec!["10.0.0.100".parse().unwrap()], ..pinned("10.0.0.100", inside.clone()) };
    let goes = ServiceRequest::Delete(served.identity.clone(), Some(Arc::new(served.clone())));
    let start = observed(Vec::new());
    let there = carried_out(&start, &planned(&start, &[ensure(&served)], &[], &settings()));

    let (first, plan) = rounds(&mut Given::default(), &[ensure(&inside)], &start);
    let query = first[0].network.as_ref().unwrap();
    assert_eq!((first.len(), query.subnets.len()), (1, 1), "its subnet: {first:?}");
    assert!(!plan.network.is_empty(), "{plan}");

    let mut links = Given::default();
    links.reads.discovered_link_groups.insert(link_group.clone());
    let (needs, plan) = rounds(&mut links, std::slice::from_ref(&goes), &there);
    let groups = |needs: &PlanNeeds| needs.network.as_ref().unwrap().private_link_groups.clone();
    assert!(needs.len() == 2 && groups(&needs[0]).is_empty(), "front ends go: {needs:?}");
    assert!(groups(&needs[1]).contains(&link_group) && !plan.network.is_empty(), "{needs:?}");

    let (lost, _) = rounds(&mut Given::default(), std::slice::from_ref(&goes), &start);
    let again: Vec<_> = lost.iter().map(|needs| needs.refresh.iter().cloned().collect::<Vec<_>>()).collect();
    assert_eq!(again, [vec![], vec![NetworkCacheKey::LoadBalancers]], "found nowhere: {lost:?}");

    let refused = ServiceSpec { subnet: Some("missing".to_owned()), ..internal("odd") };
    let (needs, plan) = rounds(&mut Given::default(), &[ensure(&refused)], &start);
    assert!(needs[1].refresh.contains(&NetworkCacheKey::Subnet("missing".to_owned())), "{needs:?}");
    assert!(plan.network.refused.contains_key(&refused.identity), "{plan}");
}

#[test]
fn what_cannot_be_read_blocks_those_alone_who_name_it() {
    let error = |class| arm_error(class, "", "no");
    let failure = |key: NetworkCacheKey, class, group_missing| NetworkReadFailure {
        key,
        error: error(class),
        group_missing,
        missing_for: None,
    };
    let group = ResourceId::group_of("SUB", "other");
    let mut elsewhere = service("elsewhere");
    elsewhere.public_ip.group = group.clone();
    let goes = |spec: &ServiceSpec| ServiceRequest::Delete(spec.identity.clone(), Some(Arc::new(spec.clone())));
    let served = ServiceSpec { status_addresses: vec!["20.0.0.1".parse().unwrap()], ..elsewhere.clone() };
    let ips = || NetworkCacheKey::PublicIps(group.clone());
    use ArmErrorClass::{Forbidden, Transient};
    for (request, failure, is_blocked) in [
        (ensure(&elsewhere), failure(ips(), Forbidden, false), true),
        (ensure(&internal("web")), failure(ips(), Forbidden, false), false),
        (ensure(&internal("web")), failure(NetworkCacheKey::Subnet("NODES".into()), Transient, false), true),
        (goes(&elsewhere), failure(ips(), Forbidden, false), false),
        (goes(&elsewhere), failure(ips(), Transient, false), true),
        (goes(&served), failure(ips(), Forbidden, false), true),
        (goes(&served), failure(ips(), Forbidden, true), false),
    ] {
        let reads = NetworkReads { is_complete: true, failures: vec![failure.clone()], ..NetworkReads::default() };
        let given = Given { reads, ..Given::default() };
        let plan =
            made(given.plan(PlanScope::Everything, &observed(Vec::new()), std::slice::from_ref(&request), &settings()));
        assert_eq!(plan.blocked.contains_key(request.identity()), is_blocked, "{request:?} {failure:?}");
        assert_eq!(plan.to_string().contains("cannot be read"), is_blocked, "{plan}");
        assert!(!is_blocked || plan.network.is_empty(), "{plan}");
    }
    let reads = NetworkReads { is_complete: true, unread_zones: Some(error(Transient)), ..NetworkReads::default() };
    let given = Given { reads, ..Given::default() };
    let plan = made(given.plan(PlanScope::Network, &observed(Vec::new()), &[ensure(&internal("web"))], &settings()));
    assert!(matches!(plan.blocked.values().next(), Some(BlockedBy::Zones(_))), "{plan}");
}
