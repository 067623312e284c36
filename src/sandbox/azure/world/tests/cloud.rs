use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};

use super::super::*;
use crate::sandbox::azure::{
    Class, Quotas,
    topology::{Pool, PoolKind},
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
    let request = Request::get(format!("{ARM}{path}?api-version=2025-04-01"));
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
async fn all_tokens_of_a_principal_count_against_one_quota() {
    let world = world();
    world.azure().with_options(|options| options.quotas = Quotas::azure());
    let (tenant, group) = (world.topology().tenant, world.topology().group_id().to_string());
    let endpoints = world.endpoints();
    let token = |client| {
        let principal = Principal::new(&tenant, client);
        world.with_directory(|directory| directory.issue(&principal, &endpoints.audience, Timestamp::UNIX_EPOCH).0)
    };
    let (first, second, other) = (token("one"), token("one"), token("other"));
    for _ in 0..250 {
        assert_eq!(get_with(&world, &first, &group).await.0, 200);
    }
    assert_eq!((get_with(&world, &second, &group).await.0, get_with(&world, &other, &group).await.0), (429, 200));
}

#[test]
fn an_impossible_cluster_does_not_start() {
    let impossible = Topology::new().pool(Pool::new(PoolKind::Uniform, "much-too-long-for-windows", 1).windows());
    let refused = World::new(impossible, AzureOptions::immediate(), Clock::System).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("1 to 9 characters"), "{refused}");
}
