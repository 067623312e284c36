//! A fifth of all requests to ARM fails, in every possible way; the final state is the same as without failures.

use std::{cell::Cell, convert::Infallible, time::Duration};

use cloud_controller_manager::sandbox::azure::{AzureOptions, Class, Effect, EtagMode, Fault, Latencies, Latency, Omission};
use k8s_openapi::api::core::v1::Service;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tokio::time::timeout;

use crate::azure_services::{
    cluster::{Cluster, HOUR, run_paused, two_nodes},
    documents::{State, differences, unordered},
    seeds,
    services::{annotate, dual_stack, external, internal, local, set_port, with},
    several,
};

/// Kills of one history.
const KILLS: usize = 28;
/// Longest time until a manager is killed.
const MAX_LIFETIME: Duration = Duration::from_secs(600);

/// Load balancers of a run: one of each kind, or several, each Service on the one that it names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Layout {
    One,
    Several,
}

impl Layout {
    /// Returns both layouts alternately.
    pub(crate) fn of(seed: u64) -> Self {
        if seed.is_multiple_of(2) { Self::One } else { Self::Several }
    }
}

const ENTRIES: [&str; 3] = ["kubernetes", "lb2", "lb3"];
const CONFIGURATIONS: &str = "azure-load-balancer-configurations";

fn services(layout: Layout) -> Vec<Service> {
    let all = services_of_one().into_iter().enumerate();
    match layout {
        Layout::One => services_of_one(),
        Layout::Several => all.map(|(index, service)| with(service, CONFIGURATIONS, ENTRIES[index % 3])).collect(),
    }
}

fn services_of_one() -> Vec<Service> {
    let labeled = with(external("labeled"), "azure-dns-label-name", "mine");
    let mut all = vec![
        dual_stack("dual"),
        local("local"),
        labeled,
        with(internal("ha"), "azure-load-balancer-enable-high-availability-ports", "true"),
    ];
    all.extend((0..4).map(|index| external(&format!("e{index}"))));
    all.extend((0..4).map(|index| internal(&format!("i{index}"))));
    all.extend((0..3).map(|index| with(internal(&format!("l{index}")), "azure-pls-create", "true")));
    all
}

fn refusal(status: u16, code: &str, retry_after: Option<u64>) -> Effect {
    Effect::Refuse(status, code.to_owned(), retry_after)
}

/// Adds all kinds of failures with equal probabilities, together for a fifth of all requests.
fn storm(cluster: &Cluster) {
    let any = [
        refusal(429, "TooManyRequests", Some(7)),
        refusal(429, "SubscriptionRequestsThrottled", Some(3)),
        refusal(429, "RetryableErrorDueToAnotherOperation", Some(5)),
        refusal(409, "AnotherOperationInProgress", None),
        refusal(500, "InternalServerError", None),
        refusal(503, "ServiceUnavailable", None),
        Effect::NoConnection,
        Effect::DropBefore,
        Effect::DropAfter,
        Effect::Garbage,
        Effect::Truncated,
        Effect::Hang,
        Effect::Delay(Duration::from_secs(8)),
        Effect::BreakHalfway,
        Effect::StallHalfway,
        Effect::SlowBody(Duration::from_millis(1)),
        Effect::ProxyPage(404),
        Effect::ProxyPage(502),
        Effect::Forbidden,
        Effect::ExpireToken,
        Effect::Etags(EtagMode::Weak),
        Effect::Etags(EtagMode::Absent),
        Effect::Etags(EtagMode::Restless),
    ];
    let writes = [
        refusal(412, "PreconditionFailed", None),
        Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned()),
        Effect::FailOperation("RetryableError".to_owned(), "A retryable error occurred.".to_owned()),
    ];
    let lists = [
        Effect::PartialList(Omission::LaterPages),
        Effect::StaleList(Duration::from_secs(10)),
        Effect::MissJustWritten(Duration::from_secs(5)),
    ];
    let each = 0.2 / 29.0;
    for effect in any.into_iter().chain(lists) {
        cluster.azure().add_fault(Fault::new(effect).path("/subscriptions/*").with_probability(each));
    }
    for effect in writes {
        let fault = Fault::new(effect).path("/subscriptions/*").with_probability(each * 2.0);
        cluster.azure().add_fault(fault.clone().class(Class::Write));
        cluster.azure().add_fault(fault.class(Class::Delete));
    }
}

fn cluster(seed: u64, layout: Layout) -> Cluster {
    let takes = Latency { respond: Duration::from_millis(50), operation: Duration::from_secs(1) };
    let options = AzureOptions { latencies: Latencies::writes(takes), seed, ..AzureOptions::default() };
    match layout {
        Layout::One => Cluster::new(two_nodes(), options),
        Layout::Several => several::cluster(3, options),
    }
}

