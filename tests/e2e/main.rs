//! End to end: the built binary on a real kube-apiserver with etcd (from `KUBEBUILDER_ASSETS`) under the shipped RBAC, and on the
//! in-memory API server. Scenarios share a cluster and run one after the other. Each starts on an empty cluster.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests outside test functions")]

mod azure;
#[path = "../guides/blocks.rs"]
#[allow(dead_code, reason = "the suite that runs all pages reads more of them")]
mod blocks;
mod broken_network;
#[path = "../golden/case.rs"]
#[allow(dead_code, reason = "the suite that replays cases reads more of them")]
mod case;
mod cloud;
mod control_plane;
#[path = "../golden/corpus.rs"]
#[allow(dead_code, reason = "the suite that replays cases reads more of them")]
mod corpus;
mod doctor;
mod helm_release;
mod live_metrics;
mod migration;
mod node_managers;
mod objects;
mod own_cluster;
mod pod_cidrs;
#[path = "../support/promtool.rs"]
mod promtool;
mod relay;
mod runbooks;
mod scenarios;
#[path = "../support/shipped.rs"]
mod shipped;
mod support;
mod webhooks;

use std::{panic::AssertUnwindSafe, process::ExitCode, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use libtest_mimic::{Arguments, Failed, Trial};

use control_plane::ControlPlane;
use objects::Objects;
use parking_lot::Mutex;

type Scenario = for<'a> fn(&'a mut ControlPlane, &'a Objects) -> BoxFuture<'a, ()>;

/// Clusters that a scenario runs on.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Both,
    RealOnly,
}

const SCENARIOS: &[(&str, On, Scenario)] = &[
    ("nodes_and_routes", On::Both, |plane, objects| scenarios::nodes_and_routes(plane, objects).boxed()),
    ("pod_cidrs", On::Both, |plane, objects| pod_cidrs::allocated(plane, objects).boxed()),
    ("services", On::Both, |plane, objects| scenarios::services(plane, objects).boxed()),
    ("high_availability", On::Both, |plane, objects| scenarios::high_availability(plane, objects).boxed()),
    ("node_managers", On::Both, |plane, objects| node_managers::node_managers(plane, objects).boxed()),
    ("node_managers_confined", On::RealOnly, |plane, objects| node_managers::confined(plane, objects).boxed()),
    ("azure_nodes", On::Both, |plane, objects| azure::nodes(plane, objects).boxed()),
    ("azure_services", On::Both, |plane, objects| azure::services(plane, objects).boxed()),
    ("azure_pod_cidrs", On::Both, |plane, objects| pod_cidrs::of_azure(plane, objects).boxed()),
    ("azure_several_load_balancers", On::Both, |plane, objects| azure::several_load_balancers(plane, objects).boxed()),
    ("azure_life_cycle", On::RealOnly, |plane, objects| azure::life_cycle(plane, objects).boxed()),
    ("azure_outages", On::RealOnly, |plane, objects| azure::outages(plane, objects).boxed()),
    ("azure_down_while_leading", On::Both, |plane, objects| azure::down_while_leading(plane, objects).boxed()),
    ("own_cluster", On::Both, |plane, objects| own_cluster::both_modes(plane, objects).boxed()),
    ("migration", On::RealOnly, |plane, _| migration::guide_commands_work(plane).boxed()),
    ("helm_release", On::RealOnly, |plane, _| helm_release::from_go_and_back(plane).boxed()),
    ("runbooks", On::RealOnly, |plane, objects| runbooks::commands_work(plane, objects).boxed()),
    ("doctor", On::RealOnly, |plane, objects| doctor::finds_faults(plane, objects).boxed()),
    ("webhooks", On::RealOnly, |plane, _| webhooks::services_are_reviewed(plane).boxed()),
    ("secure_port", On::Both, |plane, _| scenarios::secure_port(plane).boxed()),
    ("api_server_restart", On::RealOnly, |plane, objects| scenarios::api_server_restart(plane, objects).boxed()),
    ("dead_watches", On::RealOnly, |plane, objects| broken_network::dead_watches(plane, objects).boxed()),
    ("partitioned", On::Both, |plane, objects| broken_network::partitioned(plane, objects).boxed()),
    ("forbidden", On::RealOnly, |plane, _| scenarios::forbidden(plane).boxed()),
];

/// Clusters of the suite. Each starts with its first scenario and ends with the process.
#[derive(Default)]
struct Clusters {
    real: Option<ControlPlane>,
    sandbox: Option<ControlPlane>,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let runtime = Arc::new(tokio::runtime::Runtime::new().expect("a runtime"));
    if std::env::var_os(own_cluster::KUBECONFIG).is_some() {
        return on_own_cluster(&arguments, &runtime);
    }
    let clusters = Arc::new(Mutex::new(Clusters::default()));
    let mut trials = Vec::new();
    for real in [true, false] {
        for (name, on, scenario) in SCENARIOS {
            if *on == On::RealOnly && !real {
                continue;
            }
            let (runtime, clusters) = (Arc::clone(&runtime), Arc::clone(&clusters));
            let name = format!("{}::{name}", if real { "real" } else { "sandbox" });
            trials.push(Trial::test(name, move || run(&runtime, &clusters, real, *scenario)));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Dropping the clusters ends their child processes.
    *clusters.lock() = Clusters::default();
    conclusion.exit_code()
}

/// Runs the scenarios for an existing cluster.
fn on_own_cluster(arguments: &Arguments, runtime: &Arc<tokio::runtime::Runtime>) -> ExitCode {
    let trial = |(name, scenario): &(&'static str, own_cluster::OwnScenario)| {
        let (runtime, scenario) = (Arc::clone(runtime), *scenario);
        let play = async move {
            let cluster = own_cluster::OwnCluster::from_environment();
            AssertUnwindSafe(scenario(&cluster)).catch_unwind().await
        };
        Trial::test(*name, move || runtime.block_on(play).map_err(|panic| failed(panic.as_ref())))
    };
    libtest_mimic::run(arguments, own_cluster::scenarios().iter().map(trial).collect()).exit_code()
}

fn failed(panic: &(dyn std::any::Any + Send)) -> Failed {
    let text = panic.downcast_ref::<String>().cloned();
    Failed::from(text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default())
}

fn run(runtime: &tokio::runtime::Runtime, clusters: &Mutex<Clusters>, real: bool, scenario: Scenario) -> Result<(), Failed> {
    let mut clusters = clusters.lock();
    let slot = if real { &mut clusters.real } else { &mut clusters.sandbox };
    let outcome = runtime.block_on(
        AssertUnwindSafe(async {
            if slot.is_none() {
                *slot = Some(if real { ControlPlane::real().await } else { ControlPlane::sandbox().await });
            }
            if let Some(plane) = slot.as_mut() {
                let objects = Objects::new(&plane.admin().await);
                objects.clear().await;
                scenario(plane, &objects).await;
            }
        })
        .catch_unwind(),
    );
    outcome.map_err(|panic| failed(panic.as_ref()))
}
