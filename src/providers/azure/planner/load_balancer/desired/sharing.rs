//! Refusals of Services that may not share the frontend of a private address, where namespaces are enforced. Pure.
//!
//! In: the frontends that are assigned to Services. Out: the Services of another namespace to which the owner of the frontend has not
//! agreed. For public IPs, a tag decides (`public_ips`). Upstream has no such rule.

use super::{
    ServiceRequest,
    context::{KnownServices, PlanContext, ensured_spec},
    frontend_assignment::FrontendAssignment,
    types::RequestIdx,
};
use crate::providers::azure::planner::load_balancer::{
    annotations::{IPV4, SHARING_NAMESPACES},
    spec::{ServiceRefusal, ServiceSpec},
};

/// Returns the requests that the owners of their frontends have not agreed to.
pub(super) fn refusals(
    context: &PlanContext<'_>,
    requests: &[&ServiceRequest],
    assignment: &FrontendAssignment,
    known: &KnownServices<'_>,
) -> Vec<(RequestIdx, ServiceRefusal)> {
    if !context.settings.namespaces_are_enforced {
        return Vec::new();
    }
    let owner = |id: &str| {
        let name = id.rsplit('/').next().unwrap_or_default();
        known.owners.of_frontend(name).flatten().or_else(|| known.of_others.of_frontend(name))
    };
    let refused = assignment.by_request.iter().filter_map(|((request, _), id)| {
        let spec = ensured_spec(requests.get(request.0)?).filter(|spec| spec.internal)?;
        let owner = owner(id).filter(|owner| owner.identity != spec.identity && !owner.shares_with(spec.namespace()))?;
        Some((*request, refusal(spec, owner)))
    });
    refused.collect()
}

fn refusal(spec: &ServiceSpec, owner: &ServiceSpec) -> ServiceRefusal {
    let (owner, namespace) = (&owner.identity.key, spec.namespace());
    let message = format!(
        "the address belongs to Service {owner} of another namespace; its owner can agree with the annotation `{}`, a list of namespaces \
         between commas (`{namespace}`) or `*`",
        SHARING_NAMESPACES.key
    );
    ServiceRefusal { field: format!("{}, -ipv6 or spec.loadBalancerIP", IPV4.key), message }
}
