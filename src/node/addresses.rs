//! Addresses of a Node: the cloud's, ordered by kubelet's `--node-ip`.
//!
//! Upstream: `controllers/node/node_controller.go` (`updateNodeAddress`), `node/helpers/address.go` and
//! `component-helpers/node/util/ips.go`. One difference: upstream compares old and new by a map from type to address, so
//! that a Node with several addresses of one type is written again each time; here the lists themselves are compared.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, NodeAddress};

use super::well_known::ANNOTATION_PROVIDED_NODE_IP;
use crate::cloud_provider::{self, AddressType};

/// Reason why the addresses of a Node cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeAddressError {
    /// Annotation that is not valid.
    #[error(
        "annotation {ANNOTATION_PROVIDED_NODE_IP} is {0:?}: give kubelet as --node-ip one IP address, or one IPv4 and one IPv6 \
         address joined by a comma, neither of them unspecified"
    )]
    Malformed(String),
    /// Address in the annotation that the cloud does not report.
    #[error(
        "annotation {ANNOTATION_PROVIDED_NODE_IP} names {0}, which is not among the addresses of the cloud provider ({1})"
    )]
    NotOfCloud(IpAddr, String),
}

/// Returns the addresses in the status of `node`.
pub fn of(node: &Node) -> &[NodeAddress] {
    node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default()
}

/// Returns the desired addresses of `node`; `None` if it has them or the cloud returns none.
///
/// # Errors
///
/// kubelet's `--node-ip` is malformed, or names an address that the cloud does not report.
pub fn changed(node: &Node, cloud: &[cloud_provider::NodeAddress]) -> Result<Option<Vec<NodeAddress>>, NodeAddressError> {
    if cloud.is_empty() {
        return Ok(None);
    }
    let desired = by_provided_ips(node, with_hostname(node, cloud.iter().map(convert).collect()))?;
    Ok((desired != of(node)).then_some(desired))
}

/// Checks that the cloud reports every address in kubelet's `--node-ip`.
///
/// # Errors
///
/// The annotation is malformed, or an address is missing.
pub fn check(node: &Node, cloud: &[cloud_provider::NodeAddress]) -> Result<(), NodeAddressError> {
    by_provided_ips(node, cloud.iter().map(convert).collect()).map(|_| ())
}

fn convert(address: &cloud_provider::NodeAddress) -> NodeAddress {
    NodeAddress { type_: address.type_.to_string(), address: address.address.clone() }
}

/// Keeps the host names that kubelet set, if the cloud returns none.
fn with_hostname(node: &Node, mut addresses: Vec<NodeAddress>) -> Vec<NodeAddress> {
    let hostname = AddressType::Hostname.to_string();
    if addresses.iter().all(|address| address.type_ != hostname) {
        addresses.extend(of(node).iter().filter(|address| address.type_ == hostname).cloned());
    }
    addresses
}

/// Orders the addresses that the annotation names first, in its order and the cloud's spelling.
///
/// Of the others, only those are kept whose type none of the first has.
fn by_provided_ips(node: &Node, addresses: Vec<NodeAddress>) -> Result<Vec<NodeAddress>, NodeAddressError> {
    let annotation = node.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_PROVIDED_NODE_IP));
    let Some(annotation) = annotation.filter(|annotation| !annotation.trim().is_empty()) else { return Ok(addresses) };
    let mut chosen: Vec<NodeAddress> = Vec::new();
    for ip in provided_ips(annotation)? {
        let before = chosen.len();
        chosen.extend(addresses.iter().filter(|address| parse(&address.address) == Some(ip)).cloned());
        if chosen.len() == before {
            return Err(NodeAddressError::NotOfCloud(ip, format_addresses(&addresses)));
        }
    }
    let types: Vec<_> = chosen.iter().map(|address| address.type_.clone()).collect();
    chosen.extend(addresses.into_iter().filter(|address| !types.contains(&address.type_)));
    Ok(chosen)
}

fn format_addresses(addresses: &[NodeAddress]) -> String {
    addresses.iter().map(|address| format!("{}={}", address.type_, address.address)).collect::<Vec<_>>().join(" ")
}

/// Parses an address, so that spellings do not matter in comparisons.
fn parse(text: &str) -> Option<IpAddr> {
    text.trim().parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

fn provided_ips(annotation: &str) -> Result<Vec<IpAddr>, NodeAddressError> {
    let ips: Option<Vec<IpAddr>> = annotation.split(',').map(parse).collect();
    let ips = ips.ok_or_else(|| NodeAddressError::Malformed(annotation.to_owned()))?;
    let is_pair = |a: &IpAddr, b: &IpAddr| a.is_ipv4() != b.is_ipv4() && !a.is_unspecified() && !b.is_unspecified();
    match ips.as_slice() {
        [_] => Ok(ips),
        [a, b] if is_pair(a, b) => Ok(ips),
        _ => Err(NodeAddressError::Malformed(annotation.to_owned())),
    }
}

#[cfg(test)]
mod tests;
