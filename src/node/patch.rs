//! Bodies of JSON merge patches of a Node.
//!
//! Each carries the resource version that it was computed from, so that the server rejects it if another writer changed
//! the Node in between.
//!
//! Merge patches replace whole lists. For addresses that is required: a strategic merge patch would merge them by type
//! and lose one of two addresses of the same type.

use std::fmt;

use k8s_openapi::api::core::v1::{Node, NodeAddress, Taint};
use serde_json::{Value, json};

use super::labels::Labels;

/// Changes to the Node object, without its status.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeChanges {
    /// Value to set in `spec.providerID`.
    pub provider_id: Option<String>,
    pub labels: Labels,
    /// New list of taints; `None` if they do not change.
    pub taints: Option<Vec<Taint>>,
}

impl NodeChanges {
    /// Returns `true` if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Formats the changes on one line for people. Taints are those that the Node has afterwards.
impl fmt::Display for NodeChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.provider_id.as_ref().map(|id| format!("set the provider id {id}")));
        let labels: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        parts.extend((!labels.is_empty()).then(|| format!("set the labels {}", labels.join(", "))));
        parts.extend(self.taints.as_ref().map(|taints| match taints.is_empty() {
            true => "leave no taints".to_owned(),
            false => format!("leave the taints {}", taints.iter().map(printed_taint).collect::<Vec<_>>().join(", ")),
        }));
        f.write_str(&parts.join("; "))
    }
}

fn printed_taint(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

fn metadata(node: &Node) -> Value {
    let version = node.metadata.resource_version.as_ref();
    version.map_or_else(|| json!({}), |version| json!({ "resourceVersion": version }))
}

/// Returns the patch of the Node itself.
pub fn node(node: &Node, changes: &NodeChanges) -> Value {
    let mut body = json!({ "metadata": metadata(node) });
    if !changes.labels.is_empty() {
        body["metadata"]["labels"] = json!(changes.labels);
    }
    if let Some(id) = &changes.provider_id {
        body["spec"]["providerID"] = json!(id);
    }
    if let Some(taints) = &changes.taints {
        body["spec"]["taints"] = if taints.is_empty() { Value::Null } else { json!(taints) };
    }
    body
}

/// Returns `body` with the resource version `newest`, which this process has written since it computed the patch, if any.
pub fn at_newest(mut body: Value, newest: Option<&str>) -> Value {
    if let Some(version) = newest {
        body["metadata"]["resourceVersion"] = json!(version);
    }
    body
}

/// Returns the patch of the status: the addresses as a whole.
pub fn addresses(node: &Node, addresses: &[NodeAddress]) -> Value {
    json!({ "metadata": metadata(node), "status": { "addresses": addresses } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fixtures::{With, address, labels, node, taint};

    #[test]
    fn patch_has_only_the_changes() {
        let node = node("n").with(|n| n.metadata.resource_version = Some("7".into()));
        let changes = NodeChanges { labels: labels(&[("a", "b")]), ..NodeChanges::default() };
        assert_eq!(super::node(&node, &changes), json!({"metadata": {"resourceVersion": "7", "labels": {"a": "b"}}}));
        assert!(!changes.is_empty());
        assert!(NodeChanges::default().is_empty());
    }

    #[test]
    fn the_last_taint_removes_the_field() {
        let node = node("n").with(|n| n.metadata.resource_version = Some("7".into()));
        let changes = NodeChanges { provider_id: Some("fake://1".into()), taints: Some(vec![]), ..NodeChanges::default() };
        let expected = json!({"metadata": {"resourceVersion": "7"}, "spec": {"providerID": "fake://1", "taints": null}});
        assert_eq!(super::node(&node, &changes), expected);
        let changes = NodeChanges { taints: Some(vec![taint("k", "NoSchedule")]), ..NodeChanges::default() };
        assert_eq!(super::node(&node, &changes)["spec"], json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}));
    }

    #[test]
    fn addresses_are_sent_as_a_whole() {
        let node = node("n").with(|n| n.metadata.resource_version = Some("7".into()));
        assert_eq!(
            addresses(&node, &[address("InternalIP", "10.0.0.1")]),
            json!({"metadata": {"resourceVersion": "7"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}})
        );
    }
}
