//! Long-running operations, busy resources, latency.

use std::time::Duration;

use tokio::time::{Instant, advance};

use super::*;
use crate::sandbox::azure::{AsyncStyle, Busy, Class, Effect, Fault, Latencies, Latency};

const TABLE: &str = "$NET/routeTables/table";

fn slow(busy: Busy, operations: AsyncStyle) -> AzureOptions {
    let latency = Latency { respond: Duration::from_millis(200), operation: Duration::from_secs(5) };
    let latencies = Latencies::default().with(Class::Write, "*", latency).with(Class::Delete, "*", latency);
    AzureOptions { busy, operations, latencies, ..AzureOptions::default() }
}

fn table() -> Value {
    json!({"location": "eastus", "properties": {}})
}

#[tokio::test(start_paused = true)]
async fn location_responds_with_the_result() {
    let style = AsyncStyle { operation_header: false, location_header: true, retry_after: Some(3), in_documents: false };
    let client = Client::new(slow(Busy::Conflict, style));
    let start = Instant::now();
    let created = client.put(TABLE, table()).await;
    assert_eq!((created.status, created.header("retry-after")), (202, "3"));
    assert_eq!(start.elapsed(), Duration::from_millis(200));
    let poll = created.header("location");
    assert_eq!(client.get(poll).await.status, 202);
    let busy = client.delete(TABLE).await;
    assert_eq!((busy.status, busy.code()), (409, "AnotherOperationInProgress"));
    advance(Duration::from_secs(5)).await;
    let result = client.get(poll).await;
    assert_eq!((result.status, &result.body["name"]), (200, &json!("table")));
}

#[tokio::test(start_paused = true)]
async fn operations_fail_and_are_superseded() {
    let client = Client::new(slow(Busy::Supersede, AsyncStyle::default()));
    let first = client.put(TABLE, table()).await;
    let failing = Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned());
    client.azure.add_fault(Fault::new(failing).class(Class::Write).times(1));
    let second = client.put(TABLE, table()).await;
    let state = |poll: &Reply| poll.header("azure-asyncoperation").to_owned();
    assert_eq!(client.get(&state(&first)).await.body["error"]["code"], "CanceledAndSupersededDueToAnotherOperation");
    advance(Duration::from_secs(5)).await;
    let failed = client.get(&state(&second)).await.body;
    assert_eq!((failed["status"].as_str(), failed["error"]["code"].as_str()), (Some("Failed"), Some("InternalServerError")));
    assert_eq!(client.get(TABLE).await.body["properties"]["provisioningState"], "Failed");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_hangs_keeps_its_document_busy() {
    let client = Client::new(slow(Busy::Conflict, AsyncStyle::default()));
    let hangs = || Fault::new(Effect::HangOperation).path("*/routeTables/table").times(1);
    client.azure.add_fault(hangs().method("PUT"));
    let created = client.put(TABLE, table()).await;
    let other = client.put("$NET/routeTables/other", table()).await;
    advance(Duration::from_secs(86_400)).await;
    let status = async |reply: &Reply| client.get(reply.header("azure-asyncoperation")).await.body["status"].clone();
    assert_eq!((status(&created).await, status(&other).await), (json!("InProgress"), json!("Succeeded")));
    assert_eq!(client.get(TABLE).await.body["properties"]["provisioningState"], "Updating");
    assert_eq!(client.delete(TABLE).await.code(), "AnotherOperationInProgress");

    client.azure.with_options(|options| options.busy = Busy::Supersede);
    client.azure.add_fault(hangs().method("DELETE"));
    assert_eq!(client.delete(TABLE).await.status, 202);
    assert_eq!(status(&created).await, "Canceled");
    advance(Duration::from_secs(86_400)).await;
    assert_eq!(client.get(TABLE).await.body["properties"]["provisioningState"], "Deleting");
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_too_large_is_refused() {
    let client = Client::new(AzureOptions::default());
    let with = |bytes: usize| json!({"location": "eastus", "tags": {"t": "x".repeat(bytes)}, "properties": {}});
    let refused = client.put(TABLE, with(4 * 1024 * 1024)).await;
    assert_eq!((refused.status, refused.code()), (413, "RequestContentTooLarge"));
    assert_eq!(client.put(TABLE, with(256)).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_patch_changes_what_it_names() {
    let client = Client::new(AzureOptions::immediate());
    let patch =
        |path: &'static str, body: &'static str| client.send(Method::PATCH, path, &[], Bytes::from_static(body.as_bytes()));
    let patched = patch("$NET/routeTables/rt-test", r#"{"tags": {"a": "b"}}"#).await;
    assert_eq!((patched.status, &patched.body["tags"]["a"]), (200, &json!("b")));
    assert_eq!(patched.body["properties"]["disableBgpRoutePropagation"], false);
    assert_eq!(patch("$NET/routeTables/none", "{}").await.status, 404);
    for body in ["{", "[]"] {
        assert_eq!(patch("$NET/routeTables/rt-test", body).await.code(), "InvalidRequestContent");
    }
}
