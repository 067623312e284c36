//! The fourth stage: the rules of the security group, for all at once.
//!
//! In: asks whose front ends are there, or gone. Out: whether their rules are right now.

use async_trait::async_trait;

use super::{
    admission,
    batch_commit::{AttemptError, BatchStage, ServiceResults},
    stage_context::{StageContext, StageInput},
};
use crate::{
    cloud_provider::CloudError,
    providers::azure::{
        arm::{ArmErrorClass, ResourceId, Urgency},
        load_balancer::backend_pools::member_addresses,
        planner::load_balancer::{
            desired::{
                ServiceRequest,
                security_rules::{self, SecurityRulePlan},
            },
            plan::{
                print::PlannedChange,
                rules::{PlannedSecurityRules, RuleInput, leads_to_machines, plan_rules},
                waiting::{WaitingFor, for_addresses},
            },
            pools::member_addresses::PoolMemberAddresses,
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
            self.context.progress.replanned(asks.iter().map(|ask| ask.identity().key.as_str()));
            let Some(rules) = plan_group(self.context, asks, &look).await else { return Ok(self.missing_group(asks, &id)) };
            match self.write(&id, &rules.plan).await {
                Ok(()) => return Ok(self.record_applied(asks, &look, rules)),
                Err(AttemptError::Arm(error)) if error.class == ArmErrorClass::Conflict => {
                    tracing::info!(%error, "document modified concurrently, planning again");
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Err(CloudError::failed(format!("security group modified concurrently; gave up after {MAX_CONFLICTS} attempts"))
            .into())
    }
}

/// Plans on what is remembered now; `None`: the group does not exist.
async fn plan_group(context: &StageContext, asks: &[ServiceRequest], look: &StageInput) -> Option<PlannedSecurityRules> {
    let group = look.observed.security_group.as_ref()?;
    let reached = reached_machines(context, asks, look).await;
    context.service_index.note_nodes();
    context.service_index.note_listed(|| security_rules::managed_destinations(group));
    let input = RuleInput {
        observed: &look.observed,
        requests: asks,
        others: &look.others,
        memory: &context.service_index.memory(),
        members: &reached,
        settings: &context.settings,
    };
    Some(plan_rules(group, &input))
}

/// Where machines are in pools, when the rules of some Service lead to machines.
async fn reached_machines(context: &StageContext, asks: &[ServiceRequest], look: &StageInput) -> PoolMemberAddresses {
    if !leads_to_machines(asks, &look.others) {
        return PoolMemberAddresses::default();
    }
    member_addresses(&context.inventory, &context.service_index.nodes(), &context.settings).await
}

fn all_ok(asks: &[ServiceRequest]) -> ServiceResults<()> {
    asks.iter().map(|ask| (ask.identity().clone(), Ok(()))).collect()
}

impl SecurityGroupStage<'_> {
    /// Nothing has to be taken out of a group that does not exist.
    fn missing_group(&self, asks: &[ServiceRequest], id: &ResourceId) -> ServiceResults<()> {
        let waiting = WaitingFor::SecurityGroup(id.clone());
        let wanting = asks.iter().filter(|ask| matches!(ask, ServiceRequest::Ensure(_))).map(ServiceRequest::identity);
        self.context.announce(PlannedChange::Waiting(&waiting), wanting);
        let error = || {
            CloudError::failed(format!(
                "the security group {id} does not exist: create it, or correct securityGroupName and securityGroupResourceGroup"
            ))
        };
        let answer = |ask: &ServiceRequest| if matches!(ask, ServiceRequest::Ensure(_)) { Err(error()) } else { Ok(()) };
        asks.iter().map(|ask| (ask.identity().clone(), answer(ask))).collect()
    }

    async fn write(&self, id: &ResourceId, outcome: &SecurityRulePlan) -> Result<(), AttemptError> {
        let Some(document) = &outcome.document else { return Ok(()) };
        self.context.announce(PlannedChange::SecurityGroup(outcome), &outcome.causes);
        Ok(self.context.writer.put_security_group(id, document, Urgency::Shared).await?)
    }

    fn record_applied(&self, asks: &[ServiceRequest], look: &StageInput, rules: PlannedSecurityRules) -> ServiceResults<()> {
        let PlannedSecurityRules { plan: outcome, services: reaches, refused } = rules;
        for (who, refusal) in outcome.services.iter().filter_map(|(who, answer)| Some((who, answer.as_ref().err()?))) {
            self.context.announce(PlannedChange::Refused(who, refusal), [who]);
        }
        let mut answers: ServiceResults<()> = outcome
            .services
            .into_iter()
            .map(|(who, answer)| (who, answer.map_err(|refusal| admission::refusal_error(&refusal))))
            .collect();
        for (place, refusal) in refused {
            // The address may come at the next look.
            for waiting in for_addresses(&look.observed, &asks[place], &self.context.settings) {
                self.context.announce(PlannedChange::Waiting(&waiting), [asks[place].identity()]);
            }
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
