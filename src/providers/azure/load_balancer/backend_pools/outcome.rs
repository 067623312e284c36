//! Results of a round of writes: counts, failures, and the caller's reaction. Pure.

use std::{collections::BTreeSet, fmt, time::Duration};

use tokio::sync::mpsc::UnboundedSender;

use crate::providers::azure::planner::load_balancer::{
    desired::pool_members::node_ip_configuration::PoolMembershipPatch,
    plan::pools::{PoolChange, PoolChangeKind, PoolPlan},
};
use crate::{
    cloud_provider::CloudError,
    providers::azure::model::{ArmError, ArmErrorClass, LookupError, ResourceId},
};

/// Number of failures that an error names.
const NAMED: usize = 3;
/// Pauses after a write that ARM refused and after a write that failed for another reason.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// Counts of written documents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSyncSummary {
    /// Number of written scale-set models.
    pub models: usize,
    /// Number of written instances and network interfaces.
    pub machines: usize,
    /// Number of written pools.
    pub pools: usize,
    /// Load balancers whose documents (`etag`, `backendIPConfigurations`, addresses) are outdated, also by writes that failed.
    pub load_balancers: BTreeSet<ResourceId>,
}

/// Failure of the write of one machine, scale set or pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSyncFailure {
    /// Name of the machine, scale set or pool, for people.
    pub what: String,
    pub error: LookupError,
    /// Load balancers whose pools the failure concerns; empty: any load balancer.
    pub load_balancers: BTreeSet<ResourceId>,
    /// Pool that could not be written, if the failure concerns a single pool.
    pub pool: Option<ResourceId>,
}

/// Error of a round in which some writes failed; all other writes were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSyncError {
    /// Counts of the writes that succeeded.
    pub summary: PoolSyncSummary,
    /// Failed writes; never empty.
    pub failures: Vec<PoolSyncFailure>,
}

impl PoolSyncFailure {
    /// Returns the failure of a change. Only the failure of a pool is limited to its load balancer.
    pub fn of(change: &PoolChange, error: &ArmError) -> Self {
        let pool = matches!(change.kind, PoolChangeKind::Pool(_)).then(|| change.id.clone());
        let load_balancers = pool.iter().filter_map(ResourceId::parent).collect();
        Self { what: change.name().to_owned(), error: error.clone().into(), load_balancers, pool }
    }

    /// Returns the error if it is ARM's.
    pub fn arm(&self) -> Option<&ArmError> {
        match &self.error {
            LookupError::Arm(error) => Some(error),
            LookupError::NotListed(_) | LookupError::NoAddress(_) => None,
        }
    }

    /// Returns `true` if pools of this load balancer may lack the planned members.
    pub fn concerns(&self, load_balancer: &ResourceId) -> bool {
        self.load_balancers.is_empty() || self.load_balancers.contains(load_balancer)
    }
}

impl PoolSyncError {
    /// Returns the error of a round that wrote nothing because no plan could be made.
    pub fn unplanned(error: &CloudError) -> Self {
        let (error, load_balancers) = (LookupError::NotListed(error.to_string()), BTreeSet::new());
        let failure = PoolSyncFailure { what: "plan".to_owned(), error, load_balancers, pool: None };
        Self { summary: PoolSyncSummary::default(), failures: vec![failure] }
    }

    /// Returns `true` if pools of this load balancer may lack the planned members.
    pub fn concerns(&self, load_balancer: &ResourceId) -> bool {
        self.failures.iter().any(|failure| failure.concerns(load_balancer))
    }
}

/// Result of the write of one document, or of several.
#[derive(Debug, Default)]
pub struct PoolSyncOutcome {
    pub summary: PoolSyncSummary,
    pub failures: Vec<PoolSyncFailure>,
    /// Whether a machine was skipped in a temporary state, so that the caller must retry.
    pub deferred: bool,
    /// Time in which a document is not written again although no write failed.
    pub(super) pause: Option<Duration>,
}

/// Result of the write of one document.
#[derive(Debug)]
pub struct PoolWriteEnd {
    pub id: ResourceId,
    pub outcome: PoolSyncOutcome,
}

impl PoolWriteEnd {
    /// Returns how long the document is not written again, with ARM's error if the write failed.
    pub(super) fn pause(&self) -> Option<(Duration, Option<ArmError>)> {
        let error = self.outcome.failures.first().and_then(PoolSyncFailure::arm);
        error.map(|error| (pause_after(error), Some(error.clone()))).or(self.outcome.pause.map(|pause| (pause, None)))
    }
}

/// Channel that receives the end of each write.
pub struct PoolWriteEnds(pub UnboundedSender<PoolWriteEnd>);

impl PoolWriteEnds {
    /// Reports the end of a write. Without a receiver, no caller waits, and the report is dropped.
    pub(super) fn send(&self, change: &PoolChange, outcome: PoolSyncOutcome) {
        let _ = self.0.send(PoolWriteEnd { id: change.id.clone(), outcome });
    }
}

/// Returns how long a failed write is not repeated. ARM is expected to refuse an invalid write again, so that pause is
/// longer.
pub(super) fn pause_after(error: &ArmError) -> Duration {
    match error.class {
        ArmErrorClass::Invalid | ArmErrorClass::QuotaExceeded | ArmErrorClass::Forbidden => REFUSED_PAUSE,
        _ => FAILED_PAUSE,
    }
}

impl PoolSyncOutcome {
    /// Returns failures for all reads of a plan that failed. They concern all load balancers.
    pub fn unread(plan: &PoolPlan) -> Self {
        let mut outcome = Self::default();
        plan.unread_models.iter().for_each(|error| outcome.fail("models of scale sets", error.clone()));
        plan.unlocated.iter().for_each(|(node, error)| outcome.fail(node, error.clone()));
        outcome
    }

