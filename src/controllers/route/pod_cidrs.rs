//! The pod CIDRs of a Node. Pure.

use k8s_openapi::api::core::v1::Node;

pub(super) fn pod_cidrs(node: &Node) -> &[String] {
    node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default()
}
