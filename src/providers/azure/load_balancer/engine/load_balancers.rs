//! The second stage: load balancers, all of them at once.
//!
//! In: asks whose public IPs are there. Out: what each got, and which public IPs can go now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use futures::future::{join, join_all};

#[cfg(feature = "sandbox")]
use super::dry_run::show_plan;
use super::{
    backend_pools::{self, LoadBalancerDeletion},
    batch_commit::{self, AttemptError, BatchStage, ServiceResults},
    private_links::{self, HeldServices, PrivateLinkWrite},
    shared_write::SharedWrite,
    stage_context::{self, StageContext, StageInput, partition_blocked},
};
use crate::{
    cloud_provider::CloudError,
    providers::azure::{
        arm::{ArmError, ArmErrorClass, ResourceId, Urgency, batch::bisect::BatchError, network::ArmLoadBalancer},
        config::BackendPoolType,
        load_balancer::{events::ArmCallKind, explain::unprovisioned_public_ip},
        planner::load_balancer::{
            desired::{
                ServiceRequest,
                load_balancers::{LoadBalancerChange, LoadBalancerWrite, ServicePlacement},
                private_links::touched::touched_frontends,
                public_ips::{self, PublicIpRelease},
                status::has_parts_of,
            },
            plan::{
                network::{NetworkPlan, plan_network},
                pools::new_pools,
                print::PlannedChange,
                waiting::recreations,
            },
            spec::{ServiceIdentity, ServiceSpec},
        },
    },
};

/// How often a write is planned anew because somebody else has written.
const MAX_CONFLICTS: usize = 5;

/// What a Service got.
pub(super) enum LoadBalancerStageResult {
    /// Its public IPs have to be looked at again first.
    Replan,
    /// This.
    Placed(Box<PlacedService>),
}

/// What a Service got.
pub(super) struct PlacedService {
    pub(super) placement: ServicePlacement,
    /// Public IPs that stay as they are although it would have them deleted or changed.
    pub(super) retained_public_ips: Vec<PublicIpRelease>,
    /// Public IPs that can go.
    pub(super) releases: Vec<Arc<SharedWrite<PublicIpRelease>>>,
    /// Private link services that lead to its front ends, to be written now.
    pub(super) private_links: Vec<PrivateLinkWrite>,
    /// Whether one of them comes back as a new one.
    pub(super) recreated: bool,
}

/// See the module.
pub(super) struct LoadBalancerStage<'a> {
    pub(super) context: &'a StageContext,
    pub(super) urgency: Urgency,
}

#[async_trait]
impl BatchStage for LoadBalancerStage<'_> {
    type Output = LoadBalancerStageResult;

    fn action(&self) -> &'static str {
        "write the load balancer"
    }

    async fn attempt(&self, requests: &[ServiceRequest]) -> Result<ServiceResults<LoadBalancerStageResult>, AttemptError> {
        let mut held = HeldServices::new();
        let mut conflicts = 0;
        for _ in 0..MAX_CONFLICTS {
            // Each private link service gives its load balancer another version, many at once perhaps too many.
            self.context.private_links.settled(|_| conflicts > 1).await;
            let mut planned = self.plan(requests, &held).await?;
            let touched = touched_frontends(&planned.input.observed, &planned.plan.load_balancers);
            if self.context.private_links.settled(|frontend| touched.contains(frontend)).await {
                planned = self.plan(requests, &held).await?;
            }
            #[cfg(feature = "sandbox")]
            show_plan(self.context, &planned.input, &planned.ready).await;
            let PlannedBatch { input, hindered, ready, unready, plan } = planned;
            if let Some(more) = private_links::write_first(self.context, &plan.private_links, self.urgency).await {
                held.extend(more);
                continue;
            }
            self.announce_unwritten(&plan);
            match self.write(&plan, &input, requests).await {
                Err(UnwrittenLoadBalancers { error: AttemptError::Arm(error), .. })
                    if error.class == ArmErrorClass::Conflict =>
                {
                    tracing::info!(%error, "document modified concurrently, planning again");
                    conflicts += 1;
                }
                Ok(()) if plan.load_balancers.is_interim => {
                    tracing::info!("addresses given back, planning who takes them");
                }
                Err(UnwrittenLoadBalancers { error: AttemptError::Arm(error), .. })
                    if self.context.discover_private_links(&error, &input, self.urgency).await =>
                {
                    tracing::info!(%error, "a private link service holds a front end, planning again");
                }
                // What the others need comes in steps that must not come first: Azure would give them addresses that are on their way.
                Err(unwritten) if plan.load_balancers.is_interim => return Err(unwritten.error),
                written => {
                    if written.is_ok() {
                        self.context.report_crowded_interfaces(&plan);
                    }
                    let failed =
                        written.err().map(|unwritten| unwritten.affected_services(&ready, &plan, &input)).transpose()?;
                    let mut answers = results(&ready, &unready, plan);
                    let hindered = hindered.into_iter().map(|(request, error)| (request.identity().clone(), error));
                    answers.extend(hindered.chain(failed.into_iter().flatten()).map(|(who, error)| (who, Err(error))));
                    return Ok(answers);
                }
            }
        }
        Err(CloudError::failed(format!("load balancers modified concurrently; gave up after {MAX_CONFLICTS} attempts"))
            .into())
    }
}

