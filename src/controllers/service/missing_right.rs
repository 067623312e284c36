//! The right without which no Service is served: `patch` on `services/status`.
//!
//! In: results of writes. Out: whether the right is missing, for `/readyz`. A 403 may be that of an admission policy and concern one Service,
//! so an access review decides. A right that some namespaces grant is not missing.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Client;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::runtime::{access_review::is_allowed, patch::ApiError};

/// Time for which a result counts. A Service that waits is retried sooner; without one, nothing shows whether the right was
/// granted.
const RESULT_TTL: Duration = Duration::from_secs(15 * 60);

#[derive(Default)]
struct WriteResults {
    /// Last write that lacked the right.
    refused: Option<(Instant, String)>,
    /// Last write that had it.
    authorized: Option<Instant>,
}

/// Results of the last writes, as far as they show the right.
#[derive(Default)]
pub(super) struct MissingRight(Mutex<WriteResults>);

impl MissingRight {
    /// Takes in the result of a write to a Service of `namespace`.
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

    /// Returns what the server said to the last refused write, if no write was authorized lately.
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
        let (client, right, refusal) = (server.client(), MissingRight::default(), ApiError::Forbidden(RBAC.to_owned()));
        right.observe(&client, "shop", Some(&refusal)).await;
        assert_eq!(right.reason(), None, "an admission policy says the same words");

        tokio::time::advance(RESULT_TTL).await;
        server.authorize(Box::new(|spec| spec["resourceAttributes"]["namespace"] != "shop"));
        right.observe(&client, "shop", Some(&refusal)).await;
        right.observe(&client, "shop", Some(&ApiError::Failed("HTTP 500".to_owned()))).await;
        assert!(right.reason().is_some_and(|reason| reason.contains("services/status") && reason.contains("ClusterRole")));
        right.observe(&client, "blog", None).await;
        right.observe(&client, "shop", Some(&refusal)).await;
        assert_eq!(right.reason(), None, "another namespace grants it");

        tokio::time::advance(RESULT_TTL).await;
        right.observe(&client, "shop", Some(&refusal)).await;
        assert!(right.reason().is_some());
        tokio::time::advance(RESULT_TTL).await;
        assert_eq!(right.reason(), None);
    }
}
