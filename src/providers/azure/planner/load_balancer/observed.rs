//! Observed state: the documents that the planner reads, as ARM last sent them.

use std::collections::{BTreeMap, BTreeSet};

use super::labels::LabelMap;
use crate::providers::azure::model::{
    ResourceId,
    network::{ArmLoadBalancer, NetworkSecurityGroup, PrivateLinkService, PublicIpAddress, Subnet},
};

/// Private link services of the listed resource groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedPrivateLinks {
    /// Private link services of any cluster.
    pub services: Vec<PrivateLinkService>,
    /// Resource groups that were listed. The content of other groups is unknown.
    pub groups: BTreeSet<ResourceId>,
}

/// Every document that load balancing reads or writes, apart from machines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedNetwork {
    /// Managed and unmanaged load balancers of the load balancers' group, in ARM's order.
    pub load_balancers: Vec<ArmLoadBalancer>,
    /// Public IPs of every group that a Service names, and of the cluster's group.
    pub public_ips: Vec<PublicIpAddress>,
    /// Network security group; `None` if it does not exist.
    pub security_group: Option<NetworkSecurityGroup>,
    /// Private link services, in ARM's order within each group.
    pub private_links: ObservedPrivateLinks,
    /// Subnets of the virtual network by lower-cased name.
    pub subnets: BTreeMap<String, Subnet>,
    /// Zones of the region, in order; empty if it has none.
    pub zones: Vec<String>,
    /// Names of the scale sets or availability sets that machines of the cluster are in; only basic load balancers need
    /// them.
    pub vm_sets: Vec<String>,
    /// Labels of the cluster's Namespaces by name. Those of a missing name are unknown. Only namespace selectors need
    /// labels.
    pub namespace_labels: BTreeMap<String, LabelMap>,
    /// Whether Azure rejected a request of this process because a network interface would have had too many rules.
    pub interface_limit_reached: bool,
}

impl ObservedNetwork {
    /// Returns the load balancer with this id.
    pub fn load_balancer(&self, id: &ResourceId) -> Option<&ArmLoadBalancer> {
        self.load_balancers.iter().find(|known| known.is(id))
    }

    /// Returns the private link services that lead to a frontend.
    pub fn links_to(&self, frontend: &str) -> impl Iterator<Item = &PrivateLinkService> {
        self.private_links.services.iter().filter(move |link| link.leads_to(frontend))
    }

    /// Returns the ids of all load balancers, public IPs and private link services, as ARM spells them.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let load_balancers = self.load_balancers.iter().map(|document| &document.id);
        let public_ips = self.public_ips.iter().map(|document| &document.id);
        let links = self.private_links.services.iter().map(|document| &document.id);
        load_balancers.chain(public_ips).chain(links).filter_map(|id| id.as_deref())
    }
}
