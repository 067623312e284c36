//! Builders of the objects that tests and the demo start from. Each takes the object and returns it, changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Event, LoadBalancerIngress, LoadBalancerStatus, Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Service,
        ServicePort, ServiceSpec, ServiceStatus, Taint,
    },
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, Time},
        util::intstr::IntOrString,
    },
};
use kube::Resource;

/// Taint of a Node that its cloud has not initialized yet. Upstream: `cloudproviderapi.TaintExternalCloudProvider`.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Returns a Node as its kubelet keeps it after initialization: ready, with provider ID `fake://<name>`.
pub fn node(name: &str) -> Node {
    let node = Node {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(NodeSpec { provider_id: Some(format!("fake://{name}")), ..NodeSpec::default() }),
        status: Some(NodeStatus::default()),
    };
    node.label("kubernetes.io/hostname", name).ready("True").address("Hostname", name)
}

/// Returns a Node as a kubelet with `--cloud-provider=external` registers it: no provider ID, and the taint.
pub fn uninitialized_node(name: &str) -> Node {
    let mut node = node(name).taint(UNINITIALIZED, "true", "NoSchedule");
    if let Some(spec) = &mut node.spec {
        spec.provider_id = None;
    }
    node
}

/// Returns a Service of type ClusterIP with the TCP port 80.
pub fn service(namespace: &str, name: &str) -> Service {
    Service {
        metadata: ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(BTreeMap::from([("app".to_owned(), name.to_owned())])),
            ports: Some(vec![service_port("http", 80)]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Returns a Service of type LoadBalancer with the TCP port 80.
pub fn load_balancer_service(namespace: &str, name: &str) -> Service {
    service(namespace, name).service_type("LoadBalancer")
}

fn service_port(name: &str, port: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(port)),
        ..ServicePort::default()
    }
}

/// Builder methods for any object.
pub trait ObjectExt: Resource<DynamicType = ()> + Sized {
    fn label(mut self, key: &str, value: &str) -> Self {
        self.meta_mut().labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }
    fn annotation(mut self, key: &str, value: &str) -> Self {
        self.meta_mut().annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }
    fn finalizer(mut self, finalizer: &str) -> Self {
        self.meta_mut().finalizers.get_or_insert_default().push(finalizer.to_owned());
        self
    }
}

impl<K: Resource<DynamicType = ()>> ObjectExt for K {}

/// Builder methods for Nodes.
pub trait NodeExt: Sized {
    /// Sets this provider ID.
    fn provider_id(self, id: &str) -> Self;
    /// Sets these pod CIDRs, the first one of the primary family.
    fn pod_cidrs(self, cidrs: &[&str]) -> Self;
    /// Adds an address, e.g. of type `InternalIP`.
    fn address(self, type_: &str, address: &str) -> Self;
    /// Adds a taint to the Node.
    fn taint(self, key: &str, value: &str, effect: &str) -> Self;
    /// Sets a condition of this type, in place of an existing one.
    fn condition(self, type_: &str, status: &str, reason: &str) -> Self;
    /// Sets the condition `Ready` to status `True`, `False` or `Unknown`.
    fn ready(self, status: &str) -> Self;
    /// Removes all conditions, including `Ready`.
    fn without_conditions(self) -> Self;
    /// Marks the Node as unschedulable, as `kubectl cordon` does.
    fn cordoned(self) -> Self;
    /// Sets the labels of a region and a zone.
    fn zone(self, region: &str, zone: &str) -> Self;
    /// Sets the time of the last change of all conditions to `moment`.
    fn conditions_since(self, moment: Timestamp) -> Self;
}

fn node_spec(node: &mut Node) -> &mut NodeSpec {
    node.spec.get_or_insert_default()
}

fn node_status(node: &mut Node) -> &mut NodeStatus {
    node.status.get_or_insert_default()
}

impl NodeExt for Node {
    fn provider_id(mut self, id: &str) -> Self {
        node_spec(&mut self).provider_id = Some(id.to_owned());
        self
    }
    fn pod_cidrs(mut self, cidrs: &[&str]) -> Self {
        let cidrs: Vec<_> = cidrs.iter().map(|cidr| (*cidr).to_owned()).collect();
        node_spec(&mut self).pod_cidr = cidrs.first().cloned();
        node_spec(&mut self).pod_cidrs = Some(cidrs);
        self
    }
    fn address(mut self, type_: &str, address: &str) -> Self {
        let address = NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
        node_status(&mut self).addresses.get_or_insert_default().push(address);
        self
    }
    fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        let taint =
            Taint { key: key.to_owned(), value: Some(value.to_owned()), effect: effect.to_owned(), ..Taint::default() };
        node_spec(&mut self).taints.get_or_insert_default().push(taint);
        self
    }
    fn condition(mut self, type_: &str, status: &str, reason: &str) -> Self {
        let conditions = node_status(&mut self).conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != type_);
        conditions.push(NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            ..NodeCondition::default()
        });
        self
    }
    fn ready(self, status: &str) -> Self {
        let reason = match status {
            "True" => "KubeletReady",
            "False" => "KubeletNotReady",
            _ => "NodeStatusUnknown",
        };
        self.condition("Ready", status, reason)
    }
    fn without_conditions(mut self) -> Self {
        node_status(&mut self).conditions = None;
        self
    }
    fn cordoned(mut self) -> Self {
        node_spec(&mut self).unschedulable = Some(true);
        self
    }
    fn zone(self, region: &str, zone: &str) -> Self {
        self.label("topology.kubernetes.io/region", region).label("topology.kubernetes.io/zone", zone)
    }
    fn conditions_since(mut self, moment: Timestamp) -> Self {
        for condition in node_status(&mut self).conditions.iter_mut().flatten() {
            condition.last_transition_time = Some(Time(moment));
            condition.last_heartbeat_time = Some(Time(moment));
        }
        self
    }
}

