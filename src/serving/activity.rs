//! Activity of one connection, and the two timeouts that end it: idleness, or a response that the client does not accept.
//!
//! In: beginnings and ends of requests and responses. Out: futures that resolve when the connection must be closed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use crate::runtime::watch;

/// Time without a request after which a connection is closed. Upstream: `IdleTimeout`.
const IDLE: Duration = Duration::from_secs(90);
/// Time within which a client must accept a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct ActiveRequests {
    /// Number of requests that are processed, or whose responses are sent.
    requests: usize,
    /// Start times of the responses in flight, by number.
    responses: BTreeMap<u64, Instant>,
    next: u64,
}

/// Activity of one connection. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionActivity(Arc<watch::Sender<ActiveRequests>>);

impl ConnectionActivity {
    /// Records a request, which ends when the guard is dropped.
    pub(super) fn request(&self) -> RequestInFlight {
        self.0.send_modify(|now| now.requests += 1);
        RequestInFlight { activity: self.clone(), response: None }
    }

    /// Resolves when there was no request for [`IDLE`].
    pub(super) async fn idle(&self) {
        let mut changes = self.0.subscribe();
        loop {
            if changes.wait_for(|now| now.requests == 0).await.is_err() {
                return;
            }
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = sleep(IDLE) => return,
            }
        }
    }

    /// Resolves when the client has not accepted a response for [`RESPONSE_TIMEOUT`].
    pub(super) async fn response_stalled(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let oldest = changes.borrow_and_update().responses.values().next().copied();
            let deadline = oldest.unwrap_or_else(Instant::now) + RESPONSE_TIMEOUT;
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = sleep_until(deadline), if oldest.is_some() => return,
            }
        }
    }
}

/// Guard of a request in flight.
#[derive(Debug)]
pub(super) struct RequestInFlight {
    activity: ConnectionActivity,
    response: Option<u64>,
}

impl RequestInFlight {
    /// Records that the response is ready; from now on the client must accept it.
    pub(super) fn response_started(&mut self) {
        self.activity.0.send_modify(|now| {
            let number = now.next;
            now.next += 1;
            now.responses.insert(number, Instant::now());
            self.response = Some(number);
        });
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        let response = self.response;
        self.activity.0.send_modify(|now| {
            now.requests -= 1;
            if let Some(number) = response {
                now.responses.remove(&number);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_requests() {
        let activity = ConnectionActivity::default();
        let start = Instant::now();
        let waiting = tokio::spawn({
            let activity = activity.clone();
            async move { activity.idle().await }
        });
        sleep(Duration::from_secs(60)).await;
        let guard = activity.request();
        sleep(Duration::from_secs(200)).await;
        drop(guard);
        waiting.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 60 + 200 + 90);
    }

    #[tokio::test(start_paused = true)]
    async fn unread_responses_time_out_and_slow_requests_do_not() {
        let activity = ConnectionActivity::default();
        let start = Instant::now();
        let waiting = tokio::spawn({
            let activity = activity.clone();
            async move { activity.response_stalled().await }
        });
        let mut slow = activity.request();
        sleep(Duration::from_secs(100)).await;
        slow.response_started();
        sleep(Duration::from_secs(29)).await;
        let mut next = activity.request();
        next.response_started();
        drop(slow);
        waiting.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 100 + 29 + 30);
        drop(next);
    }
}