/// Load balancers that were not written, and why the first of them was not.
struct UnwrittenLoadBalancers {
    ids: BTreeSet<ResourceId>,
    error: AttemptError,
}

impl UnwrittenLoadBalancers {
    /// What those of `ready` are told who are on one of these load balancers or have something there. As a whole when a part of
    /// them may be better off without the rest, or when nobody else is there.
    fn affected_services(
        self,
        ready: &[ServiceRequest],
        plan: &NetworkPlan,
        input: &StageInput,
    ) -> Result<HeldServices, AttemptError> {
        let is_unwritten = |document: &&ArmLoadBalancer| {
            document.id.as_deref().is_some_and(|id| self.ids.iter().any(|one| one.same_as(id)))
        };
        let documents: Vec<&ArmLoadBalancer> = input.observed.load_balancers.iter().filter(is_unwritten).collect();
        let has_parts = |who: &ServiceIdentity| documents.iter().any(|document| has_parts_of(document, who));
        let is_on = |who: &ServiceIdentity| {
            let placed =
                plan.load_balancers.services.get(who).and_then(|placed| placed.as_ref().ok()?.load_balancer.as_ref());
            placed.is_some_and(|id| self.ids.contains(id))
        };
        let granted = ready.iter().map(ServiceRequest::identity).filter(|who| !plan.refused.contains_key(*who));
        let held_up: Vec<ServiceIdentity> = granted.filter(|who| is_on(who) || has_parts(who)).cloned().collect();
        if self.error.can_split() || held_up.is_empty() || held_up.len() == ready.len() {
            return Err(self.error);
        }
        let error = batch_commit::into_cloud_error("write the load balancer", self.error);
        Ok(held_up.into_iter().map(|who| (who, error.clone())).collect())
    }
}

/// What is to be written for a batch, and on what that was planned.
struct PlannedBatch {
    input: StageInput,
    hindered: Vec<(ServiceRequest, CloudError)>,
    ready: Vec<ServiceRequest>,
    unready: Vec<ServiceRequest>,
    plan: NetworkPlan,
}

/// Plans for those whose public IPs are there; the rest has to wait for them.
fn plan_ready(
    requests: &[ServiceRequest],
    mut others: Vec<Arc<ServiceSpec>>,
    input: &StageInput,
    context: &StageContext,
) -> (Vec<ServiceRequest>, Vec<ServiceRequest>, NetworkPlan) {
    let first = plan_network(&input.observed, requests, &others, &context.settings);
    let waiting = first.waiting_for_public_ips();
    if waiting.is_empty() {
        return (requests.to_vec(), Vec::new(), first);
    }
    let (unready, ready): (Vec<ServiceRequest>, Vec<ServiceRequest>) =
        requests.iter().cloned().partition(|request| waiting.contains(request.identity()));
    others.extend(unready.iter().filter_map(ServiceRequest::spec).cloned());
    let plan = plan_network(&input.observed, &ready, &others, &context.settings);
    (ready, unready, plan)
}

