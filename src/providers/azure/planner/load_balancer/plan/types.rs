//! Types of a plan and of its input. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        desired::{
            ServiceRequest,
            security_rules::{SecurityRulePlan, ServiceRules},
        },
        network_query::{NetworkCacheKey, NetworkQuery, NetworkReadFailure},
        observed::ObservedNetwork,
        occupancy::NetworkOccupancy,
        rule_memory::{ParsedService, RuleMemory},
        rule_records::PlannedRecords,
        settings::LoadBalancerSettings,
        spec::{ServiceIdentity, ServiceRefusal},
    },
    later::LaterChange,
    network::NetworkPlan,
    pools::{PoolInput, PoolNeeds, PoolPlan},
    waiting::WaitingFor,
};
use crate::providers::azure::model::{ArmError, ResourceId, network::ArmLoadBalancer};

/// Documents that a plan is about.
#[derive(Clone, Copy)]
pub enum PlanScope<'a> {
    /// Every document, one part after the other.
    Everything,
    /// Public IPs, load balancers and private link services.
    Network,
    /// Documents of `Network` and the network security group, with the current members of pools.
    NetworkAndRules,
    /// Documents of `Network` for the Services whose public IPs exist. The other Services are in [`Plan::unready`].
    LoadBalancers,
    /// Members of the existing backend pools.
    Members,
    /// Members that leave these load balancers, which are about to be deleted.
    Eviction(&'a [&'a ArmLoadBalancer]),
    /// Network security group for the observed load balancers.
    SecurityGroup,
}

/// Facts that a plan depends on.
#[derive(Clone, Copy)]
pub struct PlanInput<'a> {
    pub scope: PlanScope<'a>,
    pub observed: &'a ObservedNetwork,
    /// Services that the plan must bring to their desired state.
    pub requests: &'a [ServiceRequest],
    /// Other Services. Nothing is created for them, and nothing that they have is deleted.
    pub others: &'a [ParsedService],
    /// Memory of the rules of Services, and of Nodes.
    pub memory: &'a RuleMemory,
    /// Services that keep what they have although they have a request.
    pub held: &'a BTreeSet<ServiceIdentity>,
    /// Results of the reads of the network.
    pub network: &'a NetworkReads,
    /// Services without a request whose rules follow the members of pools.
    pub machine_rules: &'a MachineRules,
    /// Public IPs that Azure reported as half made.
    pub half_made: &'a BTreeSet<ResourceId>,
    /// Nodes, and the lookups of their machines.
    pub pools: &'a PoolInput<'a>,
    pub settings: &'a LoadBalancerSettings,
}

/// Planned changes of all documents, and the Services that keep what they have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Public IPs, load balancers and private link services, and the refused Services.
    pub network: NetworkPlan,
    /// Load balancers that are written again after all earlier writes.
    pub later: Vec<LaterChange>,
    /// Members of backend pools.
    pub pools: PoolPlan,
    /// Rules of the network security group; `None` if there is no group or if the scope excludes it.
    pub rules: Option<PlannedSecurityRules>,
    /// Parts that depend on a response of Azure.
    pub waiting: BTreeSet<WaitingFor>,
    /// Occupancy of the load balancers after all writes.
    pub occupancy: NetworkOccupancy,
    /// Services that keep what they have because something cannot be read, with the reason.
    pub blocked: BTreeMap<ServiceIdentity, BlockedBy>,
    /// Services that keep what they have until their public IPs are written.
    pub unready: BTreeSet<ServiceIdentity>,
    /// Services that cause the change of each load balancer, in the order of the changes.
    pub causes: Vec<BTreeSet<ServiceIdentity>>,
}

/// Plan, or the reads that are needed before it.
#[derive(Debug)]
pub enum Planned {
    Plan(Box<Plan>),
    Needs(PlanNeeds),
}

/// Results of the reads of the network for a plan, and facts about the reads that it may request.
#[derive(Debug, Clone, Default)]
pub struct NetworkReads {
    /// Query of all reads so far; `None` before the first read.
    pub query: Option<NetworkQuery>,
    /// Documents that were read for this plan although they were cached.
    pub refreshed: BTreeSet<NetworkCacheKey>,
    /// Reads of this plan that failed.
    pub failures: Vec<NetworkReadFailure>,
    /// Documents whose recent reads failed for a lasting reason.
    pub denied: BTreeSet<NetworkCacheKey>,
    /// Error of the read of the region's zones. Only new or recreated resources need the zones.
    pub unread_zones: Option<ArmError>,
    /// Resource groups of private link services that only Azure reported.
    pub discovered_link_groups: BTreeSet<ResourceId>,
    /// Resource groups where the Services with requests had private link services before.
    pub former_link_groups: BTreeSet<ResourceId>,
    /// Number of Services that are being deleted.
    pub deleting: usize,
    /// Services with requests for which this process has sent a public IP to ARM.
    pub public_ip_attempts: BTreeSet<ServiceIdentity>,
    /// Whether there is nothing else to read.
    pub is_complete: bool,
}

/// Reads that are needed before a plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanNeeds {
    /// Query of the network; `None` if nothing more is needed.
    pub network: Option<NetworkQuery>,
    /// Cached documents of the query that must be read again.
    pub refresh: BTreeSet<NetworkCacheKey>,
    /// Lookups of machines and models for the members of pools.
    pub pools: PoolNeeds,
}

/// Reason why nothing can be planned for a Service.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BlockedBy {
    /// Reference of the Service that could not be read.
    #[error("what it names cannot be read: {}", .0.error)]
    Reference(Box<NetworkReadFailure>),
    /// Zones of the region, which could not be read and which the Service needs for new frontends.
    #[error("the zones of the region cannot be read: {0}")]
    Zones(Box<ArmError>),
}

/// Plan of the network security group, and the rules that each Service needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlannedSecurityRules {
    /// Document to write, and the result for each Service.
    pub plan: SecurityRulePlan,
    /// Rules of each Service for which they could be planned.
    pub services: Vec<ServiceRules>,
    /// Services for which the rules could not be planned, with the reason.
    pub refused: BTreeMap<ServiceIdentity, ServiceRefusal>,
    /// Records of the Services that are saved before and after the write.
    pub records: PlannedRecords,
}

/// Services without a request whose rules lead to machines. These rules follow the members of pools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineRules {
    /// Whether members or Nodes have changed since the rules of all these Services were last written.
    pub are_due: bool,
    /// Requests that these Services would make.
    pub services: Vec<ServiceRequest>,
}
