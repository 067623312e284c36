//! Detection of the missing right to `patch` `services/status`, without which no Service is served.
//!
//! In: results of writes. Out: whether the right is missing, for `/readyz`. A 403 may come from an admission policy and concern one
//! Service, so an access review decides. A right that some namespaces grant is not missing.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Client;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::runtime::{access_review::is_allowed, patch::ApiError};

/// Time for which a result counts. A waiting Service is retried sooner; without one, no write shows whether the right was
/// granted.
const RESULT_TTL: Duration = Duration::from_secs(15 * 60);

#[derive(Default)]
struct WriteResults {
    /// Last write that was denied, with the reason.
    refused: Option<(Instant, String)>,
    /// Last write that was authorized.
    authorized: Option<Instant>,
}

/// Results of the last writes, as far as they show the right.
#[derive(Default)]
pub(super) struct MissingRight(Mutex<WriteResults>);

impl MissingRight {
    /// Records the result of a write to a Service of `namespace`. After a 403, it sends an access review.
    pub(super) async fn observe(&self, client: &Client, namespace: &str, error: Option<&ApiError>) {
        match error {
            Some(ApiError::NotLeading(_) | ApiError::Busy(_) | ApiError::Failed(_)) => {}
            Some(refusal @ ApiError::Forbidden(_)) => match is_allowed(client, right_in(namespace)).await {
                Ok(false) => self.0.lock().refused = Some((Instant::now(), refusal.to_string())),
                Ok(true) => self.record_authorized(),
                Err(error) => tracing::debug!(%error, "cannot review the right to write the status of services"),
            },
            None | Some(_) => self.record_authorized(),
        }
    }

    /// Returns the error of the last denied write, if no write was authorized lately.
    pub(super) fn reason(&self) -> Option<String> {
        let results = self.0.lock();
        let is_recent = |at: Instant| at.elapsed() < RESULT_TTL;
        let refused = results.refused.as_ref().filter(|(at, _)| is_recent(*at));
        refused.filter(|_| !results.authorized.is_some_and(is_recent)).map(|(_, reason)| reason.clone())
    }

    fn record_authorized(&self) {
        *self.0.lock() = WriteResults { refused: None, authorized: Some(Instant::now()) };
    }
}

fn right_in(namespace: &str) -> ResourceAttributes {
    ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        resource: Some("services".to_owned()),
        subresource: Some("status".to_owned()),
        verb: Some("patch".to_owned()),
        ..ResourceAttributes::default()
    }
}

#[cfg(all(test, feature = "sandbox"))]
mod tests {
    use super::*;
    use crate::{runtime::clock::Clock, sandbox::api_server::ApiServer};

    const RBAC: &str = r#"services "web" is forbidden: User "ccm" cannot patch resource "services/status" in API group """#;

    #[tokio::test(start_paused = true)]
    async fn only_a_denied_access_counts_until_one_is_granted() {
        let server = ApiServer::new(Clock::System);
        let (client, missing_right, refusal) =
            (server.client(), MissingRight::default(), ApiError::Forbidden(RBAC.to_owned()));
        missing_right.observe(&client, "shop", Some(&refusal)).await;
        assert_eq!(missing_right.reason(), None, "the 403 may come from an admission policy");

        tokio::time::advance(RESULT_TTL).await;
        server.authorize(Box::new(|spec| spec["resourceAttributes"]["namespace"] != "shop"));
        missing_right.observe(&client, "shop", Some(&refusal)).await;
        missing_right.observe(&client, "shop", Some(&ApiError::Failed("HTTP 500".to_owned()))).await;
        assert!(
            missing_right
                .reason()
                .is_some_and(|reason| reason.contains("services/status") && reason.contains("ClusterRole"))
        );
        missing_right.observe(&client, "blog", None).await;
        missing_right.observe(&client, "shop", Some(&refusal)).await;
        assert_eq!(missing_right.reason(), None, "another namespace grants it");

        tokio::time::advance(RESULT_TTL).await;
        missing_right.observe(&client, "shop", Some(&refusal)).await;
        assert!(missing_right.reason().is_some());
        tokio::time::advance(RESULT_TTL).await;
        assert_eq!(missing_right.reason(), None);
    }
}
