//! The second stage: load balancers, all of them at once.
//!
//! In: asks whose public IPs are there. Out: what each got, and which public IPs can go now.

mod busy;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use futures::future::{join, join_all};

use self::busy::{BusyServices, keys_of, leave_out, needing};
use super::{
    backend_pools::{self, LoadBalancerDeletion},
    batch_commit::{self, AttemptError, BatchStage, ServiceResults},
    in_flight::ALL,
    planning::{StagePlan, StagePlanRequest, blocked_error},
    private_links::{self, HeldServices, PrivateLinkWrite},
    shared_write::SharedWrite,
    stage_context::{self, StageContext, StageInput},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{Urgency, batch::bisect::BatchError},
        config::BackendPoolType,
        load_balancer::{events::ArmCallKind, explain::unprovisioned_public_ip},
        model::{
            ArmError, ArmErrorClass, ResourceId,
            network::{ArmLoadBalancer, PublicIpAddress},
        },
        planner::load_balancer::{
            desired::{
                ServiceRequest,
                load_balancers::{LoadBalancerChange, LoadBalancerWrite, ServicePlacement},
                private_links::reads::touched_frontends,
                public_ips::PublicIpRelease,
                status::has_parts_of,
            },
            plan::{Plan, PlanScope, network::NetworkPlan, pools::new_pools, print::PlannedChange, waiting::recreations},
            spec::ServiceIdentity,
        },
    },
};

/// How often a write is planned anew because somebody else has written.
const MAX_CONFLICTS: usize = 5;

/// What a Service got.
pub(super) enum LoadBalancerStageResult {
    /// Its public IPs have to be looked at again first.
    Replan,
    /// Another batch writes these documents. The Service comes again when they are free.
    Busy(BTreeSet<String>),
    /// This.
    Placed(Box<PlacedService>),
}

/// What a Service got.
#[derive(Default)]
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

/// A load balancer to write, and the Services that cause it.
type CausedChange<'a> = (&'a LoadBalancerChange, &'a BTreeSet<ServiceIdentity>);

/// See the module.
pub(super) struct LoadBalancerStage<'a> {
    pub(super) context: &'a Arc<StageContext>,
    pub(super) urgency: Urgency,
}

#[async_trait]
impl BatchStage for LoadBalancerStage<'_> {
    type Output = LoadBalancerStageResult;

    fn action(&self) -> &'static str {
        "write the load balancer"
    }

    fn is_settled(result: &LoadBalancerStageResult) -> bool {
        !matches!(result, LoadBalancerStageResult::Busy(_))
    }

    async fn attempt(&self, requests: &[ServiceRequest]) -> Result<ServiceResults<LoadBalancerStageResult>, AttemptError> {
        let mut busy = BusyServices::new();
        let mut results = match self.attempt_free(requests, &mut busy).await {
            // Those who wait for another batch have no part in it.
            Err(error) if !busy.is_empty() && !error.can_split() => {
                let error = batch_commit::into_cloud_error(self.action(), error);
                requests.iter().map(|request| (request.identity().clone(), Err(error.clone()))).collect()
            }
            results => results?,
        };
        results.extend(busy.into_iter().map(|(service, occupied)| (service, Ok(LoadBalancerStageResult::Busy(occupied)))));
        Ok(results)
    }
}

