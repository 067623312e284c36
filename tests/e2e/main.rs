//! End to end: the built binary on a real kube-apiserver with etcd (from `KUBEBUILDER_ASSETS`) under the shipped RBAC, and on the
//! in-memory API server. Scenarios share a cluster and run one after the other, each on an emptied one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

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
use parking_lot::Mutex;

type Scenario = for<'a> fn(&'a mut ControlPlane) -> BoxFuture<'a, ()>;

/// Which clusters a scenario needs.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Both,
    RealOnly,
    SandboxOnly,
}

const SCENARIOS: &[(&str, On, Scenario)] = &[
    ("nodes_and_routes", On::Both, |plane| scenarios::nodes_and_routes(plane).boxed()),
    ("pod_cidrs", On::Both, |plane| pod_cidrs::given_out(plane).boxed()),
    ("services", On::Both, |plane| scenarios::services(plane).boxed()),
    ("without_node_controller", On::Both, |plane| scenarios::without_node_controller(plane).boxed()),
    ("high_availability", On::Both, |plane| scenarios::high_availability(plane).boxed()),
    ("killed_at_every_step", On::Both, |plane| scenarios::killed_at_every_step(plane).boxed()),
    ("node_managers", On::Both, |plane| node_managers::node_managers(plane).boxed()),
    ("node_managers_confined", On::RealOnly, |plane| node_managers::confined(plane).boxed()),
    ("azure_nodes", On::Both, |plane| azure::nodes(plane).boxed()),
    ("azure_services", On::Both, |plane| azure::services(plane).boxed()),
    ("azure_pod_cidrs", On::Both, |plane| pod_cidrs::of_azure(plane).boxed()),
    ("azure_several_load_balancers", On::Both, |plane| azure::several_load_balancers(plane).boxed()),
    ("azure_life_cycle", On::RealOnly, |plane| azure::life_cycle(plane).boxed()),
    ("azure_outages", On::RealOnly, |plane| azure::outages(plane).boxed()),
    ("azure_down_while_leading", On::Both, |plane| azure::down_while_leading(plane).boxed()),
    ("own_cluster", On::Both, |plane| own_cluster::as_the_target_runs_it(plane).boxed()),
    ("migration", On::RealOnly, |plane| migration::as_the_guide_says(plane).boxed()),
    ("helm_release", On::RealOnly, |plane| helm_release::from_go_and_back(plane).boxed()),
    ("runbooks", On::RealOnly, |plane| runbooks::commands_work(plane).boxed()),
    ("doctor", On::RealOnly, |plane| doctor::finds_faults(plane).boxed()),
    ("webhooks", On::RealOnly, |plane| webhooks::services_are_judged(plane).boxed()),
    ("secure_port", On::Both, |plane| scenarios::secure_port(plane).boxed()),
    ("api_server_restart", On::RealOnly, |plane| scenarios::api_server_restart(plane).boxed()),
    ("dead_watches", On::RealOnly, |plane| broken_network::dead_watches(plane).boxed()),
    ("partitioned", On::Both, |plane| broken_network::partitioned(plane).boxed()),
    ("hung_list", On::SandboxOnly, |plane| broken_network::hung_list(plane).boxed()),
    ("forbidden", On::RealOnly, |plane| scenarios::forbidden(plane).boxed()),
];

/// The clusters, started when first needed, ended with the process.
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
            if *on == if real { On::SandboxOnly } else { On::RealOnly } {
                continue;
            }
            let (runtime, clusters) = (Arc::clone(&runtime), Arc::clone(&clusters));
            let name = format!("{}::{name}", if real { "real" } else { "sandbox" });
            trials.push(Trial::test(name, move || run(&runtime, &clusters, real, *scenario)));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Children die with their owner.
    *clusters.lock() = Clusters::default();
    conclusion.exit_code()
}

/// The scenarios for a cluster that exists.
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
                objects::Objects::new(&plane.admin().await).clear().await;
                scenario(plane).await;
            }
        })
        .catch_unwind(),
    );
    outcome.map_err(|panic| failed(panic.as_ref()))
}
