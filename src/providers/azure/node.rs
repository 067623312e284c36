//! Facts that the Azure provider reads from a Node. Pure.
//!
//! In: a Node, possibly pruned. Out: its name, its labels about the machine, and its status. Upstream:
//! `pkg/provider/azure.go` (`updateNodeCaches`) and `pkg/consts/consts.go`.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

pub use crate::cloud_provider::node_fields::{is_ready, name, pod_cidrs, provider_id, taints};

/// Label with the value `false`, in any letter case, on Nodes whose machine is not Azure's.
pub const LABEL_MANAGED: &str = "kubernetes.azure.com/managed";
/// Returns `true` if the provider id of `node` has another scheme than Azure's: the Node belongs to another cloud. One with
/// [`LABEL_MANAGED`] is initialized here nevertheless.
pub fn is_foreign(node: &Node) -> bool {
    let scheme = provider_id(node).and_then(|id| id.split_once("://")).map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case("azure")) && !is_unmanaged(node)
}

/// Returns `true` if the machine of `node` is Azure's, according to the Node.
pub fn is_azures(node: &Node) -> bool {
    !is_unmanaged(node) && !is_foreign(node)
}

/// Fault domain of the machine, whether or not it is in an availability zone.
pub const LABEL_FAULT_DOMAIN: &str = "topology.kubernetes.azure.com/fault-domain";

/// Resource group of the machine when it is not the cluster's.
pub const LABEL_RESOURCE_GROUP: &str = "kubernetes.azure.com/resource-group";
/// Annotation with kubelet's `--node-ip`: one address, or one of each family with a comma.
const ANNOTATION_PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Returns `true` if the label says that the machine is not Azure's.
pub fn is_unmanaged(node: &Node) -> bool {
    label(node, LABEL_MANAGED).is_some_and(|value| value.eq_ignore_ascii_case("false"))
}

/// Returns the resource group of the machine if it is not the cluster's, lower-cased.
pub fn external_resource_group(node: &Node) -> Option<String> {
    label(node, LABEL_RESOURCE_GROUP).filter(|group| !group.is_empty()).map(str::to_lowercase)
}

/// Returns `status.nodeInfo.systemUUID`, which the machine's firmware reports; empty if kubelet has not set it yet.
pub fn system_uuid(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.system_uuid.as_str()).unwrap_or_default()
}

/// Returns when `node` was created.
pub fn created(node: &Node) -> Option<Timestamp> {
    node.metadata.creation_timestamp.as_ref().map(|created| created.0)
}

/// Returns `true` if the Node has, or was configured to have, an IPv6 address.
pub fn has_ipv6(node: &Node) -> bool {
    let is_ipv6 = |text: &str| matches!(text.trim().parse(), Ok(IpAddr::V6(_)));
    let reported = node.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_PROVIDED_NODE_IP));
    let present = node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    reported.is_some_and(|list| list.split(',').any(is_ipv6))
        || present.filter(|address| address.type_ == "InternalIP").any(|address| is_ipv6(&address.address))
}

#[cfg(test)]
pub(super) mod fixtures {
    use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, Taint};

    /// A Node, piece by piece.
    pub(crate) struct NodeBuilder(Node);

    pub(crate) fn node(name: &str) -> NodeBuilder {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        NodeBuilder(node)
    }

    impl NodeBuilder {
        pub(crate) fn build(self) -> Node {
            self.0
        }
        pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
            self.0.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
            self
        }
        pub(crate) fn annotation(mut self, key: &str, value: &str) -> Self {
            self.0.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
            self
        }
        pub(crate) fn created(mut self, at: &str) -> Self {
            self.0.metadata.creation_timestamp = Some(at.parse::<jiff::Timestamp>().unwrap().into());
            self
        }
        pub(crate) fn provider_id(mut self, id: &str) -> Self {
            self.0.spec.get_or_insert_default().provider_id = Some(id.to_owned());
            self
        }
        pub(crate) fn system_uuid(mut self, uuid: &str) -> Self {
            self.0.status.get_or_insert_default().node_info.get_or_insert_default().system_uuid = uuid.to_owned();
            self
        }
        pub(crate) fn address(mut self, type_: &str, address: &str) -> Self {
            let address = NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
            self.0.status.get_or_insert_default().addresses.get_or_insert_default().push(address);
            self
        }
        pub(crate) fn ready(mut self, status: &str) -> Self {
            let condition = NodeCondition { type_: "Ready".into(), status: status.into(), ..NodeCondition::default() };
            self.0.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
            self
        }
        pub(crate) fn taint(mut self, key: &str, effect: &str, value: Option<&str>) -> Self {
            let taint = Taint { key: key.into(), effect: effect.into(), value: value.map(str::to_owned), time_added: None };
            self.0.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{fixtures::node, *};

    #[test]
    fn only_false_means_unmanaged() {
        for (value, expected) in
            [("false", true), ("False", true), ("FALSE", true), ("true", false), ("", false), ("no", false)]
        {
            assert_eq!(is_unmanaged(&node("n").label(LABEL_MANAGED, value).build()), expected, "{value}");
        }
        assert!(!is_unmanaged(&node("n").build()));
    }

    #[test]
    fn only_another_scheme_makes_a_node_foreign() {
        for (id, expected) in [
            ("metal3://rack1/9", true),
            ("kind://docker/kind/n", true),
            ("aws:///eu-west-1a/i-1", true),
            ("azure:///subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachines/n", false),
            ("AZURE:///subscriptions/s", false),
            ("azure://", false),
            ("n", false),
            ("", false),
        ] {
            assert_eq!(is_foreign(&node("n").provider_id(id).build()), expected, "{id}");
        }
        assert!(!is_foreign(&node("n").build()));
        assert!(!is_foreign(&node("n").provider_id("kind://n").label(LABEL_MANAGED, "false").build()));
    }

    #[test]
    fn ipv6_follows_from_annotation_or_addresses() {
        let provided = |list| node("n").annotation(ANNOTATION_PROVIDED_NODE_IP, list).build();
        assert!(has_ipv6(&provided("10.0.0.4,fd00::4")) && has_ipv6(&provided("fd00::4")));
        assert!(!has_ipv6(&provided("10.0.0.4")) && !has_ipv6(&provided("nonsense:")) && !has_ipv6(&node("n").build()));
        assert!(has_ipv6(&node("n").address("InternalIP", "10.0.0.4").address("InternalIP", "fd00::4").build()));
        assert!(!has_ipv6(&node("n").address("InternalIP", "10.0.0.4").address("ExternalIP", "2603::1").build()));
    }
}
