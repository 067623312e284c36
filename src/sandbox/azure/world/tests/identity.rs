//! The world as azure_identity's own credentials meet it.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::{
    credentials::{Secret, TokenCredential},
    error::ErrorKind,
    http::{AsyncRawResponse, Body, ClientOptions, HttpClient, Request, Transport, headers::Headers},
};
use azure_identity::{
    ClientSecretCredential, ClientSecretCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId,
};
use bytes::Bytes;

use super::super::*;
use crate::sandbox::azure::topology::{Pool, PoolKind};

/// Sends what azure_core sends to the simulator.
#[derive(Clone)]
struct Wire(Azure);

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

#[async_trait]
impl HttpClient for Wire {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let mut built = http::Request::builder().method(request.method().as_str()).uri(request.url().as_str());
        for (name, value) in request.headers().iter() {
            built = built.header(name.as_str(), value.as_str());
        }
        let body = match request.body() {
            Body::Bytes(bytes) => Bytes::copy_from_slice(bytes),
            Body::SeekableStream(_) => panic!("credentials send no streams"),
        };
        let answer = self.0.transport().send(built.body(body).unwrap()).await;
        let answer = answer.map_err(|error| azure_core::Error::with_message(ErrorKind::Io, error.to_string()))?;
        Ok(AsyncRawResponse::from_bytes(answer.status().as_u16().into(), Headers::new(), answer.into_body()))
    }
}

fn world() -> World {
    let topology = Topology::new().pool(Pool::new(PoolKind::Uniform, "uniform", 1));
    World::new(topology, AzureOptions::immediate(), Clock::System).unwrap()
}

fn options(world: &World) -> ClientOptions {
    ClientOptions { transport: Some(Transport::new(Arc::new(Wire(world.azure().clone())))), ..ClientOptions::default() }
}

fn by_secret(world: &World, tenant: &str, secret: &str) -> Arc<ClientSecretCredential> {
    let options = ClientSecretCredentialOptions { client_options: options(world) };
    ClientSecretCredential::new(tenant, CLIENT_ID.to_owned(), Secret::new(secret.to_owned()), Some(options)).unwrap()
}

const SCOPE: &[&str] = &["https://management.azure.com/.default"];

#[tokio::test]
async fn a_client_secret_credential_logs_in() {
    let world = world();
    let tenant = world.topology().tenant;
    let token = by_secret(&world, &tenant, CLIENT_SECRET).get_token(SCOPE, None).await.unwrap();
    assert_eq!(world.shared.token_problem(token.token.secret()), None);
    for (tenant, secret, code) in [(tenant.as_str(), "wrong", "AADSTS7000215"), ("elsewhere", CLIENT_SECRET, "AADSTS90002")]
    {
        let error = by_secret(&world, tenant, secret).get_token(SCOPE, None).await.unwrap_err().to_string();
        assert!(error.contains(code), "{error}");
    }
}

#[tokio::test]
async fn a_managed_identity_credential_logs_in() {
    let world = world();
    world.run_on("uniform000000", vec![world.managed_identity("identity", Some("nodes"))]).unwrap();
    let options = |id: &str| ManagedIdentityCredentialOptions {
        user_assigned_id: Some(UserAssignedId::ClientId(id.to_owned())),
        client_options: options(&world),
    };
    let token = ManagedIdentityCredential::new(Some(options("identity"))).unwrap().get_token(SCOPE, None).await.unwrap();
    assert_eq!(world.shared.token_problem(token.token.secret()), None);
    let error = ManagedIdentityCredential::new(Some(options("other"))).unwrap().get_token(SCOPE, None).await.unwrap_err();
    assert!(error.to_string().contains("has not been assigned"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn all_tokens_of_a_principal_count_against_one_quota() {
    let world = world();
    world.azure().with_options(|options| options.quotas = crate::sandbox::azure::Quotas::azure());
    let (tenant, endpoints) = (world.topology().tenant, world.endpoints());
    let url = format!(
        "{}{}?api-version=2021-04-01",
        endpoints.resource_manager.trim_end_matches('/'),
        world.topology().group_id()
    );
    let token = |client| {
        let principal = Principal::new(&tenant, client);
        world.with_directory(|directory| directory.issue(&principal, &endpoints.audience, Clock::System.wall()).0)
    };
    let read = async |token: &str| {
        let request = http::Request::get(&url).header("authorization", format!("Bearer {token}"));
        world.azure().respond(request.body(Bytes::new()).unwrap()).await.unwrap().status().as_u16()
    };
    let (first, second, other) = (token("one"), token("one"), token("other"));
    for _ in 0..250 {
        assert_eq!(read(&first).await, 200);
    }
    assert_eq!((read(&second).await, read(&other).await), (429, 200));
}
