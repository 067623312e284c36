//! Report of the checks. In: the outcome of each check. Out: a table, and whether the provider conforms.

use std::fmt;

use crate::cloud_provider::{CloudError, CloudResult};

/// Outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// Success: the provider fulfills the contract.
    Passed,
    /// Omission, with the part that the provider or the fixture lacks.
    Skipped(String),
    /// Violation of the contract, with details.
    Failed(String),
}

/// Outcomes of the checks, in the order in which they ran. [`Display`](fmt::Display) prints one line per check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConformanceReport {
    /// Name and outcome of each check.
    pub checks: Vec<(&'static str, CheckOutcome)>,
}

impl ConformanceReport {
    /// Returns `true` if no check failed.
    pub fn conforms(&self) -> bool {
        !self.checks.iter().any(|(_, outcome)| matches!(outcome, CheckOutcome::Failed(_)))
    }

    /// Returns the names of the skipped checks, so that a test can compare them with an expected list.
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

/// Conversion of the result of a provider call to the result of a check step.
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
