//! The Services of the scenarios.

use cloud_controller_manager::sandbox::objects::{ObjectExt, ServiceExt, load_balancer_service};
use k8s_openapi::api::core::v1::Service;

/// Prefix of the keys of Azure's annotations.
const PREFIX: &str = "service.beta.kubernetes.io/";

/// Returns an external Service with TCP port 80.
pub(crate) fn external(name: &str) -> Service {
    load_balancer_service("default", name)
}

/// Returns an internal Service with TCP port 80.
pub(crate) fn internal(name: &str) -> Service {
    with(external(name), "azure-load-balancer-internal", "true")
}

/// Returns an external Service with addresses of both families.
pub(crate) fn dual_stack(name: &str) -> Service {
    let mut service = external(name);
    if let Some(spec) = &mut service.spec {
        spec.ip_family_policy = Some("RequireDualStack".to_owned());
    }
    service
}

/// Returns an external Service with policy `Local` and source ranges.
pub(crate) fn local(name: &str) -> Service {
    external(name).external_traffic_policy("Local").source_ranges(&["203.0.113.0/24", "198.51.100.0/24"])
}

/// Returns an external Service on an existing public IP.
pub(crate) fn pinned(name: &str, address: &str, port: i32) -> Service {
    with(external(name).ports(&[("http", port)]), "azure-load-balancer-ipv4", address)
}

/// Adds an annotation of Azure.
pub(crate) fn with(service: Service, key: &str, value: &str) -> Service {
    service.annotation(&format!("{PREFIX}{key}"), value)
}

/// Sets the first port.
pub(crate) fn set_port(service: &mut Service, port: i32) {
    let ports = service.spec.as_mut().and_then(|spec| spec.ports.as_mut()).unwrap();
    ports[0].port = port;
}

/// Sets or removes an annotation of Azure.
pub(crate) fn annotate(service: &mut Service, key: &str, value: Option<&str>) {
    let annotations = service.metadata.annotations.get_or_insert_default();
    let key = format!("{PREFIX}{key}");
    match value {
        Some(value) => drop(annotations.insert(key, value.to_owned())),
        None => drop(annotations.remove(&key)),
    }
}
