//! What is written when load balancers have given back what others of them take: the steps after an interim plan. Pure.
//!
//! In: what there will be when the first step is written. Out: [`LaterStep`]s, and the rest of the plan as it will be then. The stage that
//! writes plans anew after each step, on what Azure answers; so this tells what is to be expected.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{
        desired::{ServiceRequest, load_balancers::LoadBalancerChange},
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{ServiceIdentity, ServiceSpec},
    },
    after,
    network::{NetworkPlan, plan_network},
};
use crate::providers::azure::arm::network::ArmLoadBalancer;

/// As many as there are tries of the stage, less the first.
const MAX_STEPS: usize = 4;

/// One more write of load balancers.
#[derive(Debug, Clone, PartialEq)]
pub struct LaterStep {
    /// Load balancers that change, with those for whom they do, and as they are by then.
    pub(super) changes: Vec<(LoadBalancerChange, BTreeSet<ServiceIdentity>, Option<ArmLoadBalancer>)>,
}

impl LaterStep {
    /// The load balancers that change.
    pub(super) fn load_balancers(&self) -> impl Iterator<Item = &LoadBalancerChange> {
        self.changes.iter().map(|(change, ..)| change)
    }
}

/// The steps after `network`. `written`: what there will be after it; afterwards, what there will be in the end. What `network` says of all
/// but load balancers becomes what the last step says.
pub(super) fn later_steps(
    network: &mut NetworkPlan,
    written: &mut ObservedNetwork,
    requests: &[ServiceRequest],
    others: &[Arc<ServiceSpec>],
    settings: &LoadBalancerSettings,
) -> Vec<LaterStep> {
    let (mut steps, mut is_interim) = (Vec::new(), network.load_balancers.is_interim);
    while is_interim && steps.len() < MAX_STEPS {
        let next = plan_network(written, requests, others, settings);
        is_interim = next.load_balancers.is_interim;
        let causes = next.load_balancers.causes(written, requests);
        let before = |change: &LoadBalancerChange| written.load_balancer(&change.id).cloned();
        let changes = next.load_balancers.changes.iter().zip(causes);
        let changes = changes.map(|(change, causes)| (change.clone(), causes, before(change))).collect();
        *written = after::after_network(written, &next);
        steps.push(LaterStep { changes });
        take_over(network, next);
    }
    steps
}

/// What is written after load balancers is what the last plan of them says.
fn take_over(network: &mut NetworkPlan, next: NetworkPlan) {
    let NetworkPlan { public_ips, private_links, refused, .. } = next;
    network.public_ips.releases = public_ips.releases;
    network.public_ips.retained = public_ips.retained;
    network.private_links.writes.retain(|change| change.is_first);
    let new = private_links.writes.into_iter().filter(|change| !change.is_first);
    network.private_links.writes.extend(new);
    network.private_links.subnets = private_links.subnets;
    network.private_links.notices = private_links.notices;
    network.refused.extend(refused);
}

#[cfg(test)]
mod tests;