fn results(
    ready: &[ServiceRequest],
    unready: &[ServiceRequest],
    plan: NetworkPlan,
) -> ServiceResults<LoadBalancerStageResult> {
    let NetworkPlan { public_ips, load_balancers, private_links, mut refused } = plan;
    let links = private_links::writes_of(private_links);
    let releases: Vec<_> = public_ips
        .releases
        .into_iter()
        .map(|release| (release.services.clone(), Arc::new(SharedWrite::new(release))))
        .collect();
    let mut placed: BTreeMap<_, _> =
        load_balancers.services.into_iter().filter_map(|(who, placed)| Some((who, placed.ok()?))).collect();
    let mut answers: ServiceResults<LoadBalancerStageResult> =
        unready.iter().map(|request| (request.identity().clone(), Ok(LoadBalancerStageResult::Replan))).collect();
    for request in ready {
        let who = request.identity().clone();
        let answer = match refused.remove(&who) {
            Some(refusal) => Err(stage_context::refusal_error(&refusal)),
            None => Ok(LoadBalancerStageResult::Placed(Box::new(PlacedService {
                placement: placed.remove(&who).unwrap_or_default(),
                retained_public_ips: public_ips
                    .retained
                    .iter()
                    .filter(|kept| kept.services.contains(&who))
                    .cloned()
                    .collect(),
                releases: releases
                    .iter()
                    .filter(|(services, _)| services.contains(&who))
                    .map(|(_, it)| it.clone())
                    .collect(),
                private_links: links
                    .iter()
                    .filter(|(services, _)| services.contains(&who))
                    .map(|(_, write)| write.clone())
                    .collect(),
                recreated: public_ips.recreated.iter().any(|(identity, _)| *identity == who),
            }))),
        };
        answers.insert(who, answer);
    }
    answers
}

