//! The way of one Service through the stages. Each stage serves all who have come to it at once.
//!
//! ```text
//! plan ─► public IPs (each by itself) ─► load balancers ─► pool members ─► security group ─┬─► public IPs that can go
//!                                             (before)  └─► private link services ──────────┘
//! ```
//!
//! A Service whose first plan writes nothing at public IPs and load balancers does not wait for the batch of load balancers.
//!
//! Killed anywhere, the next try goes the same way and finds what is done already; what is made is tagged or named so that it is found.

mod pools;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::{join, join_all};

use super::{
    admission::{Admission, PublicIpWrites, admit},
    batch_commit::{ServiceQuarantine, ServiceResults, commit_batch},
    drift::DriftVerdict,
    load_balancers::{LoadBalancerStage, LoadBalancerStageResult, PlacedService},
    machine_rules::{self, DueMachineRules},
    newcomers::Newcomer,
    plan_services,
    pool_readiness::PoolReadiness,
    private_links,
    progress::PipelineStage,
    security_group::{SecurityGroupStage, SecurityGroupStageResult},
    stage_context::StageContext,
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{
            Urgency,
            batch::batcher::{BatchInterrupted, BatchReservation, Batcher},
        },
        load_balancer::{events::ArmCallKind, explain::cloud_error},
        model::{ArmErrorClass, ArmResult, ResourceId},
        planner::load_balancer::{
            desired::{ServiceRequest, expected, load_balancers::RetainedFrontend, public_ips::PublicIpRelease},
            plan::print::PlannedChange,
            spec::ServiceIdentity,
        },
    },
};

/// How often a Service begins anew because its public IPs have changed, before the queue of the controller spaces the tries.
const MAX_PASSES: usize = 6;
/// Least time in which asks gather at a stage: a hundredth of what the writes take. Those who leave a stage together come to the next
/// one a moment after each other.
const MIN_GATHER_DELAY: Duration = Duration::from_millis(50);

/// Longest that a Service with its public IPs waits for others that still get theirs.
const MAX_LOAD_BALANCER_DELAY: Duration = Duration::from_secs(30);
/// Longest that one batch delays later ones. These leave alone what it writes.
const MAX_EXCLUSIVE: Duration = Duration::from_secs(5);
/// Longest that it waits for others before the security group is written: they come in the batches of the load balancers.
const MAX_SECURITY_GROUP_DELAY: Duration = Duration::from_secs(5);

/// One ask on its way.
struct QueuedRequest {
    request: ServiceRequest,
    urgency: Urgency,
    /// Fingerprint of the Nodes when all was as it asks; `None`: whatever differs is written.
    compared: Option<u64>,
}

/// How the way through the stages ended.
pub(super) enum PipelineResult {
    /// All is as asked, for the Nodes with this fingerprint.
    Done(RetainedResources, u64),
    /// Somebody else changed something, which is left as it is.
    LeftDrifted,
}

/// What stays although a Service does not want it any more, or is not as it requests.
#[derive(Default)]
pub(super) struct RetainedResources {
    pub(super) frontends: Vec<RetainedFrontend>,
    pub(super) public_ips: Vec<PublicIpRelease>,
    /// Public IP without the DNS label of the Service, because another public IP has it.
    pub(super) unlabeled: Option<PublicIpRelease>,
}

/// Code of ARM for a DNS label that another public IP of the region has.
const LABEL_IN_USE: &str = "DnsRecordInUse";

impl RetainedResources {
    /// Returns `true` if nothing must change any more, so that a later difference is an external change.
    pub(super) fn is_settled(&self) -> bool {
        self.frontends.is_empty() && self.public_ips.iter().all(|release| release.is_notice) && self.unlabeled.is_none()
    }
}

/// The stages.
pub(super) struct ServicePipeline {
    pub(super) context: Arc<StageContext>,
    admission: Batcher<QueuedRequest, CloudResult<Admission>>,
    load_balancers: Batcher<QueuedRequest, CloudResult<LoadBalancerStageResult>>,
    pools: Batcher<QueuedRequest, CloudResult<PoolReadiness>>,
    security: Batcher<QueuedRequest, CloudResult<SecurityGroupStageResult>>,
    quarantines: (ServiceQuarantine, ServiceQuarantine),
}

