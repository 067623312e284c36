//! Report of the checks. In: the outcome of each. Out: a table, and whether the provider conforms.

use std::fmt;

use crate::cloud_provider::{CloudError, CloudResult};

/// Outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The provider does what the controllers rely on.
    Passed,
    /// The provider or the fixture lacks what the check needs; which part.
    Skipped(String),
    /// Violation of the contract.
    Failed(String),
}

/// The checks in the order in which they ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConformanceReport {
    /// Name of each check, and how it ended.
    pub checks: Vec<(&'static str, CheckOutcome)>,
}

impl ConformanceReport {
    /// Returns `true` if no check failed.
    pub fn conforms(&self) -> bool {
        !self.checks.iter().any(|(_, outcome)| matches!(outcome, CheckOutcome::Failed(_)))
    }

    /// Returns the names of the checks that were skipped, so that a test can declare which ones it expects.
    pub fn skipped(&self) -> Vec<&'static str> {
        let skipped = self.checks.iter().filter(|(_, outcome)| matches!(outcome, CheckOutcome::Skipped(_)));
        skipped.map(|(name, _)| *name).collect()
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, outcome) in &self.checks {
            match outcome {
                CheckOutcome::Passed => writeln!(f, "passed   {name}")?,
                CheckOutcome::Skipped(reason) => writeln!(f, "skipped  {name}: {reason}")?,
                CheckOutcome::Failed(reason) => writeln!(f, "FAILED   {name}: {reason}")?,
            }
        }
        Ok(())
    }
}

/// Result of a step of a check. The error is the outcome of a check that stops early.
pub(super) type CheckResult<T = ()> = Result<T, CheckOutcome>;

pub(super) fn outcome(result: CheckResult) -> CheckOutcome {
    result.err().unwrap_or(CheckOutcome::Passed)
}

/// Fails the check with `reason` unless `holds`.
pub(super) fn require(holds: bool, reason: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(CheckOutcome::Failed(reason())) }
}

/// Returns `part`, or skips the check without it.
pub(super) fn needed<T>(part: Option<T>, name: &str) -> CheckResult<T> {
    part.ok_or_else(|| CheckOutcome::Skipped(format!("the provider has no {name}")))
}

/// Names the step at which a call failed.
pub(super) trait AtStep<T> {
    /// Skips the check if the call is not implemented, and fails it on any other error.
    fn at(self, step: &str) -> CheckResult<T>;
}

impl<T> AtStep<T> for CloudResult<T> {
    fn at(self, step: &str) -> CheckResult<T> {
        self.map_err(|error| match error {
            CloudError::NotImplemented => CheckOutcome::Skipped(format!("{step}: not implemented")),
            error => CheckOutcome::Failed(format!("{step}: {} ({error})", error.class())),
        })
    }
}
