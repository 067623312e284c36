//! Looks for what somebody else changed, on what the first stage has read anyway: no request of its own.
//!
//! In: the plan for a batch and what it was made on. Out: what differs, of those for whom all was right.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    security_group::plan_group,
    stage_context::{StageContext, StageInput, partition_blocked},
};
use crate::providers::azure::planner::load_balancer::{
    desired::ServiceRequest,
    drift::findings::{DriftByService, DriftInput, drift},
    plan::{after::after_network, network::NetworkPlan, rules::leads_to_machines},
    spec::ServiceIdentity,
};

/// `compared`: those for whom all was right, and whether their Nodes are others since.
pub(super) async fn find_drift(
    context: &StageContext,
    requests: &[ServiceRequest],
    compared: &BTreeMap<ServiceIdentity, bool>,
    (plan, input): (&NetworkPlan, &StageInput),
) -> DriftByService {
    if compared.is_empty() {
        return DriftByService::new();
    }
    let (mut asking, _) = partition_blocked(requests, input, &context.settings);
    asking.retain(|request| !plan.refused.contains_key(request.identity()));
    let mut written = input.clone();
    written.observed = Arc::new(after_network(&input.observed, plan));
    let rules = plan_group(context, &asking, &written).await;
    drift(&DriftInput {
        observed: &input.observed,
        requests: &asking,
        others: &input.specs(),
        compared,
        network: plan,
        rules: rules.as_ref().map(|rules| &rules.plan),
        leads_to_machines: leads_to_machines(&asking, &input.others),
        settings: &context.settings,
    })
}
