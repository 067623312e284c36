//! Security rules that lead to machines, such as those of Services without floating IP: they follow the members of pools.
//!
//! In: what those rules were last brought to, and who changes members, for whatever Service. Out: the Services whose rules are due, until all
//! of them are written. So a Node that comes behind another load balancer is opened to the Services there with the next write of the group,
//! whoever asks for that, and after a write that failed within a minute.

use std::sync::{Arc, PoisonError};

use super::{backend_pools, pool_sync_state::MachineRuleRecord, stage_context::StageContext};
use crate::providers::azure::planner::load_balancer::{
    desired::{ServiceRequest, status::frontend_addresses},
    rule_memory::ParsedService,
    spec::ServiceSpec,
};

/// Rules that are due.
pub(super) struct DueMachineRules {
    record: MachineRuleRecord,
    /// The Services whose rules they are.
    pub(super) requests: Vec<ServiceRequest>,
}

impl DueMachineRules {
    /// All of them are written.
    pub(super) fn record(&self, context: &StageContext) {
        let mut state = context.pool_sync.lock().unwrap_or_else(PoisonError::into_inner);
        state.machine_rules.record(self.record);
    }
}

/// What is due; `None`: nothing, or nobody has said which Nodes there are.
pub(super) fn due(context: &StageContext) -> Option<DueMachineRules> {
    let fingerprint = backend_pools::node_fingerprint(context)?;
    let record = context.pool_sync.lock().unwrap_or_else(PoisonError::into_inner).machine_rules.due(fingerprint)?;
    let observed = context.observer.cached();
    let services = context.service_index.managed().into_iter().filter_map(|service| match service {
        ParsedService::Valid(spec) if !spec.floating_ip => Some(spec),
        ParsedService::Valid(_) | ParsedService::Refused(..) => None,
    });
    // Who has no front end yet comes with rules when it has, and so does a Service with private addresses that nothing was compared with.
    let is_served = |spec: &Arc<ServiceSpec>| !frontend_addresses(&observed, spec, &context.settings).is_empty();
    let served = services.filter(|spec| context.service_index.knows_subnets_for(spec) && is_served(spec));
    let requests = served.map(|spec| ServiceRequest::Ensure(context.service_index.without_conflicting_ips(spec).0));
    let due = DueMachineRules { record, requests: requests.collect() };
    if due.requests.is_empty() {
        due.record(context);
        return None;
    }
    Some(due)
}