impl ServicePipeline {
    pub(super) fn new(context: StageContext) -> Self {
        Self {
            context: Arc::new(context),
            admission: Batcher::new(MIN_GATHER_DELAY, Duration::ZERO),
            load_balancers: Batcher::new(MIN_GATHER_DELAY, MAX_LOAD_BALANCER_DELAY)
                .overlapping(MAX_EXCLUSIVE, |result| !matches!(result, Ok(LoadBalancerStageResult::Busy(_)))),
            pools: Batcher::new(MIN_GATHER_DELAY, Duration::ZERO),
            security: Batcher::new(MIN_GATHER_DELAY, MAX_SECURITY_GROUP_DELAY)
                .overlapping(MAX_EXCLUSIVE, |result| !matches!(result, Ok(SecurityGroupStageResult::Busy))),
            quarantines: Default::default(),
        }
    }

    /// How many wait at which stage.
    pub(super) fn waiting(&self) -> [(&'static str, usize); 4] {
        [
            ("plan", self.admission.waiting()),
            ("loadBalancers", self.load_balancers.waiting()),
            ("members", self.pools.waiting()),
            ("securityGroup", self.security.waiting()),
        ]
    }

    /// Brings everything to what is asked. Answers what could not be taken away.
    ///
    /// `compared`: for which Nodes all was as asked. `is_retry`: whether an earlier try did not succeed, so that one of its writes may still be in flight.
    pub(super) async fn run(
        &self,
        request: &ServiceRequest,
        urgency: Urgency,
        mut compared: Option<u64>,
        mut is_retry: bool,
    ) -> CloudResult<PipelineResult> {
        for _ in 0..MAX_PASSES {
            let (attempt, unlabeled) = self.context.refused_labels.without_label(request);
            let Some(mut result) = self.run_once(&attempt, urgency, &mut compared, is_retry).await? else {
                is_retry = true;
                continue;
            };
            if let ServiceRequest::Delete(identity, _) = request {
                self.context.public_ip_attempts.lock().remove(identity);
                self.context.refused_labels.forget(identity);
                self.context.drift.forget(identity);
                self.context.placement_labels.forget(identity);
            }
            if let PipelineResult::Done(retained, _) = &mut result {
                retained.unlabeled = unlabeled;
            }
            return Ok(result);
        }
        Err(CloudError::failed(format!("public IPs modified concurrently; gave up after {MAX_PASSES} attempts")))
    }

    /// Runs the stages once. Returns `None` if the Service starts again, because a document differs from the planned one.
    async fn run_once(
        &self,
        ask: &ServiceRequest,
        urgency: Urgency,
        compared: &mut Option<u64>,
        is_retry: bool,
    ) -> CloudResult<Option<PipelineResult>> {
        let (reservation, security_reservation) = (self.load_balancers.reserve(), self.security.reserve());
        let newcomer = self.newcomer(ask);
        self.report_stage(ask, PipelineStage::Planning);
        let queued = |compared: Option<u64>| QueuedRequest { request: ask.clone(), urgency, compared };
        let admission = self.admission.submit(queued(*compared), None, |turns| self.admit(turns));
        let Admission { public_ips, drift, nodes, placed } = batch_result(admission.await)??;
        match self.context.judge_drift(ask.identity(), drift) {
            DriftVerdict::Right => {}
            DriftVerdict::Repair(_) => *compared = None,
            DriftVerdict::Report(_) | DriftVerdict::Delay(_) => return Ok(Some(PipelineResult::LeftDrifted)),
        }
        let queued = || queued(None);
        if !self.put_public_ips(ask, &public_ips, urgency).await? {
            return Ok(None);
        }
        // What was written for an earlier try, and a rejection of it, ends in the batch of load balancers.
        let may_be_in_batch = is_retry || self.quarantines.0.all().contains(ask.identity());
        let result = match placed.filter(|_| !may_be_in_batch) {
            Some(placed) => {
                drop(reservation);
                LoadBalancerStageResult::Placed(placed)
            }
            None => self.submit_to_load_balancers(ask, queued, reservation).await?,
        };
        let LoadBalancerStageResult::Placed(got) = result else { return Ok(None) };
        drop(newcomer);
        let reached = async {
            let joined = self.join_pools(ask, queued).await;
            if got.recreated {
                drop(security_reservation);
            } else {
                // Who may reach the front end does not depend on which machines are behind it.
                self.report_stage(ask, PipelineStage::SecurityGroup);
                self.submit_to_security_group(queued, security_reservation).await?;
            }
            joined
        };
        let linked = private_links::write_after(&self.context, ask, &got.private_links, urgency);
        // Boxed, since whoever waits would otherwise hold room for both twice.
        let (reached, linked) = join(Box::pin(reached), Box::pin(linked)).await;
        reached?;
        let released = self.release(ask, &got, urgency).await;
        let finished = linked.and_then(|is_linked| Ok(released? && is_linked));
        let is_done = finished.map_err(|error| self.incomplete(ask, &got, error))? && !got.recreated;
        let PlacedService { placement: placed, retained_public_ips: kept, .. } = *got;
        let kept = RetainedResources { frontends: placed.retained_frontends, public_ips: kept, unlabeled: None };
        Ok(is_done.then_some(PipelineResult::Done(kept, nodes)))
    }

    /// Returns `error` with the addresses of the Service, if they serve it although a private link service or the deletion of a public IP
    /// failed.
    fn incomplete(&self, request: &ServiceRequest, placed: &PlacedService, error: CloudError) -> CloudError {
        let ServiceRequest::Ensure(spec) = request else { return error };
        let addresses = self.context.observer.cached_status(spec);
        if placed.recreated || addresses.is_empty() {
            return error;
        }
        CloudError::Incomplete { status: plan_services::ingress(&addresses), error: Box::new(error) }
    }

    /// Says that a load balancer is about to be made for this Service.
    fn newcomer(&self, request: &ServiceRequest) -> Option<Newcomer<'_>> {
        let ServiceRequest::Ensure(spec) = request else { return None };
        let id = expected::load_balancer(spec.internal, &self.context.settings);
        (!self.context.observer.has_load_balancer(&id)).then(|| self.context.newcomers.announce(id))
    }

