//! Runs of the controllers of a leading manager: start, supervision and drain.
//!
//! In: the state of the manager, and the dependencies of the controllers. Out: the unexpected end of a controller, or the end of
//! all of them at shutdown.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::Either};
use tokio::task::JoinHandle;

use super::manager_state::{COMPONENT, ManagerState};
use crate::{
    controllers::{Controller, names::ControllerNames},
    metrics::Metrics,
    runtime::{clock::Clock, leader_election::Leadership, shutdown::Shutdown},
};

/// Dependencies of the controllers.
#[derive(Clone)]
pub(super) struct ControllerStart {
    pub(super) interval: Duration,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    pub(super) work: Shutdown,
}

/// Runs the controllers of each lease while this replica holds it, until the work must end. Returns early if a controller
/// ended unexpectedly.
pub(super) async fn run_controllers(state: Arc<ManagerState>, start: ControllerStart) {
    let migrates = |names: &ControllerNames| state.migration.as_ref().is_some_and(|own| own.has(names));
    let (second, main): (Vec<_>, Vec<_>) = state.controllers.iter().cloned().partition(|(names, _)| migrates(names));
    let work = start.work.clone();
    let main = std::pin::pin!(run_under(state.leadership.clone(), main, Arc::clone(&state), start.clone()));
    let second = async {
        match &state.migration {
            Some(own) => run_under(own.leadership.clone(), second, Arc::clone(&state), start).await,
            None => work.begun().await,
        }
    };
    match futures::future::select(main, std::pin::pin!(second)).await {
        Either::Left((_, second)) if work.has_begun() => second.await,
        Either::Right((_, main)) if work.has_begun() => main.await,
        Either::Left(_) | Either::Right(_) => {}
    }
}

/// Waits until this replica leads and all its dependencies are ready, then runs these controllers.
async fn run_under(
    leadership: Leadership,
    controllers: Vec<(ControllerNames, Arc<dyn Controller>)>,
    state: Arc<ManagerState>,
    start: ControllerStart,
) {
    let ControllerStart { interval: start_interval, metrics, clock, work } = start;
    let mut provider = state.provider_ready.clone();
    let ready = async {
        leadership.acquired().await;
        state.request_relists();
        if state.provider_refusal().await.is_some() {
            // The manager reports the refusal and ends.
            std::future::pending::<()>().await;
        }
        if let Some(services) = &state.services {
            services.synced().await;
        }
        provider.wait_for(|readiness| matches!(readiness, Some(Ok(())))).await.is_ok()
    };
    if work.run_until_begun(ready).await != Some(true) {
        return;
    }
    let mut running = tokio::task::JoinSet::new();
    for (position, (names, controller)) in controllers.iter().enumerate() {
        let pause =
            start_interval.mul_f64(f64::from(u32::try_from(position).unwrap_or(0)) * (1.0 + clock.chance(names.canonical)));
        running.spawn(supervise(*names, Arc::clone(controller), pause, Arc::clone(&metrics), work.clone()));
    }
    while let Some(ended) = running.join_next().await {
        if ended.is_ok_and(|orderly| orderly) {
            continue;
        }
        return;
    }
    work.begun().await;
}

/// Runs one controller; returns `true` if it ended on request.
async fn supervise(
    names: ControllerNames,
    controller: Arc<dyn Controller>,
    pause: Duration,
    metrics: Arc<Metrics>,
    work: Shutdown,
) -> bool {
    if work.run_until_begun(tokio::time::sleep(pause)).await.is_none() {
        return true;
    }
    let name = names.canonical;
    tracing::info!(controller = name, "started");
    let gauge = metrics.running_managed_controllers.with_label_values(&[COMPONENT, names.metric]);
    gauge.set(1.0);
    let ended = AssertUnwindSafe(controller.run(work.clone())).catch_unwind().await;
    gauge.set(0.0);
    let orderly = ended.is_ok() && work.has_begun();
    if !orderly {
        tracing::error!(controller = name, "ended unexpectedly; exiting so that another replica takes over");
    }
    orderly
}

/// Waits for running reconciles, for at most `limit`.
///
/// The others are dropped at their next await, because the next leader starts after the lease is released, and two processes must
/// not write.
pub(super) async fn drain(controllers: &mut JoinHandle<()>, limit: Duration) {
    if tokio::time::timeout(limit, &mut *controllers).await.is_err() {
        tracing::warn!(?limit, "running reconciles did not finish in time; the next leader will finish them");
        controllers.abort();
        let _ = controllers.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drain_drops_reconciles_after_the_grace_period() {
        let (step, mut dropped) = tokio::sync::oneshot::channel::<()>();
        let mut controllers = tokio::spawn(async move {
            let _step = step;
            std::future::pending().await
        });
        let started = tokio::time::Instant::now();
        drain(&mut controllers, Duration::from_secs(10)).await;
        assert_eq!(dropped.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Closed));
        assert_eq!(started.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn drain_ends_with_the_last_reconcile() {
        let mut controllers = tokio::spawn(tokio::time::sleep(Duration::from_secs(1)));
        let started = tokio::time::Instant::now();
        drain(&mut controllers, Duration::from_secs(10)).await;
        assert_eq!(started.elapsed().as_secs(), 1);
    }
}
