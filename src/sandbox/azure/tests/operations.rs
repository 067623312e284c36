//! Long-running operations, busy resources, latency.

use std::time::Duration;

use tokio::time::{Instant, advance};

use super::*;
use crate::sandbox::azure::{AsyncStyle, Busy, Class, Effect, Fault, Latencies, Latency, kinds::KINDS};

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
async fn a_write_takes_its_time() {
    let style = AsyncStyle { retry_after: Some(3), ..AsyncStyle::default() };
    let client = Client::new(slow(Busy::Retryable, style));
    let start = Instant::now();
    let created = client.put(TABLE, table()).await;
    assert_eq!(start.elapsed(), Duration::from_millis(200));
    assert_eq!((created.status, created.header("retry-after")), (201, "3"));
    assert_eq!(created.body["properties"]["provisioningState"], "Updating");
    let poll = created.header("azure-asyncoperation");
    assert_eq!(client.get(poll).await.body["status"], "InProgress");
    let busy = client.put(TABLE, table()).await;
    assert_eq!((busy.status, busy.code()), (429, "RetryableErrorDueToAnotherOperation"));
    advance(Duration::from_secs(5)).await;
    assert_eq!(client.get(poll).await.body["status"], "Succeeded");
    assert_eq!(client.get(TABLE).await.body["properties"]["provisioningState"], "Succeeded");
    assert_eq!(client.azure.count(|request| request.class == Class::Poll), 2);
    let deleted = client.delete(TABLE).await;
    assert_eq!(deleted.status, 202);
    assert_eq!(client.get(TABLE).await.body["properties"]["provisioningState"], "Deleting");
    advance(Duration::from_secs(5)).await;
    assert_eq!(client.get(TABLE).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn location_answers_with_the_result() {
    let style = AsyncStyle { operation_header: false, location_header: true, ..AsyncStyle::default() };
    let client = Client::new(slow(Busy::Conflict, style));
    let created = client.put(TABLE, table()).await;
    assert_eq!(created.status, 202);
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
async fn a_public_ip_must_be_ready_before_it_is_used() {
    let client = Client::new(slow(Busy::Retryable, AsyncStyle::default()));
    let failing = Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned());
    client.azure.add_fault(Fault::new(failing).class(Class::Write).times(1));
    client.put(PIP, public_ip()).await;
    for state in ["Updating", "Failed"] {
        let refused = client.put(LB, load_balancer()).await;
        assert_eq!((refused.status, refused.code()), (409, "ReferencedResourceNotProvisioned"));
        assert!(refused.body["error"]["message"].as_str().unwrap().contains(state));
        advance(Duration::from_secs(5)).await;
    }
    client.put(PIP, public_ip()).await;
    advance(Duration::from_secs(5)).await;
    assert_eq!(client.put(LB, load_balancer()).await.status, 201);
}

/// What a PUT of each type needs to be accepted.
fn body(kind: &str) -> Value {
    let properties = match kind {
        "Microsoft.Network/publicIPAddresses" => return public_ip(),
        "Microsoft.Network/publicIPPrefixes" => json!({"prefixLength": 30}),
        "Microsoft.Network/privateLinkServices" => {
            let address = json!({"primary": true, "subnet": {"id": "$NET/virtualNetworks/vnet-test/subnets/subnet-nodes"}});
            json!({"destinationIPAddress": "10.224.0.9", "ipConfigurations": [{"name": "nat", "properties": address}]})
        }
        _ => json!({}),
    };
    json!({"location": "eastus", "properties": properties})
}

#[tokio::test(start_paused = true)]
async fn every_type_answers_in_its_manner() {
    let client = Client::new(AzureOptions::default());
    client.azure.change_document(&canonical::expand("$NET/virtualNetworks/vnet-test"), |network| {
        network["properties"]["subnets"][0]["properties"]["privateLinkServiceNetworkPolicies"] = json!("Disabled");
    });
    for kind in KINDS.iter().filter(|kind| kind.name.matches('/').count() == 1 && !kind.name.starts_with("Microsoft.Res")) {
        let path = format!("$RGS/rg-test/providers/{}/new", kind.name);
        let done = || advance(Duration::from_secs(1));
        for (status, running) in [(201, kind.manner.creating), (200, kind.manner.changing)] {
            let written = client.put(&path, body(kind.name)).await;
            let state = written.body["properties"]["provisioningState"].as_str().unwrap();
            assert_eq!((written.status, state), (status, running.unwrap_or("Succeeded")), "{}", kind.name);
            let poll = written.header("azure-asyncoperation");
            assert_eq!((!poll.is_empty(), written.header("location")), (running.is_some(), ""), "{}", kind.name);
            assert_eq!(written.header("azure-asyncnotification") == "Enabled", running.is_some(), "{}", kind.name);
            if !poll.is_empty() {
                assert_eq!(client.get(poll).await.body["status"], "InProgress", "{}", kind.name);
                done().await;
                assert_eq!(client.get(poll).await.body, json!({"status": "Succeeded"}), "{}", kind.name);
            }
            let shown = client.get(&path).await.body;
            assert_eq!(shown["properties"]["provisioningState"], "Succeeded", "{}", kind.name);
        }
        let deleted = client.delete(&path).await;
        assert_eq!(deleted.status, kind.manner.deleting.unwrap_or(200), "{}", kind.name);
        for header in ["azure-asyncoperation", "location"] {
            assert_eq!(!deleted.header(header).is_empty(), kind.manner.deleting.is_some(), "{} {header}", kind.name);
        }
        done().await;
        assert_eq!(client.get(&path).await.status, 404, "{}", kind.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_public_ip_has_no_address_until_it_is_done() {
    let client = Client::new(AzureOptions::default());
    let failing = Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned());
    client.azure.add_fault(Fault::new(failing).class(Class::Write).times(1));
    let address = |reply: &Reply| reply.body["properties"]["ipAddress"].clone();
    for expected in [Value::Null, json!("20.0.0.2")] {
        assert_eq!(address(&client.put(PIP, public_ip()).await), Value::Null);
        assert_eq!(address(&client.get(PIP).await), Value::Null);
        assert_eq!(client.get("$NET/publicIPAddresses").await.body["value"][0]["properties"]["ipAddress"], Value::Null);
        advance(Duration::from_secs(1)).await;
        assert_eq!(address(&client.get(PIP).await), expected);
    }
    let changed = client.put(PIP, public_ip()).await;
    assert_eq!(changed.body["properties"]["provisioningState"], "Succeeded");
    assert_eq!(client.get(changed.header("azure-asyncoperation")).await.body["status"], "InProgress", "says the operation");
    assert_eq!(address(&changed), "20.0.0.2", "what it has it keeps");
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_too_large_is_refused() {
    let client = Client::new(AzureOptions::default());
    let with = |bytes: usize| json!({"location": "eastus", "tags": {"t": "x".repeat(bytes)}, "properties": {}});
    let refused = client.put(TABLE, with(4 * 1024 * 1024)).await;
    assert_eq!((refused.status, refused.code()), (413, "RequestContentTooLarge"));
    assert_eq!(client.put(TABLE, with(1024)).await.status, 201);
}