impl LoadBalancerStage<'_> {
    /// Writes what no other batch writes. Adds those who need the rest to `busy`.
    async fn attempt_free(
        &self,
        requests: &[ServiceRequest],
        busy: &mut BusyServices,
    ) -> Result<ServiceResults<LoadBalancerStageResult>, AttemptError> {
        let (mut held, mut half_made, mut rejection) = (HeldServices::new(), BTreeSet::new(), None::<ArmError>);
        let mut exclusive = None;
        for _ in 0..MAX_CONFLICTS {
            let left_out = held.keys().chain(busy.keys()).cloned().collect();
            let mut planned = self.plan(requests, &left_out, &half_made).await?;
            let touched = touched_frontends(&planned.input.observed, &planned.plan.network.load_balancers);
            if self.context.private_links.settled(&touched).await {
                planned = self.plan(requests, &left_out, &half_made).await?;
            }
            let StagePlan { input, plan: Plan { network: mut plan, unready, blocked, mut causes, .. } } = planned;
            let is_free = |request: &&ServiceRequest| !left_out.contains(request.identity());
            let keys = if exclusive.is_some() { BTreeSet::new() } else { keys_of(&plan, requests.iter().filter(is_free)) };
            let is_exclusive = keys.contains(ALL);
            let (occupation, occupied) = self.context.load_balancers.occupy(keys);
            let more = needing(&occupied, &plan, &causes, requests);
            if !more.is_empty() {
                busy.extend(more);
                continue;
            }
            leave_out(&occupied, &mut plan, &mut causes);
            let _occupation = if is_exclusive { exclusive.replace(occupation) } else { Some(occupation) };
            let mut hindered = held.clone();
            hindered.extend(blocked.iter().map(|(who, blocked)| (who.clone(), blocked_error(blocked))));
            let is_free = |service: &ServiceIdentity| !hindered.contains_key(service) && !busy.contains_key(service);
            let free = requests.iter().filter(|request| is_free(request.identity())).cloned();
            let (unready, ready): (Vec<_>, Vec<_>) = free.partition(|request| unready.contains(request.identity()));
            if let (false, Some(error)) = (self.finish_public_ips(&plan).await, rejection.take()) {
                return Err(error.into());
            }
            if let Some(more) = private_links::write_first(self.context, &plan.private_links, self.urgency).await {
                held.extend(more);
                continue;
            }
            self.announce_unwritten(&plan);
            match self.write(&plan, &causes, &input, requests).await {
                Err(UnwrittenLoadBalancers { error: AttemptError::Arm(error), .. })
                    if error.class == ArmErrorClass::Conflict =>
                {
                    tracing::info!(%error, "document modified concurrently, planning again");
                }
                Ok(()) if plan.load_balancers.is_interim => {
                    tracing::info!("addresses given back, planning who takes them");
                }
                Err(UnwrittenLoadBalancers { error: AttemptError::Arm(error), .. })
                    if self.context.discover_private_links(&error, &input, self.urgency).await =>
                {
                    tracing::info!(%error, "a private link service holds a front end, planning again");
                }
                Err(UnwrittenLoadBalancers { error: AttemptError::Arm(error), .. })
                    if self.is_new_half_made(&error, &mut half_made) =>
                {
                    tracing::info!(%error, "a public IP is half made, planning again");
                    rejection = Some(error);
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
                    answers.extend(
                        hindered.into_iter().chain(failed.into_iter().flatten()).map(|(who, error)| (who, Err(error))),
                    );
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

fn results(
    ready: &[ServiceRequest],
    unready: &[ServiceRequest],
    plan: NetworkPlan,
) -> ServiceResults<LoadBalancerStageResult> {
    let NetworkPlan { public_ips, load_balancers, private_links, mut refused } = plan;
    let links = private_links::writes_of(private_links);
    let mut links = by_service(links);
    let mut retained = by_service(public_ips.retained.into_iter().map(|kept| (kept.services.clone(), kept)));
    let releases = public_ips.releases.into_iter();
    let mut releases = by_service(releases.map(|release| (release.services.clone(), Arc::new(SharedWrite::new(release)))));
    let recreated: BTreeSet<_> = public_ips.recreated.into_iter().map(|(identity, _)| identity).collect();
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
                retained_public_ips: retained.remove(&who).unwrap_or_default(),
                releases: releases.remove(&who).unwrap_or_default(),
                private_links: links.remove(&who).unwrap_or_default(),
                recreated: recreated.contains(&who),
            }))),
        };
        answers.insert(who, answer);
    }
    answers
}

/// Returns the items of each Service, in their order. An item that lists a Service several times is its own once.
fn by_service<T: Clone>(items: impl IntoIterator<Item = (Vec<ServiceIdentity>, T)>) -> BTreeMap<ServiceIdentity, Vec<T>> {
    let mut found: BTreeMap<ServiceIdentity, Vec<T>> = BTreeMap::new();
    for (services, item) in items {
        for service in services.into_iter().collect::<BTreeSet<_>>() {
            found.entry(service).or_default().push(item.clone());
        }
    }
    found
}

