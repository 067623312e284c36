//! Services for which load balancers change. Pure.
//!
//! In: the observed network, the requests, a [`LoadBalancerPlan`]. Out: for each change of the plan, the Services whose frontends, rules
//! or probes differ; if there are none, all Services on that load balancer. Each document is read once per change, independent of the
//! number of requests.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ServiceRequest,
    context::NameOwners,
    load_balancers::{LoadBalancerChange, LoadBalancerPlan},
    types::RequestIdx,
};
use crate::providers::azure::{
    model::network::{ArmLoadBalancer, FrontendIpConfiguration, LoadBalancingRule, Probe},
    planner::load_balancer::{observed::ObservedNetwork, spec::ServiceIdentity},
};

/// Parts of a load balancer that belong to one Service according to their names.
#[derive(Default, PartialEq)]
struct ServiceParts<'a> {
    frontends: Vec<&'a FrontendIpConfiguration>,
    rules: Vec<&'a LoadBalancingRule>,
    probes: Vec<&'a Probe>,
}

type PartsByRequest<'a> = BTreeMap<RequestIdx, ServiceParts<'a>>;

fn parts<'a>(document: Option<&'a ArmLoadBalancer>, owners: &NameOwners) -> PartsByRequest<'a> {
    let mut parts = PartsByRequest::new();
    let Some(properties) = document.and_then(|document| document.properties.as_ref()) else { return parts };
    let of_rule = |name: &Option<String>| owners.of_rule(name.as_deref()?);
    for frontend in properties.frontend_ip_configurations.iter().flatten() {
        let owner = frontend.name.as_deref().and_then(|name| owners.of_frontend(name));
        owner.into_iter().for_each(|owner| parts.entry(owner).or_default().frontends.push(frontend));
    }
    for rule in properties.load_balancing_rules.iter().flatten() {
        of_rule(&rule.name).into_iter().for_each(|owner| parts.entry(owner).or_default().rules.push(rule));
    }
    for probe in properties.probes.iter().flatten() {
        of_rule(&probe.name).into_iter().for_each(|owner| parts.entry(owner).or_default().probes.push(probe));
    }
    parts
}

impl LoadBalancerPlan {
    /// Returns the Services for which each change is made, in the order of the changes. `requests` are those of the plan.
    pub fn causes(&self, observed: &ObservedNetwork, requests: &[ServiceRequest]) -> Vec<BTreeSet<ServiceIdentity>> {
        let owners = NameOwners::of_requests(requests.iter().map(ServiceRequest::identity));
        self.changes.iter().map(|change| self.causes_of(change, observed, requests, &owners)).collect()
    }

    fn causes_of(
        &self,
        change: &LoadBalancerChange,
        observed: &ObservedNetwork,
        requests: &[ServiceRequest],
        owners: &NameOwners,
    ) -> BTreeSet<ServiceIdentity> {
        let (before, after) = (parts(observed.load_balancer(&change.id), owners), parts(change.write.document(), owners));
        let touched = before.keys().chain(after.keys()).filter(|request| before.get(request) != after.get(request));
        let causes: BTreeSet<_> = touched.map(|request| requests[request.0].identity().clone()).collect();
        if !causes.is_empty() {
            return causes;
        }
        let is_there = |who: &ServiceIdentity| {
            let placed = self.services.get(who).and_then(|placed| placed.as_ref().ok());
            placed.is_some_and(|placed| placed.load_balancer.as_ref() == Some(&change.id))
        };
        self.services.keys().filter(|who| is_there(who)).cloned().collect()
    }
}