    /// Returns the failures that a plan reports before its first write.
    pub fn planned(plan: &PoolPlan) -> Self {
        let mut outcome = Self::unread(plan);
        outcome.failures.extend(plan.failing.iter().map(|(change, error)| PoolSyncFailure::of(change, error)));
        outcome
    }

    /// Records that the cached load balancers whose pools `patch` changes may be outdated.
    pub(super) fn mark_outdated(&mut self, patch: &PoolMembershipPatch) {
        self.summary.load_balancers.extend(load_balancers(patch));
    }

    /// Records a failure that may concern any load balancer.
    pub(super) fn fail(&mut self, what: impl Into<String>, error: impl Into<LookupError>) {
        self.fail_at(what, error, [], None);
    }

    /// Records a failure that concerns pools of these load balancers, or one `pool`.
    pub(super) fn fail_at(
        &mut self,
        what: impl Into<String>,
        error: impl Into<LookupError>,
        load_balancers: impl IntoIterator<Item = ResourceId>,
        pool: Option<&ResourceId>,
    ) {
        let load_balancers = load_balancers.into_iter().collect();
        self.failures.push(PoolSyncFailure { what: what.into(), error: error.into(), load_balancers, pool: pool.cloned() });
    }

    /// Adds the counts and failures of another outcome.
    pub fn merge(&mut self, other: Self) {
        self.summary.models += other.summary.models;
        self.summary.machines += other.summary.machines;
        self.summary.pools += other.summary.pools;
        self.summary.load_balancers.extend(other.summary.load_balancers);
        self.failures.extend(other.failures);
        self.deferred |= other.deferred;
    }

    /// Returns the counts, or an error if any write failed.
    pub fn into_result(self) -> Result<PoolSyncSummary, PoolSyncError> {
        match self.failures.is_empty() {
            true => Ok(self.summary),
            false => Err(PoolSyncError { summary: self.summary, failures: self.failures }),
        }
    }
}

/// Returns the load balancers of the pools that a machine joins or leaves.
pub(super) fn load_balancers(patch: &PoolMembershipPatch) -> impl Iterator<Item = ResourceId> {
    patch.join.iter().chain(&patch.leave).filter_map(ResourceId::parent)
}

impl std::error::Error for PoolSyncError {}

impl fmt::Display for PoolSyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend pools are not complete: ")?;
        for (index, failure) in self.failures.iter().take(NAMED).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", failure.what, failure.error)?;
        }
        match self.failures.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl From<PoolSyncError> for CloudError {
    /// Returns [`CloudError::RetryAfter`] only if every failure has a time to wait for.
    fn from(error: PoolSyncError) -> Self {
        let message = error.to_string();
        if error.failures.iter().filter_map(PoolSyncFailure::arm).any(|error| error.class == ArmErrorClass::NotLeader) {
            return CloudError::NotLeader(message);
        }
        let waits = error.failures.iter().map(|failure| match CloudError::from(failure.arm()?.clone()) {
            CloudError::RetryAfter { after, .. } => Some(after),
            _ => None,
        });
        match waits.collect::<Option<Vec<Duration>>>().and_then(|waits| waits.into_iter().max()) {
            Some(after) => CloudError::RetryAfter { after, message },
            None => CloudError::Failed(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::samples::arm_error;

    fn failure(name: &str, class: ArmErrorClass, wait: Option<u64>) -> PoolSyncFailure {
        let error = ArmError { retry_after: wait.map(Duration::from_secs), ..arm_error(class, "", "why") };
        PoolSyncFailure { what: name.to_owned(), error: error.into(), load_balancers: BTreeSet::new(), pool: None }
    }

    fn error(failures: Vec<PoolSyncFailure>) -> CloudError {
        PoolSyncError { summary: PoolSyncSummary::default(), failures }.into()
    }

    #[test]
    fn the_next_move_is_that_of_all_failures() {
        use ArmErrorClass::{Busy, Forbidden, NotLeader, Throttled};
        let busy = failure("n1", Busy, None);
        let waits = error(vec![busy.clone(), failure("n2", Throttled, Some(7))]);
        assert!(matches!(waits, CloudError::RetryAfter { after, .. } if after.as_secs() == 7), "{waits:?}");
        assert_eq!(error(vec![busy.clone(), failure("n2", Forbidden, None)]).class(), "failed");
        assert_eq!(error(vec![failure("n2", Forbidden, None), failure("n1", NotLeader, None)]).class(), "not_leader");
        let unknown =
            PoolSyncFailure { what: "n".into(), error: LookupError::NoAddress("n".into()), ..failure("n", Busy, None) };
        assert_eq!(error(vec![busy, unknown]).class(), "failed");
    }

    #[test]
    fn the_first_few_are_named() {
        let failures = (0..5).map(|number| failure(&format!("n{number}"), ArmErrorClass::Invalid, None)).collect();
        let text = error(failures).to_string();
        assert_eq!(text, "backend pools are not complete: n0: PUT /x: why; n1: PUT /x: why; n2: PUT /x: why; and 2 more");
    }

    #[test]
    fn what_fails_of_a_machine_holds_up_only_its_own_load_balancers() {
        let [first, second] = ["a", "b"].map(|name| {
            let id = format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/{name}");
            ResourceId::parse(&id).unwrap()
        });
        let mut failed = failure("n1", ArmErrorClass::Busy, None);
        failed.load_balancers.insert(first.clone());
        let mut error = PoolSyncError { summary: PoolSyncSummary::default(), failures: vec![failed] };
        assert!(error.concerns(&first) && !error.concerns(&second));
        error.failures.push(failure("models", ArmErrorClass::Busy, None));
        assert!(error.concerns(&second), "nobody knows whom this is about");
    }
}
