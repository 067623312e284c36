//! The second stage: load balancers, all of them at once.
//!
//! In: asks whose public IPs are there. Out: what each got, and which public IPs can go now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use futures::future::join_all;

use super::{
    admission, membership,
    once::Once,
    rounds::{self, Answers, Document, Trouble},
    world::{Look, World, unhindered},
};
use crate::{
    cloud_provider::CloudError,
    providers::azure::{
        arm::{ArmError, ErrorClass, ResourceId, Urgency, network::LoadBalancer},
        load_balancer::{
            desired::{
                Ask,
                load_balancers::{Change, Placed, Write},
                public_ips::{self, Release},
                status::has_parts_of,
            },
            events::Call,
            explain::unprovisioned_public_ip,
            plan::{Plan, plan},
            spec::{Identity, ServiceSpec},
        },
    },
};

/// How often a write is planned anew because somebody else has written.
const CONFLICTS: usize = 5;

/// What a Service got.
pub(super) enum Step {
    /// Its public IPs have to be looked at again first.
    Again,
    /// This.
    Placed(Box<Got>),
}

/// What a Service got.
pub(super) struct Got {
    pub(super) placed: Placed,
    /// Public IPs that stay as they are although it would have them deleted or changed.
    pub(super) kept: Vec<Release>,
    /// Public IPs that can go.
    pub(super) releases: Vec<Arc<Once<Release>>>,
    /// Whether one of them comes back as a new one.
    pub(super) recreated: bool,
}

/// See the module.
pub(super) struct Balancers<'a> {
    pub(super) world: &'a World,
    pub(super) urgency: Urgency,
}

#[async_trait]
impl Document for Balancers<'_> {
    type Answer = Step;

    fn doing(&self) -> &'static str {
        "write the load balancer"
    }

    async fn attempt(&self, asks: &[Ask]) -> Result<Answers<Step>, Trouble> {
        for _ in 0..CONFLICTS {
            let look = self.world.look(asks, self.urgency).await?;
            let (free, hindered) = unhindered(asks, &look, &self.world.settings);
            let (ready, unready, plan) = plan_ready(&free, look.specs_and(&hindered), &look, self.world);
            match self.write(&plan, &look, asks).await {
                Err(Unwritten { trouble: Trouble::Arm(error), .. }) if error.class == ErrorClass::Conflict => {
                    tracing::info!(%error, "somebody else has written, planning again");
                }
                written => {
                    let failed = written.err().map(|unwritten| unwritten.held_up(&ready, &plan, &look)).transpose()?;
                    let mut answers = answers(&ready, &unready, plan);
                    answers.extend(hindered.into_iter().map(|(ask, error)| (ask.identity().clone(), Err(error))));
                    answers.extend(failed.into_iter().flatten());
                    return Ok(answers);
                }
            }
        }
        Err(CloudError::failed("the load balancers keep being changed by somebody else while they are written").into())
    }
}

/// Load balancers that were not written, and why the first of them was not.
struct Unwritten {
    ids: BTreeSet<ResourceId>,
    trouble: Trouble,
}

impl Unwritten {
    /// The answers to those of `ready` who are on one of these load balancers or have something there. As a whole when a part of
    /// them may be better off without the rest, or when nobody else is there.
    fn held_up(self, ready: &[Ask], plan: &Plan, look: &Look) -> Result<Answers<Step>, Trouble> {
        let is_unwritten = |document: &&LoadBalancer| {
            document.id.as_deref().is_some_and(|id| self.ids.iter().any(|one| one.as_str().eq_ignore_ascii_case(id)))
        };
        let documents: Vec<&LoadBalancer> = look.observed.load_balancers.iter().filter(is_unwritten).collect();
        let has_parts = |who: &Identity| documents.iter().any(|document| has_parts_of(document, who));
        let is_on = |who: &Identity| {
            let placed =
                plan.load_balancers.services.get(who).and_then(|placed| placed.as_ref().ok()?.load_balancer.as_ref());
            placed.is_some_and(|id| self.ids.contains(id))
        };
        let granted = ready.iter().map(Ask::identity).filter(|who| !plan.refused.contains_key(*who));
        let held_up: Vec<Identity> = granted.filter(|who| is_on(who) || has_parts(who)).cloned().collect();
        if self.trouble.is_of_some() || held_up.is_empty() || held_up.len() == ready.len() {
            return Err(self.trouble);
        }
        let error = rounds::told("write the load balancer", self.trouble);
        Ok(held_up.into_iter().map(|who| (who, Err(error.clone()))).collect())
    }
}

/// Plans for those whose public IPs are there; the rest has to wait for them.
fn plan_ready(asks: &[Ask], mut others: Vec<Arc<ServiceSpec>>, look: &Look, world: &World) -> (Vec<Ask>, Vec<Ask>, Plan) {
    let first = plan(&look.observed, asks, &others, &world.settings);
    let waiting = first.waiting_for_public_ips();
    if waiting.is_empty() {
        return (asks.to_vec(), Vec::new(), first);
    }
    let (unready, ready): (Vec<Ask>, Vec<Ask>) = asks.iter().cloned().partition(|ask| waiting.contains(ask.identity()));
    others.extend(unready.iter().filter_map(Ask::spec).cloned());
    let plan = plan(&look.observed, &ready, &others, &world.settings);
    (ready, unready, plan)
}

