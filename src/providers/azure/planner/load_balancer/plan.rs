//! What has to be done for all Services that wait and for the Nodes behind them: one plan of everything that will be written, which prints.
//!
//! ```text
//! PlanInput ─► network (public IPs, load balancers) ─► after ─► pools ─► after ─► rules ─► Plan
//! ```
//! In: what there is, the requests, the other Services, Nodes, and all that is remembered, by value. Out: a [`Plan`]. What the first part
//! will have written is what the next one is planned on ([`after`]). What depends on an answer of Azure is in [`Plan::waiting`]. The
//! stages that write read anew and call the parts.

pub mod after;
pub mod later;
pub mod network;
pub mod pools;
pub mod print;
pub mod rules;
pub mod waiting;
pub mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use self::{
    later::LaterStep,
    network::{NetworkPlan, plan_network},
    pools::{PoolInput, PoolNeeds, PoolPlan},
    rules::{PlannedSecurityRules, RuleInput, leads_to_machines, plan_rules},
    waiting::WaitingFor,
};
use super::{
    desired::{
        ServiceRequest,
        security_rules::{SecurityRulePlan, managed_destinations},
    },
    observed::ObservedNetwork,
    occupancy::{NetworkOccupancy, occupancy},
    pools::{
        member_addresses::{PoolMemberAddresses, listed_in_pools},
        nodes::internal_addresses,
    },
    rule_memory::{ParsedService, RuleMemory},
    settings::LoadBalancerSettings,
    spec::{ServiceIdentity, ServiceRefusal, ServiceSpec},
};

/// Everything that a plan depends on.
#[derive(Clone, Copy)]
pub struct PlanInput<'a> {
    /// What there is.
    pub observed: &'a ObservedNetwork,
    /// Services that shall be as they ask.
    pub requests: &'a [ServiceRequest],
    /// The other Services; nothing is made for them, and nothing of theirs is taken away.
    pub others: &'a [ParsedService],
    /// What is remembered of Services and Nodes.
    pub memory: &'a RuleMemory,
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
    pub later: Vec<LaterStep>,
    /// Members of back-end pools.
    pub pools: PoolPlan,
    /// The security group; `None`: there is none.
    pub rules: Option<SecurityRulePlan>,
    /// What depends on an answer.
    pub waiting: BTreeSet<WaitingFor>,
    /// How full the load balancers are then.
    pub occupancy: NetworkOccupancy,
    /// For whom each load balancer changes, in the order of the changes.
    causes: Vec<BTreeSet<ServiceIdentity>>,
}

impl Plan {
    /// Whether nothing has to be written.
    pub fn is_empty(&self) -> bool {
        !self.changes().any(|change| change.is_written())
    }

    /// Who gets nothing new, and why.
    pub fn refused(&self) -> &BTreeMap<ServiceIdentity, ServiceRefusal> {
        &self.network.refused
    }
}

/// Plans everything.
pub fn plan(input: &PlanInput<'_>) -> Plan {
    let PlanInput { observed, requests, others, settings, .. } = *input;
    let specs: Vec<Arc<ServiceSpec>> = others.iter().map(|other| Arc::clone(other.spec())).collect();
    let mut network = plan_network(observed, requests, &specs, settings);
    let mut written = after::after_network(observed, &network);
    let later = later::later_steps(&mut network, &mut written, requests, &specs, settings);
    let mut pools = pools::plan_pools(observed, &written, &network, input.pools, settings);
    after::apply_pools(&mut written, &pools);
    let (granted, others) = granted(requests, others, &network);
    let rules = plan_group(input, &written, &granted, &others, &mut pools.needs);
    let mut waiting = waiting::for_network(&written, &granted, &network, settings);
    let changes = network.load_balancers.changes.iter().chain(later.iter().flat_map(LaterStep::load_balancers));
    waiting.extend(changes.flat_map(|change| pools::new_pools(observed, change)).map(WaitingFor::NewPool));
    waiting.extend(pools.waiting.iter().cloned());
    if let (None, Some(id)) = (&rules, &settings.security_group)
        && granted.iter().any(|request| matches!(request, ServiceRequest::Ensure(_)))
    {
        waiting.insert(WaitingFor::SecurityGroup(id.clone()));
    }
    let causes = network.load_balancers.causes(observed, requests);
    let occupancy = occupancy(&written, settings);
    Plan { network, later, pools, rules: rules.map(|rules| rules.plan), waiting, occupancy, causes }
}

/// Those that are planned for, and those that are not. Who is refused keeps what it has.
fn granted(
    requests: &[ServiceRequest],
    others: &[ParsedService],
    network: &NetworkPlan,
) -> (Vec<ServiceRequest>, Vec<ParsedService>) {
    let (granted, refused): (Vec<_>, Vec<_>) =
        requests.iter().cloned().partition(|request| !network.refused.contains_key(request.identity()));
    let kept = refused.iter().filter_map(ServiceRequest::spec).cloned().map(ParsedService::Valid);
    (granted, others.iter().cloned().chain(kept).collect())
}

/// The security group on the documents that will be there, with the rules of other Services to whom other machines come. What is remembered
/// is changed in a copy only.
fn plan_group(
    input: &PlanInput<'_>,
    written: &ObservedNetwork,
    requests: &[ServiceRequest],
    others: &[ParsedService],
    needs: &mut PoolNeeds,
) -> Option<PlannedSecurityRules> {
    let group = input.observed.security_group.as_ref()?;
    let mut memory = input.memory.clone();
    memory.note_gone(listed_in_pools(input.observed, input.settings));
    memory.note_nodes(input.pools.all_nodes.iter().flat_map(|node| internal_addresses(node)).collect());
    memory.forget_unlisted(|| managed_destinations(group));
    let PoolInput { all_nodes, reads, .. } = *input.pools;
    let mut members = PoolMemberAddresses::default();
    if leads_to_machines(requests, others) {
        let (addresses, more) = pools::member_addresses(all_nodes, reads, input.settings);
        members = addresses;
        needs.machines.extend(more.machines);
    }
    let moved =
        |other: &ParsedService| rules::has_other_machines(other, &members, (input.observed, written), input.settings);
    let (moved, others): (Vec<_>, Vec<_>) = others.iter().cloned().partition(moved);
    let moved = moved.iter().map(|other| ServiceRequest::Ensure(Arc::clone(other.spec())));
    let requests: Vec<ServiceRequest> = requests.iter().cloned().chain(moved).collect();
    let rules = RuleInput {
        observed: written,
        requests: &requests,
        others: &others,
        memory: &memory,
        members: &members,
        settings: input.settings,
    };
    Some(plan_rules(group, &rules))
}

#[cfg(test)]
mod tests;