    async fn submit_to_load_balancers(
        &self,
        request: &ServiceRequest,
        queued: impl Fn() -> QueuedRequest,
        reservation: BatchReservation<'_, QueuedRequest, CloudResult<LoadBalancerStageResult>>,
    ) -> CloudResult<LoadBalancerStageResult> {
        self.report_stage(request, PipelineStage::LoadBalancer);
        let mut reservation = Some(reservation);
        loop {
            let written = self.load_balancers.submit(queued(), reservation.take(), |turns| self.write_load_balancers(turns));
            match batch_result(written.await)?? {
                LoadBalancerStageResult::Busy(documents) => self.context.load_balancers.freed(&documents).await,
                result => return Ok(result),
            }
        }
    }

    async fn submit_to_security_group(
        &self,
        queued: impl Fn() -> QueuedRequest,
        reservation: BatchReservation<'_, QueuedRequest, CloudResult<SecurityGroupStageResult>>,
    ) -> CloudResult<()> {
        let mut reservation = Some(reservation);
        let group = self.context.settings.security_group.iter().map(ResourceId::key).collect();
        loop {
            let rules = self.security.submit(queued(), reservation.take(), |turns| self.write_rules(turns));
            match batch_result(rules.await)?? {
                SecurityGroupStageResult::Busy => self.context.security_group.freed(&group).await,
                SecurityGroupStageResult::Written => return Ok(()),
            }
        }
    }

    fn report_stage(&self, request: &ServiceRequest, stage: PipelineStage) {
        self.context.progress.enter(&request.identity().key, stage);
    }

    async fn admit(&self, turns: Vec<QueuedRequest>) -> Vec<CloudResult<Admission>> {
        let known = |queued: &QueuedRequest| Some((queued.request.identity().clone(), queued.compared?));
        let compared = turns.iter().filter_map(known).collect();
        let (requests, urgency) = merge_requests(turns);
        admit(&self.context, requests, compared, urgency).await
    }

    /// Writes public IPs. Returns `false` if the Service starts again, without the DNS label if ARM refused that.
    async fn put_public_ips(&self, request: &ServiceRequest, puts: &PublicIpWrites, urgency: Urgency) -> CloudResult<bool> {
        if !puts.is_empty() {
            self.report_stage(request, PipelineStage::PublicIps);
            self.context.public_ip_attempts.lock().insert(request.identity().clone());
        }
        let had_address = request.spec().is_some_and(|spec| !spec.status_addresses.is_empty());
        let writes = puts.iter().map(|put| {
            put.run(|change| {
                self.context.announce(PlannedChange::PublicIp(change), &change.causes);
                let writer = self.context.writer.caused_by(&change.causes);
                async move { writer.put_public_ip(change, had_address, urgency).await }
            })
        });
        for (put, written) in puts.iter().zip(join_all(writes).await) {
            match written {
                Ok(()) => {}
                Err(error) if error.class == ArmErrorClass::Conflict => return Ok(false),
                Err(error) if error.mentions(LABEL_IN_USE) => {
                    self.context.refused_labels.record(request, put.change());
                    return Ok(false);
                }
                Err(error) => {
                    self.context.record_failed_call(
                        std::slice::from_ref(request),
                        ArmCallKind::CreateOrUpdatePublicIp,
                        &error,
                    );
                    return Err(cloud_error("write a public IP", error));
                }
            }
        }
        Ok(true)
    }

