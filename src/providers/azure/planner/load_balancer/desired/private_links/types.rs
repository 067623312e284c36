//! Types of the plan of private link services. Pure.

use crate::providers::azure::{
    model::{ResourceId, network::PrivateLinkService},
    planner::load_balancer::spec::ServiceIdentity,
};

/// Private link service that is created or changed.
#[derive(Debug, Clone, PartialEq)]
pub struct PrivateLinkChange {
    pub id: ResourceId,
    /// Desired document. A change has the etag of the version that it replaces.
    pub document: PrivateLinkService,
    /// Whether the private link service is written before load balancers.
    pub is_first: bool,
    /// Subnet whose network policies must be disabled first.
    pub policies_of: Option<ResourceId>,
    pub reasons: Vec<String>,
    /// Services that request the private link service.
    pub services: Vec<ServiceIdentity>,
}

/// Subnet whose network policies for private link services are disabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetPolicyChange {
    pub id: ResourceId,
    pub reasons: Vec<String>,
    /// Services that request private link services in the subnet.
    pub services: Vec<ServiceIdentity>,
}

/// Private link service that is deleted with its connections.
#[derive(Debug, Clone, PartialEq)]
pub struct PrivateLinkDeletion {
    pub id: ResourceId,
    /// Document as ARM sent it.
    pub document: PrivateLinkService,
    pub reasons: Vec<String>,
    /// Services for which the private link service is deleted.
    pub services: Vec<ServiceIdentity>,
}

impl PrivateLinkDeletion {
    /// Returns the number of private endpoints that lose their connection.
    pub fn approved_connections(&self) -> usize {
        self.document.connections().iter().filter(|connection| connection.is_approved()).count()
    }
}

/// Notice for the user of a Service about a private link service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrivateLinkNotice {
    /// Private link service that remains although its Service no longer requests it.
    #[error("keep {0}: nobody asks for it any more, and to delete it would cut connections")]
    LeftBehind(ResourceId),
    /// Existing private link service that has the requested name.
    #[error("keep {0}: it leads to another front end, and its name is asked for")]
    NameTaken(ResourceId),
}

/// Planned changes of private link services.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PrivateLinkPlan {
    pub deletions: Vec<PrivateLinkDeletion>,
    pub subnets: Vec<SubnetPolicyChange>,
    pub writes: Vec<PrivateLinkChange>,
    /// Notices, each with the Service that it concerns.
    pub notices: Vec<(ServiceIdentity, PrivateLinkNotice)>,
}

impl PrivateLinkPlan {
    /// Returns `true` if a private link service must be deleted or written before load balancers are written.
    pub fn comes_first(&self) -> bool {
        !self.deletions.is_empty() || self.writes.iter().any(|change| change.is_first)
    }

    pub fn is_empty(&self) -> bool {
        self.deletions.is_empty() && self.writes.is_empty()
    }
}
