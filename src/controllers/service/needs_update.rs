//! Fields of a Service that its load balancer depends on, and the decision whether it needs cleanup or an update. Pure.
//!
//! Upstream: `service/controller.go` (`wantsLoadBalancer`, `needsCleanup`, `needsUpdate`) and `service/helpers`. Not
//! compared, as upstream: labels, selector, internalTrafficPolicy, allocateLoadBalancerNodePorts.

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec, SessionAffinityConfig},
    apimachinery::pkg::util::intstr::IntOrString,
};

pub use crate::cloud_provider::helpers::FINALIZER;

use super::conditions;
use crate::cloud_provider::load_balancer_class::{LoadBalancerClasses, is_load_balancer};

fn type_of(service: &Service) -> &str {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()).unwrap_or("ClusterIP")
}

/// Returns `true` if the deletion of `service` was requested.
pub fn is_being_deleted(service: &Service) -> bool {
    service.metadata.deletion_timestamp.is_some()
}

/// Returns `true` if the finalizer shows that there is a load balancer to remove.
///
/// The class does not matter once the type is another: then it is missing from the spec.
pub fn needs_cleanup(classes: &LoadBalancerClasses, service: &Service) -> bool {
    classes.has_finalizer(service) && (is_being_deleted(service) || !is_load_balancer(service))
}

/// Returns `true` if `service` has our finalizer although another component now implements its load balancer.
///
/// Its type was changed and changed back, because the class of a Service of type LoadBalancer is immutable. All of our resources
/// must be removed; the other component may have added upstream's finalizer, too.
pub fn is_handed_over(classes: &LoadBalancerClasses, service: &Service) -> bool {
    classes.is_elsewhere(service) && classes.has_finalizer(service)
}

/// Returns `true` if the Service itself shows that a manager like this one added the finalizer.
///
/// The finalizer of a class has no other use, and upstream's is added in one patch with the condition, and removed with it.
pub fn owns_finalizer(classes: &LoadBalancerClasses, service: &Service) -> bool {
    classes.has_class_finalizer(service) || (classes.has_finalizer(service) && conditions::current(service).is_some())
}

/// Returns `true` if a change from `old` to `new` requires an update of the load balancer.
pub fn needs_update(classes: &LoadBalancerClasses, old: &Service, new: &Service) -> bool {
    let fingerprint = |service| ServiceFingerprint::of(classes, service);
    (classes.wants(old) || classes.wants(new)) && fingerprint(old) != fingerprint(new)
}

/// Returns `true` if a change from `old` to `new` requires an update only if the provider reads the changed fields.
pub fn may_be_same_request(classes: &LoadBalancerClasses, old: &Service, new: &Service) -> bool {
    let (old, new) = (ServiceFingerprint::of(classes, old), ServiceFingerprint::of(classes, new));
    old != new && old.wants && new.wants && (old.class, old.uid) == (new.class, new.uid)
}

/// Fields of a Service that its load balancer is made from, borrowed.
#[derive(Debug, PartialEq)]
pub struct ServiceFingerprint<'a> {
    wants: bool,
    /// Class, which determines the finalizer.
    class: Option<&'a str>,
    uid: &'a str,
    source_ranges: &'a [String],
    ports: Vec<PortFingerprint<'a>>,
    session_affinity: &'a str,
    session_affinity_config: Option<&'a SessionAffinityConfig>,
    load_balancer_ip: &'a str,
    external_ips: &'a [String],
    annotations: Option<&'a BTreeMap<String, String>>,
    external_traffic_policy: &'a str,
    health_check_node_port: i32,
    ip_families: usize,
}

#[derive(Debug, PartialEq)]
struct PortFingerprint<'a> {
    name: &'a str,
    protocol: &'a str,
    port: i32,
    node_port: i32,
    target_port: Option<&'a IntOrString>,
    app_protocol: Option<&'a str>,
}