    async fn write_load_balancers(&self, turns: Vec<QueuedRequest>) -> Vec<CloudResult<LoadBalancerStageResult>> {
        let (requests, urgency) = merge_requests(turns);
        let order: Vec<ServiceIdentity> = requests.iter().map(|request| request.identity().clone()).collect();
        let stage = LoadBalancerStage { context: &self.context, urgency };
        let mut answers = commit_batch(&stage, requests, &self.quarantines.0).await;
        order.iter().map(|who| answers.remove(who).unwrap_or(Ok(LoadBalancerStageResult::Replan))).collect()
    }

    /// And rules that lead to machines, when pools have other members since those were written.
    async fn write_rules(&self, turns: Vec<QueuedRequest>) -> Vec<CloudResult<SecurityGroupStageResult>> {
        let (mut requests, urgency) = merge_requests(turns);
        let order: Vec<ServiceIdentity> = requests.iter().map(|request| request.identity().clone()).collect();
        let stage = SecurityGroupStage { context: &self.context, urgency };
        let due = machine_rules::due(&self.context);
        if let Some(due) = &due {
            let asking: BTreeSet<&ServiceIdentity> = order.iter().collect();
            requests.extend(due.requests.iter().filter(|request| !asking.contains(request.identity())).cloned());
        }
        let answers = commit_batch(&stage, requests, &self.quarantines.1).await;
        due.into_iter().for_each(|due| self.finish_machine_rules(&due, &answers));
        let unanswered = || Err(CloudError::failed("the security group plan does not include this Service"));
        // A Service may be there twice: for itself, and because machines joined.
        order.iter().map(|who| answers.get(who).cloned().unwrap_or_else(unanswered)).collect()
    }

    /// Takes note of rules that were due. What failed stays due.
    fn finish_machine_rules(&self, due: &DueMachineRules, answers: &ServiceResults<SecurityGroupStageResult>) {
        let written = |request: &ServiceRequest| match answers.get(request.identity()) {
            Some(Err(error)) => {
                tracing::warn!(%error, "the security group lacks rules for some machines in back-end pools");
                false
            }
            answer => matches!(answer, Some(Ok(SecurityGroupStageResult::Written))),
        };
        if due.requests.iter().filter(|request| !written(request)).count() == 0 {
            due.record(&self.context);
        }
    }

    /// Brings the pools to the Nodes, unless they are, and opens the machines in them to Services whose rules lead to machines, if that is
    /// due. One of the recorded Services that do not exist any more, `deleted`, has the rules of all of them removed. What fails is tried again
    /// in a minute.
    pub(super) async fn sync_hosts(&self, is_synced: bool, deleted: Option<ServiceIdentity>) -> CloudResult<()> {
        let urgency = Urgency::Node;
        let joined = if is_synced { Ok(()) } else { self.sync_members().await };
        let requests = machine_rules::due(&self.context).into_iter().flat_map(|due| due.requests);
        let requests = requests.chain(deleted.map(|identity| ServiceRequest::Delete(identity, None)));
        let turns = requests.map(|request| QueuedRequest { request, urgency, compared: None });
        // Who leads the batch tells what failed.
        join_all(turns.map(|queued| self.security.submit(queued, None, |turns| self.write_rules(turns)))).await;
        joined
    }

    /// Whether those that can go are gone; otherwise somebody else has written one.
    async fn release(&self, request: &ServiceRequest, got: &PlacedService, urgency: Urgency) -> CloudResult<bool> {
        if !got.releases.is_empty() {
            self.report_stage(request, PipelineStage::Releasing);
        }
        let deletions = got.releases.iter().map(|it| {
            it.run(|release| {
                self.context.announce(PlannedChange::Release(release), &release.services);
                let writer = self.context.writer.caused_by(&release.services);
                async move { writer.delete_public_ip(release, urgency).await }
            })
        });
        match join_all(deletions).await.into_iter().collect::<ArmResult<()>>() {
            Ok(()) => Ok(true),
            Err(error) if error.class == ArmErrorClass::Conflict => Ok(false),
            Err(error) => {
                self.context.record_failed_call(std::slice::from_ref(request), ArmCallKind::DeletePublicIp, &error);
                Err(cloud_error("delete a public IP", error))
            }
        }
    }
}

/// All asks, with the greatest urgency of them.
fn merge_requests(turns: Vec<QueuedRequest>) -> (Vec<ServiceRequest>, Urgency) {
    let urgency = turns.iter().map(|queued| queued.urgency).min().unwrap_or(Urgency::Resync);
    (turns.into_iter().map(|queued| queued.request).collect(), urgency)
}

fn batch_result<R>(result: Result<R, BatchInterrupted>) -> CloudResult<R> {
    result.map_err(|interrupted| CloudError::failed(interrupted.to_string()))
}
