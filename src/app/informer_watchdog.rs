//! Watchdog that ends the leadership of a replica without a current view of the cluster.
//!
//! In: the status of the informers, and the time since which this replica leads. Out: the reason why it must not continue. An
//! outage of the cloud is not a reason, because other replicas are affected as well. A stale store is one, because only this
//! process may be disconnected, or its connection may be broken undetected, and controllers must not act on an outdated
//! store forever.

use std::time::Duration;

use tokio::time::Instant;

use super::manager_state::ManagerState;
use crate::runtime::store::WatchStatus;

/// Time that a leader may wait for the first list, or its next page: four attempts of a hanging request.
///
/// Until then no controller runs. The whole list of a large cluster may take longer, and another replica would have to restart
/// it.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// Time for which a leader's store may be stale after the first list.
///
/// Controllers continue meanwhile, because the server checks the version of every write. An API server that restarts or is
/// upgraded is back within this time, so that the lease does not move without need.
const STALE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Interval between checks of all informers.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the reason why a replica that has led since `elected` must not continue, if any.
fn stale_informer(informers: &[(&str, WatchStatus)], elected: Instant, now: Instant) -> Option<String> {
    informers.iter().find_map(|(resource, status)| {
        let limit = if status.synced { STALE_TIMEOUT } else { FIRST_LIST_TIMEOUT };
        let behind =
            now.saturating_duration_since(status.behind_since?.max(elected).max(status.progressed.unwrap_or(elected)));
        let problem = if status.synced { "no events about" } else { "no first list of" };
        let error = status.error.as_deref().unwrap_or("no response yet");
        (behind >= limit).then(|| format!("{problem} {resource} for {} s: {error}", behind.as_secs()))
    })
}

/// Waits until this replica leads and must not continue, and returns the reason. Never resolves without election, because no
/// other replica exists.
pub(super) async fn wait_until_stale(state: &ManagerState) -> String {
    if state.election.is_none() {
        std::future::pending::<()>().await;
    }
    state.leadership.acquired().await;
    let elected = Instant::now();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let services = state.services.as_ref().map(|services| ("services", services.status()));
        let informers: Vec<_> = std::iter::once(("nodes", state.nodes.status())).chain(services).collect();
        if let Some(reason) = stale_informer(&informers, elected, Instant::now()) {
            return reason;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_store_that_is_stale_for_minutes_costs_the_lease() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        // Columns: synced, stale since, progressed, elected, now, expected reason.
        for (synced, behind, progressed, elected, now, expected) in [
            (false, Some(0), None, 0, 119, None),
            (false, Some(0), None, 0, 120, Some("no first list of nodes for 120 s: no response yet")),
            (false, Some(0), None, 600, 719, None),
            (true, Some(100), None, 0, 399, None),
            (true, Some(100), None, 0, 400, Some("no events about nodes for 300 s: refused")),
            (true, Some(100), None, 300, 599, None),
            (true, None, None, 0, 100_000, None),
            // A list that makes progress delays the end.
            (false, Some(0), Some(100), 0, 219, None),
            (false, Some(0), Some(100), 0, 220, Some("no first list of nodes for ")),
            (false, Some(0), Some(3600), 0, 3700, None),
            (true, Some(0), Some(100), 0, 399, None),
            (true, Some(0), Some(100), 0, 400, Some("no events about nodes for ")),
        ] {
            let error = synced.then(|| "refused".to_owned());
            let nodes = WatchStatus { synced, error, behind_since: behind.map(at), progressed: progressed.map(at) };
            let services = WatchStatus { synced: true, error: None, behind_since: None, progressed: None };
            let found = stale_informer(&[("services", services), ("nodes", nodes)], at(elected), at(now));
            let starts = found.as_deref().is_some_and(|found| found.starts_with(expected.unwrap_or_default()));
            assert_eq!(starts, expected.is_some(), "{synced} {behind:?} {progressed:?} {elected} {now}: {found:?}");
        }
    }
}
