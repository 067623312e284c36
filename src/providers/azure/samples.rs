//! Fixtures for tests of this provider: ARM's errors, and a client of ARM.

use super::model::{ArmError, ArmErrorClass};

/// Returns an error of this class, as ARM's response to `PUT /x`.
pub(super) fn arm_error(class: ArmErrorClass, code: &str, message: &str) -> ArmError {
    ArmError {
        class,
        status: None,
        code: code.to_owned(),
        message: message.to_owned(),
        request: "PUT /x".to_owned(),
        correlation_id: None,
        retry_after: None,
    }
}

/// Returns a client of the simulated ARM, without tokens and without a request budget.
#[cfg(feature = "sandbox")]
pub(super) fn arm_client(
    azure: &crate::sandbox::azure::Azure,
    clock: crate::runtime::clock::Clock,
) -> super::arm::ArmClient {
    use std::sync::Arc;

    use super::arm::{ArmClient, ArmClientDeps, ArmSettings, test_doubles::Open};

    azure.check_tokens(Arc::new(|_| None));
    let parts = ArmClientDeps {
        transport: azure.transport(),
        tokens: Arc::new(Open),
        gate: Arc::new(Open),
        leadership: crate::runtime::leader_election::Leadership::unopposed(),
        metrics: Arc::new(crate::metrics::Metrics::new().unwrap()),
        clock,
    };
    ArmClient::new(ArmSettings::new("https://management.azure.com/", "test/1").unwrap(), parts)
}
