//! The fourth stage: the rules of the security group, for all at once.
//!
//! In: asks whose front ends are there, or gone. Out: whether their rules are right now.

use async_trait::async_trait;

#[cfg(feature = "sandbox")]
use super::dry_run::show_plan;
use super::{
    batch_commit::{AttemptError, BatchStage, ServiceResults},
    claims,
    stage_context::{self, StageContext, StageInput},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{ArmErrorClass, ResourceId, Urgency},
        planner::load_balancer::{
            desired::{
                ServiceRequest,
                security_rules::{self, ServiceRules},
            },
            plan::{
                print::PlannedChange,
                rules::{PlannedSecurityRules, RuleInput, leads_to_machines, plan_rules},
                waiting::{WaitingFor, for_addresses},
            },
            pools::member_addresses::PoolMemberAddresses,
            rule_records::ListedDestinations,
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

    async fn attempt(&self, requests: &[ServiceRequest]) -> Result<ServiceResults<()>, AttemptError> {
        let Some(id) = self.context.settings.security_group.clone() else { return Ok(all_ok(requests)) };
        self.context.rule_records.restore(&self.context.service_index).await?;
        for _ in 0..MAX_CONFLICTS {
            let input = self.context.load(requests, self.urgency).await?;
            #[cfg(feature = "sandbox")]
            show_plan(self.context, &input, requests).await;
            self.context.progress.replanned(requests.iter().map(|request| request.identity().key.as_str()));
            let Some(rules) = plan_group(self.context, requests, &input).await else {
                return Ok(self.missing_group(requests, &id));
            };
            match self.write(&id, &input, &rules).await {
                Ok(()) => return Ok(self.record_applied(requests, &input, rules).await),
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
pub(super) async fn plan_group(
    context: &StageContext,
    asks: &[ServiceRequest],
    look: &StageInput,
) -> Option<PlannedSecurityRules> {
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
async fn reached_machines(context: &StageContext, requests: &[ServiceRequest], input: &StageInput) -> PoolMemberAddresses {
    if !leads_to_machines(requests, &input.others) {
        return PoolMemberAddresses::default();
    }
    let ignored = context.false_claims().await;
    let nodes = claims::without(&context.service_index.nodes(), &ignored);
    context.backend_pools.member_addresses(&nodes, Urgency::Shared).await
}

fn all_ok(requests: &[ServiceRequest]) -> ServiceResults<()> {
    requests.iter().map(|request| (request.identity().clone(), Ok(()))).collect()
}

impl SecurityGroupStage<'_> {
    /// Nothing has to be taken out of a group that does not exist.
    fn missing_group(&self, requests: &[ServiceRequest], id: &ResourceId) -> ServiceResults<()> {
        let waiting = WaitingFor::SecurityGroup(id.clone());
        let wanting =
            requests.iter().filter(|request| matches!(request, ServiceRequest::Ensure(_))).map(ServiceRequest::identity);
        self.context.announce(PlannedChange::Waiting(&waiting), wanting);
        let error = || {
            CloudError::failed(format!(
                "the security group {id} does not exist: create it, or correct securityGroupName and securityGroupResourceGroup"
            ))
        };
        let answer =
            |request: &ServiceRequest| if matches!(request, ServiceRequest::Ensure(_)) { Err(error()) } else { Ok(()) };
        requests.iter().map(|request| (request.identity().clone(), answer(request))).collect()
    }

    /// What the group is about to have is recorded first: a process that begins after this one was killed knows whose it is.
    async fn write(&self, id: &ResourceId, input: &StageInput, rules: &PlannedSecurityRules) -> Result<(), AttemptError> {
        let PlannedSecurityRules { plan: outcome, services, .. } = rules;
        let Some(document) = &outcome.document else { return Ok(()) };
        let listed = security_rules::listed_destinations(input.observed.security_group.iter().chain([document]));
        self.save_records(services, &listed).await?;
        self.context.announce(PlannedChange::SecurityGroup(outcome), &outcome.causes);
        Ok(self.context.writer.put_security_group(id, document, Urgency::Shared).await?)
    }

    /// What the group has with these destinations, and what is planned.
    async fn save_records(&self, planned: &[ServiceRules], listed: &ListedDestinations) -> CloudResult<()> {
        let index = &self.context.service_index;
        self.context.rule_records.save(index.records(planned, listed), index).await
    }

    async fn record_applied(
        &self,
        requests: &[ServiceRequest],
        input: &StageInput,
        rules: PlannedSecurityRules,
    ) -> ServiceResults<()> {
        let PlannedSecurityRules { plan: outcome, services: reaches, refused } = rules;
        for (who, refusal) in outcome.services.iter().filter_map(|(who, answer)| Some((who, answer.as_ref().err()?))) {
            self.context.announce(PlannedChange::Refused(who, refusal), [who]);
        }
        let mut answers: ServiceResults<()> = outcome
            .services
            .into_iter()
            .map(|(who, answer)| (who, answer.map_err(|refusal| stage_context::refusal_error(&refusal))))
            .collect();
        for (place, refusal) in refused {
            // The address may come at the next look.
            for waiting in for_addresses(&input.observed, &requests[place], &self.context.settings) {
                self.context.announce(PlannedChange::Waiting(&waiting), [requests[place].identity()]);
            }
            answers.insert(requests[place].identity().clone(), Err(CloudError::failed(refusal.to_string())));
        }
        let listed =
            security_rules::listed_destinations(outcome.document.as_ref().or(input.observed.security_group.as_ref()));
        for reach in reaches.into_iter().filter(|reach| answers.get(&reach.identity).is_some_and(Result::is_ok)) {
            let request = requests.iter().find(|request| *request.identity() == reach.identity).cloned();
            let request = request.unwrap_or_else(|| ServiceRequest::Delete(reach.identity.clone(), None));
            self.context.service_index.record_applied(&request, &reach, &listed);
        }
        answers.retain(|who, _| requests.iter().any(|request| request.identity() == who));
        // Should this fail, the record names too much until the next write.
        if let Err(error) = self.save_records(&[], &listed).await {
            tracing::debug!(%error, "what the security group has lost is not recorded");
        }
        answers
    }
}