impl LoadBalancerStage<'_> {
    /// Plans on what there is. `held`: those who cannot go on.
    async fn plan(
        &self,
        requests: &[ServiceRequest],
        held: &BTreeSet<ServiceIdentity>,
        half_made: &BTreeSet<ResourceId>,
    ) -> CloudResult<StagePlan> {
        let request = StagePlanRequest::write(PlanScope::LoadBalancers, requests, self.urgency);
        self.context.plan(&StagePlanRequest { held, half_made, ..request }).await
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
        causes: &[BTreeSet<ServiceIdentity>],
        input: &StageInput,
        requests: &[ServiceRequest],
    ) -> Result<(), UnwrittenLoadBalancers> {
        let documents = &plan.load_balancers.changes;
        let waves: BTreeSet<u8> = documents.iter().map(|change| change.wave).collect();
        for wave in waves {
            let at_once = || documents.iter().zip(causes).filter(|(change, _)| change.wave == wave);
            at_once().for_each(|(change, causes)| {
                self.context.announce(PlannedChange::LoadBalancer(change, causes), causes);
            });
            let (puts, deletions): (Vec<CausedChange<'_>>, Vec<CausedChange<'_>>) =
                at_once().partition(|(change, _)| matches!(change.write, LoadBalancerWrite::Put(_)));
            // What one answers breaks off none of the others.
            let (put, deleted) =
                join(join_all(puts.iter().map(|put| self.put(*put, input))), self.delete(&deletions, input, requests)).await;
            let answers = puts.into_iter().zip(put).chain(deletions.into_iter().zip(deleted));
            let mut failed: Vec<_> = answers.filter_map(|((change, _), written)| Some((change, written.err()?))).collect();
            if !failed.is_empty() {
                let later = documents.iter().filter(|change| change.wave > wave);
                let ids = failed.iter().map(|(change, _)| *change).chain(later).map(|change| change.id.clone()).collect();
                return Err(UnwrittenLoadBalancers { ids, error: failed.remove(0).1 });
            }
        }
        Ok(())
    }

    async fn put(&self, (change, causes): CausedChange<'_>, input: &StageInput) -> Result<(), AttemptError> {
        let LoadBalancerWrite::Put(document) = &change.write else { return Ok(()) };
        let new = new_pools(&input.observed, change);
        let writer = self.context.writer.caused_by(causes);
        if let Err(error) = writer.put_load_balancer(&change.id, document, Urgency::Shared).await {
            self.context.record_interface_limit([&error]);
            return Err(error.into());
        }
        if !new.is_empty() {
            self.context.unfilled_pools.lock().extend(new);
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
        changes: &[CausedChange<'_>],
        input: &StageInput,
        requests: &[ServiceRequest],
    ) -> Vec<Result<(), AttemptError>> {
        let begin = |(change, _): &CausedChange<'_>| {
            Some((input.observed.load_balancer(&change.id)?, self.context.begin_deletion(&change.id)))
        };
        let begun: Vec<Option<(&ArmLoadBalancer, LoadBalancerDeletion<'_>)>> = changes.iter().map(begin).collect();
        let emptied: Vec<&ArmLoadBalancer> = begun.iter().flatten().map(|(document, _)| *document).collect();
        let left = match emptied.is_empty() {
            true => Ok(()),
            false => backend_pools::leave(self.context, requests, &emptied, self.urgency).await,
        };
        let held_up = |change: &LoadBalancerChange| left.as_ref().err().filter(|error| error.concerns(&change.id)).cloned();
        let deletions = changes.iter().zip(begun).map(|(change, begun)| {
            let held_up = held_up(change.0);
            async move {
                match held_up {
                    Some(error) => Err(AttemptError::SomeServices(error.into())),
                    None => self.delete_emptied(*change, begun, requests).await,
                }
            }
        });
        join_all(deletions).await
    }

    async fn delete_emptied(
        &self,
        (change, causes): CausedChange<'_>,
        begun: Option<(&ArmLoadBalancer, LoadBalancerDeletion<'_>)>,
        requests: &[ServiceRequest],
    ) -> Result<(), AttemptError> {
        let Some((document, mut deletion)) = begun else { return Ok(()) };
        let writer = self.context.writer.caused_by(causes);
        let deleted = writer.delete_load_balancer(&change.id, document, Urgency::Shared).await;
        deletion.is_gone = deleted.is_ok();
        Ok(deleted.inspect_err(|error| self.context.record_failed_call(requests, ArmCallKind::DeleteLoadBalancer, error))?)
    }

    /// Writes public IPs that ARM has left half made. Returns whether they are finished.
    async fn finish_public_ips(&self, plan: &NetworkPlan) -> bool {
        let mut are_finished = true;
        for change in &plan.public_ips.writes {
            self.context.announce(PlannedChange::PublicIp(change), &change.services);
            let writer = self.context.writer.caused_by(&change.services);
            if let Err(error) = writer.put_public_ip(change, false, self.urgency).await {
                tracing::warn!(%error, id = %change.id, "cannot finish a partially created public IP");
                are_finished = false;
            }
        }
        are_finished
    }

    /// Whether ARM refused because of a public IP that it has left half made, which was not known.
    fn is_new_half_made(&self, error: &ArmError, half_made: &mut BTreeSet<ResourceId>) -> bool {
        let known =
            unprovisioned_public_ip(error).filter(|id| self.context.observer.document::<PublicIpAddress>(id).is_some());
        known.is_some_and(|id| half_made.insert(id))
    }
}
