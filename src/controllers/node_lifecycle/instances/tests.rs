//! Upstream's rows of `Test_NodesDeleted` and `Test_NodesShutdown` that query the cloud, for both interfaces.

use super::*;
use crate::{
    node::fixtures::{With, node, spec},
    providers::fake::{CallName, FakeCloud, FakeConfig, InstancePresence, InstanceSpec, PowerState},
};

fn cloud(instances_v2: bool, spec: Option<InstanceSpec>) -> FakeCloud {
    let cloud = FakeCloud::new(FakeConfig { instances_v2, ..FakeConfig::default() });
    spec.into_iter().for_each(|spec| cloud.add_instance("n", spec));
    cloud
}

async fn observe(cloud: &FakeCloud, node: &Node) -> NodeObservation {
    InstanceStateSource::of(cloud, &Metrics::new().unwrap()).unwrap().observe(node).await
}

fn with_id(id: &str) -> Node {
    node("n").with(|n| spec(n).provider_id = Some(id.to_owned()))
}

#[tokio::test]
async fn observation_follows_existence_and_power_state() {
    let running = InstanceSpec::default();
    let stopped = InstanceSpec { power_state: PowerState::Stopped, ..InstanceSpec::default() };
    let uncertain = InstanceSpec { existence: InstancePresence::Unknown, ..InstanceSpec::default() };
    for v2 in [true, false] {
        for id in [None, Some("fake://n")] {
            let node = id.map_or_else(|| node("n"), with_id);
            assert_eq!(observe(&cloud(v2, Some(running.clone())), &node).await, NodeObservation::Running);
            assert_eq!(observe(&cloud(v2, Some(stopped.clone())), &node).await, NodeObservation::ShutDown);
            assert_eq!(observe(&cloud(v2, None), &node).await, NodeObservation::Gone);
            assert!(matches!(observe(&cloud(v2, Some(uncertain.clone())), &node).await, NodeObservation::Unknown(_)));
        }
        let missing = with_id("fake://gone-for-good");
        assert_eq!(observe(&cloud(v2, Some(stopped.clone())), &missing).await, NodeObservation::Gone);
    }
}

#[tokio::test]
async fn errors_never_mean_gone() {
    let stopped = InstanceSpec { power_state: PowerState::Stopped, ..InstanceSpec::default() };
    let error = CloudError::failed("throttled");
    for v2 in [true, false] {
        let cloud = cloud(v2, Some(stopped.clone()));
        cloud.fail_next(CallName::InstanceExists, &error, 1);
        assert_eq!(observe(&cloud, &node("n")).await, NodeObservation::Unknown("throttled".into()));
        cloud.fail_next(CallName::InstanceShutdown, &error, 1);
        assert_eq!(observe(&cloud, &node("n")).await, NodeObservation::Exists("throttled".into()));
        cloud.fail_next(CallName::InstanceShutdown, &CloudError::NotImplemented, 1);
        assert_eq!(observe(&cloud, &node("n")).await, NodeObservation::Running);
    }
}

/// Returns operation, result and number of each counted call.
fn counted(metrics: &Metrics) -> Vec<(String, f64)> {
    let counts = [INSTANCE_EXISTS, INSTANCE_SHUTDOWN].into_iter().flat_map(|operation| {
        ["success", "error", "instance_not_found", "not_implemented", "canceled"].map(|result| {
            let calls = metrics.node_lifecycle_provider_calls_total.with_label_values(&[operation, result]);
            (format!("{operation} {result}"), calls.get())
        })
    });
    counts.filter(|(_, count)| *count > 0.0).collect()
}

#[tokio::test]
async fn calls_are_counted_by_operation_and_result() {
    for v2 in [true, false] {
        let (cloud, metrics) = (cloud(v2, Some(InstanceSpec::default())), Metrics::new().unwrap());
        let source = InstanceStateSource::of(&cloud, &metrics).unwrap();
        source.observe(&node("n")).await;
        cloud.fail_next(CallName::InstanceExists, &CloudError::failed("throttled"), 1);
        source.observe(&node("n")).await;
        for error in [CloudError::NotImplemented, CloudError::NotLeader("ends".into()), CloudError::failed("throttled")] {
            cloud.fail_next(CallName::InstanceShutdown, &error, 1);
            source.observe(&node("n")).await;
        }
        source.observe(&with_id("fake://gone-for-good")).await;
        let expected = [
            ("instance_exists success", 4.0),
            ("instance_exists error", 1.0),
            ("instance_exists instance_not_found", 1.0),
            ("instance_shutdown success", 1.0),
            ("instance_shutdown error", 1.0),
            ("instance_shutdown not_implemented", 1.0),
            ("instance_shutdown canceled", 1.0),
        ];
        assert_eq!(counted(&metrics), expected.map(|(call, count)| (call.to_owned(), count)), "v2: {v2}");
    }
}
