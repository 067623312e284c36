//! A metadata service that returns well-formed but false documents. Documents that are recognizably false change no Node.

use async_trait::async_trait;
use bytes::Bytes;
use cloud_controller_manager::providers::azure::transport::ArmTransportError;
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

/// Change that falsifies the document of the machine.
type DocumentChange = fn(&mut Value);

/// Metadata service of a machine, with an optional change to its document.
struct FalseMetadata {
    actual: Arc<dyn ArmTransport>,
    change: Mutex<Option<DocumentChange>>,
}

#[async_trait]
impl ArmTransport for FalseMetadata {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        let is_instance = request.uri().path() == "/metadata/instance";
        let response = self.actual.send(request).await?;
        let change = *self.change.lock();
        match change.filter(|_| is_instance && response.status().is_success()) {
            Some(change) => Ok(response.map(|body| {
                let mut document = serde_json::from_slice(&body).unwrap();
                change(&mut document);
                Bytes::from(document.to_string())
            })),
            None => Ok(response),
        }
    }
}

const DOCUMENT_CHANGES: [(&str, DocumentChange); 11] = [
    ("another machine", |document| {
        document["compute"]["osProfile"]["computerName"] = json!("pool1000009");
        document["compute"]["name"] = json!("pool1_9");
    }),
    ("nothing", |document| *document = json!({})),
    ("no machine", |document| document["compute"] = Value::Null),
    ("an id of nothing", |document| document["compute"]["resourceId"] = json!("pool1_0")),
    ("no region", |document| document["compute"]["location"] = json!("")),
    ("no interfaces", |document| document["network"]["interface"] = json!([])),
    ("no addresses", |document| document["network"]["interface"][0]["ipv4"]["ipAddress"] = json!([])),
    ("an empty address", |document| address(document, "")),
    ("a text as address", |document| address(document, "not an address")),
    ("an address of all machines", |document| address(document, "127.0.0.1")),
    ("an address of none", |document| address(document, "0.0.0.0")),
];

fn address(document: &mut Value, address: &str) {
    document["network"]["interface"][0]["ipv4"]["ipAddress"][0]["privateIpAddress"] = json!(address);
}

fn manage(cluster: &Cluster, change: Option<DocumentChange>) -> Arc<FalseMetadata> {
    let actual = cluster.simulation.machine_metadata(NODE, Vec::new()).unwrap().transport();
    let metadata = Arc::new(FalseMetadata { actual, change: Mutex::new(change) });
    let service = MetadataService::new(IMDS, Arc::<FalseMetadata>::clone(&metadata));
    cluster.manage_with(NODE, SETTINGS, Arc::new(LocalMachineCloud::new(service, SETTINGS.max_age())));
    metadata
}

#[tokio::test(start_paused = true)]
async fn false_metadata_initializes_no_node() {
    for (name, change) in DOCUMENT_CHANGES {
        let cluster = single_node_cluster();
        let metadata = manage(&cluster, Some(change));
        let is_reported = |server: &ApiServer| {
            let events = events_about(&server.list::<Event>(), NODE);
            events
                .iter()
                .any(|(reason, _)| ["InstanceMetadataFailed", "NodeInitializationFailed"].contains(&reason.as_str()))
        };
        cluster.until(name, is_reported).await;
        tokio::time::sleep(PERIOD * 2).await;
        assert!(taints::is_uninitialized(&cluster.node(NODE)), "{name}");
        assert!(cluster.node_writes().is_empty(), "{name}: {:?}", cluster.node_writes());

        *metadata.change.lock() = None;
        cluster.until_initialized().await;
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_that_becomes_false_changes_no_node() {
    for (name, change) in DOCUMENT_CHANGES {
        let cluster = single_node_cluster();
        let metadata = manage(&cluster, None);
        cluster.until_initialized().await;
        tokio::time::sleep(PERIOD * 2).await;
        let before = cluster.node(NODE);
        *metadata.change.lock() = Some(change);
        tokio::time::sleep(PERIOD * 4).await;
        assert_eq!(cluster.node(NODE), before, "{name}");

        *metadata.change.lock() = None;
        let took = cluster.move_address(NODE, "10.224.9.9").await;
        assert!(took <= PERIOD * 2, "{name}: {took:?}");
    }
}
