//! Fields of a Node that providers and controllers read. Pure.

use k8s_openapi::api::core::v1::{Node, Taint};

/// Returns the name of `node`; empty if it has none.
pub fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the UID of `node`; empty if it has none.
pub fn uid(node: &Node) -> &str {
    node.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns the provider ID of `node`; `None` if it is missing or empty.
pub fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
}

/// Returns the pod CIDRs of `node`; empty before they are allocated.
pub fn pod_cidrs(node: &Node) -> &[String] {
    node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default()
}

/// Returns the taints of `node`.
pub fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Returns the status of the condition `type_` of `node`: `True`, `False` or `Unknown`. `None`: it has no such condition.
pub fn condition_status<'a>(node: &'a Node, type_: &str) -> Option<&'a str> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == type_).map(|condition| condition.status.as_str())
}

/// Returns `true` if the condition `Ready` of `node` is `True`.
pub fn is_ready(node: &Node) -> bool {
    condition_status(node, "Ready") == Some("True")
}
