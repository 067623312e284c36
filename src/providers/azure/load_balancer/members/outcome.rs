//! What became of a round: what was written, what failed, and the caller's next move. Pure.

use std::{collections::BTreeSet, fmt, time::Duration};

use super::super::desired::members::node_ip_configuration::Wish;
use crate::{
    cloud_provider::CloudError,
    providers::azure::{
        arm::{ArmError, ErrorClass, ResourceId},
        inventory::LookupError,
    },
};

/// How many failures an error tells of by name.
const NAMED: usize = 3;

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Synced {
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
pub struct Failure {
    /// Which one, for people.
    pub what: String,
    /// Why.
    pub error: LookupError,
}

/// Something could not be written; everything else was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MembersError {
    /// What was written all the same.
    pub synced: Synced,
    /// What was not; never empty.
    pub failures: Vec<Failure>,
}

/// A round in the making.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) synced: Synced,
    pub(super) failures: Vec<Failure>,
    /// Whether a machine was left alone in a state that passes.
    pub(super) put_off: bool,
}

impl Outcome {
    /// The load balancers that this wish is about may look different now.
    pub(super) fn outdate(&mut self, wish: &Wish) {
        self.synced.load_balancers.extend(wish.join.iter().chain(&wish.leave).filter_map(ResourceId::parent));
    }

    /// Notes a failure.
    pub(super) fn fail(&mut self, what: impl Into<String>, error: impl Into<LookupError>) {
        self.failures.push(Failure { what: what.into(), error: error.into() });
    }

    /// Takes in what happened elsewhere.
    pub(super) fn add(&mut self, other: Self) {
        self.synced.models += other.synced.models;
        self.synced.machines += other.synced.machines;
        self.synced.pools += other.synced.pools;
        self.synced.load_balancers.extend(other.synced.load_balancers);
        self.failures.extend(other.failures);
        self.put_off |= other.put_off;
    }

    pub(super) fn end(self) -> Result<Synced, MembersError> {
        match self.failures.is_empty() {
            true => Ok(self.synced),
            false => Err(MembersError { synced: self.synced, failures: self.failures }),
        }
    }
}

impl std::error::Error for MembersError {}

impl fmt::Display for MembersError {
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

fn arm(failure: &Failure) -> Option<&ArmError> {
    match &failure.error {
        LookupError::Arm(error) => Some(error),
        LookupError::NotListed(_) | LookupError::NoAddress(_) => None,
    }
}

impl From<MembersError> for CloudError {
    /// Waiting, when nothing else is to be done about any of them.
    fn from(error: MembersError) -> Self {
        let message = error.to_string();
        if error.failures.iter().filter_map(arm).any(|error| error.class == ErrorClass::NotLeader) {
            return CloudError::NotLeader(message);
        }
        let waits = error.failures.iter().map(|failure| match CloudError::from(arm(failure)?.clone()) {
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

    fn failure(name: &str, class: ErrorClass, wait: Option<u64>) -> Failure {
        let error = ArmError {
            class,
            status: None,
            code: String::new(),
            message: "why".into(),
            request: "PUT /x".into(),
            correlation_id: None,
            retry_after: wait.map(Duration::from_secs),
        };
        Failure { what: name.to_owned(), error: error.into() }
    }

    fn error(failures: Vec<Failure>) -> CloudError {
        MembersError { synced: Synced::default(), failures }.into()
    }

    #[test]
    fn the_next_move_is_that_of_all_failures() {
        use ErrorClass::{Busy, Forbidden, NotLeader, Throttled};
        let busy = failure("n1", Busy, None);
        let waits = error(vec![busy.clone(), failure("n2", Throttled, Some(7))]);
        assert!(matches!(waits, CloudError::RetryAfter { after, .. } if after.as_secs() == 7), "{waits:?}");
        assert_eq!(error(vec![busy.clone(), failure("n2", Forbidden, None)]).class(), "failed");
        assert_eq!(error(vec![failure("n2", Forbidden, None), failure("n1", NotLeader, None)]).class(), "not_leader");
        let unknown = Failure { what: "n".into(), error: LookupError::NoAddress("n".into()) };
        assert_eq!(error(vec![busy, unknown]).class(), "failed");
    }

    #[test]
    fn the_first_few_are_named() {
        let failures = (0..5).map(|number| failure(&format!("n{number}"), ErrorClass::Invalid, None)).collect();
        let text = error(failures).to_string();
        assert_eq!(text, "back-end pools are not complete: n0: PUT /x: why; n1: PUT /x: why; n2: PUT /x: why; and 2 more");
    }
}
