//! Host of the leader election, which acts when the rest of the process is blocked.
//!
//! In: a [`LeaderElector`], if there is an election. Out: the outcome of the election ([`ElectionOutcome`]). In the binary
//! it has its own thread, runtime and client, and takes no lock that is held during parsing or planning. It shares the locks
//! of the log's output and of the metrics, which are held briefly. So load on the other threads cannot cost the lease. Two rules
//! follow, because a thread that renews while the others are blocked would keep a leader that does no work, and a lease that is
//! lost while they are blocked would leave a process that may write later:
//!
//! - After a lost lease, that thread ends the process immediately, whatever the others do.
//! - The other threads send a heartbeat every 5 s; 70 s after the last one, the process ends. The lease then expires instead
//!   of being released, because a thread that wakes at this moment may still finish a write before the next leader starts.

use std::{panic::AssertUnwindSafe, sync::Arc, thread, time::Duration};

use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
};

use super::{client_source::ClientSource, start_error::ManagerStartError};
use crate::{
    cli::config::LeaderElectionOptions,
    metrics::Metrics,
    runtime::{
        clock::Clock,
        events::EventRecorder,
        leader_election::{self, ElectionOutcome, LeaderElectionHealth, LeaderElector, Leadership, LeadershipState},
        shutdown::Shutdown,
        watch,
    },
};

/// Interval of the main runtime's heartbeats.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(5);
/// Time without a heartbeat after which the main runtime is suspected to be blocked.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(60);
/// Grace period after a missed heartbeat, for a process that was suspended as a whole (SIGSTOP, frozen container).
const HEARTBEAT_GRACE: Duration = Duration::from_secs(10);

/// Runtime that the election runs on.
#[derive(Debug, Clone, Copy, Default)]
pub enum ElectionHost {
    /// Runtime of the caller, for tests with a paused clock and for the demo.
    #[default]
    CallersRuntime,
    /// Separate thread with its own runtime.
    OwnThread {
        /// Function that prints the reason and ends the process.
        end: fn(&str) -> !,
    },
}

/// Dependencies that the elections of one process share.
pub(super) struct ElectionContext<'a> {
    pub(super) settings: &'a LeaderElectionOptions,
    /// Identity of this process, for every lease.
    pub(super) identity: String,
    pub(super) host: ElectionHost,
    pub(super) clients: &'a dyn ClientSource,
    pub(super) clock: Clock,
    pub(super) recorder: &'a EventRecorder,
    pub(super) metrics: &'a Arc<Metrics>,
}

/// Returns an election that never acquires the lease, for read-only processes.
pub(super) fn abstain() -> PendingElection {
    let (standby, leadership) = Leadership::channel();
    PendingElection { elector: None, standby: Some(standby), leadership }
}

/// Election that has not started.
pub(super) struct PendingElection {
    elector: Option<(LeaderElector, ElectionRuntime)>,
    /// Sender of a process that abstains: while it lives, no leadership begins.
    standby: Option<watch::Sender<LeadershipState>>,
    /// Leadership that the election decides.
    pub(super) leadership: Leadership,
}

/// Runtime that a prepared election will run on.
enum ElectionRuntime {
    CallersRuntime,
    OwnThread(SingleThreadRuntime, fn(&str) -> !),
}

/// Prepares the election for the lease `name`. If leader election is disabled, the leadership always holds.
pub(super) fn prepare(context: &ElectionContext<'_>, name: &str) -> Result<PendingElection, ManagerStartError> {
    let ElectionContext { settings, host, clients, clock, recorder, metrics, .. } = *context;
    if !settings.enabled {
        return Ok(PendingElection { elector: None, standby: None, leadership: Leadership::unopposed() });
    }
    let settings = leader_election::ElectorConfig {
        namespace: settings.resource_namespace.clone(),
        name: name.to_owned(),
        identity: context.identity.clone(),
        lease_duration: settings.lease_duration,
        renew_deadline: settings.renew_deadline,
        retry_period: settings.retry_period,
    };
    let (client, runtime) = match host {
        ElectionHost::CallersRuntime => (clients.election()?, ElectionRuntime::CallersRuntime),
        ElectionHost::OwnThread { end } => {
            let own = SingleThreadRuntime::new()?;
            // The tasks of the client and its connections must run on that thread.
            let client = own.enter(|| clients.election())?;
            (client, ElectionRuntime::OwnThread(own, end))
        }
    };
    let (elector, leadership) = LeaderElector::new(client, settings, clock, recorder.clone(), Arc::clone(metrics));
    Ok(PendingElection { elector: Some((elector, runtime)), standby: None, leadership })
}