impl LoadBalancerStage<'_> {
    /// Plans on what there is. `held`: those who cannot go on.
    async fn plan(&self, requests: &[ServiceRequest], held: &HeldServices) -> Result<PlannedBatch, AttemptError> {
        let input = self.context.load(requests, self.urgency).await?;
        self.context.progress.replanned(requests.iter().map(|request| request.identity().key.as_str()));
        let planned = self.plan_on(requests, held, input);
        match self.context.with_private_links(requests, &planned.input, &planned.plan, self.urgency).await? {
            Some(more) => Ok(self.plan_on(requests, held, more)),
            None => Ok(planned),
        }
    }

    fn plan_on(&self, requests: &[ServiceRequest], held: &HeldServices, input: StageInput) -> PlannedBatch {
        let (mut free, mut hindered) = partition_blocked(requests, &input, &self.context.settings);
        for request in free.extract_if(.., |request| held.contains_key(request.identity())) {
            let error = held[request.identity()].clone();
            hindered.push((request, error));
        }
        let (ready, unready, plan) = plan_ready(&free, input.specs_and(&hindered), &input, self.context);
        PlannedBatch { input, hindered, ready, unready, plan }
    }

    /// What this stage leaves as it is.
    fn announce_unwritten(&self, plan: &NetworkPlan) {
        for (who, refusal) in &plan.refused {
            self.context.announce(PlannedChange::Refused(who, refusal), [who]);
        }
        for kept in &plan.public_ips.retained {
            self.context.announce(PlannedChange::Retained(kept), &kept.services);
        }
        for (who, waiting) in recreations(plan) {
            self.context.announce(PlannedChange::Waiting(&waiting), [who]);
        }
    }

    async fn write(
        &self,
        plan: &NetworkPlan,
        input: &StageInput,
        requests: &[ServiceRequest],
    ) -> Result<(), UnwrittenLoadBalancers> {
        let documents = &plan.load_balancers.changes;
        let causes = plan.load_balancers.causes(&input.observed, requests);
        let waves: BTreeSet<u8> = documents.iter().map(|change| change.wave).collect();
        for wave in waves {
            let at_once = || documents.iter().zip(&causes).filter(|(change, _)| change.wave == wave);
            at_once().for_each(|(change, causes)| {
                self.context.announce(PlannedChange::LoadBalancer(change, causes), causes);
            });
            let (puts, deletions): (Vec<_>, Vec<_>) =
                at_once().map(|(change, _)| change).partition(|change| matches!(change.write, LoadBalancerWrite::Put(_)));
            // What one answers breaks off none of the others.
            let (put, deleted) =
                join(join_all(puts.iter().map(|change| self.put(change, input))), self.delete(&deletions, input, requests))
                    .await;
            let answers = puts.into_iter().zip(put).chain(deletions.into_iter().zip(deleted));
            let mut failed: Vec<_> = answers.filter_map(|(change, written)| Some((change, written.err()?))).collect();
            if !failed.is_empty() {
                let later = documents.iter().filter(|change| change.wave > wave);
                let ids = failed.iter().map(|(change, _)| *change).chain(later).map(|change| change.id.clone()).collect();
                return Err(UnwrittenLoadBalancers { ids, error: failed.remove(0).1 });
            }
        }
        Ok(())
    }

    async fn put(&self, change: &LoadBalancerChange, input: &StageInput) -> Result<(), AttemptError> {
        let LoadBalancerWrite::Put(document) = &change.write else { return Ok(()) };
        let new = new_pools(&input.observed, change);
        if let Err(error) = self.context.writer.put_load_balancer(&change.id, document, Urgency::Shared).await {
            self.context.record_interface_limit([&error]);
            return Err(self.finish_public_ip(error).await.into());
        }
        if !new.is_empty() {
            self.context.unfilled_pools().extend(new);
            self.context.invalidate_pool_sync();
            // Where pools list addresses, no machine is written, and to wait for other load balancers saves nothing.
            if self.context.settings.pool_type != BackendPoolType::NodeIp {
                self.context.newcomers.pools_created();
            }
        }
        self.context.newcomers.created(&change.id);
        Ok(())
    }

    /// Deletes load balancers. Their machines leave all of them at once, so that each is written once; one that
    /// does not leave holds up those alone whose pools it is in. An answer for each.
    async fn delete(
        &self,
        changes: &[&LoadBalancerChange],
        input: &StageInput,
        requests: &[ServiceRequest],
    ) -> Vec<Result<(), AttemptError>> {
        let known: Vec<Option<&ArmLoadBalancer>> =
            changes.iter().map(|change| input.observed.load_balancer(&change.id)).collect();
        let begun = changes.iter().zip(known).map(|(change, known)| Some((known?, self.context.begin_deletion(&change.id))));
        let begun: Vec<Option<(&ArmLoadBalancer, LoadBalancerDeletion<'_>)>> = begun.collect();
        let emptied: Vec<&ArmLoadBalancer> = begun.iter().flatten().map(|(document, _)| *document).collect();
        let left = match emptied.is_empty() {
            true => Ok(()),
            false => backend_pools::leave(self.context, requests, &emptied, self.urgency).await,
        };
        let held_up = |change: &LoadBalancerChange| left.as_ref().err().filter(|error| error.concerns(&change.id)).cloned();
        let deletions = changes.iter().zip(begun).map(|(change, begun)| {
            let held_up = held_up(change);
            async move {
                match held_up {
                    Some(error) => Err(AttemptError::SomeServices(error.into())),
                    None => self.delete_emptied(change, begun, requests).await,
                }
            }
        });
        join_all(deletions).await
    }

    async fn delete_emptied(
        &self,
        change: &LoadBalancerChange,
        begun: Option<(&ArmLoadBalancer, LoadBalancerDeletion<'_>)>,
        requests: &[ServiceRequest],
    ) -> Result<(), AttemptError> {
        let Some((document, mut deletion)) = begun else { return Ok(()) };
        let deleted = self.context.writer.delete_load_balancer(&change.id, document, Urgency::Shared).await;
        deletion.is_gone = deleted.is_ok();
        Ok(deleted.inspect_err(|error| self.context.record_failed_call(requests, ArmCallKind::DeleteLoadBalancer, error))?)
    }

    /// A public IP that ARM left half made is written as it is, which finishes it. Upstream: `azure_loadbalancer_repo.go`.
    async fn finish_public_ip(&self, error: ArmError) -> ArmError {
        if let Some(change) = unprovisioned_public_ip(&error).and_then(|id| self.unchanged_public_ip(id))
            && let Err(error) = self.context.writer.put_public_ip(&change, false, self.urgency).await
        {
            tracing::warn!(%error, id = %change.id, "cannot finish a partially created public IP");
        }
        error
    }

    fn unchanged_public_ip(&self, id: ResourceId) -> Option<public_ips::PublicIpChange> {
        let document = self.context.observer.public_ip(&id)?;
        let etag = document.etag.clone();
        let reasons = vec!["finish what ARM has left half made".to_owned()];
        Some(public_ips::PublicIpChange { id, document, etag, reasons, services: Vec::new() })
    }
}