impl<'a> ServiceFingerprint<'a> {
    /// Returns the fingerprint of `service`. Absent and empty fields are equal.
    pub fn of(classes: &LoadBalancerClasses, service: &'a Service) -> Self {
        static EMPTY_SPEC: LazyLock<ServiceSpec> = LazyLock::new(ServiceSpec::default);
        let spec = service.spec.as_ref().unwrap_or_else(|| &EMPTY_SPEC);
        Self {
            wants: classes.wants(service),
            class: spec.load_balancer_class.as_deref(),
            uid: service.metadata.uid.as_deref().unwrap_or_default(),
            source_ranges: spec.load_balancer_source_ranges.as_deref().unwrap_or_default(),
            ports: spec.ports.iter().flatten().map(PortFingerprint::of).collect(),
            session_affinity: spec.session_affinity.as_deref().unwrap_or("None"),
            session_affinity_config: spec.session_affinity_config.as_ref(),
            load_balancer_ip: spec.load_balancer_ip.as_deref().unwrap_or_default(),
            external_ips: spec.external_ips.as_deref().unwrap_or_default(),
            annotations: service.metadata.annotations.as_ref().filter(|annotations| !annotations.is_empty()),
            external_traffic_policy: spec.external_traffic_policy.as_deref().unwrap_or("Cluster"),
            health_check_node_port: spec.health_check_node_port.unwrap_or_default(),
            ip_families: spec.ip_families.as_ref().map_or(0, Vec::len),
        }
    }
}

impl<'a> PortFingerprint<'a> {
    fn of(port: &'a ServicePort) -> Self {
        Self {
            name: port.name.as_deref().unwrap_or_default(),
            protocol: port.protocol.as_deref().unwrap_or("TCP"),
            port: port.port,
            node_port: port.node_port.unwrap_or_default(),
            target_port: port.target_port.as_ref(),
            app_protocol: port.app_protocol.as_deref(),
        }
    }
}

/// Event for a change by the user, as upstream has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceChangeEvent {
    pub reason: &'static str,
    pub message: String,
}

impl ServiceChangeEvent {
    fn new(reason: &'static str, old: impl fmt::Display, new: impl fmt::Display) -> Self {
        Self { reason, message: format!("{old} -> {new}") }
    }

    /// Returns the event if the values differ.
    fn of_values<T: PartialEq + fmt::Display>(reason: &'static str, old: T, new: T) -> Option<Self> {
        (old != new).then(|| Self::new(reason, old, new))
    }
}

/// Returns the event for the first difference between `old` and `new` in upstream's order, if upstream has an event for it.
pub fn change_event(classes: &LoadBalancerClasses, old: &Service, new: &Service) -> Option<ServiceChangeEvent> {
    use super::reason;
    let (a, b) = (ServiceFingerprint::of(classes, old), ServiceFingerprint::of(classes, new));
    if a.wants != b.wants {
        return Some(ServiceChangeEvent::new(reason::TYPE, type_of(old), type_of(new)));
    }
    if a.source_ranges != b.source_ranges {
        return Some(ServiceChangeEvent::new(reason::SOURCE_RANGES, go_list(a.source_ranges), go_list(b.source_ranges)));
    }
    let silent = |f: &ServiceFingerprint<'_>| f.session_affinity_config.cloned();
    if a.ports != b.ports || a.session_affinity != b.session_affinity || silent(&a) != silent(&b) {
        return None;
    }
    if a.load_balancer_ip != b.load_balancer_ip {
        return Some(ServiceChangeEvent::new(reason::LOAD_BALANCER_IP, a.load_balancer_ip, b.load_balancer_ip));
    }
    if a.external_ips.len() != b.external_ips.len() {
        return count(reason::EXTERNAL_IP, a.external_ips.len(), b.external_ips.len());
    }
    if let Some((_, added)) = a.external_ips.iter().zip(b.external_ips).find(|(old, new)| old != new) {
        return Some(ServiceChangeEvent { reason: reason::EXTERNAL_IP, message: format!("Added: {added}") });
    }
    if a.annotations != b.annotations {
        return None;
    }
    let (policy, port) = (reason::EXTERNAL_TRAFFIC_POLICY, reason::HEALTH_CHECK_NODE_PORT);
    ServiceChangeEvent::of_values(reason::UID, a.uid, b.uid)
        .or_else(|| ServiceChangeEvent::of_values(policy, a.external_traffic_policy, b.external_traffic_policy))
        .or_else(|| ServiceChangeEvent::of_values(port, a.health_check_node_port, b.health_check_node_port))
        .or_else(|| count(reason::IP_FAMILIES, a.ip_families, b.ip_families).filter(|_| a.ip_families != b.ip_families))
}

fn count(reason: &'static str, old: usize, new: usize) -> Option<ServiceChangeEvent> {
    Some(ServiceChangeEvent { reason, message: format!("Count: {old} -> {new}") })
}

/// Formats a list as Go's `%v` does.
fn go_list(items: &[String]) -> String {
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests;