impl PendingElection {
    /// Returns the health check; `None` if leader election is disabled.
    pub(super) fn health(&self) -> Option<LeaderElectionHealth> {
        self.elector.as_ref().map(|(elector, _)| elector.health())
    }

    /// Runs until the lease is lost or, after `stop` has begun, released. Returns `None` if the thread ended unexpectedly.
    pub(super) async fn run(self, stop: Shutdown) -> Option<ElectionOutcome> {
        match self.elector {
            None => {
                let _standby = self.standby;
                stop.begun().await;
                Some(ElectionOutcome::Stopped)
            }
            Some((elector, ElectionRuntime::CallersRuntime)) => Some(elector.run(stop).await),
            Some((elector, ElectionRuntime::OwnThread(own, end))) => {
                let (heartbeat_tx, heartbeat_rx) = watch::channel(());
                let (outcome_tx, outcome_rx) = oneshot::channel();
                let leadership = self.leadership;
                let work = move || {
                    let _ = outcome_tx.send(on_thread(own, elector.run(stop), &leadership, heartbeat_rx, end));
                };
                thread::Builder::new().name("leader-election".to_owned()).spawn(work).ok()?;
                tokio::select! {
                    biased;
                    ended = outcome_rx => ended.ok(),
                    () = send_heartbeats(heartbeat_tx) => None,
                }
            }
        }
    }
}

/// Acquires and renews both leases until either is lost, or until both are released after `stop` has begun.
///
/// The second lease is acquired after the first, and released before it.
pub(super) async fn run_both(
    main: PendingElection,
    second: Option<PendingElection>,
    stop: Shutdown,
) -> Option<ElectionOutcome> {
    let (stop_main, leadership) = (Shutdown::new(), main.leadership.clone());
    let mut main = std::pin::pin!(main.run(stop_main.clone()));
    let second = async {
        if let Some(second) = second {
            tokio::select! {
                biased;
                () = leadership.acquired() => {}
                () = stop.begun() => return Some(ElectionOutcome::Stopped),
            }
            return second.run(stop).await;
        }
        stop.begun().await;
        Some(ElectionOutcome::Stopped)
    };
    tokio::select! {
        biased;
        ended = &mut main => return ended,
        ended = second => if matches!(ended, None | Some(ElectionOutcome::Lost)) { return ended },
    }
    stop_main.begin();
    main.await
}

/// Runs the election on this thread. Ends the process if the lease is lost or the other threads are blocked.
fn on_thread(
    own: SingleThreadRuntime,
    election: impl Future<Output = ElectionOutcome>,
    leadership: &Leadership,
    heartbeat_rx: watch::Receiver<()>,
    end: fn(&str) -> !,
) -> ElectionOutcome {
    let election = async {
        tokio::select! {
            biased;
            ended = election => Ok(ended),
            () = heartbeat_lost(heartbeat_rx) => Err(blocked_message(leadership.is_leading())),
        }
    };
    match std::panic::catch_unwind(AssertUnwindSafe(|| own.run(election))) {
        Ok(Some(Err(reason))) => end(&reason),
        Ok(Some(Ok(ElectionOutcome::Lost))) => end("leaderelection lost"),
        Ok(Some(Ok(ended))) => ended,
        Ok(None) | Err(_) => end("the leader election panicked"),
    }
}

/// Returns the message about a process whose other threads are blocked.
fn blocked_message(leads: bool) -> String {
    let next = if leads { "; the lease is left to expire, then another replica leads" } else { "" };
    format!(
        "nothing but the leader election has run for {:?}: the program is blocked{next}",
        HEARTBEAT_TIMEOUT + HEARTBEAT_GRACE
    )
}

/// Sends heartbeats of this runtime, without end.
async fn send_heartbeats(heartbeat_tx: watch::Sender<()>) {
    loop {
        heartbeat_tx.send_replace(());
        tokio::time::sleep(HEARTBEAT_PERIOD).await;
    }
}

