//! What has to become of the public IPs, as plain values. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::providers::azure::{
    model::{ResourceId, network::PublicIpAddress},
    planner::load_balancer::spec::{IpFamily, ServiceIdentity, ServiceRefusal},
};

/// One document to write.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicIpChange {
    /// Where: in the public IP's own resource group.
    pub id: ResourceId,
    /// The whole document.
    pub document: PublicIpAddress,
    /// The version that it changes; `None`: it does not exist yet.
    pub etag: Option<String>,
    /// Why.
    pub reasons: Vec<String>,
    /// The requested Services that use or leave it, in order.
    pub services: Vec<ServiceIdentity>,
    /// Services among them that wait for the write and fail with it, in order.
    pub causes: Vec<ServiceIdentity>,
}

/// One public IP that can go, or that would if something did not keep it.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicIpRelease {
    /// Which.
    pub id: ResourceId,
    /// The version that was looked at.
    pub etag: Option<String>,
    /// Why.
    pub reasons: Vec<String>,
    /// The Services that cause it, in order.
    pub services: Vec<ServiceIdentity>,
    /// Whether the Services lack nothing, so that a later difference is an external change.
    pub is_notice: bool,
}

/// What has to become of the public IPs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PublicIpPlan {
    /// To be written before the load balancers.
    pub writes: Vec<PublicIpChange>,
    /// To be deleted when no front end refers to them any more.
    pub releases: Vec<PublicIpRelease>,
    /// What is not changed or deleted although a Service's wish would, and why not.
    pub retained: Vec<PublicIpRelease>,
    /// The public IP for each front end of an ask, and those that exist of the other Services.
    pub assigned: BTreeMap<(ServiceIdentity, IpFamily), ResourceId>,
    /// Front ends that have to go for a while: their public IP is in `release` and is made anew when it is gone, or it becomes a standard
    /// one when its basic load balancer is gone. Not in `wanted`.
    pub recreated: BTreeSet<(ServiceIdentity, IpFamily)>,
    /// For each ask whether it is possible. Nothing of a refused Service is changed; it has nothing in `wanted`.
    pub services: BTreeMap<ServiceIdentity, Result<(), ServiceRefusal>>,
}
