//! Kubernetes objects of the checks. In: names and numbers. Out: Services and Nodes as an API server returns them.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Node, Service, ServicePort, ServiceSpec},
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, Time},
        util::intstr::IntOrString,
    },
    jiff::Timestamp,
};

/// Returns a Service of type `LoadBalancer` with one TCP port.
///
/// `number` is at most 99 and must differ for each Service, because UID, cluster IP and node port depend on it.
pub fn plain_service(name: &str, number: u16) -> Service {
    let port = ServicePort {
        name: Some("http".to_owned()),
        port: 80,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(8080)),
        node_port: Some(30_000 + i32::from(number)),
        ..ServicePort::default()
    };
    let spec = ServiceSpec {
        type_: Some("LoadBalancer".to_owned()),
        ports: Some(vec![port]),
        cluster_ip: Some(format!("10.0.250.{number}")),
        cluster_ips: Some(vec![format!("10.0.250.{number}")]),
        ip_families: Some(vec!["IPv4".to_owned()]),
        ip_family_policy: Some("SingleStack".to_owned()),
        external_traffic_policy: Some("Cluster".to_owned()),
        internal_traffic_policy: Some("Cluster".to_owned()),
        allocate_load_balancer_node_ports: Some(true),
        session_affinity: Some("None".to_owned()),
        ..ServiceSpec::default()
    };
    let metadata = ObjectMeta {
        namespace: Some("default".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("{number:08}-0000-4000-8000-c0f0c0f0c0f0")),
        ..ObjectMeta::default()
    };
    Service { metadata, spec: Some(spec), status: None }
}

/// Returns `service` with a deletion timestamp.
pub(super) fn deleted(service: &Service) -> Service {
    let mut service = service.clone();
    service.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    service
}

/// Returns the Node as the node controller leaves it after initialization.
pub(super) fn with_provider_id(node: &Node, provider_id: &str) -> Node {
    let mut node = node.clone();
    node.spec.get_or_insert_default().provider_id = Some(provider_id.to_owned());
    node
}

pub(super) fn shared(nodes: &[Node]) -> Vec<Arc<Node>> {
    nodes.iter().cloned().map(Arc::new).collect()
}
