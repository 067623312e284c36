//! Growth of plans with the number of Services, on 1, 8 and 40 load balancers: the pure functions alone, without a cluster or Azure.
//!
//! Each step of a plan must be linear: twice the Services take twice the time. Absolute times depend on the machine and on the profile of
//! the build, so the benchmark asserts only how they grow from the smallest size to each other one, and leaves room for processor caches,
//! which larger networks no longer fit: the limit lies halfway between a linear and a quadratic step. Arguments limit the sizes: `-- 40 4000`
//! runs 250, 1,000 and 4,000 Services on 40 load balancers.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a benchmark panics if its setup fails")]

use std::{
    collections::BTreeMap,
    hint::black_box,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use cloud_controller_manager::providers::azure::{
    config::decode,
    model::{document::SubResource, network::NetworkSecurityGroup},
    planner::load_balancer::{
        desired::{ServiceRequest, plan_index::PlanIndex, security_rules::listed_destinations},
        observed::ObservedNetwork,
        occupancy::occupancy,
        plan::{
            PlannedSecurityRules,
            after::after_network,
            network::{NetworkPlan, plan_network},
            rules::{RuleInput, plan_rules},
        },
        pools::member_addresses::PoolMemberAddresses,
        rule_memory::{ParsedService, RuleMemory},
        settings::LoadBalancerSettings,
        spec::ServiceSpec,
    },
};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use tokio::time::Instant;

/// Services for each number of load balancers. One load balancer has at most 600 frontends.
const SIZES: [(usize, &[usize]); 3] = [(1, &[125, 500]), (8, &[250, 1_000, 2_000]), (40, &[250, 1_000, 4_000])];
/// Number of runs, of which the shortest counts: other processes make a run longer, never shorter.
const RUNS: usize = 7;
/// No run begins after this time.
const MAX_TOTAL: Duration = Duration::from_secs(2);
/// Limit of the power of the number of Services with which the time of a step grows. A step that visits all Services for each Service has the
/// power 2.
const MAX_POWER: f64 = 1.5;
/// Number of measurements of all sizes, while a step seems to exceed [`MAX_POWER`].
const ATTEMPTS: usize = 3;
/// A step that takes less is too short to measure.
const MIN_DURATION: Duration = Duration::from_millis(2);

fn main() {
    let arguments: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let balancers = arguments.first().copied();
    let most = arguments.get(1).copied().unwrap_or(usize::MAX);
    let mut faults = Vec::new();
    for (count, sizes) in SIZES.into_iter().filter(|(count, _)| balancers.is_none_or(|only| only == *count)) {
        let sizes = sizes.iter().copied().filter(|size| *size <= most);
        let scenarios: Vec<_> = sizes.map(|services| Scenario::new(services, count)).collect();
        let mut measured: Vec<Durations> = scenarios.iter().map(Scenario::durations).collect();
        for _ in 1..ATTEMPTS {
            if !excessive(&scenarios, &measured).is_empty() {
                scenarios
                    .iter()
                    .zip(&mut measured)
                    .for_each(|(scenario, durations)| keep_shorter(durations, scenario.durations()));
            }
        }
        report(&scenarios, &measured);
        faults.extend(excessive(&scenarios, &measured).into_iter().map(|fault| format!("{count} load balancers: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn keep_shorter(durations: &mut Durations, repeated: Durations) {
    for (step, duration) in repeated {
        durations.entry(step).and_modify(|shortest| *shortest = duration.min(*shortest));
    }
}

/// Returns the steps that grew more than tolerated.
fn excessive(scenarios: &[Scenario], measured: &[Durations]) -> Vec<String> {
    let mut faults = Vec::new();
    for position in 1..scenarios.len() {
        let excessive = growth(scenarios, measured, position).into_iter().filter(|(_, power)| *power > MAX_POWER);
        let services = scenarios[position].specs.len();
        faults.extend(
            excessive.map(|(step, power)| format!("{step} grows with power {power:.2} of the Services, to {services}")),
        );
    }
    faults
}

type Durations = BTreeMap<&'static str, Duration>;

/// Returns with which power of the number of Services each step grew since the smallest size.
fn growth(scenarios: &[Scenario], measured: &[Durations], position: usize) -> BTreeMap<&'static str, f64> {
    if position == 0 {
        return BTreeMap::new();
    }
    let services = scenarios[position].specs.len() as f64 / scenarios[0].specs.len() as f64;
    let measurable = measured[position].iter().filter(|(_, duration)| **duration >= MIN_DURATION);
    let power = |(step, duration): (&&'static str, &Duration)| {
        let before = measured[0].get(step).copied().unwrap_or_default().max(Duration::from_micros(1));
        (*step, (duration.as_secs_f64() / before.as_secs_f64()).log(services))
    };
    measurable.map(power).collect()
}

fn report(scenarios: &[Scenario], measured: &[Durations]) {
    for (position, (scenario, durations)) in scenarios.iter().zip(measured).enumerate() {
        println!("{} Services on {} load balancers", scenario.specs.len(), scenario.settings.entries.len().max(1));
        let growth = growth(scenarios, measured, position);
        for (step, duration) in durations {
            let power = growth.get(step).map(|power| format!("{power:.2}")).unwrap_or_default();
            println!("  {step:<20} {:>10.2} ms {power:>6}", duration.as_secs_f64() * 1_000.0);
        }
    }
}

/// A cluster whose Services all have what they request.
struct Scenario {
    settings: LoadBalancerSettings,
    specs: Vec<Arc<ServiceSpec>>,
    empty: ObservedNetwork,
    settled: ObservedNetwork,
    memory: RuleMemory,
}

impl Scenario {
    fn new(services: usize, balancers: usize) -> Self {
        let settings = settings(balancers);
        let specs: Vec<_> = (0..services).map(|number| spec(number, &settings)).collect();
        let group = json!({"id": settings.security_group.as_ref().map(|id| id.as_str()), "name": "nsg", "properties": {}});
        let subnet = json!({"id": settings.virtual_network.child("subnets", "nodes").as_str(), "name": "nodes",
            "properties": {"addressPrefix": "10.0.0.0/8"}});
        let empty = ObservedNetwork {
            security_group: Some(serde_json::from_value(group).expect("a security group")),
            subnets: BTreeMap::from([("nodes".to_owned(), serde_json::from_value(subnet).expect("a subnet"))]),
            ..ObservedNetwork::default()
        };
        let mut scenario = Self { settings, specs, settled: empty.clone(), empty, memory: RuleMemory::default() };
        scenario.memory.note_nodes((0..10).map(|node| address(Ipv4Addr::new(10, 255, 0, 1), node)).collect());
        scenario.settle();
        scenario
    }

    /// Carries out plans for all Services, as Azure would.
    fn settle(&mut self) {
        let requests = self.requests();
        let network = plan_network(&self.empty, &requests, &[], &self.settings);
        assert!(network.refused.is_empty(), "{:?}", network.refused);
        self.settled = with_addresses(after_network(&self.empty, &network));
        let rules = self.plan_rules(&self.settled, &requests, &[]);
        assert!(rules.refused.is_empty(), "{:?}", rules.refused);
        self.settled.security_group = rules.plan.document.or_else(|| self.settled.security_group.take());
        let listed = listed_destinations(&self.settled.security_group);
        for (request, service) in requests.iter().zip(&rules.services) {
            self.memory.record_applied(request, service, &listed);
        }
    }

    fn requests(&self) -> Vec<ServiceRequest> {
        self.specs.iter().cloned().map(ServiceRequest::Ensure).collect()
    }

    fn plan_rules(
        &self,
        observed: &ObservedNetwork,
        requests: &[ServiceRequest],
        others: &[ParsedService],
    ) -> PlannedSecurityRules {
        let members = PoolMemberAddresses::default();
        let input =
            RuleInput { observed, requests, others, memory: &self.memory, members: &members, settings: &self.settings };
        plan_rules(self.group(), &input)
    }

    fn group(&self) -> &NetworkSecurityGroup {
        self.settled.security_group.as_ref().expect("a security group")
    }

    /// Measures all steps: all Services created at once, requested again without a change (as after a restart), deleted at once, and one
    /// Service requested while the others keep what they have.
    fn durations(&self) -> Durations {
        let mut durations = Durations::new();
        let requests = self.requests();
        let deletions: Vec<_> =
            self.specs.iter().map(|spec| ServiceRequest::Delete(spec.identity.clone(), Some(Arc::clone(spec)))).collect();
        let created =
            self.steps(&mut durations, ["create: network", "create: after", "create: rules"], &self.empty, &requests, &[]);
        assert_eq!(created.public_ips.writes.len(), self.specs.iter().filter(|spec| !spec.internal).count());
        let steps = ["restart: network", "restart: after", "restart: rules"];
        let unchanged = self.steps(&mut durations, steps, &self.settled, &requests, &[]);
        assert!(unchanged.is_empty(), "{unchanged}");
        self.steps(&mut durations, ["delete: network", "delete: after", "delete: rules"], &self.settled, &deletions, &[]);
        let single = requests.get(..1).expect("a Service");
        self.steps(&mut durations, ["one: network", "one: after", "one: rules"], &self.settled, single, &self.specs[1..]);
        time(&mut durations, "restart: addresses", || {
            let index = PlanIndex::new(&self.settled);
            self.specs.iter().map(|spec| index.pending_addresses(spec, &self.settings).len()).sum::<usize>()
        });
        time(&mut durations, "restart: causes", || unchanged.load_balancers.causes(&self.settled, &requests));
        time(&mut durations, "restart: occupancy", || occupancy(&self.settled, &self.settings));
        durations
    }

    /// Measures one plan with its parts, and returns the plan of the network.
    fn steps(
        &self,
        durations: &mut Durations,
        [network, after, rules]: [&'static str; 3],
        observed: &ObservedNetwork,
        requests: &[ServiceRequest],
        others: &[Arc<ServiceSpec>],
    ) -> NetworkPlan {
        let plan = time(durations, network, || plan_network(observed, requests, others, &self.settings));
        let written = time(durations, after, || after_network(observed, &plan));
        let written = with_addresses(written);
        let others: Vec<_> = others.iter().cloned().map(ParsedService::Valid).collect();
        time(durations, rules, || self.plan_rules(&written, requests, &others));
        plan
    }
}

/// Runs a step several times and records the shortest run.
fn time<T>(durations: &mut Durations, step: &'static str, run: impl Fn() -> T) -> T {
    let begun = Instant::now();
    let measured = |_| {
        let started = Instant::now();
        let result = black_box(run());
        (started.elapsed(), result)
    };
    let is_due = |run: &usize| *run == 0 || begun.elapsed() < MAX_TOTAL;
    let runs = (0..RUNS).take_while(is_due).map(measured);
    let (shortest, result) = runs.min_by_key(|(elapsed, _)| *elapsed).expect("a run");
    durations.insert(step, shortest);
    result
}

fn settings(balancers: usize) -> LoadBalancerSettings {
    let names = std::iter::once("kubernetes".to_owned()).chain((1..balancers).map(|number| format!("lb{number}")));
    let entries: Vec<_> = names.map(|name| json!({"name": name, "primaryVMSet": format!("set-{name}")})).collect();
    let config = json!({
        "subscriptionId": "00000000-0000-0000-0000-000000000000",
        "resourceGroup": "cluster",
        "location": "westeurope",
        "vnetName": "vnet",
        "subnetName": "nodes",
        "securityGroupName": "nsg",
        "loadBalancerBackendPoolConfigurationType": "nodeIP",
        "multipleStandardLoadBalancerConfigurations": if balancers > 1 { entries } else { Vec::new() },
    });
    LoadBalancerSettings::new(&decode(&config.to_string()).config, "kubernetes")
}

/// Returns the Service with this number. Three of four Services are external, the fourth is internal with a chosen address. Each fifth has the policy
/// `Local`, and so its own pool if there are several load balancers.
fn spec(number: usize, settings: &LoadBalancerSettings) -> Arc<ServiceSpec> {
    let internal = json!({"service.beta.kubernetes.io/azure-load-balancer-internal": "true",
        "service.beta.kubernetes.io/azure-load-balancer-ipv4": address(Ipv4Addr::new(10, 1, 0, 0), number)});
    let port = 30_000 + number % 2_768;
    let service: Service = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": format!("service-{number}"),
            "uid": format!("{:08x}-8d7e-4b90-9a41-{number:012x}", number.wrapping_mul(2_654_435_761) % (1 << 32)),
            "annotations": if number % 4 == 3 { internal } else { json!({}) }},
        "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "healthCheckNodePort": 29_000,
            "externalTrafficPolicy": if number % 5 == 4 { "Local" } else { "Cluster" }, "ports": [{"port": 80, "nodePort": port, "protocol": "TCP"}]},
    }))
    .expect("a Service");
    match ParsedService::of(&service, settings) {
        ParsedService::Valid(spec) => spec,
        ParsedService::Refused(_, refusals) => panic!("{refusals:?}"),
    }
}

