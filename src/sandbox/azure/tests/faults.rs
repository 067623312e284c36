//! Faults, quotas and the request log.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::{
    providers::azure::arm::TransportError,
    sandbox::azure::{Class, Crash, Effect, Fault, Quotas},
};

fn request(path: &str) -> Request<Bytes> {
    let url = format!("https://management.test{}?api-version=2025-05-01", canonical::expand(path));
    Request::builder().uri(url).header("authorization", "Bearer t").body(Bytes::new()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_fault_does_what_it_says() {
    let client = Client::new(AzureOptions::default());
    let list = "$NET/routeTables";
    let fault = |effect: Effect| client.azure.add_fault(Fault::new(effect).times(1));
    fault(Effect::Refuse(503, "ServerBusy".to_owned(), Some(7)));
    let refused = client.get(list).await;
    assert_eq!((refused.status, refused.code(), refused.header("retry-after")), (503, "ServerBusy", "7"));
    fault(Effect::EmptyList);
    assert_eq!(client.get(list).await.body, json!({"value": []}));
    fault(Effect::Garbage);
    let garbage = client.transport.send(request(list)).await.unwrap();
    assert!(garbage.body().starts_with(b"<html>") && garbage.status() == 200);
    fault(Effect::Truncated);
    let cut = client.transport.send(request(list)).await.unwrap();
    assert!(serde_json::from_slice::<Value>(cut.body()).is_err());
    fault(Effect::NoConnection);
    assert!(matches!(client.transport.send(request(list)).await, Err(TransportError::NotSent(_))));
    fault(Effect::Hang);
    let hanging = tokio::time::timeout(Duration::from_secs(3_600), client.transport.send(request(list))).await;
    assert!(hanging.is_err());
    fault(Effect::Delay(Duration::from_secs(9)));
    let start = Instant::now();
    assert_eq!(client.get(list).await.body["value"][0]["name"], "rt-test");
    assert_eq!(start.elapsed(), Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn lost_answers_differ_in_their_effect() {
    let client = Client::new(AzureOptions::default());
    for (effect, remains) in [(Effect::DropBefore, 200), (Effect::DropAfter, 404)] {
        client.azure.add_fault(Fault::new(effect).method("DELETE").times(1));
        let mut delete = request("$NET/publicIPPrefixes/pfx1");
        *delete.method_mut() = Method::DELETE;
        assert!(matches!(client.transport.send(delete).await, Err(TransportError::NoAnswer(_))));
        assert_eq!(client.get("$NET/publicIPPrefixes/pfx1").await.status, remains);
    }
    client.azure.faults().crash_at(1, Crash::Before);
    assert!(client.transport.send(request("$RGS/rg-test")).await.is_err());
    assert!(client.transport.send(request("$RGS/rg-test")).await.is_err());
    client.azure.faults().recover();
    assert_eq!(client.get("$RGS/rg-test").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn quotas_throttle_and_recover() {
    let client = Client::new(AzureOptions { quotas: Quotas::azure(), ..AzureOptions::default() });
    for left in (0..250).rev() {
        let reply = client.get("$NET/routeTables/rt-test").await;
        assert_eq!(reply.header("x-ms-ratelimit-remaining-subscription-reads"), left.to_string());
    }
    let throttled = client.get("$NET/routeTables/rt-test").await;
    assert_eq!((throttled.status, throttled.code()), (429, "SubscriptionRequestsThrottled"));
    assert_eq!(throttled.header("retry-after"), "1");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.get("$NET/routeTables/rt-test").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted() {
    let client = Client::new(AzureOptions::default());
    client.get("$NET/loadBalancers").await;
    client.put(PIP, public_ip()).await;
    let records = client.azure.requests();
    let shown: Vec<_> = records.iter().map(|one| (one.class, one.list, one.status, one.resource_type.as_str())).collect();
    let expected = [
        (Class::Read, true, 200, "microsoft.network/loadbalancers"),
        (Class::Write, false, 201, "microsoft.network/publicipaddresses"),
    ];
    assert_eq!(shown, expected);
    assert!(records.iter().all(|record| record.bytes > 0 && record.host == "management.test"));
    client.azure.clear_requests();
    assert_eq!(client.azure.count(|_| true), 0);
}
