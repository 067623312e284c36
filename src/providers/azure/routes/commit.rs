//! Batches changes while a write is in flight, and applies them together.
//!
//! In: changes, each from a caller that waits. Out: a result for each. A rejected batch is bisected, so that an invalid
//! change does not block the others.

use std::{sync::Arc, time::Duration};

use super::{
    blame::NumberedChange,
    table::{ObservedRouteTable, PodCidrLookup, RouteTableStore},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::batch::{
            batcher::Batcher,
            bisect::{BatchError, BisectLimits, Bisection, FailedPart},
            quarantine::Quarantine,
        },
        instances::errors,
        model::{LookupError, network::RouteTable},
        planner::routes::plan::{RouteChange, RouteTablePlan},
    },
    status::RouteTableStatus,
};

/// Maximum number of writes for one batch: one invalid change among 400 is found within 20. Other errors would recur for
/// every part.
const LIMITS: BisectLimits = BisectLimits { attempts: 40, spare_rejections: u32::MAX, errors_end_batch: true };

/// Writer of the route table for all callers.
pub(super) struct RouteCommitter {
    pub(super) table: RouteTableStore,
    batcher: Batcher<Arc<[RouteChange]>, Vec<CloudResult<()>>>,
    cidrs_of: Box<PodCidrLookup>,
    /// Changes that ARM rejected alone at their last attempt.
    quarantine: Quarantine<RouteChange>,
}

impl RouteCommitter {
    pub(super) fn new(table: RouteTableStore, cidrs_of: Box<PodCidrLookup>) -> Self {
        Self { table, batcher: Batcher::new(Duration::ZERO, Duration::ZERO), cidrs_of, quarantine: Quarantine::default() }
    }

    pub(super) fn status(&self) -> RouteTableStatus {
        let rejected = self.quarantine.all().iter().map(|change| name(change).to_owned()).collect();
        RouteTableStatus { waiting: self.batcher.waiting(), rejected, ..self.table.status() }
    }

    /// Returns the table as last seen.
    pub(super) async fn list(&self) -> CloudResult<ObservedRouteTable> {
        let table = self.table.list().await.map_err(|error| errors::from_lookup(&LookupError::Arm(error)))?;
        if !self.table.needs_tags(&table) {
            return Ok(table);
        }
        // Routes matter more than tags, which the next list retries.
        for refused in self.commit(Vec::new()).await.into_iter().filter_map(Result::err) {
            tracing::warn!(error = %refused, "cannot write the tags of the route table");
        }
        self.table.list().await.map_err(|error| errors::from_lookup(&LookupError::Arm(error)))
    }

    /// Returns the table for a plan.
    pub(super) async fn table_for_plan(&self) -> CloudResult<ObservedRouteTable> {
        self.table.read_for_plan().await.map_err(|error| errors::from_lookup(&LookupError::Arm(error)))
    }

    /// Plans what [`Self::commit`] would write for `changes` alone if ARM accepted everything at once.
    pub(super) fn plan(&self, table: Option<&RouteTable>, changes: &[RouteChange]) -> RouteTablePlan {
        self.table.plan(table, changes, &*self.cidrs_of)
    }

    /// Applies `changes` together with all pending ones. Returns one result per change, or without changes one about the
    /// table itself.
    pub(super) async fn commit(&self, changes: Vec<RouteChange>) -> Vec<CloudResult<()>> {
        let changes: Arc<[RouteChange]> = changes.into();
        loop {
            let work = |batches: Vec<Arc<[RouteChange]>>| self.write_batches(batches);
            // The leader was cancelled: its progress is unknown, so the table is read again.
            if let Ok(results) = self.batcher.submit(Arc::clone(&changes), None, work).await {
                return results;
            }
        }
    }

    async fn write_batches(&self, batches: Vec<Arc<[RouteChange]>>) -> Vec<Vec<CloudResult<()>>> {
        let all: Vec<RouteChange> = batches.iter().flat_map(|batch| batch.iter().cloned()).collect();
        let (results, rest) = self.write_all(&all).await;
        let mut results = results.into_iter();
        let of = |batch: &Arc<[RouteChange]>| match batch.is_empty() {
            true => vec![rest.clone()],
            false => results.by_ref().take(batch.len()).collect(),
        };
        batches.iter().map(of).collect()
    }

    /// Returns a result for each change, and the result of the last write.
    async fn write_all(&self, changes: &[RouteChange]) -> (Vec<CloudResult<()>>, CloudResult<()>) {
        let mut results = vec![Err(CloudError::failed("this route was not tried")); changes.len()];
        let mut outcome = Ok(());
        let numbered = changes.iter().cloned().enumerate().map(|(index, change)| NumberedChange { index, change });
        let batch: Vec<NumberedChange> = numbered.collect();
        let suspects = self.quarantine.retain_requested(&batch);
        let mut bisection = Bisection::new(batch, &suspects, LIMITS);
        while let Some(part) = bisection.next_part() {
            let chosen: Vec<RouteChange> = part.iter().map(|numbered| numbered.change.clone()).collect();
            match self.table.write(&chosen, &*self.cidrs_of).await {
                Ok(written) => {
                    self.quarantine.release(&part);
                    bisection.accepted();
                    part.iter().zip(written).for_each(|(numbered, result)| results[numbered.index] = result);
                }
                Err(error) => {
                    outcome = Err(errors::from_write(&error));
                    part.iter().for_each(|numbered| results[numbered.index] = outcome.clone());
                    if let FailedPart::Final(part) = bisection.failed(part, &error) {
                        self.quarantine.record_failure(&part, error.can_split());
                    }
                }
            }
        }
        if outcome.is_err() {
            // An earlier success proves nothing about changes that were not attempted.
            bisection.untried().for_each(|numbered| results[numbered.index] = outcome.clone());
        }
        (results, outcome)
    }
}

fn name(change: &RouteChange) -> &str {
    match change {
        RouteChange::Set(desired) => &desired.name,
        RouteChange::Remove(name) => name,
    }
}
