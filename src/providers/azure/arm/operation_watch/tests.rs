//! Concurrent writes with the real client on the simulated cloud, with counts of requests.
#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use super::*;
use crate::{
    providers::azure::{
        arm::{ArmClient, Precondition, write::LIST_TIMEOUT},
        model::{ArmErrorClass, ArmResult, ResourceId},
        samples::arm_client,
    },
    runtime::clock::Clock,
    sandbox::azure::{Azure, AzureOptions, Class, Effect, Fault, Latencies, Latency, topology::Topology, world::World},
};

struct Cloud {
    simulation: World,
    client: ArmClient,
    group: ResourceId,
}

/// Returns a cloud whose operations take a second.
fn cloud() -> Cloud {
    let clock = Clock::manual(jiff::Timestamp::UNIX_EPOCH);
    let topology = Topology::new();
    let group = ResourceId::group_of(&topology.subscription, &topology.resource_group);
    let latency = Latency { respond: Duration::from_millis(100), operation: Duration::from_secs(1) };
    let options = AzureOptions { latencies: Latencies::writes(latency), ..AzureOptions::default() };
    let simulation = World::new(topology, options, clock).unwrap();
    Cloud { client: arm_client(simulation.azure(), clock), simulation, group }
}

impl Cloud {
    fn azure(&self) -> &Azure {
        self.simulation.azure()
    }

    fn id(&self, index: usize) -> ResourceId {
        self.group.resource("Microsoft.Network/publicIPAddresses", &[&format!("ip-{index:03}")])
    }

