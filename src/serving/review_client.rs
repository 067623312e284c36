//! Reviews by the API server, with a timeout and retries.
//!
//! In: a TokenReview or SubjectAccessReview, and its budget. Out: the API server's response, counted, or the reason why
//! there is none. Timeout and backoff are those of `DelegatingAuthenticationOptions` in
//! `k8s.io/apiserver/pkg/server/options`.

use std::{fmt::Debug, time::Duration};

use kube::{Api, api::PostParams};
use prometheus::{CounterVec, HistogramVec};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep, timeout};

use super::{peer_network::PeerNetwork, review_budget::ReviewBudget};
use crate::runtime::{backoff::ExponentialBackoff, client::with_causes};

const TIMEOUT: Duration = Duration::from_secs(10);
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff { first: Duration::from_millis(500), factor: 1.5, jitter: 0.2, max: Duration::MAX };
const STEPS: u32 = 5;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum ReviewError {
    /// Refusal, because too many callers wait for reviews. The caller may retry.
    #[error("too many requests are waiting for reviews")]
    TooMany,
    /// Failure to get a response of the API server.
    #[error(transparent)]
    Failed(#[from] ReviewFailure),
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(super) struct ReviewFailure {
    /// Status code, or `<error>` if there was no response.
    code: String,
    message: String,
    retriable: bool,
}

impl From<kube::Error> for ReviewFailure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self {
                code: status.code.to_string(),
                message: status.message.clone(),
                retriable: status.code == 429 || status.code >= 500,
            },
            other => Self { code: "<error>".to_owned(), message: with_causes(&other), retriable: true },
        }
    }
}

/// Client for one kind of review, with its own counters.
pub(super) struct ReviewClient {
    requests: CounterVec,
    duration: HistogramVec,
}

impl ReviewClient {
    pub(super) fn new(requests: CounterVec, duration: HistogramVec) -> Self {
        Self { requests, duration }
    }

    /// Sends a review for a caller from `peer`, with retries of retriable failures.
    pub(super) async fn create<K>(
        &self,
        api: &Api<K>,
        question: &K,
        budget: &ReviewBudget,
        peer: PeerNetwork,
    ) -> Result<K, ReviewError>
    where
        K: Serialize + DeserializeOwned + Clone + Debug,
    {
        let _permit = budget.try_acquire(peer).ok_or(ReviewError::TooMany)?;
        let mut step = 0;
        loop {
            budget.wait_for_token().await;
            match self.create_once(api, question).await {
                Err(failure) if failure.retriable && step + 1 < STEPS => {
                    tracing::debug!(error = %failure, "Asking the API server again");
                    step += 1;
                    sleep(BACKOFF.delay_with(step, rand::random())).await;
                }
                result => return Ok(result?),
            }
        }
    }

    async fn create_once<K>(&self, api: &Api<K>, question: &K) -> Result<K, ReviewFailure>
    where
        K: Serialize + DeserializeOwned + Clone + Debug,
    {
        let start = Instant::now();
        let result = match timeout(TIMEOUT, api.create(&PostParams::default(), question)).await {
            Ok(result) => result.map_err(ReviewFailure::from),
            Err(_) => {
                let message = format!("the API server did not answer within {} s", TIMEOUT.as_secs());
                Err(ReviewFailure { code: "<error>".to_owned(), message, retriable: true })
            }
        };
        let code = result.as_ref().map_or_else(|failure| failure.code.as_str(), |_| "201");
        self.requests.with_label_values(&[code]).inc();
        self.duration.with_label_values(&[code]).observe(start.elapsed().as_secs_f64());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_by_half_with_a_fifth_of_jitter() {
        let rows = [(0, 0.0, 500), (0, 0.5, 550), (1, 0.0, 750), (2, 0.0, 1125), (3, 1.0, 2025)];
        for (step, random, millis) in rows {
            assert_eq!(BACKOFF.delay_with(step + 1, random).as_micros(), millis * 1000, "{step}");
        }
    }

    #[test]
    fn only_throttling_and_server_errors_are_retriable() {
        let status = |code| {
            ReviewFailure::from(kube::Error::Api(Box::new(
                serde_json::from_value(serde_json::json!({ "code": code, "message": "m" })).unwrap(),
            )))
        };
        for (code, retriable) in
            [(400, false), (401, false), (403, false), (404, false), (429, true), (500, true), (503, true)]
        {
            let failure = status(code);
            assert_eq!((failure.code.as_str(), failure.retriable), (code.to_string().as_str(), retriable));
        }
    }
}
