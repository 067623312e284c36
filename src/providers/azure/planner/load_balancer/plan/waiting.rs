//! What cannot be planned before Azure has answered. Pure.
//!
//! In: what there will be. Out: for each Service what it waits for.

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

/// Something that is planned when it is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitingFor {
    /// Security rules of a Service: for the address of its public IP.
    PublicIpAddress(String, ResourceId),
    /// Security rules of a Service: for the private address of a front end.
    PrivateAddress(String, String),
    /// A front end of a Service: until its public IP is deleted and made anew, or becomes a standard one.
    PublicIpRecreation(String, IpFamily),
    /// Members of a pool: until its load balancer is written.
    NewPool(ResourceId),
    /// A Node: until its machine is known. Why it is not.
    Machine(String, String),
    /// A Service: until what it names can be read. Why it cannot.
    Read(String, String),
    /// Models of scale sets: until they can be listed. Why they cannot.
    Models(String),
    /// A Node: until an entry of the configuration takes it.
    Entry(String),
    /// Security rules: until somebody makes the group.
    SecurityGroup(ResourceId),
}

/// Why a Node is behind no load balancer.
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

/// What Services wait for in the documents that will be there.
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

/// Who waits until a public IP is made anew.
pub fn recreations(network: &NetworkPlan) -> impl Iterator<Item = (&ServiceIdentity, WaitingFor)> {
    let recreated = network.public_ips.recreated.iter();
    recreated.map(|(who, family)| (who, WaitingFor::PublicIpRecreation(who.key.clone(), *family)))
}

/// The addresses that the security rules of a Service wait for.
pub fn for_addresses(index: &PlanIndex<'_>, request: &ServiceRequest, settings: &LoadBalancerSettings) -> Vec<WaitingFor> {
    let ServiceRequest::Ensure(spec) = request else { return Vec::new() };
    let key = || spec.identity.key.clone();
    let waiting = index.pending_addresses(spec, settings).into_iter().map(|pending| match pending {
        PendingAddress::PublicIp(id) => WaitingFor::PublicIpAddress(key(), id),
        PendingAddress::Private(name) => WaitingFor::PrivateAddress(key(), name),
    });
    waiting.collect()
}
