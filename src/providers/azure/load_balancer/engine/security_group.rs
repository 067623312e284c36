//! The fourth stage: the rules of the security group, for all at once.
//!
//! In: asks whose front ends are there, or gone. Out: whether their rules are right now.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::{
    batch_commit::{AttemptError, BatchStage, ServiceResults},
    planning::{StagePlan, StagePlanRequest},
    stage_context::{self, StageContext, StageInput},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        load_balancer::events,
        model::{ArmErrorClass, ResourceId},
        planner::load_balancer::{
            desired::{
                ServiceRequest,
                plan_index::PlanIndex,
                security_rules::{self, ServiceRules},
            },
            plan::{
                PlanScope, PlannedSecurityRules,
                print::PlannedChange,
                waiting::{WaitingFor, for_addresses},
            },
            rule_records::ListedDestinations,
            spec::{ServiceIdentity, ServiceRefusal},
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

/// What a Service got.
#[derive(Clone, Copy)]
pub(super) enum SecurityGroupStageResult {
    /// Its rules are right.
    Written,
    /// They are not, and another batch writes the group. The Service comes again when that has ended.
    Busy,
}

#[async_trait]
impl BatchStage for SecurityGroupStage<'_> {
    type Output = SecurityGroupStageResult;

    fn action(&self) -> &'static str {
        "write the security group"
    }

    fn is_settled(result: &SecurityGroupStageResult) -> bool {
        matches!(result, SecurityGroupStageResult::Written)
    }

    async fn attempt(&self, requests: &[ServiceRequest]) -> Result<ServiceResults<SecurityGroupStageResult>, AttemptError> {
        let Some(id) = self.context.settings.security_group.clone() else { return Ok(all_ok(requests)) };
        self.context.rule_records.restore(&self.context.service_index).await?;
        self.context.service_index.note_deleted();
        for _ in 0..MAX_CONFLICTS {
            let request = StagePlanRequest::write(PlanScope::SecurityGroup, requests, self.urgency);
            let StagePlan { plan, input } = self.context.plan(&request).await?;
            let Some(mut rules) = plan.rules else { return Ok(self.missing_group(requests, &id)) };
            let keys = requests.iter().map(|request| request.identity().key.clone()).chain([id.key()]);
            let (_occupation, occupied) = self.context.security_group.occupy(keys.collect());
            if occupied.contains(&id.key()) {
                let mut waiting = leave_out_changed(&mut rules, requests);
                let written =
                    requests.iter().map(ServiceRequest::identity).filter(|service| occupied.contains(&service.key));
                waiting.extend(written.cloned());
                let mut results = self.record_applied(requests, &input, rules);
                results.extend(waiting.into_iter().map(|service| (service, Ok(SecurityGroupStageResult::Busy))));
                return Ok(results);
            }
            match self.write(&id, &input, &rules).await {
                Ok(()) => {
                    let group = rules.plan.document.as_ref().or(input.observed.security_group.as_ref());
                    let listed = security_rules::listed_destinations(group);
                    let results = self.record_applied(requests, &input, rules);
                    // Should this fail, the record names too much until the next write.
                    if let Err(error) = self.save_records(&[], &listed).await {
                        tracing::debug!(%error, "what the security group has lost is not recorded");
                    }
                    return Ok(results);
                }
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

fn all_ok(requests: &[ServiceRequest]) -> ServiceResults<SecurityGroupStageResult> {
    requests.iter().map(|request| (request.identity().clone(), Ok(SecurityGroupStageResult::Written))).collect()
}

/// Leaves the group unchanged. Returns the Services whose rules would change: all, if nobody causes the change.
fn leave_out_changed(rules: &mut PlannedSecurityRules, requests: &[ServiceRequest]) -> BTreeSet<ServiceIdentity> {
    let mut changed = std::mem::take(&mut rules.plan.causes);
    if rules.plan.document.take().is_some() && changed.is_empty() {
        changed.extend(requests.iter().map(ServiceRequest::identity).cloned());
    }
    rules.services.retain(|reach| !changed.contains(&reach.identity));
    changed
}

impl SecurityGroupStage<'_> {
    /// Nothing has to be occupied out of a group that does not exist.
    fn missing_group(&self, requests: &[ServiceRequest], id: &ResourceId) -> ServiceResults<SecurityGroupStageResult> {
        let waiting = WaitingFor::SecurityGroup(id.clone());
        let wanting =
            requests.iter().filter(|request| matches!(request, ServiceRequest::Ensure(_))).map(ServiceRequest::identity);
        self.context.announce(PlannedChange::Waiting(&waiting), wanting);
        let error = || {
            CloudError::failed(format!(
                "the security group {id} does not exist: create it, or correct securityGroupName and securityGroupResourceGroup"
            ))
        };
        let answer = |request: &ServiceRequest| match request {
            ServiceRequest::Ensure(_) => Err(error()),
            ServiceRequest::Delete(..) => Ok(SecurityGroupStageResult::Written),
        };
        requests.iter().map(|request| (request.identity().clone(), answer(request))).collect()
    }

    /// What the group is about to have is recorded first: a process that begins after this one was killed knows whose it is.
    async fn write(&self, id: &ResourceId, input: &StageInput, rules: &PlannedSecurityRules) -> Result<(), AttemptError> {
        let PlannedSecurityRules { plan: outcome, services, .. } = rules;
        let Some(document) = &outcome.document else { return Ok(()) };
        let listed = security_rules::listed_destinations(input.observed.security_group.iter().chain([document]));
        self.save_records(services, &listed).await?;
        self.context.announce(PlannedChange::SecurityGroup(outcome), &outcome.causes);
        Ok(self.context.writer.caused_by(&outcome.causes).put_security_group(id, document, Urgency::Shared).await?)
    }

    /// Records what a process that begins must know of a group with these destinations, and reports to Services what does not fit.
    async fn save_records(&self, planned: &[ServiceRules], listed: &ListedDestinations) -> CloudResult<()> {
        let index = &self.context.service_index;
        let records = index.with_memory(|memory| memory.records(planned, listed));
        let omitted = self.context.rule_records.save(&records, index).await?;
        for service in omitted.iter().filter_map(|identity| index.service(identity)) {
            self.context.events.record(events::addresses_not_recorded(&service));
        }
        Ok(())
    }

    fn record_applied(
        &self,
        requests: &[ServiceRequest],
        input: &StageInput,
        rules: PlannedSecurityRules,
    ) -> ServiceResults<SecurityGroupStageResult> {
        let PlannedSecurityRules { plan: outcome, services: reaches, refused, .. } = rules;
        let requests: BTreeMap<&ServiceIdentity, &ServiceRequest> =
            requests.iter().map(|request| (request.identity(), request)).collect();
        for (who, refusal) in outcome.services.iter().filter_map(|(who, answer)| Some((who, answer.as_ref().err()?))) {
            self.context.announce(PlannedChange::Refused(who, refusal), [who]);
        }
        let answer = |answer: Result<(), ServiceRefusal>| match answer {
            Ok(()) => Ok(SecurityGroupStageResult::Written),
            Err(refusal) => Err(stage_context::refusal_error(&refusal)),
        };
        let mut answers: ServiceResults<SecurityGroupStageResult> =
            outcome.services.into_iter().map(|(who, result)| (who, answer(result))).collect();
        let index = PlanIndex::new(&input.observed);
        for (who, refusal) in refused {
            // The address may come at the next look.
            let request = requests.get(&who);
            for waiting in request.iter().flat_map(|request| for_addresses(&index, request, &self.context.settings)) {
                self.context.announce(PlannedChange::Waiting(&waiting), [&who]);
            }
            answers.insert(who, Err(CloudError::failed(refusal.to_string())));
        }
        let listed =
            security_rules::listed_destinations(outcome.document.as_ref().or(input.observed.security_group.as_ref()));
        for reach in reaches.into_iter().filter(|reach| answers.get(&reach.identity).is_some_and(Result::is_ok)) {
            let removed = || ServiceRequest::Delete(reach.identity.clone(), None);
            let request = requests.get(&reach.identity).map_or_else(removed, |request| (*request).clone());
            self.context.service_index.with_memory(|memory| memory.record_applied(&request, &reach, &listed));
        }
        answers.retain(|who, _| requests.contains_key(who));
        answers
    }
}
