//! What became of a round: what was written, what failed, and the caller's next move. Pure.

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

/// How many failures an error tells of by name.
const NAMED: usize = 3;
/// Pauses after a refused write and after any other failed one.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSyncSummary {
    /// Scale-set models.
    pub models: usize,
    /// Instances and network interfaces.
    pub machines: usize,
    /// Pools.
    pub pools: usize,
    /// Load balancers whose documents (`etag`, `backendIPConfigurations`, addresses) are outdated, also by writes that failed.
    pub load_balancers: BTreeSet<ResourceId>,
}

/// One machine, scale set or pool that could not be brought to where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSyncFailure {
    /// Which one, for people.
    pub what: String,
    /// Why.
    pub error: LookupError,
    /// Load balancers whose pools it is about; none: any of them.
    pub load_balancers: BTreeSet<ResourceId>,
    /// The pool that could not be written, if it is about one.
    pub pool: Option<ResourceId>,
}

/// Something could not be written; everything else was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSyncError {
    /// What was written all the same.
    pub summary: PoolSyncSummary,
    /// What was not; never empty.
    pub failures: Vec<PoolSyncFailure>,
}

impl PoolSyncFailure {
    /// Returns the failure of a change.
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

    /// Whether pools of this load balancer may lack what was to be written.
    pub fn concerns(&self, load_balancer: &ResourceId) -> bool {
        self.load_balancers.is_empty() || self.load_balancers.contains(load_balancer)
    }
}

impl PoolSyncError {
    /// Nothing was written, since nothing could be planned.
    pub fn unplanned(error: &CloudError) -> Self {
        let (error, load_balancers) = (LookupError::NotListed(error.to_string()), BTreeSet::new());
        let failure = PoolSyncFailure { what: "plan".to_owned(), error, load_balancers, pool: None };
        Self { summary: PoolSyncSummary::default(), failures: vec![failure] }
    }

    /// Whether pools of this load balancer may lack what was to be written.
    pub fn concerns(&self, load_balancer: &ResourceId) -> bool {
        self.failures.iter().any(|failure| failure.concerns(load_balancer))
    }
}

/// Result of the write of one document, or of several.
#[derive(Debug, Default)]
pub struct PoolSyncOutcome {
    pub summary: PoolSyncSummary,
    pub failures: Vec<PoolSyncFailure>,
    /// Whether a machine was left alone in a state that passes.
    pub deferred: bool,
    /// How long a document is not written again although nothing failed.
    pub(super) pause: Option<Duration>,
}

/// The end of the write of one document.
#[derive(Debug)]
pub struct PoolWriteEnd {
    pub id: ResourceId,
    pub outcome: PoolSyncOutcome,
}

impl PoolWriteEnd {
    /// Returns how long the document is not written again, and why it failed, if it did.
    pub(super) fn pause(&self) -> Option<(Duration, Option<ArmError>)> {
        let error = self.outcome.failures.first().and_then(PoolSyncFailure::arm);
        error.map(|error| (pause_after(error), Some(error.clone()))).or(self.outcome.pause.map(|pause| (pause, None)))
    }
}

/// Reports ends of writes.
pub struct PoolWriteEnds(pub UnboundedSender<PoolWriteEnd>);

impl PoolWriteEnds {
    /// Reports the end of a write. Without a receiver, no caller waits.
    pub(super) fn send(&self, change: &PoolChange, outcome: PoolSyncOutcome) {
        let _ = self.0.send(PoolWriteEnd { id: change.id.clone(), outcome });
    }
}

/// Returns how long a failed write is not repeated: what ARM has refused will be refused again soon.
pub(super) fn pause_after(error: &ArmError) -> Duration {
    match error.class {
        ArmErrorClass::Invalid | ArmErrorClass::QuotaExceeded | ArmErrorClass::Forbidden => REFUSED_PAUSE,
        _ => FAILED_PAUSE,
    }
}

impl PoolSyncOutcome {
    /// Returns what could not be read for a plan. It is about no pool in particular.
    pub fn unread(plan: &PoolPlan) -> Self {
        let mut outcome = Self::default();
        plan.unread_models.iter().for_each(|error| outcome.fail("models of scale sets", error.clone()));
        plan.unlocated.iter().for_each(|(node, error)| outcome.fail(node, error.clone()));
        outcome
    }

    /// Returns the failures that a plan reports before anything of it is written.
    pub fn planned(plan: &PoolPlan) -> Self {
        let mut outcome = Self::unread(plan);
        outcome.failures.extend(plan.failing.iter().map(|(change, error)| PoolSyncFailure::of(change, error)));
        outcome
    }

    /// The load balancers that this wish is about may look different now.
    pub(super) fn mark_outdated(&mut self, patch: &PoolMembershipPatch) {
        self.summary.load_balancers.extend(load_balancers(patch));
    }

    /// Notes a failure that may be about any load balancer.
    pub(super) fn fail(&mut self, what: impl Into<String>, error: impl Into<LookupError>) {
        self.fail_at(what, error, [], None);
    }

    /// Notes a failure that is about pools of these load balancers, or about one `pool`.
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

    /// Takes in what happened elsewhere.
    pub fn merge(&mut self, other: Self) {
        self.summary.models += other.summary.models;
        self.summary.machines += other.summary.machines;
        self.summary.pools += other.summary.pools;
        self.summary.load_balancers.extend(other.summary.load_balancers);
        self.failures.extend(other.failures);
        self.deferred |= other.deferred;
    }

    /// Returns what was written, or that something was not.
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
        write!(f, "back-end pools are not complete: ")?;
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
    /// Waiting, when nothing else is to be done about any of them.
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
        assert_eq!(text, "back-end pools are not complete: n0: PUT /x: why; n1: PUT /x: why; n2: PUT /x: why; and 2 more");
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
