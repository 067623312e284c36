//! Faults, in process and on a socket, and the request log.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::{
    providers::azure::transport::ArmTransportError,
    runtime::shutdown::Shutdown,
    sandbox::azure::{Crash, Effect, Fault, Served},
};

fn request(path: &str) -> Request<Bytes> {
    let url = format!("https://management.test{}?api-version=2025-05-01", canonical::expand(path));
    Request::builder().uri(url).header("authorization", "Bearer t").body(Bytes::new()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn lost_responses_differ_in_their_effect() {
    let client = Client::new(AzureOptions::immediate());
    for (effect, remains) in [(Effect::DropBefore, 200), (Effect::DropAfter, 404)] {
        client.azure.add_fault(Fault::new(effect).method("DELETE").times(1));
        let mut delete = request("$NET/publicIPPrefixes/pfx1");
        *delete.method_mut() = Method::DELETE;
        assert!(matches!(client.transport.send(delete).await, Err(ArmTransportError::NoAnswer(_))));
        assert_eq!(client.get("$NET/publicIPPrefixes/pfx1").await.status, remains);
    }
    client.azure.faults().crash_at(1, Crash::Before);
    assert!(client.transport.send(request("$RGS/rg-test")).await.is_err());
    assert!(client.transport.send(request("$RGS/rg-test")).await.is_err());
    client.azure.faults().recover();
    assert_eq!(client.get("$RGS/rg-test").await.status, 200);
}

/// A body that arrives slowly, breaks or stalls: the same in process and on a socket.
#[tokio::test(start_paused = true)]
async fn bodies_come_at_their_pace() {
    let client = Client::new(AzureOptions::immediate());
    let length = client.transport.send(request("$NET/routeTables")).await.unwrap().body().len();
    client.azure.add_fault(Fault::new(Effect::SlowBody(Duration::from_millis(10))).times(1));
    let start = Instant::now();
    assert_eq!(client.get("$NET/routeTables").await.body["value"][0]["name"], "rt-test");
    assert_eq!(start.elapsed(), Duration::from_millis(10) * u32::try_from(length).unwrap());
    client.azure.add_fault(Fault::new(Effect::BreakHalfway).method("DELETE").times(1));
    let delete = || {
        let mut delete = request("$NET/publicIPPrefixes/pfx1");
        *delete.method_mut() = Method::DELETE;
        delete
    };
    assert!(matches!(client.transport.send(delete()).await, Err(ArmTransportError::NoAnswer(_))));
    assert_eq!(client.get("$NET/publicIPPrefixes/pfx1").await.status, 404, "it was done");
    client.azure.add_fault(Fault::new(Effect::StallHalfway).times(1));
    let stalled = tokio::time::timeout(Duration::from_secs(3_600), client.transport.send(request("$RGS/rg-test"))).await;
    assert!(stalled.is_err());
    assert_eq!(client.azure.count(|request| request.status == 0), 2, "the answers that were lost");
}

async fn on_a_socket(client: &Client, shutdown: &Shutdown) -> (Served, reqwest::Client) {
    let served = client.azure.serve(([127, 0, 0, 1], 0).into(), shutdown).await.unwrap();
    let ca = reqwest::Certificate::from_pem(served.ca_pem.as_bytes()).unwrap();
    let http = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build().unwrap();
    (served, http)
}

#[tokio::test]
async fn a_socket_sends_bodies_at_their_pace() {
    let client = Client::new(AzureOptions::immediate());
    let shutdown = Shutdown::new();
    let (served, http) = on_a_socket(&client, &shutdown).await;
    let url = format!("{}{}?api-version=2021-04-01", served.url, canonical::expand("$RGS/rg-test"));
    let get = || async { http.get(&url).bearer_auth("t").send().await.unwrap() };
    let whole = get().await;
    assert_eq!(whole.version(), http::Version::HTTP_2);
    let whole = whole.bytes().await.unwrap();
    client.azure.add_fault(Fault::new(Effect::DropBefore).times(1));
    assert!(http.get(&url).bearer_auth("t").send().await.is_err());
    client.azure.add_fault(Fault::new(Effect::SlowBody(Duration::from_millis(2))).times(1));
    let start = tokio::time::Instant::now();
    let mut slow = get().await;
    let (mut frames, mut body) = (0, Vec::new());
    while let Some(frame) = slow.chunk().await.unwrap() {
        frames += 1;
        body.extend_from_slice(&frame);
    }
    assert_eq!(body, whole);
    assert!(frames > 10 && start.elapsed() >= Duration::from_millis(2) * u32::try_from(whole.len()).unwrap(), "{frames}");
    client.azure.add_fault(Fault::new(Effect::BreakHalfway).times(1));
    let broken = get().await;
    assert_eq!(broken.status(), 200);
    assert!(broken.bytes().await.is_err());
    client.azure.add_fault(Fault::new(Effect::StallHalfway).times(1));
    let mut stalled = get().await;
    let mut received = 0;
    while let Ok(frame) = tokio::time::timeout(Duration::from_millis(300), stalled.chunk()).await {
        received += frame.unwrap().unwrap().len();
    }
    assert_eq!(received, whole.len() - whole.len() / 2);
    shutdown.begin();
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_refused_until_another_comes() {
    let client = Client::new(AzureOptions::immediate());
    let with = |token: &str| {
        let mut request = request("$RGS/rg-test");
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let transport = Arc::clone(&client.transport);
        async move { reply(transport.send(request).await.unwrap()) }
    };
    client.azure.add_fault(Fault::new(Effect::ExpireToken).after(1).times(1));
    assert_eq!(with("a").await.status, 200);
    for _ in 0..2 {
        let refused = with("a").await;
        assert_eq!((refused.status, refused.code()), (401, "ExpiredAuthenticationToken"));
        assert!(refused.header("www-authenticate").starts_with("Bearer "));
    }
    assert_eq!(with("b").await.status, 200);
}