fn answers(ready: &[Ask], unready: &[Ask], plan: Plan) -> Answers<Step> {
    let Plan { public_ips, load_balancers, mut refused } = plan;
    let releases: Vec<_> =
        public_ips.release.into_iter().map(|release| (release.services.clone(), Arc::new(Once::new(release)))).collect();
    let mut placed: BTreeMap<_, _> =
        load_balancers.services.into_iter().filter_map(|(who, placed)| Some((who, placed.ok()?))).collect();
    let mut answers: Answers<Step> = unready.iter().map(|ask| (ask.identity().clone(), Ok(Step::Again))).collect();
    for ask in ready {
        let who = ask.identity().clone();
        let answer = match refused.remove(&who) {
            Some(refusal) => Err(admission::refused(&refusal)),
            None => Ok(Step::Placed(Box::new(Got {
                placed: placed.remove(&who).unwrap_or_default(),
                kept: public_ips.kept.iter().filter(|kept| kept.services.contains(&who)).cloned().collect(),
                releases: releases
                    .iter()
                    .filter(|(services, _)| services.contains(&who))
                    .map(|(_, it)| it.clone())
                    .collect(),
                recreated: public_ips.recreated.iter().any(|(identity, _)| *identity == who),
            }))),
        };
        answers.insert(who, answer);
    }
    answers
}

impl Balancers<'_> {
    async fn write(&self, plan: &Plan, look: &Look, asks: &[Ask]) -> Result<(), Unwritten> {
        let documents = &plan.load_balancers.documents;
        let waves: BTreeSet<u8> = documents.iter().map(|change| change.wave).collect();
        for wave in waves {
            let at_once: Vec<&Change> = documents.iter().filter(|change| change.wave == wave).collect();
            // What one answers breaks off none of the others.
            let written = join_all(at_once.iter().map(|change| self.write_one(change, look, asks))).await;
            let mut failed: Vec<_> =
                at_once.into_iter().zip(written).filter_map(|(change, written)| Some((change, written.err()?))).collect();
            if !failed.is_empty() {
                let later = documents.iter().filter(|change| change.wave > wave);
                let ids = failed.iter().map(|(change, _)| *change).chain(later).map(|change| change.id.clone()).collect();
                return Err(Unwritten { ids, trouble: failed.remove(0).1 });
            }
        }
        Ok(())
    }

    async fn write_one(&self, change: &Change, look: &Look, asks: &[Ask]) -> Result<(), Trouble> {
        tracing::info!(id = %change.id, reasons = change.reasons.join("; "), "writing a load balancer");
        match &change.write {
            Write::Put(document) => {
                let new = membership::new_pools(&look.observed, &change.id, document);
                if let Err(error) = self.world.writer.put_load_balancer(&change.id, document, Urgency::Shared).await {
                    return Err(self.recovered(error).await.into());
                }
                if !new.is_empty() {
                    self.world.created().extend(new);
                    self.world.unfollow();
                }
                Ok(())
            }
            Write::Delete => self.delete(change, look, asks).await,
        }
    }

    async fn delete(&self, change: &Change, look: &Look, asks: &[Ask]) -> Result<(), Trouble> {
        let is_it =
            |known: &&LoadBalancer| known.id.as_deref().is_some_and(|id| id.eq_ignore_ascii_case(change.id.as_str()));
        let Some(document) = look.observed.load_balancers.iter().find(is_it) else { return Ok(()) };
        let mut leaving = self.world.leaves(&change.id);
        membership::leave(self.world, asks, document, self.urgency).await.map_err(Trouble::Part)?;
        let deleted = self.world.writer.delete_load_balancer(&change.id, document, Urgency::Shared).await;
        leaving.is_gone = deleted.is_ok();
        Ok(deleted.inspect_err(|error| self.world.tell(asks, Call::DeleteLoadBalancer, error))?)
    }

    /// A public IP that ARM left half made is written as it is, which finishes it. Upstream: `azure_loadbalancer_repo.go`.
    async fn recovered(&self, error: ArmError) -> ArmError {
        if let Some(change) = unprovisioned_public_ip(&error).and_then(|id| self.unchanged(id))
            && let Err(error) = self.world.writer.put_public_ip(&change, false, self.urgency).await
        {
            tracing::warn!(%error, id = %change.id, "a public IP that is half made could not be finished");
        }
        error
    }

    fn unchanged(&self, id: ResourceId) -> Option<public_ips::Change> {
        let document = self.world.observer.public_ip(&id)?;
        let etag = document.etag.clone();
        let reasons = vec!["finish what ARM has left half made".to_owned()];
        Some(public_ips::Change { id, document, etag, reasons, services: Vec::new() })
    }
}