    async fn create(&self, index: usize) -> ArmResult<Value> {
        let body = json!({"location": "eastus", "sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}});
        self.client.put(&api::PUBLIC_IPS, &self.id(index), Precondition::Absent, &body).await
    }

    async fn create_all(&self, count: usize) -> Vec<ArmResult<Value>> {
        join_all((0..count).map(|index| self.create(index))).await
    }

    /// Writes a tag into each of `documents`.
    async fn tag(&self, documents: &[Value]) -> Vec<ArmResult<Value>> {
        let writes = documents.iter().map(|document| async move {
            let mut document = document.clone();
            document["tags"] = json!({"k": "new"});
            let id = ResourceId::parse(document["id"].as_str().unwrap()).unwrap();
            let etag = document["etag"].as_str().unwrap().to_owned();
            self.client.put(&api::PUBLIC_IPS, &id, Precondition::Version(&etag), &document).await
        });
        join_all(writes).await
    }

    async fn delete_all(&self, count: usize) -> Vec<ArmResult<()>> {
        let delete =
            |index| async move { self.client.delete(&api::PUBLIC_IPS, &self.id(index), Precondition::Unconditional).await };
        join_all((0..count).map(delete)).await
    }

    /// Returns and resets the counts of lists, polls, and reads of single documents.
    fn take_counts(&self) -> [usize; 3] {
        let azure = self.azure();
        let lists = azure.count(|request| request.class == Class::Read && request.list);
        let polls = azure.count(|request| request.class == Class::Poll);
        let reads = azure.count(|request| request.class == Class::Read && !request.list);
        azure.clear_requests();
        [lists, polls, reads]
    }

    /// Asserts that no waiter is registered.
    fn assert_no_waiters(&self) {
        for collection in self.client.shared.operation_watch.collections.lock().values() {
            let state = collection.state.lock();
            assert_eq!((state.writes.len(), state.entries.len()), (0, 0), "{}", collection.path);
            assert!((0..=state.last).all(|waiter| !state.schedule.is_waiting(waiter)), "{}", collection.path);
        }
    }
}

fn is_complete(document: &Value) -> bool {
    document["properties"]["provisioningState"] == "Succeeded" && document["properties"]["ipAddress"].is_string()
}

fn all_complete(results: Vec<ArmResult<Value>>) -> Vec<Value> {
    let documents: Vec<Value> = results.into_iter().map(|result| result.unwrap()).collect();
    assert!(documents.iter().all(is_complete), "{documents:#?}");
    documents
}

#[tokio::test(start_paused = true)]
async fn fifty_writes_are_followed_by_a_few_lists() {
    let cloud = cloud();
    let documents = all_complete(cloud.create_all(50).await);
    assert_eq!(cloud.take_counts(), [3, 0, 0], "lists 0.2, 0.5 and 0.95 s after the responses");
    cloud.azure().with_options(|options| options.operations.in_documents = true);
    all_complete(cloud.tag(&documents).await);
    let [lists, polls, reads] = cloud.take_counts();
    assert!(lists <= 4 && polls + reads == 0, "{lists} lists, {polls} polls, {reads} reads");
    cloud.assert_no_waiters();
}

/// Plays ARM's response to a change of a public IP: `Succeeded`, with an operation.
#[tokio::test(start_paused = true)]
async fn a_change_that_succeeds_early_is_still_awaited() {
    let cloud = cloud();
    let documents = all_complete(cloud.create_all(10).await);
    cloud.take_counts();
    let start = Instant::now();
    let tagged = all_complete(cloud.tag(&documents).await);
    assert!(start.elapsed() >= Duration::from_secs(1), "the operations take a second: {:?}", start.elapsed());
    assert!(tagged.iter().all(|document| document["tags"]["k"] == "new"), "{tagged:?}");
    let [lists, polls, reads] = cloud.take_counts();
    assert!(lists == 0 && polls >= 10 && reads == 10, "{lists} lists, {polls} polls, {reads} reads");
}

#[tokio::test(start_paused = true)]
async fn a_single_write_polls_its_own_operation() {
    let cloud = cloud();
    all_complete(vec![cloud.create(0).await]);
    assert_eq!(cloud.take_counts(), [0, 3, 1]);
    cloud.assert_no_waiters();
}

#[tokio::test(start_paused = true)]
async fn a_list_that_shows_the_past_is_not_believed() {
    let cloud = cloud();
    let documents = all_complete(cloud.create_all(10).await);
    tokio::time::sleep(Duration::from_secs(60)).await;
    cloud.take_counts();
    cloud.azure().add_fault(Fault::new(Effect::StaleList(Duration::from_secs(30))));
    cloud.azure().with_options(|options| options.operations.in_documents = true);
    let tagged = all_complete(cloud.tag(&documents).await);
    assert!(tagged.iter().all(|document| document["tags"]["k"] == "new"), "{tagged:?}");
    for (old, new) in documents.iter().zip(&tagged) {
        assert_ne!(old["etag"], new["etag"]);
        assert_eq!(new["etag"], cloud.azure().document(new["id"].as_str().unwrap()).unwrap()["etag"], "the final version");
    }
    let results = cloud.delete_all(10).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert!((0..10).all(|index| cloud.azure().document(cloud.id(index).as_str()).is_none()));
}

#[tokio::test(start_paused = true)]
async fn failed_lists_delay_no_write_for_long() {
    let throttled = |seconds| Effect::Refuse(429, "SubscriptionRequestsThrottled".to_owned(), Some(seconds));
    for (fault, must_poll, max_seconds) in [
        (Fault::refuse(403, "AuthorizationFailed"), true, 60),
        (Fault::refuse(500, "AuthorizationFailed"), true, 60),
        (Fault::new(throttled(2)).times(1), false, 60),
        (Fault::new(throttled(600)).times(100), false, 60),
        (Fault::new(Effect::Hang), false, LIST_TIMEOUT.as_secs() + 10),
    ] {
        let cloud = cloud();
        cloud.azure().add_fault(fault.clone().lists());
        let start = Instant::now();
        all_complete(cloud.create_all(10).await);
        assert!(start.elapsed() < Duration::from_secs(max_seconds), "{fault:?}: {:?}", start.elapsed());
        let [lists, polls, reads] = cloud.take_counts();
        let all_polled = lists <= 4 && polls >= 10 && reads == 10;
        assert!(all_polled || !must_poll, "{fault:?}: {lists} lists, {polls} polls, {reads} reads");
        cloud.assert_no_waiters();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_operation_among_fifty_returns_its_error() {
    let cloud = cloud();
    let fails = Effect::FailOperation("PublicIPCountLimitReached".to_owned(), "No more.".to_owned());
    cloud.azure().add_fault(Fault::new(fails).path("*/ip-007"));
    let mut results = cloud.create_all(50).await;
    let failed = results.remove(7).unwrap_err();
    assert_eq!((failed.code.as_str(), failed.message.as_str()), ("PublicIPCountLimitReached", "No more."));
    all_complete(results);
    assert_eq!(cloud.take_counts(), [3, 1, 0], "its own URL is polled once");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_ends_with_a_404_of_the_resource() {
    let cloud = cloud();
    all_complete(cloud.create_all(20).await);
    cloud.take_counts();
    let results = cloud.delete_all(20).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let [lists, polls, reads] = cloud.take_counts();
    assert!(lists <= 4 && polls == 0 && reads == 20, "{lists} lists, {polls} polls, {reads} reads");

    all_complete(cloud.create_all(20).await);
    cloud.azure().add_fault(Fault::new(Effect::EmptyList));
    let start = Instant::now();
    let results = cloud.delete_all(20).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert!(start.elapsed() >= Duration::from_secs(1), "an empty list is no proof: {:?}", start.elapsed());
    cloud.assert_no_waiters();
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_blocks_no_other() {
    let cloud = cloud();
    let cancelled = join_all((0..9).map(|index| {
        let limit = Duration::from_millis(150 + 100 * u64::try_from(index).unwrap());
        tokio::time::timeout(limit, cloud.create(index))
    }));
    let (cancelled, others) = futures::join!(cancelled, join_all([cloud.create(9), cloud.create(10)]));
    assert!(cancelled.iter().all(Result::is_err));
    all_complete(others);
    cloud.assert_no_waiters();
}

#[tokio::test(start_paused = true)]
async fn every_deadline_is_kept() {
    let mut cloud = cloud();
    let hour = Latency { respond: Duration::ZERO, operation: Duration::from_secs(3600) };
    cloud.azure().with_options(|options| options.latencies = Latencies::writes(hour));
    let start = Instant::now();
    cloud.client = cloud.client.with_deadline(start + Duration::from_secs(20));
    for result in cloud.create_all(5).await {
        assert_eq!(result.unwrap_err().class, ArmErrorClass::OutcomeUnknown);
    }
    assert!(start.elapsed() <= Duration::from_secs(20));
    cloud.assert_no_waiters();
}

#[tokio::test(start_paused = true)]
async fn requested_delays_apply_again_after_a_list() {
    let cloud = cloud();
    let minute = Latency { respond: Duration::ZERO, operation: Duration::from_secs(60) };
    cloud.azure().with_options(|options| {
        (options.operations.retry_after, options.latencies) = (Some(7), Latencies::writes(minute));
    });
    all_complete(cloud.create_all(10).await);
    let [lists, polls, reads] = cloud.take_counts();
    assert!(lists <= 9, "{lists} lists in a minute, {polls} polls, {reads} reads");
}

#[test]
fn a_second_write_of_one_resource_is_not_watched() {
    let (watch, pace) = (OperationWatch::default(), PollingPace::default());
    let write = |path: &str| {
        let url = format!("https://arm.example{path}").parse().unwrap();
        let request = RequestTemplate {
            kind: &api::PUBLIC_IPS,
            call: "delete",
            method: http::Method::DELETE,
            url,
            condition: None,
            body: Bytes::new(),
        };
        watch.join(&request, &Response::new(Bytes::new()), pace, Urgency::Change)
    };
    let first = write("/ips/a").unwrap();
    assert!(write("/IPs/A").is_none(), "a list shows the result of one write only");
    assert!(write("/ips/b").is_some());
    drop(first);
    assert!(write("/ips/a").is_some(), "the path is free again");
}

#[tokio::test(start_paused = true)]
async fn idle_collections_are_removed() {
    let cloud = cloud();
    let watch = &cloud.client.shared.operation_watch;
    for index in 0..100 {
        let schedule = WatchSchedule::new(PollingPace::default(), 1);
        drop(watch.collection(&api::PUBLIC_IPS, &format!("/g{index}"), schedule, Instant::now()));
    }
    assert!(watch.collections.lock().len() <= MAX_IDLE + 1);
}
