//! The right without which no Service is served: `patch` on `services/status`.
//!
//! In: results of writes. Out: what RBAC forbids, for `/readyz`. A 403 of an admission policy concerns one Service and does not count.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::runtime::patch::ApiError;

/// Time for which a refusal counts. A Service that waits is retried sooner; without one, nothing shows whether the right was
/// granted.
const REFUSAL_TTL: Duration = Duration::from_secs(15 * 60);

/// Part of the message of every authorizer of the API server.
const RBAC_REFUSAL: &str = " cannot patch resource ";

/// The last refusal by RBAC.
#[derive(Default)]
pub(super) struct MissingRight(Mutex<Option<(Instant, String)>>);

impl MissingRight {
    /// Takes in the result of a write.
    pub(super) fn observe<T>(&self, result: &Result<T, ApiError>) {
        match result {
            Err(error @ ApiError::Forbidden(message)) if message.contains(RBAC_REFUSAL) => {
                *self.refusal() = Some((Instant::now(), error.to_string()));
            }
            Err(ApiError::NotLeading(_) | ApiError::Busy(_) | ApiError::Failed(_)) => {}
            Ok(_) | Err(_) => *self.refusal() = None,
        }
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.refusal().as_ref().filter(|(at, _)| at.elapsed() < REFUSAL_TTL).map(|(_, reason)| reason.clone())
    }

    fn refusal(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RBAC: &str = r#"services "web" is forbidden: User "ccm" cannot patch resource "services/status" in API group """#;

    #[tokio::test(start_paused = true)]
    async fn refusal_by_rbac_counts_until_a_write_is_authorized() {
        let right = MissingRight::default();
        let refuse = |message: &str| right.observe::<()>(&Err(ApiError::Forbidden(message.to_owned())));
        refuse(r#"admission webhook "policy" denied the request: no"#);
        assert_eq!(right.reason(), None);
        refuse(RBAC);
        right.observe::<()>(&Err(ApiError::Failed("HTTP 500".to_owned())));
        assert!(right.reason().is_some_and(|reason| reason.contains("services/status") && reason.contains("ClusterRole")));
        right.observe(&Ok(()));
        assert_eq!(right.reason(), None);
        refuse(RBAC);
        tokio::time::advance(REFUSAL_TTL).await;
        assert_eq!(right.reason(), None);
    }
}
