//! What reads and writes bring to the cache, and what it says of a document. Pure.

use crate::providers::azure::arm::{
    ArmError, ResourceId,
    network::{ArmLoadBalancer, BackendAddressPool, NetworkSecurityGroup, PublicIpAddress, Subnet},
    private_link::PrivateLinkService,
};

/// What a read brought; `None`: ARM says that it does not exist.
#[derive(Debug)]
pub(crate) enum NetworkReadResult {
    LoadBalancers(Vec<ArmLoadBalancer>),
    LoadBalancer(Option<Box<ArmLoadBalancer>>),
    PublicIps(Vec<PublicIpAddress>),
    /// ARM says that the group of the list does not exist, and the list said this.
    GroupMissing(Box<ArmError>),
    PublicIp(Option<Box<PublicIpAddress>>),
    PrivateLinks(Vec<PrivateLinkService>),
    PrivateLink(Option<Box<PrivateLinkService>>),
    SecurityGroup(Option<Box<NetworkSecurityGroup>>),
    Subnet(Option<Box<Subnet>>),
}

/// What a write brought about.
#[derive(Debug)]
pub(in crate::providers::azure::load_balancer) enum NetworkWriteResult {
    /// A load balancer is like this.
    LoadBalancer(ResourceId, Box<ArmLoadBalancer>),
    /// The same, but for its etag, which is another one by now.
    LoadBalancerAccepted(ResourceId, Box<ArmLoadBalancer>),
    /// A load balancer is gone.
    LoadBalancerDeleted(ResourceId),
    /// A pool of a load balancer is like this.
    Pool(ResourceId, Box<BackendAddressPool>),
    /// Something else about a load balancer has changed.
    LoadBalancerChanged(ResourceId),
    /// A public IP is like this.
    PublicIp(ResourceId, Box<PublicIpAddress>),
    /// A public IP is gone.
    PublicIpDeleted(ResourceId),
    /// A private link service is like this. Its load balancer has another version now.
    PrivateLink(ResourceId, Box<PrivateLinkService>),
    /// A private link service is gone. Its load balancer has another version now.
    PrivateLinkDeleted(ResourceId),
    /// A subnet of the configured virtual network is like this.
    Subnet(String, Box<Subnet>),
    /// The security group is like this.
    SecurityGroup(Box<NetworkSecurityGroup>),
}

/// What is known of a document that is about to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::providers::azure::load_balancer) struct CachedVersion {
    /// The version that is known, if the document is: a document need not have an etag.
    pub etag: Option<Option<String>>,
    /// Whether it has to be read before it is believed.
    pub invalidated: bool,
    /// Whether its etag is known to be an old one, while the rest is as it was.
    pub etag_stale: bool,
    /// Whether a read of it alone has shown a moment ago that it does not exist.
    pub absent: bool,
}
