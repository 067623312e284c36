//! A metadata service that answers well-formed documents that are wrong. What can be recognized as wrong changes no Node.

use async_trait::async_trait;
use bytes::Bytes;
use cloud_controller_manager::providers::azure::transport::ArmTransportError;
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

/// What a lie makes of the document of the machine.
type Lie = fn(&mut Value);

/// The metadata service of a machine, with a lie in place of its document.
struct Liar {
    truth: Arc<dyn ArmTransport>,
    lie: Mutex<Option<Lie>>,
}

#[async_trait]
impl ArmTransport for Liar {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        let is_instance = request.uri().path() == "/metadata/instance";
        let response = self.truth.send(request).await?;
        let lie = *self.lie.lock();
        match lie.filter(|_| is_instance && response.status().is_success()) {
            Some(lie) => Ok(response.map(|body| {
                let mut document = serde_json::from_slice(&body).unwrap();
                lie(&mut document);
                Bytes::from(document.to_string())
            })),
            None => Ok(response),
        }
    }
}

const LIES: [(&str, Lie); 11] = [
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

fn manage(cluster: &Cluster, lie: Option<Lie>) -> Arc<Liar> {
    let truth = cluster.world.machine_metadata(NODE, Vec::new()).unwrap().transport();
    let liar = Arc::new(Liar { truth, lie: Mutex::new(lie) });
    let service = MetadataService::new(IMDS, Arc::<Liar>::clone(&liar));
    cluster.manage_with(NODE, SETTINGS, Arc::new(LocalMachineCloud::new(service, SETTINGS.max_age())));
    liar
}

#[tokio::test(start_paused = true)]
async fn a_lying_metadata_service_initializes_no_node() {
    for (name, lie) in LIES {
        let cluster = one();
        let liar = manage(&cluster, Some(lie));
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

        *liar.lie.lock() = None;
        cluster.until_initialized().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_metadata_service_that_begins_to_lie_changes_no_node() {
    for (name, lie) in LIES {
        let cluster = one();
        let liar = manage(&cluster, None);
        cluster.until_initialized().await;
        tokio::time::sleep(PERIOD * 2).await;
        let before = cluster.node(NODE);
        *liar.lie.lock() = Some(lie);
        tokio::time::sleep(PERIOD * 4).await;
        assert_eq!(cluster.node(NODE), before, "{name}");

        *liar.lie.lock() = None;
        let took = cluster.move_address(NODE, "10.224.9.9").await;
        assert!(took <= PERIOD * 2, "{name}: {took:?}");
    }
}
