//! Whatever is done in whatever order, and wherever it is cut off: one clean pass at the end, and the cloud holds exactly what
//! is wanted.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;

const CLUSTER: &str = "kubernetes";
const STEPS: [CallName; 9] = [
    CallName::EnsureLoadBalancer,
    CallName::UpdateLoadBalancer,
    CallName::EnsureLoadBalancerDeleted,
    CallName::AllocateAddress,
    CallName::CreateLoadBalancer,
    CallName::SetPorts,
    CallName::SetHosts,
    CallName::RemoveLoadBalancer,
    CallName::ReleaseAddress,
];

#[derive(Debug, Clone, Copy)]
enum Action {
    Ensure { variant: usize },
    Update,
    Delete,
}

/// One call for one Service, cut off or failing at a step (before or after its effect) or not at all.
#[derive(Debug, Clone, Copy)]
struct Move {
    service: usize,
    action: Action,
    hosts: usize,
    spoilt: Option<(CallName, bool, bool)>,
}

/// The same Service with another spec: ports, families, requested address.
fn variant(service: usize, variant: usize) -> Service {
    let spec = [
        json!({"ports": [{"port": 80, "nodePort": 30080}]}),
        json!({"ports": [{"port": 443, "nodePort": 30443}], "ipFamilies": ["IPv6", "IPv4"]}),
        json!({"ipFamilies": ["IPv6"]}),
        json!({"loadBalancerIP": format!("203.0.113.{}", 100 + service)}),
    ];
    service_with(&format!("s{service}"), &spec[variant])
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let action = prop_oneof![
        3 => (0..4_usize).prop_map(|variant| Action::Ensure { variant }),
        1 => Just(Action::Update),
        2 => Just(Action::Delete),
    ];
    let spoilt = prop::option::of((prop::sample::select(&STEPS[..]), any::<bool>(), any::<bool>()));
    let one = (0..3_usize, action, 0..3_usize, spoilt);
    let one = one.prop_map(|(service, action, hosts, spoilt)| Move { service, action, hosts, spoilt });
    prop::collection::vec(one, 0..25)
}

fn hosts(count: usize) -> Vec<Arc<Node>> {
    nodes(&["a", "b", "c"][..count])
}

fn spoil(cloud: &FakeCloud, spoilt: Option<(CallName, bool, bool)>) {
    cloud.configure(|config| {
        config.calls.clear();
        if let Some((step, hang, answer_lost)) = spoilt {
            let error = (!hang).then(|| "spoilt".to_owned());
            config.calls.insert(step, CallBehaviour { hang, error, answer_lost, ..CallBehaviour::default() });
        }
    });
}

/// Carries out one call; a call that hangs is dropped where it stands.
async fn play(cloud: &FakeCloud, step: Move, service: &Service) -> Option<CloudResult<()>> {
    let hosts = hosts(step.hosts);
    let work = async {
        match step.action {
            Action::Ensure { .. } => cloud.ensure_load_balancer(CLUSTER, service, &hosts).await.map(drop),
            Action::Update => cloud.update_load_balancer(CLUSTER, service, &hosts).await,
            Action::Delete => cloud.ensure_load_balancer_deleted(CLUSTER, service).await,
        }
    };
    tokio::time::timeout(Duration::from_secs(1), work).await.ok()
}

async fn check(moves: Vec<Move>) {
    let cloud = cloud("loadBalancers: {addressPool: [203.0.113.0/24, 'fd00::/120']}");
    let mut wanted: BTreeMap<usize, (Service, usize)> = BTreeMap::new();
    for step in moves {
        let current = wanted.get(&step.service).map(|(service, _)| service.clone());
        let service = match step.action {
            Action::Ensure { variant: number } => variant(step.service, number),
            Action::Update | Action::Delete => current.clone().unwrap_or_else(|| variant(step.service, 0)),
        };
        match step.action {
            Action::Delete => drop(wanted.remove(&step.service)),
            Action::Update if current.is_none() => {}
            _ => drop(wanted.insert(step.service, (service.clone(), step.hosts))),
        }
        spoil(&cloud, step.spoilt);
        let _ = play(&cloud, step, &service).await;
    }

    spoil(&cloud, None);
    for number in 0..3 {
        match wanted.get(&number) {
            Some((service, count)) => drop(cloud.ensure_load_balancer(CLUSTER, service, &hosts(*count)).await.unwrap()),
            None => cloud.ensure_load_balancer_deleted(CLUSTER, &variant(number, 0)).await.unwrap(),
        }
    }
    assert_eq!(cloud.leaks(wanted.values().map(|(service, _)| service)), Vec::<String>::new());
    let made = cloud.load_balancers();
    assert_eq!(made.len(), wanted.len());
    for (service, count) in wanted.values() {
        let entry = &made[&cloud.get_load_balancer_name(CLUSTER, service)];
        let spec = service.spec.clone().unwrap();
        assert_eq!(entry.hosts.len(), *count);
        assert_eq!(entry.ports.iter().map(|port| port.port).collect::<Vec<_>>(), ports(&spec));
        assert_eq!(entry.addresses.len(), spec.ip_families.map_or(1, |families| families.len()));
        if let Some(address) = spec.load_balancer_ip {
            assert_eq!(entry.addresses[0].to_string(), address);
        }
    }
}

fn ports(spec: &k8s_openapi::api::core::v1::ServiceSpec) -> Vec<i32> {
    spec.ports.iter().flatten().map(|port| port.port).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_clean_pass_after_anything_leaves_exactly_what_is_wanted(moves in moves()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(moves));
    }
}
