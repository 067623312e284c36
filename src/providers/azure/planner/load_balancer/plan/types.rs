//! What a plan is made of, and what it depends on. Pure.

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

/// Which documents a plan is about.
#[derive(Clone, Copy)]
pub enum PlanScope<'a> {
    /// All of them, one part after the other.
    Everything,
    /// Public IPs, load balancers and private link services.
    Network,
    /// The same with the security group, on members of pools as they are.
    NetworkAndRules,
    /// The same as `Network` for those whose public IPs are there; the others are in [`Plan::unready`].
    LoadBalancers,
    /// Members of the pools that there are.
    Members,
    /// Members that leave these load balancers, which are about to be deleted.
    Eviction(&'a [&'a ArmLoadBalancer]),
    /// The security group on load balancers as they are.
    SecurityGroup,
}

/// Everything that a plan depends on.
#[derive(Clone, Copy)]
pub struct PlanInput<'a> {
    /// What is planned.
    pub scope: PlanScope<'a>,
    /// What there is.
    pub observed: &'a ObservedNetwork,
    /// Services that shall be as they ask.
    pub requests: &'a [ServiceRequest],
    /// The other Services; nothing is made for them, and nothing of theirs is taken away.
    pub others: &'a [ParsedService],
    /// What is remembered of Services and Nodes.
    pub memory: &'a RuleMemory,
    /// Services that keep what they have although they ask.
    pub held: &'a BTreeSet<ServiceIdentity>,
    /// What was read of the network.
    pub network: &'a NetworkReads,
    /// Services that do not ask and whose rules follow members of pools.
    pub machine_rules: &'a MachineRules,
    /// Public IPs that Azure has left half made, as it said.
    pub half_made: &'a BTreeSet<ResourceId>,
    /// Nodes, and what is known of their machines.
    pub pools: &'a PoolInput<'a>,
    /// The configuration.
    pub settings: &'a LoadBalancerSettings,
}

/// Everything that has to be done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Public IPs, load balancers, and who is refused.
    pub network: NetworkPlan,
    /// Load balancers that are written once more, when all of those before have been.
    pub later: Vec<LaterChange>,
    /// Members of back-end pools.
    pub pools: PoolPlan,
    /// The security group; `None`: there is none.
    pub rules: Option<PlannedSecurityRules>,
    /// What depends on an answer.
    pub waiting: BTreeSet<WaitingFor>,
    /// How full the load balancers are then.
    pub occupancy: NetworkOccupancy,
    /// Services that keep what they have because something cannot be read.
    pub blocked: BTreeMap<ServiceIdentity, BlockedBy>,
    /// Services that keep what they have until their public IPs are written.
    pub unready: BTreeSet<ServiceIdentity>,
    /// For whom each load balancer changes, in the order of the changes.
    pub causes: Vec<BTreeSet<ServiceIdentity>>,
}

/// A plan, or what has to be read first.
#[derive(Debug)]
pub enum Planned {
    Plan(Box<Plan>),
    Needs(PlanNeeds),
}

/// What was read of the network for a plan, and what is known beside that of what there is to read.
#[derive(Debug, Clone, Default)]
pub struct NetworkReads {
    /// What was asked for; `None`: nothing yet.
    pub query: Option<NetworkQuery>,
    /// What was read for this plan although it was known.
    pub refreshed: BTreeSet<NetworkCacheKey>,
    /// What could not be read.
    pub failures: Vec<NetworkReadFailure>,
    /// What could not be read for a reason that lasts.
    pub denied: BTreeSet<NetworkCacheKey>,
    /// Why the zones of the region are not known. Only what is made anew needs them.
    pub unread_zones: Option<ArmError>,
    /// Resource groups of private link services that only Azure named.
    pub discovered_link_groups: BTreeSet<ResourceId>,
    /// Resource groups where those who ask had private link services before.
    pub former_link_groups: BTreeSet<ResourceId>,
    /// How many Services are being deleted.
    pub deleting: usize,
    /// Those who ask for whom this process has sent a public IP to ARM.
    pub public_ip_attempts: BTreeSet<ServiceIdentity>,
    /// Whether there is nothing else to read.
    pub is_complete: bool,
}

/// What has to be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanNeeds {
    /// Of the network; `None`: nothing more.
    pub network: Option<NetworkQuery>,
    /// What of this is known and has to be read again.
    pub refresh: BTreeSet<NetworkCacheKey>,
    /// Of machines.
    pub pools: PoolNeeds,
}

/// Why nothing can be planned for a Service.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BlockedBy {
    /// What it names could not be read.
    #[error("what it names cannot be read: {}", .0.error)]
    Reference(Box<NetworkReadFailure>),
    /// Its front ends have to be made, and the zones of the region are not known.
    #[error("the zones of the region cannot be read: {0}")]
    Zones(Box<ArmError>),
}

/// What becomes of the group, and what was asked of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlannedSecurityRules {
    /// The document and the answers.
    pub plan: SecurityRulePlan,
    /// What each Service needs that could be planned for.
    pub services: Vec<ServiceRules>,
    /// Services for which that could not be said, and why.
    pub refused: BTreeMap<ServiceIdentity, ServiceRefusal>,
    /// What is recorded of them around the write.
    pub records: PlannedRecords,
}

/// Services that do not ask and whose rules lead to machines: those rules follow the members of pools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineRules {
    /// Whether members or Nodes have changed since the rules of all of them were last written.
    pub are_due: bool,
    /// What each of them would request.
    pub services: Vec<ServiceRequest>,
}
