use bytes::Bytes;
use http::Request;

use super::super::*;
use crate::sandbox::azure::{
    Quotas,
    topology::{Pool, PoolKind},
};

/// The status of a read with this token.
async fn get(world: &World, token: &str, path: &str) -> u16 {
    let request = Request::get(format!("https://management.azure.com{path}?api-version=2025-04-01"));
    let request = request.header("Authorization", format!("Bearer {token}")).body(Bytes::new()).unwrap();
    world.azure().transport().send(request).await.unwrap().status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn all_tokens_of_a_principal_count_against_one_quota() {
    let clock = Clock::manual(Timestamp::UNIX_EPOCH);
    let world = World::new(Topology::new(), AzureOptions::immediate(), clock).unwrap();
    world.azure().with_options(|options| options.quotas = Quotas::azure());
    let (tenant, group) = (world.topology().tenant, world.topology().group_id().to_string());
    let endpoints = world.endpoints();
    let token = |client| {
        let principal = Principal::new(&tenant, client);
        world.with_directory(|directory| directory.issue(&principal, &endpoints.audience, Timestamp::UNIX_EPOCH).0)
    };
    let (first, second, other) = (token("one"), token("one"), token("other"));
    for _ in 0..250 {
        assert_eq!(get(&world, &first, &group).await, 200);
    }
    assert_eq!((get(&world, &second, &group).await, get(&world, &other, &group).await), (429, 200));
}

#[test]
fn an_impossible_cluster_does_not_start() {
    let impossible = Topology::new().pool(Pool::new(PoolKind::Uniform, "much-too-long-for-windows", 1).windows());
    let refused = World::new(impossible, AzureOptions::immediate(), Clock::System).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("1 to 9 characters"), "{refused}");
}
