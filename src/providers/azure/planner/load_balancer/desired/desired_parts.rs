//! Desired rules, frontends and placements of the requests on their target load balancers. Pure.

use super::{
    ServiceRequest,
    context::{PlanContext, ensured_spec},
    draft::LoadBalancerDraft,
    frontend_assignment::FrontendAssignment,
    port_conflicts::FrontendService,
    rules::{self, RulesAndProbes},
    targets::TargetLoadBalancers,
    types::{DraftIdx, RequestIdx, ServicePlacement},
};

/// Returns the desired rules and probes of each request, by the index of the draft.
pub(super) fn rules(
    context: &PlanContext<'_>,
    requests: &[&ServiceRequest],
    drafts: &[LoadBalancerDraft<'_>],
    targets: &TargetLoadBalancers,
    seating: &FrontendAssignment,
) -> Vec<Vec<(RequestIdx, RulesAndProbes)>> {
    let mut wanted: Vec<Vec<(RequestIdx, RulesAndProbes)>> = drafts.iter().map(|_| Vec::new()).collect();
    for (request, target, spec) in targets.ensured(requests) {
        for family in &spec.families {
            let Some(frontend) = seating.by_request.get(&(request, *family)) else { continue };
            wanted[target.0]
                .push((request, rules::rules_and_probes(spec, *family, frontend, &drafts[target.0].id, context.settings)));
        }
    }
    wanted
}

/// Returns the Services on frontends, by the index of the draft.
pub(super) fn frontend_services<'r>(
    requests: &[&'r ServiceRequest],
    drafts: &[LoadBalancerDraft<'_>],
    targets: &TargetLoadBalancers,
    assignment: &FrontendAssignment,
) -> Vec<Vec<FrontendService<'r>>> {
    let mut services: Vec<Vec<FrontendService<'r>>> = drafts.iter().map(|_| Vec::new()).collect();
    for ((request, _), frontend) in &assignment.by_request {
        let (Some(target), Some(spec)) = (targets.of(*request), ensured_spec(requests[request.0])) else { continue };
        let frontend = frontend.to_ascii_lowercase();
        services[target.0].push(FrontendService { request: *request, spec, frontend });
    }
    services
}

/// Returns the placement of each request for the case that none is refused.
pub(super) fn placements(
    requests: &[&ServiceRequest],
    drafts: &[LoadBalancerDraft<'_>],
    targets: &TargetLoadBalancers,
    seating: &FrontendAssignment,
) -> Vec<ServicePlacement> {
    let of = |(request, target): (RequestIdx, Option<DraftIdx>)| {
        let families = ensured_spec(requests[request.0]).into_iter().flat_map(|spec| &spec.families);
        let frontends = families.filter_map(|family| Some((*family, seating.by_request.get(&(request, *family))?.clone())));
        ServicePlacement {
            load_balancer: target.map(|target| drafts[target.0].id.clone()),
            frontends: frontends.collect(),
            ..ServicePlacement::default()
        }
    };
    targets.iter().map(of).collect()
}
