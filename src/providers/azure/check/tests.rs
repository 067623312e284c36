//! The check on the simulated cloud.

use serde_json::{Value, json};

use super::*;
use crate::{
    cloud_provider::registry::ProviderConfig,
    runtime::clock::Clock,
    sandbox::azure::{
        AzureOptions,
        topology::{Login, Pool, PoolKind, Topology},
        world::{CLIENT_ID, CLIENT_SECRET, World},
    },
};

fn world() -> World {
    let topology = Topology::new().pool(Pool::new(PoolKind::Uniform, "uni", 2));
    World::new(topology, AzureOptions::immediate(), Clock::System).unwrap()
}

async fn checked(world: &World, config: &Value, online: bool, strict: bool) -> CheckReport {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("azure.json");
    std::fs::write(&path, config.to_string()).unwrap();
    let config = ProviderConfig { cloud_config: Some(path), ..ProviderConfig::default() };
    let request = CheckRequest { config, routes: true, client: None, online, strict };
    let report = check_with(request, BTreeMap::new(), world.azure().transport()).await;
    assert!(!report.text.contains(CLIENT_SECRET) && !report.text.contains("sandbox-token"), "{}", report.text);
    report
}

async fn online(world: &World) -> CheckReport {
    checked(world, &world.config(), true, false).await
}

fn errors(report: &CheckReport) -> Vec<&str> {
    report.text.lines().filter(|line| line.starts_with("error: ")).collect()
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

#[tokio::test(start_paused = true)]
async fn offline_nothing_is_sent_and_what_is_wrong_is_named() {
    let world = world();
    assert!(checked(&world, &world.config(), false, true).await.passed);
    let typo = with(world.config(), "subnetNam", json!("x"));
    let lenient = checked(&world, &typo, false, false).await;
    assert!(lenient.passed && lenient.text.contains("did you mean subnetName"), "{}", lenient.text);
    assert!(!checked(&world, &typo, false, true).await.passed, "strict");
    let bad = checked(&world, &with(world.config(), "vmCacheTTLInSeconds", json!("soon")), true, false).await;
    assert!(!bad.passed && errors(&bad)[0].contains("vmCacheTTLInSeconds"), "{}", bad.text);
    assert_eq!(world.azure().requests().len(), 0, "what is wrong offline is not tried");
}

#[tokio::test(start_paused = true)]
async fn what_is_watched_because_of_the_configuration_is_told() {
    let world = world();
    let entries = |entry: Value| {
        let config = with(world.config(), "multipleStandardLoadBalancerConfigurations", json!([entry]));
        with(config, "loadBalancerBackendPoolConfigurationType", json!("nodeIP"))
    };
    let told = async |config: &Value| {
        let report = checked(&world, config, false, false).await;
        ["Namespaces", "EndpointSlices"].map(|kind| report.text.contains(&format!("watches {kind}, since")))
    };
    let plain = json!({"name": "kubernetes", "primaryVMSet": "uni"});
    let selecting = with(plain.clone(), "serviceNamespaceSelector", json!({"matchLabels": {"a": "b"}}));
    assert_eq!(told(&world.config()).await, [false, false]);
    assert_eq!(told(&entries(plain)).await, [false, true]);
    assert_eq!(told(&entries(selecting)).await, [true, true]);
    let negative = with(world.config(), "loadBalancerBackendPoolUpdateIntervalInSeconds", json!(-1));
    let refused = checked(&world, &negative, false, false).await;
    assert!(!refused.passed && errors(&refused)[0].contains("not below 0"), "{}", refused.text);
}

#[tokio::test(start_paused = true)]
async fn online_every_scope_is_asked_and_nothing_written() {
    let world = world();
    let report = online(&world).await;
    assert!(report.passed && report.text.contains("actions are granted"), "{}", report.text);
    assert!(world.azure().count(|request| request.resource_type == "microsoft.authorization/permissions") > 0);
    assert_eq!(world.azure().count(|request| request.method != "GET" && !request.path.ends_with("/token")), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_secret_is_told_by_its_field() {
    let world = world();
    let config = world.config_with(&Login::Secret(CLIENT_ID.to_owned(), "planted".to_owned()));
    let report = checked(&world, &config, true, false).await;
    assert!(!report.passed && errors(&report).len() == 1, "{}", report.text);
    assert!(errors(&report)[0].contains("aadClientSecret") && !report.text.contains("planted"), "{}", report.text);
}

#[tokio::test(start_paused = true)]
async fn each_missing_permission_is_named() {
    let world = world();
    world.azure().deny("Microsoft.Network/loadBalancers/write", "");
    world.azure().deny("Microsoft.Compute/virtualMachineScaleSets/*", "/resourceGroups/elsewhere");
    let report = online(&world).await;
    let found = errors(&report);
    assert!(!report.passed && found.len() == 1, "{}", report.text);
    assert!(found[0].contains("Microsoft.Network/loadBalancers/write is not granted (Services of type LoadBalancer)"));
    world.azure().allow_all();
    assert!(online(&world).await.passed);
}

#[tokio::test(start_paused = true)]
async fn the_zones_of_the_region_are_read_and_not_looked_up() {
    let world = world();
    let report = online(&world).await;
    assert!(report.text.contains("the zones of ") && report.text.contains(" can be read: 1, 2, 3"), "{}", report.text);
    world.azure().deny("Microsoft.Resources/subscriptions/providers/read", "");
    let report = online(&world).await;
    let found = errors(&report);
    assert!(!report.passed && found.len() == 1, "{}", report.text);
    assert!(found[0].contains("Microsoft.Resources/subscriptions/providers/read is not granted"), "{}", report.text);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_read_permissions_is_told_what_can_be_read() {
    let world = world();
    world.azure().deny("Microsoft.Authorization/permissions/read", "");
    let report = online(&world).await;
    assert!(report.passed && report.text.contains("Microsoft.Authorization/permissions/read"), "{}", report.text);
    assert!(report.text.contains("warning: "), "{}", report.text);
    world.azure().deny("*", "");
    let report = online(&world).await;
    assert!(!report.passed && errors(&report).iter().any(|line| line.contains("AuthorizationFailed")), "{}", report.text);
}

#[tokio::test(start_paused = true)]
async fn an_arm_that_does_not_answer_is_told_once_with_the_fields_to_look_at() {
    let world = world();
    world.azure().faults().set_down(true);
    let report = online(&world).await;
    assert!(!report.passed && errors(&report).len() == 1, "{}", report.text);
    assert!(errors(&report)[0].contains("resourceManagerEndpoint"), "{}", report.text);
}

#[tokio::test(start_paused = true)]
async fn a_resource_group_that_does_not_exist_is_named() {
    let world = world();
    let report = checked(&world, &with(world.config(), "resourceGroup", json!("rg-typo")), true, false).await;
    assert!(!report.passed && errors(&report).iter().any(|line| line.contains("rg-typo")), "{}", report.text);
}
