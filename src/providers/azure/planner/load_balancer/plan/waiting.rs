//! Parts that cannot be planned before Azure has responded. Pure.
//!
//! In: the documents as they will be. Out: the facts that each Service waits for.

use std::{collections::BTreeSet, fmt};

use super::{
    super::{
        desired::{ServiceRequest, plan_index::PlanIndex, status::PendingAddress},
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceIdentity},
    },
    network::NetworkPlan,
};
use crate::providers::azure::model::ResourceId;

/// Part of a plan that waits until a fact is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitingFor {
    /// Security rules of a Service whose public IP has no address yet.
    PublicIpAddress(String, ResourceId),
    /// Security rules of a Service for a frontend (by name) without a private address.
    PrivateAddress(String, String),
    /// Frontend of a Service whose public IP is first deleted and recreated, or becomes a standard one.
    PublicIpRecreation(String, IpFamily),
    /// Members of a pool whose load balancer is written first.
    NewPool(ResourceId),
    /// Node whose machine is unknown, with the reason.
    Machine(String, String),
    /// Service that names something unreadable, with the reason.
    Read(String, String),
    /// Models of scale sets, with the reason why they cannot be listed.
    Models(String),
    /// Node that no entry of the configuration selects.
    Entry(String),
    /// Security rules whose network security group does not exist.
    SecurityGroup(ResourceId),
}

/// Reason why a Node is behind no load balancer.
pub const NO_ENTRY: &str = "it is in no primaryVMSet, and no nodeSelector of an entry with a load balancer matches it; add an entry without nodeSelector, or label the Node";

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PublicIpAddress(service, id) => {
                write!(f, "security rules of {service}: public IP {id} has no address yet")
            }
            Self::PrivateAddress(service, name) => {
                write!(f, "security rules of {service}: front end `{name}` has no private address yet")
            }
            Self::PublicIpRecreation(service, family) => {
                write!(f, "the {family} front end of {service}: its public IP is replaced first")
            }
            Self::NewPool(id) => write!(f, "members of {id}: its load balancer is written first"),
            Self::Machine(node, why) => write!(f, "pool membership of Node {node}: {why}"),
            Self::Read(service, why) => write!(f, "{service}: {why}"),
            Self::Models(why) => write!(f, "models of scale sets: {why}"),
            Self::Entry(node) => write!(f, "pool membership of Node {node}: {NO_ENTRY}"),
            Self::SecurityGroup(id) => write!(f, "security rules: {id} does not exist"),
        }
    }
}

/// Returns the facts that Services wait for, judged by the documents as they will be.
pub(super) fn for_network(
    written: &ObservedNetwork,
    requests: &[ServiceRequest],
    network: &NetworkPlan,
    settings: &LoadBalancerSettings,
) -> BTreeSet<WaitingFor> {
    let index = PlanIndex::new(written);
    let of_request = requests.iter().flat_map(|request| for_addresses(&index, request, settings));
    recreations(network).map(|(_, waiting)| waiting).chain(of_request).collect()
}

/// Returns the Services that wait until a public IP is recreated.
pub fn recreations(network: &NetworkPlan) -> impl Iterator<Item = (&ServiceIdentity, WaitingFor)> {
    let recreated = network.public_ips.recreated.iter();
    recreated.map(|(who, family)| (who, WaitingFor::PublicIpRecreation(who.key.clone(), *family)))
}

/// Returns the addresses that the security rules of a Service wait for.
pub fn for_addresses(index: &PlanIndex<'_>, request: &ServiceRequest, settings: &LoadBalancerSettings) -> Vec<WaitingFor> {
    let ServiceRequest::Ensure(spec) = request else { return Vec::new() };
    let key = || spec.identity.key.clone();
    let waiting = index.pending_addresses(spec, settings).into_iter().map(|pending| match pending {
        PendingAddress::PublicIp(id) => WaitingFor::PublicIpAddress(key(), id),
        PendingAddress::Private(name) => WaitingFor::PrivateAddress(key(), name),
    });
    waiting.collect()
}
