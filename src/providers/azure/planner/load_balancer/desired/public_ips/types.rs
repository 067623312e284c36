//! Plan of the public IPs, as plain values. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::providers::azure::{
    model::{ResourceId, network::PublicIpAddress},
    planner::load_balancer::spec::{IpFamily, ServiceIdentity, ServiceRefusal},
};

/// Public IP to write, with its complete document.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicIpChange {
    /// Resource ID. The write uses the resource group in it.
    pub id: ResourceId,
    /// Complete document to send to ARM.
    pub document: PublicIpAddress,
    /// ETag of the version that the write replaces; `None` if the public IP does not exist.
    pub etag: Option<String>,
    pub reasons: Vec<String>,
    /// Requested Services that use or leave the public IP, in order.
    pub services: Vec<ServiceIdentity>,
    /// Services among `services` that wait for the write and fail with it, in order.
    pub causes: Vec<ServiceIdentity>,
}

/// Public IP that can be deleted, or that something retains.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicIpRelease {
    pub id: ResourceId,
    /// ETag of the version that the plan is based on.
    pub etag: Option<String>,
    pub reasons: Vec<String>,
    /// Services that cause the entry, in order.
    pub services: Vec<ServiceIdentity>,
    /// Whether the Services lack nothing: a later difference is then an external change.
    pub is_notice: bool,
}

/// Writes and deletions of public IPs, and the public IP of each frontend.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PublicIpPlan {
    /// Public IPs to write before the load balancers.
    pub writes: Vec<PublicIpChange>,
    /// Public IPs to delete after no frontend refers to them any more.
    pub releases: Vec<PublicIpRelease>,
    /// Public IPs that are not changed or deleted although a Service requests it, with the reasons.
    pub retained: Vec<PublicIpRelease>,
    /// Public IP of each frontend that is requested, and the existing public IPs of the other Services.
    pub assigned: BTreeMap<(ServiceIdentity, IpFamily), ResourceId>,
    /// Frontends that must be removed for a while, because their public IP is recreated or changes. They are not in `assigned`.
    ///
    /// A public IP in `releases` is created again after its deletion. A public IP of the basic SKU is upgraded after the deletion of its
    /// basic load balancer.
    pub recreated: BTreeSet<(ServiceIdentity, IpFamily)>,
    /// `Ok` or the refusal for each request. A refused Service changes nothing and has no entry in `assigned`.
    pub services: BTreeMap<ServiceIdentity, Result<(), ServiceRefusal>>,
}