/// Resolves when no heartbeat has arrived for [`HEARTBEAT_TIMEOUT`], and none in [`HEARTBEAT_GRACE`] afterwards.
///
/// If the whole process was suspended for so long, this may run before the heartbeat does. A closed channel, as when the
/// process stops, does not count as a missed heartbeat.
async fn heartbeat_lost(mut heartbeat_rx: watch::Receiver<()>) {
    let mut limit = HEARTBEAT_TIMEOUT;
    loop {
        limit = match tokio::time::timeout(limit, heartbeat_rx.changed()).await {
            Ok(Ok(())) => HEARTBEAT_TIMEOUT,
            Ok(Err(_)) => std::future::pending().await,
            Err(_) if limit == HEARTBEAT_TIMEOUT => HEARTBEAT_GRACE,
            Err(_) => return,
        }
    }
}

/// Runtime for one thread that may be dropped in async code.
struct SingleThreadRuntime(Option<Runtime>);

impl SingleThreadRuntime {
    fn new() -> Result<Self, ManagerStartError> {
        // A name lookup needs a second thread temporarily.
        let mut builder = Builder::new_current_thread();
        builder.enable_all().max_blocking_threads(1).thread_keep_alive(Duration::from_secs(1));
        Ok(Self(Some(builder.build().map_err(ManagerStartError::ElectionThread)?)))
    }

    /// Runs `work` so that its tasks are spawned on this runtime.
    fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.0.as_ref().map(Runtime::enter);
        work()
    }

    /// Runs `work` on this thread. Returns `None` only if the runtime was already taken.
    fn run<F: Future>(mut self, work: F) -> Option<F::Output> {
        let runtime = self.0.take()?;
        let output = runtime.block_on(work);
        runtime.shutdown_background();
        Some(output)
    }
}

impl Drop for SingleThreadRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_runtime_without_heartbeats_is_blocked() {
        let (heartbeat_tx, heartbeat_rx) = watch::channel(());
        let watching = tokio::spawn(heartbeat_lost(heartbeat_rx.clone()));
        let beating = tokio::spawn(send_heartbeats(heartbeat_tx.clone()));
        sleep(Duration::from_secs(3600)).await;
        assert!(!watching.is_finished());
        let started = Instant::now();
        beating.abort();
        watching.await.unwrap();
        let seconds = started.elapsed().as_secs();
        assert!((65..=70).contains(&seconds), "after {seconds} s");

        let stopped = tokio::spawn(heartbeat_lost(heartbeat_rx));
        drop(heartbeat_tx);
        sleep(Duration::from_secs(3600)).await;
        assert!(!stopped.is_finished(), "a process that stops in an orderly way is not blocked");
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_process_is_not_blocked() {
        let (heartbeat_tx, heartbeat_rx) = watch::channel(());
        let watching = tokio::spawn(heartbeat_lost(heartbeat_rx));
        tokio::task::yield_now().await;
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(600)).await;
            sleep(Duration::from_secs(1)).await;
            heartbeat_tx.send_replace(());
            tokio::task::yield_now().await;
        }
        sleep(HEARTBEAT_TIMEOUT).await;
        assert!(!watching.is_finished());
    }

    static END_REASON: std::sync::OnceLock<String> = std::sync::OnceLock::new();

    /// Replaces the end of the process: records the reason, and ends the thread.
    fn record_end(reason: &str) -> ! {
        let _ = END_REASON.set(reason.to_owned());
        std::panic::panic_any("ended")
    }

    /// The election is dropped at its await: only `stop` would cause it to release the lease.
    #[test]
    fn a_blocked_leader_ends_without_releasing_the_lease() {
        let (state, leadership) = Leadership::channel();
        let until = Instant::now() + Duration::from_secs(3600);
        state.send_replace(leader_election::LeadershipState::Leading { until: until.into() });
        let (_heartbeat_tx, heartbeat_rx) = watch::channel(());
        let paused = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (released, stop) = (std::sync::atomic::AtomicBool::new(false), Shutdown::new());
        let election = async {
            stop.begun().await;
            released.store(true, std::sync::atomic::Ordering::SeqCst);
            ElectionOutcome::Released
        };
        let run = || on_thread(SingleThreadRuntime(Some(paused)), election, &leadership, heartbeat_rx, record_end);
        assert!(std::panic::catch_unwind(AssertUnwindSafe(run)).is_err());
        let reason = END_REASON.get().unwrap();
        assert!(reason.contains("for 70s") && reason.contains("the lease is left to expire"), "{reason}");
        assert!(!released.load(std::sync::atomic::Ordering::SeqCst) && !stop.has_begun());
        assert!(!blocked_message(false).contains("lease"), "a standby has none");
    }
}