/// Creates all Services, changes some, deletes some, then all. Returns the cloud after each step.
async fn history(cluster: &Cluster, layout: Layout) -> Vec<State> {
    let mut states = Vec::new();
    services(layout).iter().for_each(|service| drop(cluster.create(service)));
    cluster.until_ready(HOUR).await;
    states.push(calm(cluster).await);
    ["e0", "i0", "dual"].iter().for_each(|name| cluster.change(name, |service| set_port(service, 8080)));
    cluster.change("e1", |service| annotate(service, "azure-load-balancer-internal", Some("true")));
    cluster.change("i1", |service| annotate(service, "azure-load-balancer-internal", None));
    if layout == Layout::Several {
        for (name, entry) in [("e3", "kubernetes"), ("i3", "lb2"), ("labeled", "lb2"), ("dual", "lb3")] {
            cluster.change(name, |service| annotate(service, CONFIGURATIONS, Some(entry)));
        }
    }
    cluster.change("l0", |service| annotate(service, "azure-pls-fqdns", Some("web.example.com")));
    cluster.change("l1", |service| {
        // A named address determines the load balancer, so the Service may not name an entry, too.
        annotate(service, CONFIGURATIONS, None);
        annotate(service, "azure-load-balancer-ipv4", Some("10.224.0.99"));
    });
    states.push(calm(cluster).await);
    ["e2", "i2", "l2", "local"].iter().for_each(|name| cluster.delete(name));
    cluster
        .until("four are deleted", HOUR, |cluster| {
            ["e2", "i2", "l2", "local"].iter().all(|name| cluster.service(name).is_none())
        })
        .await;
    states.push(calm(cluster).await);
    cluster.services().iter().filter_map(|service| service.metadata.name.clone()).for_each(|name| cluster.delete(&name));
    cluster.until_all_deleted(HOUR).await;
    states.push(calm(cluster).await);
    states
}

/// Waits for half an hour, in which all work must end, and returns the cloud.
async fn calm(cluster: &Cluster) -> State {
    tokio::time::sleep(HOUR / 2).await;
    // Fails with a report of the Services that are not ready.
    cluster.until_ready(Duration::from_secs(1)).await;
    unordered(cluster)
}

/// Returns the cluster after the history in a storm, and the cloud after each step.
pub(crate) async fn disturbed(seed: u64, layout: Layout) -> (Cluster, Vec<State>) {
    let cluster = cluster(seed, layout);
    storm(&cluster);
    let _manager = cluster.start();
    let states = history(&cluster, layout).await;
    (cluster, states)
}

/// Runs the history in a storm with managers that are killed, each after a random number of requests. The last one survives.
async fn disturbed_and_killed(seed: u64, layout: Layout) -> (Cluster, Vec<State>) {
    let (cluster, kills) = (cluster(seed, layout), Cell::new(0));
    storm(&cluster);
    let states = tokio::select! {
        biased;
        states = history(&cluster, layout) => states,
        never = kill_managers(&cluster, seed, &kills) => match never {},
    };
    assert_eq!(kills.get(), KILLS, "the history ended before");
    (cluster, states)
}

async fn kill_managers(cluster: &Cluster, seed: u64, kills: &Cell<usize>) -> Infallible {
    let requests = |cluster: &Cluster| cluster.azure().count(|request| request.class != Class::Other);
    let mut random = SmallRng::seed_from_u64(seed);
    while kills.get() < KILLS {
        let manager = cluster.start();
        let last = requests(cluster) + random.random_range(1..40);
        let _ = timeout(MAX_LIFETIME, cluster.until("requests", HOUR, |cluster| requests(cluster) >= last)).await;
        manager.kill();
        kills.set(kills.get() + 1);
    }
    let _manager = cluster.start();
    std::future::pending().await
}

fn weather(seed: u64, layout: Layout, disturbed: impl AsyncFnOnce(u64, Layout) -> (Cluster, Vec<State>)) {
    let expected = run_paused(async {
        let cluster = cluster(seed, layout);
        let _manager = cluster.start();
        history(&cluster, layout).await
    });
    let found = run_paused(async {
        let (cluster, states) = disturbed(seed, layout).await;
        let failed =
            cluster.azure().count(|request| request.class != Class::Other && (request.status == 0 || request.status >= 400));
        println!(
            "storm {seed}: {failed} of {} requests failed",
            cluster.azure().count(|request| request.class != Class::Other)
        );
        assert!(failed > 25, "{failed}");
        states
    });
    for (step, (expected, found)) in expected.iter().zip(&found).enumerate() {
        assert_eq!(differences(expected, found), Vec::<String>::new(), "seed {seed}, step {step}");
    }
}

#[test]
fn a_storm_of_faults_changes_nothing() {
    seeds::sweep(1..3, |seed| weather(seed, Layout::One, disturbed));
}

#[test]
fn a_storm_over_several_load_balancers_changes_nothing() {
    seeds::sweep(1..2, |seed| weather(seed, Layout::Several, disturbed));
}

#[test]
fn kills_in_a_storm_change_nothing() {
    seeds::sweep(1..5, |seed| weather(seed, Layout::of(seed), disturbed_and_killed));
}

/// Azure accepts a write, and then its operation fails. The document has the desired content, and is written again.
#[test]
fn a_failed_operation_is_repeated() {
    for kind in ["publicIPAddresses", "loadBalancers", "networkSecurityGroups"] {
        run_paused(async {
            let cluster = cluster(0, Layout::One);
            let fails = Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned());
            cluster.azure().add_fault(Fault::new(fails).method("PUT").path(&format!("*/{kind}/*")).times(1));
            let manager = cluster.serve_and_settle(&[external("web")]).await;
            let documents = cluster.azure().documents_of(&format!("Microsoft.Network/{kind}"));
            let state = |document: &serde_json::Value| document["properties"]["provisioningState"].clone();
            assert!(documents.iter().all(|document| state(document) == "Succeeded"), "{documents:?}");
            manager.stop().await;
        });
    }
}
