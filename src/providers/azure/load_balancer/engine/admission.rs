//! The first stage: what a Service needs before its load balancer is written, or why it cannot have what it asks for.
//!
//! In: the asks that have gathered. Out: for each the public IPs to write, each to be written once for all who need it; or its place, if
//! nothing is written for it before the rules of the security group.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    load_balancers::PlacedService,
    planning::{StagePlan, StagePlanRequest, blocked_error},
    shared_write::SharedWrite,
    stage_context::{StageContext, StageInput, refusal_error},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        planner::load_balancer::{
            desired::{ServiceRequest, public_ips::PublicIpChange},
            drift::findings::{DriftByService, DriftInput, DriftedDocument, drift},
            plan::{
                BlockedBy, Plan, PlanScope, needs::named_keys, network::NetworkPlan, print::PlannedChange,
                rules::leads_to_machines,
            },
            spec::{ServiceIdentity, ServiceRefusal},
        },
    },
};

/// Public IPs to write first.
pub(super) type PublicIpWrites = Vec<Arc<SharedWrite<PublicIpChange>>>;

/// What the first stage knows of a Service.
pub(super) struct Admission {
    /// What is written first.
    pub(super) public_ips: PublicIpWrites,
    /// What somebody else changed since all was right.
    pub(super) drift: Vec<DriftedDocument>,
    /// Fingerprint of the Nodes.
    pub(super) nodes: u64,
    /// Place of the Service, if the load balancers have all that it requests.
    pub(super) placed: Option<Box<PlacedService>>,
}

/// Plans for all asks. `compared`: those that ask for what they had when all was right, with the fingerprint of the Nodes then.
pub(super) async fn admit(
    context: &StageContext,
    requests: Vec<ServiceRequest>,
    compared: BTreeMap<ServiceIdentity, u64>,
    urgency: Urgency,
) -> Vec<CloudResult<Admission>> {
    let scope = if compared.is_empty() { PlanScope::Network } else { PlanScope::NetworkAndRules };
    let StagePlan { plan, input } = match context.plan(&StagePlanRequest::write(scope, &requests, urgency)).await {
        Ok(planned) => planned,
        Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
    };
    context.notify_private_links(&plan.network.private_links.notices);
    let nodes = context.node_fingerprint(&context.hosts().unwrap_or_default());
    let compared = compared.into_iter().map(|(who, known)| (who, known != nodes)).collect();
    let mut drift = find_drift(context, &requests, &compared, (&plan, &input));
    let mut placements = plan.network.settled_placements();
    let Plan { network: NetworkPlan { public_ips, mut refused, .. }, blocked, .. } = plan;
    let mut puts = shared_writes(public_ips.writes);
    let answer = |request: &ServiceRequest| match (blocked.get(request.identity()), refused.remove(request.identity())) {
        (Some(blocked), _) => Err(unread_reference(context, request, blocked)),
        (None, Some(refusal)) => {
            context.announce(PlannedChange::Refused(request.identity(), &refusal), [request.identity()]);
            Err(missing_reference(context, request, &refusal).unwrap_or_else(|| refusal_error(&refusal)))
        }
        (None, None) => Ok(Admission {
            public_ips: puts.remove(request.identity()).unwrap_or_default(),
            drift: drift.remove(request.identity()).unwrap_or_default(),
            nodes,
            // A port without a rule is claimed in the batch of load balancers, although no write shows it.
            placed: placements
                .remove(request.identity())
                .filter(|_| request.spec().is_some_and(|spec| spec.ports.iter().all(|port| port.rule)))
                .map(|placement| Box::new(PlacedService { placement, ..PlacedService::default() })),
        }),
    };
    requests.iter().map(answer).collect()
}

/// Finds what somebody else changed, on what the plan was made on: no request of its own. `compared`: those for whom all was right, and
/// whether their Nodes are others since. `requests`: those who asked for the plan.
fn find_drift(
    context: &StageContext,
    requests: &[ServiceRequest],
    compared: &BTreeMap<ServiceIdentity, bool>,
    (plan, input): (&Plan, &StageInput),
) -> DriftByService {
    if compared.is_empty() {
        return DriftByService::new();
    }
    let keeps = |who: &ServiceIdentity| plan.network.refused.contains_key(who) || plan.blocked.contains_key(who);
    let granted: Vec<_> = requests.iter().filter(|request| !keeps(request.identity())).cloned().collect();
    drift(&DriftInput {
        observed: &input.observed,
        requests: &granted,
        others: &input.specs(),
        compared,
        plan,
        leads_to_machines: leads_to_machines(&granted, &input.others),
        settings: &context.settings,
    })
}

/// Returns the error of a Service for which nothing can be planned, with the pause of its namespace.
fn unread_reference(context: &StageContext, request: &ServiceRequest, blocked: &BlockedBy) -> CloudError {
    match (blocked, blocked_error(blocked)) {
        (BlockedBy::Reference(unread), CloudError::MissingReference { after, message }) => {
            let keys = std::slice::from_ref(&unread.key);
            let pause = context.observer.pause_of(keys, request.identity().namespace());
            CloudError::MissingReference { after: pause.unwrap_or(after), message }
        }
        (_, error) => error,
    }
}

/// Returns the error of a refusal because of something that does not exist yet, and is read again soon.
fn missing_reference(context: &StageContext, request: &ServiceRequest, refusal: &ServiceRefusal) -> Option<CloudError> {
    let keys = named_keys(request.spec()?, &context.settings);
    let after = context.observer.pause_of(&keys, request.identity().namespace())?;
    Some(CloudError::MissingReference { after, message: refusal.to_string() })
}

fn shared_writes(changes: Vec<PublicIpChange>) -> BTreeMap<ServiceIdentity, PublicIpWrites> {
    let mut puts: BTreeMap<ServiceIdentity, PublicIpWrites> = BTreeMap::new();
    for change in changes {
        let causes = change.causes.clone();
        let once = Arc::new(SharedWrite::new(change));
        causes.into_iter().for_each(|service| puts.entry(service).or_default().push(Arc::clone(&once)));
    }
    puts
}
