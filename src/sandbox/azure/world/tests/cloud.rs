use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};

use super::super::*;
use crate::{
    runtime::shutdown::Shutdown,
    sandbox::azure::{
        Class, Fault,
        topology::{Pool, PoolKind},
    },
};

const COMPUTE: &str =
    "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg-test/providers/Microsoft.Compute";
const ARM: &str = "https://management.azure.com";
const TOKEN_PATH: &str = "https://login.microsoftonline.com/00000000-0000-0000-0000-00000000000a/oauth2/v2.0/token";

fn topology() -> Topology {
    Topology::new()
        .pool(Pool::new(PoolKind::Uniform, "uniform", 3).zones(&["1", "2", "3"]).public_ips())
        .pool(Pool::new(PoolKind::Flexible, "flexible", 2))
        .pool(Pool::new(PoolKind::AvailabilitySet, "set", 2))
        .pool(Pool::new(PoolKind::Standalone, "solo", 1).in_group("rg-other"))
}

fn world() -> World {
    World::new(topology(), AzureOptions::immediate(), Clock::manual(Timestamp::UNIX_EPOCH)).unwrap()
}

async fn send(azure: &Azure, request: http::request::Builder, body: String) -> (u16, Value) {
    let response = azure.transport().send(request.body(Bytes::from(body)).unwrap()).await.unwrap();
    (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
}

/// A token for ARM, by the secret of the world's principal.
async fn token(world: &World) -> String {
    let form = format!(
        "client_id={CLIENT_ID}&client_secret={CLIENT_SECRET}&grant_type=client_credentials\
         &scope=https%3A%2F%2Fmanagement.core.windows.net%2F%2F.default"
    );
    let (status, body) = send(world.azure(), Request::post(TOKEN_PATH), form).await;
    assert_eq!(status, 200, "{body}");
    body["access_token"].as_str().unwrap().to_owned()
}

async fn get_with(world: &World, token: &str, path: &str) -> (u16, Value) {
    let query = if path.contains('?') { "&" } else { "?" };
    let request = Request::get(format!("{ARM}{path}{query}api-version=2025-04-01"));
    send(world.azure(), request.header("Authorization", format!("Bearer {token}")), String::new()).await
}

async fn get(world: &World, path: &str) -> (u16, Value) {
    get_with(world, &token(world).await, path).await
}

/// Names in a list.
async fn names(world: &World, path: &str) -> Vec<String> {
    let (status, body) = get(world, path).await;
    assert_eq!(status, 200, "{body}");
    let names = body["value"].as_array().unwrap().iter().map(|found| found["name"].as_str().unwrap().to_owned());
    names.collect()
}

#[tokio::test(start_paused = true)]
async fn arm_lists_the_machines() {
    let world = world();
    let instances = format!("{COMPUTE}/virtualMachineScaleSets/uniform/virtualMachines");
    assert_eq!(names(&world, &instances).await, ["uniform_0", "uniform_1", "uniform_2"]);
    assert_eq!(names(&world, &format!("{COMPUTE}/virtualMachines")).await.len(), 4);
    assert_eq!(names(&world, &format!("{COMPUTE}/virtualMachines").replace("rg-test", "rg-other")).await, ["solo-0"]);
    for list in ["networkInterfaces", "publicIPAddresses"] {
        assert_eq!(names(&world, &format!("{COMPUTE}/virtualMachineScaleSets/uniform/{list}")).await.len(), 3, "{list}");
    }
    let interfaces = format!("{COMPUTE}/networkInterfaces").replace("Compute", "Network");
    assert_eq!(names(&world, &interfaces).await.len(), 4);
    let (_, provider) = get(&world, "/subscriptions/00000000-0000-0000-0000-000000000001/providers/Microsoft.Compute").await;
    assert!(provider.to_string().contains(r#""zones":["1","2","3"]"#), "{provider}");
}

#[tokio::test(start_paused = true)]
async fn arm_wants_a_token_that_counts() {
    let world = world();
    let path = format!("{COMPUTE}/virtualMachines");
    assert_eq!(get_with(&world, "made-up", &path).await.0, 401);
    let old = token(&world).await;
    assert_eq!(get_with(&world, &old, &path).await.0, 200);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert_eq!(get_with(&world, &old, &path).await.0, 401);
    assert_eq!(get(&world, &path).await.0, 200);
    assert_eq!(world.with_directory(|directory| directory.issued()), 2);
    assert_eq!(world.azure().count(|request| request.class == Class::Other), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_is_answered_with_403() {
    let world = world();
    let (own, other) =
        (format!("{COMPUTE}/virtualMachines"), format!("{COMPUTE}/virtualMachines").replace("rg-test", "rg-other"));
    world.forbid_group("rg-other");
    let (status, body) = get(&world, &other).await;
    assert_eq!((status, &body["error"]["code"]), (403, &json!("AuthorizationFailed")));
    assert_eq!(get(&world, &own).await.0, 200);
    world.forbid("Microsoft.Compute/*/read");
    assert_eq!(get(&world, &own).await.0, 403);
    world.azure().allow_all();
    assert_eq!(get(&world, &other).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn events_show_in_arm() {
    let world = world();
    let vm = world.machine("set-1").unwrap().id(&world.topology()).to_string();
    let before = get(&world, &vm).await.1;
    world.recreate_machine("set-1").unwrap();
    let after = get(&world, &vm).await.1;
    assert_ne!(before["properties"]["vmId"], after["properties"]["vmId"]);
    assert_ne!(before["etag"], after["etag"]);
    world.set_power("set-1", Power::Deallocated).unwrap();
    let off = get(&world, &format!("{vm}?$expand=instanceView")).await.1;
    assert_eq!(off["properties"]["instanceView"]["statuses"][1]["code"], "PowerState/deallocated");
    assert_ne!(off["etag"], after["etag"]);
    let set = format!("{COMPUTE}/availabilitySets/set");
    assert_eq!(get(&world, &set).await.1["properties"]["virtualMachines"].as_array().unwrap().len(), 2);
    world.delete_machine("set-1").unwrap();
    assert_eq!(get(&world, &vm).await.0, 404);
    assert_eq!(get(&world, &set).await.1["properties"]["virtualMachines"].as_array().unwrap().len(), 1);
    assert_eq!(world.scale_out("uniform", 2).unwrap(), ["uniform000003", "uniform000004"]);
    assert_eq!(get(&world, &format!("{COMPUTE}/virtualMachineScaleSets/uniform")).await.1["sku"]["capacity"], 5);
    assert_eq!(world.uninitialized_nodes().len(), 3 + 2 + 2 + 1 + 2 - 1);
}

#[tokio::test(start_paused = true)]
async fn an_emptied_group_lists_nothing_and_a_deleted_pool_is_not_found() {
    let world = world();
    assert_eq!(world.empty_group("rg-other"), ["solo-0"]);
    assert_eq!(
        names(&world, &format!("{COMPUTE}/virtualMachines").replace("rg-test", "rg-other")).await,
        Vec::<String>::new()
    );
    world.delete_pool("uniform").unwrap();
    let set = format!("{COMPUTE}/virtualMachineScaleSets/uniform");
    assert_eq!(get(&world, &set).await.0, 404);
    assert_eq!(names(&world, &format!("{COMPUTE}/virtualMachineScaleSets")).await, ["flexible"]);
}

#[tokio::test(start_paused = true)]
async fn the_cloud_describes_itself() {
    let world = world();
    let (status, body) =
        send(world.azure(), Request::get(format!("{ARM}/metadata/endpoints?api-version=2019-05-01")), String::new()).await;
    assert_eq!((status, &body[0]["authentication"]["loginEndpoint"]), (200, &json!("https://login.microsoftonline.com/")));
    let config = world.config();
    assert_eq!((&config["cloud"], &config["aadClientSecret"]), (&json!("AzurePublicCloud"), &json!(CLIENT_SECRET)));
}

const IDENTITY: &str = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F";

#[tokio::test(start_paused = true)]
async fn a_managed_identity_is_let_in_and_can_be_troubled() {
    let world = world();
    world.run_on("uniform000000", vec![world.managed_identity("identity", Some("nodes"))]).unwrap();
    let ask = || send(world.azure(), Request::get(IDENTITY).header("Metadata", "true"), String::new());
    let token = ask().await.1["access_token"].as_str().unwrap().to_owned();
    assert_eq!(get_with(&world, &token, &format!("{COMPUTE}/virtualMachines")).await.0, 200);
    for status in [404, 410, 429, 500] {
        world.azure().add_fault(Fault::refuse(status, "trouble").path("/metadata/identity/*").times(1));
        assert_eq!(ask().await.0, status);
    }
    assert_eq!(ask().await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn every_machine_has_a_metadata_service_of_its_own() {
    let world = world();
    let instance = "http://169.254.169.254/metadata/instance?api-version=2021-10-01&format=json";
    let ask =
        |azure: Azure| async move { send(&azure, Request::get(instance).header("Metadata", "true"), String::new()).await };
    let first = world.machine_metadata("uniform000000", Vec::new()).unwrap();
    let second = world.machine_metadata("solo-0", Vec::new()).unwrap();
    assert_eq!(ask(first.clone()).await.1["compute"]["zone"], "1");
    assert_eq!(ask(second.clone()).await.1["compute"]["resourceGroupName"], "rg-other");
    world.move_address("solo-0", "10.224.77.7".parse().unwrap()).unwrap();
    let (_, moved) = ask(second.clone()).await;
    assert_eq!(moved["network"]["interface"][0]["ipv4"]["ipAddress"][0]["privateIpAddress"], "10.224.77.7");
    world.delete_machine("solo-0").unwrap();
    assert_eq!((ask(second).await.0, ask(first).await.0), (410, 200));
    assert!(matches!(world.machine_metadata("nobody", Vec::new()), Err(NoSuch::Machine(_))));
}

#[test]
fn an_impossible_cluster_does_not_start() {
    let impossible = Topology::new().pool(Pool::new(PoolKind::Uniform, "much-too-long-for-windows", 1).windows());
    let refused = World::new(impossible, AzureOptions::immediate(), Clock::System).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("1 to 9 characters"), "{refused}");
}

#[tokio::test]
async fn everything_is_served_behind_one_https_url() {
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    let shutdown = Shutdown::new();
    let serving = Serving { port: 0, ca_file: Some(ca_file.clone()), shutdown: shutdown.clone() };
    let world = start_world(topology(), Start { serving: Some(serving), ..Start::default() }).await.unwrap();
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&ca_file).unwrap()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build().unwrap();

    let config = world.config();
    let text = |field: &str| config[field].as_str().unwrap().to_owned();
    let url = format!("{}/metadata/endpoints?api-version=2019-05-01", text("resourceManagerEndpoint"));
    let cloud: Value = client.get(url).send().await.unwrap().json().await.unwrap();
    let (login, audience) = (&cloud[0]["authentication"]["loginEndpoint"], &cloud[0]["authentication"]["audiences"][0]);
    let form = format!(
        "client_id={}&client_secret={}&grant_type=client_credentials&scope={}/.default",
        text("aadClientId"),
        text("aadClientSecret"),
        audience.as_str().unwrap()
    );
    let url = format!("{}{}/oauth2/v2.0/token", login.as_str().unwrap(), text("tenantId"));
    let token: Value = client.post(url).body(form).send().await.unwrap().json().await.unwrap();
    let arm = cloud[0]["resourceManager"].as_str().unwrap();
    let url = format!("{arm}{COMPUTE}/virtualMachineScaleSets?api-version=2025-04-01");
    let list = client.get(url).bearer_auth(token["access_token"].as_str().unwrap()).send().await.unwrap();
    let list: Value = list.json().await.unwrap();
    assert_eq!(list["value"].as_array().map(Vec::len), Some(2), "{list}");
    shutdown.begin();
}

#[tokio::test]
async fn metadata_of_a_machine_is_served_without_tls() {
    let world = world();
    let metadata = world.machine_metadata("solo-0", Vec::new()).unwrap();
    let shutdown = Shutdown::new();
    let address = metadata.serve_plain(([127, 0, 0, 1], 0).into(), &shutdown).await.unwrap();
    let url = format!("http://{address}/metadata/instance?api-version=2021-10-01");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer: Value = client.get(url).header("Metadata", "true").send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["compute"]["name"], "solo-0");
    shutdown.begin();
}
