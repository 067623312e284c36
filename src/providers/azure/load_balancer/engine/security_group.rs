//! The fourth stage: the rules of the security group, for all at once.
//!
//! In: asks whose front ends are there, or gone. Out: whether their rules are right now.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    admission,
    batch_commit::{AttemptError, BatchStage, ServiceResults},
    stage_context::{PlanInput, StageContext},
};
use crate::{
    cloud_provider::CloudError,
    providers::azure::{
        arm::{ArmErrorClass, ResourceId, Urgency, network::NetworkSecurityGroup},
        load_balancer::{
            backend_pools::member_addresses,
            service_index::{BackendLookup, ParsedService},
        },
        planner::load_balancer::{
            desired::{
                ServiceRequest,
                security_rules::{self, SecurityRulePlan, ServiceRules},
            },
            pools::member_addresses::PoolMemberAddresses,
            spec::{ServiceRefusal, ServiceSpec},
        },
    },
};

/// How often a write is planned anew because somebody else has written.
const MAX_CONFLICTS: usize = 5;

/// See the module.
pub(super) struct SecurityGroupStage<'a> {
    pub(super) context: &'a StageContext,
    pub(super) urgency: Urgency,
}

#[async_trait]
impl BatchStage for SecurityGroupStage<'_> {
    type Output = ();

    fn action(&self) -> &'static str {
        "write the security group"
    }

    async fn attempt(&self, asks: &[ServiceRequest]) -> Result<ServiceResults<()>, AttemptError> {
        let Some(id) = self.context.settings.security_group.clone() else { return Ok(all_ok(asks)) };
        for _ in 0..MAX_CONFLICTS {
            let look = self.context.load(asks, self.urgency).await?;
            let Some(rules) = plan_rules(self.context, asks, &look).await else { return Ok(missing_group(asks, &id)) };
            match self.write(&id, &rules.plan).await {
                Ok(()) => return Ok(self.record_applied(asks, rules)),
                Err(AttemptError::Arm(error)) if error.class == ArmErrorClass::Conflict => {
                    tracing::info!(%error, "somebody else has written, planning again");
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Err(CloudError::failed("the security group keeps being changed by somebody else while it is written").into())
    }
}

/// What becomes of the group, and what was asked of it.
pub(super) struct PlannedSecurityRules {
    pub(super) plan: SecurityRulePlan,
    services: Vec<ServiceRules>,
    refused: Vec<(usize, ServiceRefusal)>,
}

/// Plans; `None`: the group does not exist.
pub(super) async fn plan_rules(
    world: &StageContext,
    asks: &[ServiceRequest],
    look: &PlanInput,
) -> Option<PlannedSecurityRules> {
    let group = look.observed.security_group.as_ref()?;
    let reached = reached_machines(world, asks, look).await;
    Some(plan_for_group(world, asks, look, group, &reached))
}

/// Where machines are in pools, when the rules of some Service lead to machines.
async fn reached_machines(world: &StageContext, asks: &[ServiceRequest], look: &PlanInput) -> PoolMemberAddresses {
    let mut specs = asks.iter().filter_map(ServiceRequest::spec).chain(look.others.iter().map(ParsedService::spec));
    if specs.all(|spec| spec.floating_ip) {
        return PoolMemberAddresses::default();
    }
    member_addresses(&world.inventory, &world.service_index.nodes(), &world.settings).await
}

fn plan_for_group(
    world: &StageContext,
    asks: &[ServiceRequest],
    look: &PlanInput,
    group: &NetworkSecurityGroup,
    reached: &PoolMemberAddresses,
) -> PlannedSecurityRules {
    let nodes = world.service_index.node_addresses(|| security_rules::managed_destinations(group));
    let behind = |spec: &ServiceSpec| reached.of_service(spec, &look.observed, &world.settings);
    let machines = BackendLookup { all_nodes: &nodes.present, of_service: &behind };
    let reach_of = |wish: &ParsedService| world.service_index.rules_of_other(wish, &look.observed, &machines);
    let mut others: Vec<ServiceRules> = look.others.iter().map(reach_of).collect();
    let (mut reaches, mut refused) = (Vec::new(), Vec::new());
    for (place, ask) in asks.iter().enumerate() {
        match world.service_index.rules_of_request(ask, &look.observed, &machines) {
            Ok(reach) => reaches.push(reach),
            Err(refusal) => {
                // What it has stays, whoever leaves an address that it shares.
                others.extend(ask.spec().map(|spec| reach_of(&ParsedService::Valid(Arc::clone(spec)))));
                refused.push((place, refusal));
            }
        }
    }
    let outcome = security_rules::plan_security_rules(group, &reaches, &others, &nodes, &world.settings);
    PlannedSecurityRules { plan: outcome, services: reaches, refused }
}

fn all_ok(asks: &[ServiceRequest]) -> ServiceResults<()> {
    asks.iter().map(|ask| (ask.identity().clone(), Ok(()))).collect()
}

/// Nothing has to be taken out of a group that does not exist.
fn missing_group(asks: &[ServiceRequest], id: &ResourceId) -> ServiceResults<()> {
    let error = || {
        CloudError::failed(format!(
            "the security group {id} does not exist: create it, or mend securityGroupName and securityGroupResourceGroup"
        ))
    };
    let answer = |ask: &ServiceRequest| if matches!(ask, ServiceRequest::Ensure(_)) { Err(error()) } else { Ok(()) };
    asks.iter().map(|ask| (ask.identity().clone(), answer(ask))).collect()
}

impl SecurityGroupStage<'_> {
    async fn write(&self, id: &ResourceId, outcome: &SecurityRulePlan) -> Result<(), AttemptError> {
        let Some(document) = &outcome.document else { return Ok(()) };
        tracing::info!(%id, reasons = outcome.reasons.join("; "), "writing the security group");
        Ok(self.context.writer.put_security_group(id, document, Urgency::Shared).await?)
    }

    fn record_applied(&self, asks: &[ServiceRequest], rules: PlannedSecurityRules) -> ServiceResults<()> {
        let PlannedSecurityRules { plan: outcome, services: reaches, refused } = rules;
        let mut answers: ServiceResults<()> = outcome
            .services
            .into_iter()
            .map(|(who, answer)| (who, answer.map_err(|refusal| admission::refusal_error(&refusal))))
            .collect();
        for (place, refusal) in refused {
            // The address may come at the next look.
            answers.insert(asks[place].identity().clone(), Err(CloudError::failed(refusal.to_string())));
        }
        for reach in reaches {
            let ask = asks.iter().find(|ask| *ask.identity() == reach.identity);
            if let Some(ask) = ask.filter(|_| answers.get(&reach.identity).is_some_and(Result::is_ok)) {
                self.context.service_index.record_applied(ask, &reach);
            }
        }
        answers
    }
}
