//! Plan of everything that must be written for all pending Services and for the Nodes behind their load balancers. A plan prints as text.
//!
//! ```text
//! PlanInput ─► network (public IPs, load balancers) ─► after ─► pools ─► after ─► rules ─► Plan
//! ```
//! In: the observed state, the requests, the other Services, Nodes, and the memory of this process, by value. Out: a [`Plan`]. Each part is
//! planned on the documents that the part before it will have written ([`after`]). [`Plan::waiting`] lists what depends on a response of
//! Azure. A stage requests the part that it writes ([`PlanScope`]), planned on what the earlier stages have written.

pub mod after;
pub mod later;
pub mod needs;
pub mod network;
pub mod pools;
pub mod print;
pub mod rules;
mod types;
pub mod waiting;
pub mod writes;

use std::sync::Arc;

pub use self::types::{
    BlockedBy, MachineRules, NetworkReads, Plan, PlanInput, PlanNeeds, PlanScope, Planned, PlannedSecurityRules,
};
use self::{
    network::{NetworkPlan, partition_refused, plan_network},
    pools::PoolPlan,
    waiting::WaitingFor,
};
use super::{
    desired::{ServiceRequest, public_ips},
    observed::ObservedNetwork,
    occupancy::occupancy,
    rule_memory::ParsedService,
    spec::ServiceSpec,
};

/// Plans the documents of the scope of `input`, or returns what must be read first.
pub fn plan(input: &PlanInput<'_>) -> Planned {
    if let Some(needs) = needs::of_requests(input) {
        return Planned::Needs(needs);
    }
    let (requests, others, blocked) = needs::unblocked(input);
    let mut plan = plan_unblocked(&PlanInput { requests: &requests, others: &others, ..*input });
    if let Some(needs) = needs::of_plan(input, &plan) {
        return Planned::Needs(needs);
    }
    if matches!(input.scope, PlanScope::Everything) {
        let waiting = blocked.iter().map(|(who, reason)| WaitingFor::Read(who.key.clone(), reason.to_string()));
        plan.waiting.extend(waiting);
    }
    plan.blocked = blocked;
    Planned::Plan(Box::new(plan))
}

fn plan_unblocked(input: &PlanInput<'_>) -> Plan {
    let PlanInput { observed, requests, others, settings, .. } = *input;
    let specs = || -> Vec<Arc<ServiceSpec>> { others.iter().map(|other| Arc::clone(other.spec())).collect() };
    match input.scope {
        PlanScope::Everything => everything(input, &specs()),
        PlanScope::Network => of_network(input, plan_network(observed, requests, &specs(), settings)),
        PlanScope::NetworkAndRules => {
            let mut plan = of_network(input, plan_network(observed, requests, &specs(), settings));
            let written = after::after_network(observed, &plan.network);
            let (granted, others) = granted(requests, others, &plan.network);
            plan.add_rules(input, &written, &granted, &others);
            plan
        }
        PlanScope::LoadBalancers => load_balancers(input, specs()),
        PlanScope::Members => of_pools(pools::plan_members(observed, input.pools, settings)),
        PlanScope::Eviction(deleted) => of_pools(pools::plan_eviction(deleted, input.pools, settings)),
        PlanScope::SecurityGroup => {
            let mut plan = Plan::default();
            plan.add_rules(input, observed, requests, others);
            plan
        }
    }
}

fn of_network(input: &PlanInput<'_>, network: NetworkPlan) -> Plan {
    let causes = network.load_balancers.causes(input.observed, input.requests);
    Plan { network, causes, ..Plan::default() }
}

fn of_pools(pools: PoolPlan) -> Plan {
    Plan { pools, ..Plan::default() }
}

fn everything(input: &PlanInput<'_>, specs: &[Arc<ServiceSpec>]) -> Plan {
    let PlanInput { observed, requests, others, settings, .. } = *input;
    let mut network = plan_network(observed, requests, specs, settings);
    let mut written = after::after_network(observed, &network);
    let later = later::later_steps(&mut network, &mut written, requests, specs, settings);
    let pools = pools::plan_pools(observed, &written, &network, input.pools, settings);
    after::apply_pools(&mut written, &pools);
    let (granted, others) = granted(requests, others, &network);
    let mut waiting = waiting::for_network(&written, &granted, &network, settings);
    let changes = network.load_balancers.changes.iter().chain(later.iter().map(|later| &later.change));
    waiting.extend(changes.flat_map(|change| pools::new_pools(observed, change)).map(WaitingFor::NewPool));
    waiting.extend(pools.waiting.iter().cloned());
    let mut plan = Plan { later, pools, waiting, occupancy: occupancy(&written, settings), ..of_network(input, network) };
    plan.add_rules(input, &written, &granted, &others);
    if let (None, Some(id)) = (&plan.rules, &settings.security_group)
        && granted.iter().any(|request| matches!(request, ServiceRequest::Ensure(_)))
    {
        plan.waiting.insert(WaitingFor::SecurityGroup(id.clone()));
    }
    plan
}

/// Plans load balancers for the Services whose public IPs exist, and finishes half-made public IPs. The other Services keep what they
/// have and are in [`Plan::unready`].
fn load_balancers(input: &PlanInput<'_>, mut others: Vec<Arc<ServiceSpec>>) -> Plan {
    let PlanInput { observed, requests, settings, .. } = *input;
    let mut network = plan_network(observed, requests, &others, settings);
    let unready = network.waiting_for_public_ips();
    if !unready.is_empty() {
        let (waiting, ready): (Vec<_>, Vec<_>) =
            requests.iter().cloned().partition(|request| unready.contains(request.identity()));
        others.extend(waiting.iter().filter_map(ServiceRequest::spec).cloned());
        network = plan_network(observed, &ready, &others, settings);
    }
    network.public_ips.writes = public_ips::finish_half_made(observed, input.half_made);
    Plan { unready, ..of_network(input, network) }
}

impl Plan {
    fn add_rules(
        &mut self,
        input: &PlanInput<'_>,
        written: &ObservedNetwork,
        requests: &[ServiceRequest],
        others: &[ParsedService],
    ) {
        if let Some((rules, needs)) = rules::plan_group(input, written, requests, others) {
            self.rules = Some(rules);
            self.pools.needs.machines.extend(needs.machines);
        }
    }
}

/// Returns the accepted requests, and the other Services together with those that `network` refuses. A refused Service keeps what it has.
fn granted(
    requests: &[ServiceRequest],
    others: &[ParsedService],
    network: &NetworkPlan,
) -> (Vec<ServiceRequest>, Vec<ParsedService>) {
    let (granted, refused) = partition_refused(requests, &network.refused);
    let kept = refused.iter().filter_map(ServiceRequest::spec).cloned().map(ParsedService::Valid);
    (granted, others.iter().cloned().chain(kept).collect())
}

#[cfg(test)]
mod tests;
