//! Every provider that ships, and the example of the guide, keep what the controllers rely on; and the suite finds one that does not.
#![allow(clippy::unwrap_used, clippy::panic)]

mod azure;
pub(crate) mod example;
mod fake;
mod faulty;

use cloud_controller_manager::cloud_provider::conformance::{CloudFixture, check};

/// Fails with the report unless all checks pass but those in `skipped`.
async fn conforms(fixture: &dyn CloudFixture, skipped: &[&str]) {
    let report = check(fixture).await;
    assert!(report.conforms(), "\n{report}");
    assert_eq!(report.skipped(), skipped, "\n{report}");
    assert!(report.checks.len() > 15, "\n{report}");
}
