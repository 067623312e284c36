//! Checks of [`InstancesV2`]. In: a fixture. Out: the provider's results for machines that are created, stopped, deleted,
//! and unreachable.

use std::{future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use tokio::time::{Instant, sleep};

use super::{
    CloudFixture,
    objects::{shared, with_provider_id},
    process::Process,
    report::{AtStep, CheckResult, require},
};
use crate::cloud_provider::{Existence, InstanceMetadata, InstancesV2, node_fields::name};

async fn metadata(instances: &dyn InstancesV2, node: &Node) -> CheckResult<InstanceMetadata> {
    let found = instances.instance_metadata(node).await.at("instance_metadata")?;
    require(found.is_some(), || format!("instance_metadata returned no machine of {}", name(node)))?;
    Ok(found.unwrap_or_default())
}

/// Largest age of a result. The node-lifecycle controller repeats its requests every few seconds, and waits longer than this
/// before it acts.
const MAX_RESULT_AGE: Duration = Duration::from_secs(600);
/// Interval between two requests.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Repeats `request` until `matches` returns `true` for its result, or [`MAX_RESULT_AGE`] has passed. Returns the last
/// result.
async fn eventually<T, F: Future<Output = T>>(request: impl Fn() -> F, matches: impl Fn(&T) -> bool) -> T {
    let end = Instant::now() + MAX_RESULT_AGE;
    loop {
        let result = request().await;
        if matches(&result) || Instant::now() >= end {
            return result;
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Adds a machine. Returns its Node as the node controller leaves it, and a process that knows it.
async fn initialized_machine(fixture: &dyn CloudFixture, name: &str) -> CheckResult<(Node, Process, Arc<dyn InstancesV2>)> {
    let node = fixture.add_machine(name).await.at("add_machine")?;
    let process = Process::start(fixture, std::slice::from_ref(&node), &[]).await?;
    let instances = process.instances()?;
    let node = with_provider_id(&node, &metadata(instances.as_ref(), &node).await?.provider_id);
    Ok((node, process, instances))
}

pub(super) async fn a_machine_is_described_the_same_by_name_and_by_provider_id(fixture: &dyn CloudFixture) -> CheckResult {
    let node = fixture.add_machine("described").await.at("add_machine")?;
    let process = Process::start(fixture, std::slice::from_ref(&node), &[]).await?;
    let instances = process.instances()?;
    let by_name = metadata(instances.as_ref(), &node).await?;
    let scheme = format!("{}://", process.name());
    require(by_name.provider_id.starts_with(&scheme), || format!("{:?} is not {scheme}…", by_name.provider_id))?;
    require(!by_name.node_addresses.is_empty(), || "the machine has no address".to_owned())?;
    let by_id = metadata(instances.as_ref(), &with_provider_id(&node, &by_name.provider_id)).await?;
    require(by_name == by_id, || format!("by name {by_name:?}, by provider ID {by_id:?}"))?;
    let exists = instances.existence(&with_provider_id(&node, &by_name.provider_id)).await;
    require(exists == Existence::Exists, || format!("existence is {exists:?}"))
}

pub(super) async fn a_batch_returns_the_results_of_single_calls(fixture: &dyn CloudFixture) -> CheckResult {
    let nodes =
        [fixture.add_machine("batch-a").await.at("add_machine")?, fixture.add_machine("batch-b").await.at("add_machine")?];
    let process = Process::start(fixture, &nodes, &[]).await?;
    let instances = process.instances()?;
    let batch = instances.instance_metadata_batch(&shared(&nodes)).await;
    require(batch.len() == nodes.len(), || format!("{} results for {} Nodes", batch.len(), nodes.len()))?;
    for (node, result) in nodes.iter().zip(batch) {
        let single = instances.instance_metadata(node).await;
        require(result == single, || format!("{}: alone {single:?}, in a batch {result:?}", name(node)))?;
    }
    Ok(())
}

pub(super) async fn a_removed_machine_is_gone(fixture: &dyn CloudFixture) -> CheckResult {
    let (node, _process, instances) = initialized_machine(fixture, "removed").await?;
    fixture.remove_machine(&node).await.at("remove_machine")?;
    let existence = eventually(|| instances.existence(&node), |existence| *existence == Existence::Gone).await;
    require(existence == Existence::Gone, || format!("existence is {existence:?}"))?;
    let described = instances.instance_metadata(&node).await;
    require(!matches!(described, Ok(Some(_))), || format!("instance_metadata returned {described:?}"))
}

pub(super) async fn a_stopped_machine_is_shut_down_and_exists(fixture: &dyn CloudFixture) -> CheckResult {
    let (node, _process, instances) = initialized_machine(fixture, "stopped").await?;
    let running = instances.instance_shutdown(&node).await.at("instance_shutdown")?;
    require(!running, || "instance_shutdown returned true for a running machine".to_owned())?;
    fixture.stop_machine(&node).await.at("stop_machine")?;
    let stopped = eventually(|| instances.instance_shutdown(&node), |stopped| *stopped == Ok(true)).await;
    require(stopped.at("instance_shutdown")?, || "instance_shutdown returned false for a stopped machine".to_owned())?;
    let existence = instances.existence(&node).await;
    require(existence == Existence::Exists, || format!("a stopped machine: existence is {existence:?}"))
}

pub(super) async fn an_outage_proves_nothing(fixture: &dyn CloudFixture) -> CheckResult {
    let (node, _process, instances) = initialized_machine(fixture, "unreachable").await?;
    fixture.set_outage(true).await.at("set_outage")?;
    let existence = instances.existence(&node).await;
    fixture.set_outage(false).await.at("set_outage")?;
    require(existence != Existence::Gone, || "during an outage, existence returned Gone for an existing machine".to_owned())
}

pub(super) async fn a_node_of_another_cloud_is_not_gone(fixture: &dyn CloudFixture) -> CheckResult {
    let node = fixture.add_machine("foreign").await.at("add_machine")?;
    let node = with_provider_id(&node, "another-cloud://zone/foreign");
    let process = Process::start(fixture, std::slice::from_ref(&node), &[]).await?;
    let existence = process.instances()?.existence(&node).await;
    require(existence != Existence::Gone, || "existence returned Gone, so the Node would be deleted".to_owned())
}
