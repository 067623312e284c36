//! The conformance suite: every shipped provider and the example of the guide conform, and the suite finds faulty providers.
#![allow(clippy::unwrap_used, clippy::panic)]

mod azure;
pub(crate) mod example;
mod fake;
mod faulty;

use cloud_controller_manager::cloud_provider::conformance::{CloudFixture, check};

/// Panics with the report unless all checks pass, except those in `skipped`.
async fn conforms(fixture: &dyn CloudFixture, skipped: &[&str]) {
    let report = check(fixture).await;
    assert!(report.conforms(), "\n{report}");
    assert_eq!(report.skipped(), skipped, "\n{report}");
    assert!(report.checks.len() > 15, "\n{report}");
}
