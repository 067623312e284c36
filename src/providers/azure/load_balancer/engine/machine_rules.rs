//! Security rules that lead to machines, such as those of Services without floating IP: they follow the members of pools.
//!
//! In: what those rules were last brought to, and who changes members, for whatever Service. Out: the Services whose rules are due, until all
//! of them are written. So a Node that comes behind another load balancer is opened to the Services there with the next write of the group,
//! whoever asks for that, and after a write that failed within a minute.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::{pool_sync_state::MachineRuleRecord, stage_context::StageContext};
use crate::providers::azure::planner::load_balancer::{
    desired::ServiceRequest, plan::MachineRules, rule_memory::ParsedService,
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
        let mut state = context.pool_sync.lock();
        state.machine_rules.record(self.record);
    }
}

/// What is due; `None`: nothing, or nobody has said which Nodes there are.
pub(super) fn due(context: &StageContext) -> Option<DueMachineRules> {
    let record = record_due(context, &context.hosts()?)?;
    let rules = MachineRules { are_due: true, services: services(context) };
    let due = DueMachineRules { record, requests: rules.due(&context.observer.cached(), &context.settings) };
    if due.requests.is_empty() {
        due.record(context);
        return None;
    }
    Some(due)
}

/// What a plan with these hosts has to know.
pub(super) fn of_plan(context: &StageContext, hosts: &[Arc<Node>]) -> MachineRules {
    MachineRules { are_due: record_due(context, hosts).is_some(), services: services(context) }
}

fn record_due(context: &StageContext, hosts: &[Arc<Node>]) -> Option<MachineRuleRecord> {
    let fingerprint = context.node_fingerprint(hosts);
    context.pool_sync.lock().machine_rules.due(fingerprint)
}

/// Services without floating IP. One with private addresses that nothing was compared with comes with rules when it asks.
fn services(context: &StageContext) -> Vec<ServiceRequest> {
    let services = context.service_index.managed().into_iter().filter_map(|service| match service {
        ParsedService::Valid(spec) if !spec.floating_ip => Some(spec),
        ParsedService::Valid(_) | ParsedService::Refused(..) => None,
    });
    let comparable = services.filter(|spec| context.service_index.knows_subnets_for(spec));
    comparable.map(|spec| ServiceRequest::Ensure(context.service_index.without_conflicting_ips(spec).0)).collect()
}
