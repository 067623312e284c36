//! What becomes of private link services: the words of the plan. Pure.

use crate::providers::azure::{
    model::{ResourceId, network::PrivateLinkService},
    planner::load_balancer::spec::ServiceIdentity,
};

/// A private link service that is made or changed.
#[derive(Debug, Clone, PartialEq)]
pub struct PrivateLinkChange {
    pub id: ResourceId,
    /// As it will be; with the etag of the version that it changes, if it is not new.
    pub document: PrivateLinkService,
    /// Whether it is written before load balancers are.
    pub is_first: bool,
    /// The subnet whose policies are in the way.
    pub policies_of: Option<ResourceId>,
    pub reasons: Vec<String>,
    /// The Services that ask for it.
    pub services: Vec<ServiceIdentity>,
}

/// A subnet that lets private link services in from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetPolicyChange {
    pub id: ResourceId,
    pub reasons: Vec<String>,
    /// The Services that ask for private link services there.
    pub services: Vec<ServiceIdentity>,
}

/// A private link service that goes, with its connections.
#[derive(Debug, Clone, PartialEq)]
pub struct PrivateLinkDeletion {
    pub id: ResourceId,
    /// As ARM sent it.
    pub document: PrivateLinkService,
    pub reasons: Vec<String>,
    /// The Services whose front end it is.
    pub services: Vec<ServiceIdentity>,
}

impl PrivateLinkDeletion {
    /// How many private endpoints lose their connection.
    pub fn approved_connections(&self) -> usize {
        self.document.connections().iter().filter(|connection| connection.is_approved()).count()
    }
}

/// Something about a private link service that its Service's user should know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrivateLinkNotice {
    /// It stays although nobody asks for it any more.
    #[error("keep {0}: nobody asks for it any more, and to delete it would cut connections")]
    LeftBehind(ResourceId),
    /// Another one has the name.
    #[error("keep {0}: it leads to another front end, and its name is asked for")]
    NameTaken(ResourceId),
}

/// What becomes of private link services.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PrivateLinkPlan {
    pub deletions: Vec<PrivateLinkDeletion>,
    pub subnets: Vec<SubnetPolicyChange>,
    pub writes: Vec<PrivateLinkChange>,
    /// What to tell, and about which Service.
    pub notices: Vec<(ServiceIdentity, PrivateLinkNotice)>,
}

impl PrivateLinkPlan {
    /// Whether something has to be done before load balancers are written.
    pub fn comes_first(&self) -> bool {
        !self.deletions.is_empty() || self.writes.iter().any(|change| change.is_first)
    }

    pub fn is_empty(&self) -> bool {
        self.deletions.is_empty() && self.writes.is_empty()
    }
}
