//! Parsing, validation and reload of the configuration.

use std::{fs, time::Duration};

use super::*;
use crate::runtime::yaml;

const GUIDE: &str = include_str!("../../../../docs/guides/fake-provider.md");

#[test]
fn invalid_configuration_is_refused_with_field_and_remedy() {
    for (yaml, expected) in [
        ("instanses: {}", &["unknown field `instanses`", "`instances`"][..]),
        ("instances: {a: {powerstate: off}}", &["instances.a", "unknown field `powerstate`", "`powerState`"]),
        (
            "instances: {a: {powerState: off}}",
            &["instances.a.powerState", "unknown variant `off`", "`running`", "`stopped`"],
        ),
        ("instances: {a: {providerID: fake://b}, b: {}}", &["instances.b.providerID", "fake://b", "unique"]),
        ("calls: {ensureLoadbalancer: {}}", &["unknown variant `ensureLoadbalancer`", "`ensureLoadBalancer`"]),
        ("calls: {listRoutes: {latency: 50}}", &["calls.listRoutes.latency", "50ms"]),
        ("calls: {listRoutes: {latency: -1s}}", &["calls.listRoutes.latency", "\"-1s\"", "1m30s"]),
        ("calls: {listRoutes: {hang: true, panic: true}}", &["calls.listRoutes", "keep one"]),
        ("calls: {listRoutes: {class: retryAfter}}", &["calls.listRoutes", "`retryAfter`", "42s"]),
        ("calls: {listRoutes: {retryAfter: 3s}}", &["calls.listRoutes", "`class: retryAfter`"]),
        ("calls: {listRoutes: {times: 3}}", &["calls.listRoutes", "`times`", "`error`"]),
        ("generatedInstances: [{namePrefix: '', count: 1}]", &["generatedInstances[0].namePrefix"]),
        ("generatedInstances: [{namePrefix: n, count: 256, addressRange: 10.0.0.0/24}]", &["[0].addressRange", "too few"]),
        ("generatedInstances: [{namePrefix: n, count: 2, template: {providerID: x}}]", &["[0].template", "remove"]),
        ("anyInstance: {providerID: x}", &["anyInstance.providerID"]),
        ("loadBalancers: {addressPool: [203.0.113.0/33]}", &["loadBalancers.addressPool"]),
    ] {
        let message = FakeConfig::parse(yaml).unwrap_err().to_string();
        for part in expected {
            assert!(message.contains(part), "{yaml}: {message:?} lacks {part:?}");
        }
    }
}

#[test]
fn empty_file_has_no_instances_and_no_file_has_any_instance() {
    assert_eq!(FakeConfig::parse("# nothing yet\n").unwrap(), FakeConfig::default());
    assert_eq!(FakeConfig::default().by_name("a"), Err(CloudError::InstanceNotFound));
    assert!(matches!(FakeConfig::any_node().by_name("a"), Ok(Some(_))));
    assert_eq!(factory(&ProviderConfig::default()).unwrap().provider_name(), "fake");
}

#[test]
fn configuration_switches_parts_on_and_off() {
    let all = cloud("");
    assert!(all.instances_v2().is_some() && all.instances().is_none() && all.zones().is_none());
    assert!(all.load_balancer().is_some() && CloudProvider::routes(&all).is_some() && all.has_cluster_id());
    let few = cloud("{instancesV2: false, clusterID: '', loadBalancers: {enabled: false}, routes: {enabled: false}}");
    assert!(few.instances_v2().is_none() && few.instances().is_some() && few.zones().is_some());
    assert!(few.load_balancer().is_none() && CloudProvider::routes(&few).is_none() && !few.has_cluster_id());
}

#[test]
fn examples_of_the_guide_are_valid_and_it_lists_every_call() {
    let examples: Vec<&str> = GUIDE.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() > 3);
    for example in examples {
        FakeConfig::parse(example).unwrap_or_else(|error| panic!("{error} in\n{example}"));
    }
    for (call, meaning) in CallName::TABLE {
        let row = format!("| `{}` | {meaning} |", call.name());
        assert!(GUIDE.contains(&row), "the guide lacks this row: {row}");
    }
}

#[test]
fn printed_configuration_parses_to_the_same_value() {
    let yaml = "calls: {'*': {latency: 1m30s}, listRoutes: {class: retryAfter, retryAfter: 42s, times: 2}}";
    let config = FakeConfig::parse(yaml).unwrap();
    assert_eq!(FakeConfig::parse(&yaml::print(&config).unwrap()).unwrap(), config);
}

#[tokio::test(start_paused = true)]
async fn edits_are_loaded_and_invalid_edits_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.yaml");
    fs::write(&path, "instances: {a: {}}").unwrap();
    let cloud = FakeCloud::from_file(&path).unwrap();
    let context = context(Leadership::unopposed());
    cloud.initialize(context.clone()).await.unwrap();

    fs::write(&path, "instances: {a: {powerState: stopped}}").unwrap();
    cloud.wait_until(|cloud| cloud.config().instances["a"].power_state == PowerState::Stopped).await;
    assert!(cloud.instances_v2().unwrap().instance_shutdown(&node("a")).await.unwrap());

    fs::write(&path, "instances: {a: {powerState: exploded}}").unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(cloud.config().instances["a"].power_state, PowerState::Stopped);
    fs::remove_file(&path).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(cloud.config().instances.len(), 1);

    fs::write(&path, "instances: {a: {}, b: {}}").unwrap();
    cloud.wait_until(|cloud| cloud.config().instances.len() == 2).await;
    context.shutdown.begin();
    assert!(context.shutdown.drain(Duration::from_secs(2)).await, "the task ends with the process");
}

#[tokio::test(start_paused = true)]
async fn faults_follow_configured_times_and_objects() {
    let routes = |yaml: &str| {
        let cloud = cloud(yaml);
        async move {
            let mut results = Vec::new();
            for cluster in ["a", "b", "a", "a"] {
                results.push(
                    CloudProvider::routes(&cloud).unwrap().list_routes(cluster).await.err().map(|error| error.class()),
                );
            }
            results
        }
    };
    let failed = Some("failed");
    for (yaml, expected) in [
        ("", [None; 4]),
        ("calls: {listRoutes: {error: no}}", [failed; 4]),
        ("calls: {'*': {error: no}}", [failed; 4]),
        ("calls: {'*': {error: no}, listRoutes: {}}", [None; 4]),
        ("calls: {listRoutes: {error: no, times: 2}}", [failed, failed, None, None]),
        ("calls: {listRoutes: {error: no, times: 2, objects: [a]}}", [failed, None, failed, None]),
        ("calls: {listRoutes: {class: invalid}}", [Some("invalid"); 4]),
        ("calls: {listRoutes: {class: retryAfter, retryAfter: 42s}}", [Some("retry_after"); 4]),
        ("calls: {listRoutes: {class: notImplemented}}", [Some("not_implemented"); 4]),
        ("calls: {listRoutes: {class: implementedElsewhere}}", [Some("implemented_elsewhere"); 4]),
        ("calls: {listRoutes: {class: notLeader}}", [Some("not_leader"); 4]),
    ] {
        assert_eq!(routes(yaml).await, expected, "{yaml}");
    }
}