/// Builder methods for Services.
pub trait ServiceExt: Sized {
    /// Sets this type of Service.
    fn service_type(self, type_: &str) -> Self;
    /// Sets exactly these named TCP ports.
    fn ports(self, ports: &[(&str, i32)]) -> Self;
    /// Adds a port of this protocol.
    fn port(self, name: &str, protocol: &str, port: i32) -> Self;
    /// Sets the node port of the first port.
    fn node_port(self, node_port: i32) -> Self;
    fn load_balancer_class(self, class: &str) -> Self;
    fn source_ranges(self, ranges: &[&str]) -> Self;
    fn external_traffic_policy(self, policy: &str) -> Self;
    /// Sets a load balancer at this IP address in the status.
    fn ingress_ip(self, ip: &str) -> Self;
}

fn service_spec(service: &mut Service) -> &mut ServiceSpec {
    service.spec.get_or_insert_default()
}

impl ServiceExt for Service {
    fn service_type(mut self, type_: &str) -> Self {
        service_spec(&mut self).type_ = Some(type_.to_owned());
        self
    }
    fn ports(mut self, ports: &[(&str, i32)]) -> Self {
        service_spec(&mut self).ports = Some(ports.iter().map(|(name, port)| service_port(name, *port)).collect());
        self
    }
    fn port(mut self, name: &str, protocol: &str, port: i32) -> Self {
        let port = ServicePort { protocol: Some(protocol.to_owned()), ..service_port(name, port) };
        service_spec(&mut self).ports.get_or_insert_default().push(port);
        self
    }
    fn node_port(mut self, node_port: i32) -> Self {
        if let Some(port) = service_spec(&mut self).ports.get_or_insert_default().first_mut() {
            port.node_port = Some(node_port);
        }
        self
    }
    fn load_balancer_class(mut self, class: &str) -> Self {
        service_spec(&mut self).load_balancer_class = Some(class.to_owned());
        self
    }
    fn source_ranges(mut self, ranges: &[&str]) -> Self {
        let ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
        service_spec(&mut self).load_balancer_source_ranges = Some(ranges);
        self
    }
    fn external_traffic_policy(mut self, policy: &str) -> Self {
        service_spec(&mut self).external_traffic_policy = Some(policy.to_owned());
        self
    }
    fn ingress_ip(mut self, ip: &str) -> Self {
        let ingress = LoadBalancerIngress { ip: Some(ip.to_owned()), ..LoadBalancerIngress::default() };
        let status: &mut ServiceStatus = self.status.get_or_insert_default();
        let balancer: &mut LoadBalancerStatus = status.load_balancer.get_or_insert_default();
        balancer.ingress.get_or_insert_default().push(ingress);
        self
    }
}

/// Returns the reason and message of each event about the object `name`, oldest first.
pub fn events_about(events: &[Event], name: &str) -> Vec<(String, String)> {
    let mut about: Vec<_> = events.iter().filter(|event| event.involved_object.name.as_deref() == Some(name)).collect();
    let version = |event: &&Event| event.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    about.sort_by_key(version);
    about.iter().map(|event| (event.reason.clone().unwrap_or_default(), event.message.clone().unwrap_or_default())).collect()
}
