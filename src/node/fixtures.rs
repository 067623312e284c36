//! Node objects for tests.

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Taint};

use super::labels::Labels;
use crate::cloud_provider::{self, AddressType};

/// Extension of values that a test changes in an expression.
pub(crate) trait With: Sized {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}
impl With for Node {}

pub(crate) fn node(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node
}

pub(crate) fn spec(node: &mut Node) -> &mut NodeSpec {
    node.spec.get_or_insert_default()
}

pub(crate) fn status(node: &mut Node) -> &mut NodeStatus {
    node.status.get_or_insert_default()
}

pub(crate) fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.into(), effect: effect.into(), time_added: None, value: None }
}

pub(crate) fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: type_.into(), address: address.into() }
}

pub(crate) fn condition(type_: &str, status: &str) -> NodeCondition {
    NodeCondition { type_: type_.into(), status: status.into(), ..NodeCondition::default() }
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns addresses of a cloud, from lines such as `InternalIP 10.0.0.1`.
pub(crate) fn cloud(lines: &[&str]) -> Vec<cloud_provider::NodeAddress> {
    let parse = |line: &&str| {
        let (type_, address) = line.split_once(' ').unwrap();
        let type_ = match type_ {
            "Hostname" => AddressType::Hostname,
            "InternalIP" => AddressType::InternalIP,
            "ExternalIP" => AddressType::ExternalIP,
            "InternalDNS" => AddressType::InternalDNS,
            "ExternalDNS" => AddressType::ExternalDNS,
            other => panic!("{other} is not a type of address"),
        };
        cloud_provider::NodeAddress { type_, address: address.to_owned() }
    };
    lines.iter().map(parse).collect()
}

/// Returns addresses of a Node's status.
pub(crate) fn addresses(lines: &[&str]) -> Vec<NodeAddress> {
    cloud(lines).into_iter().map(|a| address(&a.type_.to_string(), &a.address)).collect()
}
