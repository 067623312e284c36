//! Gathers changes while a write is in flight, and makes them together.
//!
//! In: changes, each from a caller that waits. Out: an answer for each. A batch that ARM rejects is taken apart, so that what cannot be
//! written keeps nothing else from being written.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;

use super::{
    plan::RouteChange,
    split,
    table::{ObservedRouteTable, PodCidrLookup, RouteTableStore},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{ArmError, ArmErrorClass, ArmResult},
        instances::errors,
        inventory::LookupError,
        load_balancer::batch::batcher::Batcher,
    },
};

/// Writes that one batch may cost. One culprit among 400 is found within 20.
const MOST_WRITES: usize = 40;

/// Writes the route table for everybody.
pub(super) struct RouteCommitter {
    table: RouteTableStore,
    batcher: Batcher<Arc<[RouteChange]>, Vec<CloudResult<()>>>,
    cidrs_of: Box<PodCidrLookup>,
    /// Rejected alone when last tried.
    quarantine: Mutex<Vec<RouteChange>>,
}

impl RouteCommitter {
    pub(super) fn new(table: RouteTableStore, cidrs_of: Box<PodCidrLookup>) -> Self {
        Self { table, batcher: Batcher::new(Duration::ZERO, Duration::ZERO), cidrs_of, quarantine: Mutex::default() }
    }

    pub(super) fn status(&self) -> Value {
        let mut status = self.table.status();
        status["waiting"] = self.batcher.waiting().into();
        status["rejected"] = self.quarantine().iter().map(name).collect();
        status
    }

    /// The table as last seen.
    pub(super) async fn list(&self) -> CloudResult<ObservedRouteTable> {
        let table = self.table.list().await.map_err(|error| errors::from_lookup(&LookupError::Arm(error)))?;
        if !self.table.needs_tags(&table) {
            return Ok(table);
        }
        // Routes matter more than tags: the next list tries again.
        for refused in self.commit(Vec::new()).await.into_iter().filter_map(Result::err) {
            tracing::warn!(error = %refused, "cannot write the tags of the route table");
        }
        self.table.list().await.map_err(|error| errors::from_lookup(&LookupError::Arm(error)))
    }

    /// Makes `changes` together with whatever else waits. One answer per change; for none, one about the table itself.
    pub(super) async fn commit(&self, changes: Vec<RouteChange>) -> Vec<CloudResult<()>> {
        let changes: Arc<[RouteChange]> = changes.into();
        loop {
            let work = |batches: Vec<Arc<[RouteChange]>>| self.write_batches(batches);
            // Whoever wrote for all went away: nobody knows how far it came, and the table is read again.
            if let Ok(answers) = self.batcher.submit(Arc::clone(&changes), None, work).await {
                return answers;
            }
        }
    }

    async fn write_batches(&self, batches: Vec<Arc<[RouteChange]>>) -> Vec<Vec<CloudResult<()>>> {
        let all: Vec<RouteChange> = batches.iter().flat_map(|batch| batch.iter().cloned()).collect();
        let (answers, rest) = self.write_all(&all).await;
        let mut answers = answers.into_iter();
        let of = |batch: &Arc<[RouteChange]>| match batch.is_empty() {
            true => vec![rest.clone()],
            false => answers.by_ref().take(batch.len()).collect(),
        };
        batches.iter().map(of).collect()
    }

    /// Answers for each change, and what became of the last write.
    async fn write_all(&self, changes: &[RouteChange]) -> (Vec<CloudResult<()>>, CloudResult<()>) {
        let mut answers = vec![Err(CloudError::failed("this route was not tried")); changes.len()];
        let mut outcome = Ok(());
        let mut parts: VecDeque<split::RouteChangeIndices> =
            split::initial_parts(changes, &self.quarantined_among(changes)).into();
        let (mut writes, mut may_go_on) = (0, true);
        while let Some(part) = parts.pop_front() {
            if !may_go_on || writes == MOST_WRITES {
                // What went well before says nothing of this part.
                part.iter().filter(|_| outcome.is_err()).for_each(|at| answers[*at] = outcome.clone());
                continue;
            }
            writes += 1;
            let chosen: Vec<RouteChange> = part.iter().map(|at| changes[*at].clone()).collect();
            let written = self.table.write(&chosen, &*self.cidrs_of).await;
            self.update_quarantine(&chosen, &written);
            match written {
                Ok(written) => part.iter().zip(written).for_each(|(at, answer)| answers[*at] = answer),
                Err(error) => {
                    outcome = Err(errors::from_write(&error));
                    may_go_on = is_rejected(&error);
                    part.iter().for_each(|at| answers[*at] = outcome.clone());
                    if may_go_on && part.len() > 1 {
                        let smaller = split::split_rejected(&part, changes, &error.message);
                        smaller.into_iter().rev().for_each(|part| parts.push_front(part));
                    }
                }
            }
        }
        (answers, outcome)
    }

    /// Those that were rejected alone. Others are not wanted any more.
    fn quarantined_among(&self, changes: &[RouteChange]) -> Vec<RouteChange> {
        let mut suspects = self.quarantine();
        suspects.retain(|suspect| changes.contains(suspect));
        suspects.clone()
    }

    /// Keeps in mind what ARM rejects by itself.
    fn update_quarantine(&self, chosen: &[RouteChange], written: &ArmResult<Vec<CloudResult<()>>>) {
        let mut suspects = self.quarantine();
        suspects.retain(|suspect| !chosen.contains(suspect));
        if let ([alone], Err(error)) = (chosen, written)
            && is_rejected(error)
        {
            suspects.push(alone.clone());
        }
    }

    fn quarantine(&self) -> MutexGuard<'_, Vec<RouteChange>> {
        self.quarantine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether ARM would reject the same table again, but perhaps not a part of it.
fn is_rejected(error: &ArmError) -> bool {
    matches!(error.class, ArmErrorClass::Invalid | ArmErrorClass::QuotaExceeded)
}

fn name(change: &RouteChange) -> &str {
    match change {
        RouteChange::Set(wanted) => &wanted.name,
        RouteChange::Remove(name) => name,
    }
}
