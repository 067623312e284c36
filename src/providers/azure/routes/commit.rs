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
    plan::Change,
    split,
    table::{CidrsOf, Known, Table},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{ArmError, ArmResult, ErrorClass},
        instances::errors,
        inventory::LookupError,
        load_balancer::commit::batch::Batcher,
    },
};

/// Writes that one batch may cost. One culprit among 400 is found within 20.
const MOST_WRITES: usize = 40;

/// Writes the route table for everybody.
pub(super) struct Committer {
    table: Table,
    batcher: Batcher<Arc<[Change]>, Vec<CloudResult<()>>>,
    cidrs_of: Box<CidrsOf>,
    /// Rejected alone when last tried.
    suspects: Mutex<Vec<Change>>,
}

impl Committer {
    pub(super) fn new(table: Table, cidrs_of: Box<CidrsOf>) -> Self {
        Self { table, batcher: Batcher::new(Duration::ZERO, Duration::ZERO), cidrs_of, suspects: Mutex::default() }
    }

    pub(super) fn status(&self) -> Value {
        let mut status = self.table.status();
        status["waiting"] = self.batcher.waiting().into();
        status["rejected"] = self.suspects().iter().map(name).collect();
        status
    }

    /// The table as last seen.
    pub(super) async fn list(&self) -> CloudResult<Known> {
        let table = self.table.list().await.map_err(|error| errors::of_look_up(&LookupError::Arm(error)))?;
        if !self.table.needs_tags(&table) {
            return Ok(table);
        }
        // Routes matter more than tags: the next list tries again.
        for refused in self.commit(Vec::new()).await.into_iter().filter_map(Result::err) {
            tracing::warn!(error = %refused, "the tags of the route table could not be written");
        }
        self.table.list().await.map_err(|error| errors::of_look_up(&LookupError::Arm(error)))
    }

    /// Makes `changes` together with whatever else waits. One answer per change; for none, one about the table itself.
    pub(super) async fn commit(&self, changes: Vec<Change>) -> Vec<CloudResult<()>> {
        let changes: Arc<[Change]> = changes.into();
        loop {
            let work = |batches: Vec<Arc<[Change]>>| self.perform(batches);
            // Whoever wrote for all went away: nobody knows how far it came, and the table is read again.
            if let Ok(answers) = self.batcher.submit(Arc::clone(&changes), None, work).await {
                return answers;
            }
        }
    }

    async fn perform(&self, batches: Vec<Arc<[Change]>>) -> Vec<Vec<CloudResult<()>>> {
        let all: Vec<Change> = batches.iter().flat_map(|batch| batch.iter().cloned()).collect();
        let (answers, rest) = self.write_all(&all).await;
        let mut answers = answers.into_iter();
        let of = |batch: &Arc<[Change]>| match batch.is_empty() {
            true => vec![rest.clone()],
            false => answers.by_ref().take(batch.len()).collect(),
        };
        batches.iter().map(of).collect()
    }

    /// Answers for each change, and what became of the last write.
    async fn write_all(&self, changes: &[Change]) -> (Vec<CloudResult<()>>, CloudResult<()>) {
        let mut answers = vec![Err(CloudError::failed("this route was not tried")); changes.len()];
        let mut outcome = Ok(());
        let mut parts: VecDeque<split::Part> = split::at_first(changes, &self.suspects_among(changes)).into();
        let (mut writes, mut may_go_on) = (0, true);
        while let Some(part) = parts.pop_front() {
            if !may_go_on || writes == MOST_WRITES {
                // What went well before says nothing of this part.
                part.iter().filter(|_| outcome.is_err()).for_each(|at| answers[*at] = outcome.clone());
                continue;
            }
            writes += 1;
            let chosen: Vec<Change> = part.iter().map(|at| changes[*at].clone()).collect();
            let written = self.table.write(&chosen, &*self.cidrs_of).await;
            self.note(&chosen, &written);
            match written {
                Ok(written) => part.iter().zip(written).for_each(|(at, answer)| answers[*at] = answer),
                Err(error) => {
                    outcome = Err(errors::of_write(&error));
                    may_go_on = is_rejected(&error);
                    part.iter().for_each(|at| answers[*at] = outcome.clone());
                    if may_go_on && part.len() > 1 {
                        let smaller = split::after_rejection(&part, changes, &error.message);
                        smaller.into_iter().rev().for_each(|part| parts.push_front(part));
                    }
                }
            }
        }
        (answers, outcome)
    }

    /// Those that were rejected alone. Others are not wanted any more.
    fn suspects_among(&self, changes: &[Change]) -> Vec<Change> {
        let mut suspects = self.suspects();
        suspects.retain(|suspect| changes.contains(suspect));
        suspects.clone()
    }

    /// Keeps in mind what ARM rejects by itself.
    fn note(&self, chosen: &[Change], written: &ArmResult<Vec<CloudResult<()>>>) {
        let mut suspects = self.suspects();
        suspects.retain(|suspect| !chosen.contains(suspect));
        if let ([alone], Err(error)) = (chosen, written)
            && is_rejected(error)
        {
            suspects.push(alone.clone());
        }
    }

    fn suspects(&self) -> MutexGuard<'_, Vec<Change>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether ARM would reject the same table again, but perhaps not a part of it.
fn is_rejected(error: &ArmError) -> bool {
    matches!(error.class, ErrorClass::Invalid | ErrorClass::QuotaExceeded)
}

fn name(change: &Change) -> &str {
    match change {
        Change::Set(wanted) => &wanted.name,
        Change::Remove(name) => name,
    }
}