fn address(first: Ipv4Addr, number: usize) -> IpAddr {
    Ipv4Addr::from(u32::from(first) + u32::try_from(number).unwrap_or_default()).into()
}

/// Adds the addresses and references that only Azure fills in.
fn with_addresses(mut observed: ObservedNetwork) -> ObservedNetwork {
    let mut users = BTreeMap::new();
    for balancer in &mut observed.load_balancers {
        let id = balancer.id.clone().unwrap_or_default();
        for frontend in balancer.properties_mut().frontend_ip_configurations.iter_mut().flatten() {
            let own = format!("{id}/frontendIPConfigurations/{}", frontend.name.as_deref().unwrap_or_default());
            frontend.id = Some(own.clone());
            let public_ip = frontend.properties.as_ref().and_then(|it| it.public_ip_address.as_ref()?.id.clone());
            users.extend(public_ip.map(|public_ip| (public_ip, own)));
        }
    }
    for (number, public_ip) in observed.public_ips.iter_mut().enumerate() {
        let user = public_ip.id.as_ref().and_then(|id| users.get(id));
        let properties = public_ip.properties.get_or_insert_default();
        properties.ip_address = Some(address(Ipv4Addr::new(20, 0, 0, 0), number).to_string());
        properties.ip_configuration = user.map(|user| SubResource { id: Some(user.clone()), ..SubResource::default() });
    }
    observed
}
