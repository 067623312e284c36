//! Writes that follow an interim plan, once load balancers have released what other load balancers use: the plan, repeated on its own
//! result. Pure.
//!
//! In: the documents after the first step. Out: [`LaterChange`]s, and the rest of the plan after the last step. The stage that writes
//! plans again after each step, on Azure's response.

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
use crate::providers::azure::model::network::ArmLoadBalancer;

/// Largest number of later steps: the number of attempts of the stage, without the first.
const MAX_STEPS: usize = 4;

/// Additional write of a load balancer after an interim plan.
#[derive(Debug, Clone, PartialEq)]
pub struct LaterChange {
    pub(super) change: LoadBalancerChange,
    /// Services that cause the write.
    pub(super) causes: BTreeSet<ServiceIdentity>,
    /// Load balancer before the write.
    pub(super) before: Option<ArmLoadBalancer>,
}

/// Returns the changes of the steps after `network`.
///
/// `written` has the documents after `network`, and is changed to the documents after the last step. All parts of `network` except load
/// balancers are replaced by those of the last step.
pub(super) fn later_steps(
    network: &mut NetworkPlan,
    written: &mut ObservedNetwork,
    requests: &[ServiceRequest],
    others: &[Arc<ServiceSpec>],
    settings: &LoadBalancerSettings,
) -> Vec<LaterChange> {
    let (mut later, mut is_interim) = (Vec::new(), network.load_balancers.is_interim);
    for _ in 0..MAX_STEPS {
        if !is_interim {
            break;
        }
        let next = plan_network(written, requests, others, settings);
        is_interim = next.load_balancers.is_interim;
        let causes = next.load_balancers.causes(written, requests);
        later.extend(next.load_balancers.changes.iter().zip(causes).map(|(change, causes)| {
            let before = written.load_balancer(&change.id).cloned();
            LaterChange { change: change.clone(), causes, before }
        }));
        *written = after::after_network(written, &next);
        network.take_over(next);
    }
    later
}

#[cfg(test)]
mod tests;
