//! Hosts the leader election, and acts when the rest of the process is blocked.
//!
//! In: a [`LeaderElector`], if there is an election. Out: the outcome of the election ([`ElectionOutcome`]). In the binary
//! it has a thread, a runtime and a client of its own, and takes no lock that is held during parsing or planning; it shares
//! those of the log's output and of the metrics, which are held for moments. So no load on the other threads can cost the
//! lease. Two rules follow, because a thread that renews while the others are blocked would keep a leader that does no work,
//! and a lease that is lost while they are blocked would leave a process that may write later:
//!
//! - a lost lease ends the process from that thread, at once and whatever the others do;
//! - the other threads send a heartbeat every 5 s; after 60 s without one, and 10 s more, the process ends. The lease is
//!   left to expire: a thread that wakes at this moment may still finish a write, and the next leader must not have begun.

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
    /// On the caller's runtime: for tests, whose clock is paused, and for the demo.
    #[default]
    CallersRuntime,
    /// On a thread of its own.
    OwnThread {
        /// Says why and ends the process.
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

/// An election that has not started.
pub(super) struct PendingElection {
    elector: Option<(LeaderElector, ElectionRuntime)>,
    /// Sender of a process that abstains: while it lives, no leadership begins.
    standby: Option<watch::Sender<LeadershipState>>,
    /// The leadership that it decides.
    pub(super) leadership: Leadership,
}

/// The caller's runtime, or a thread's own.
enum ElectionRuntime {
    CallersRuntime,
    OwnThread(SingleThreadRuntime, fn(&str) -> !),
}

/// Prepares the election for the lease called `name`. Without election, its leadership always holds.
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
    let (client, identity) = match host {
        ElectionHost::CallersRuntime => (clients.election()?, ElectionRuntime::CallersRuntime),
        ElectionHost::OwnThread { end } => {
            let own = SingleThreadRuntime::new()?;
            // What drives the client and its connections must live on that thread.
            let client = own.enter(|| clients.election())?;
            (client, ElectionRuntime::OwnThread(own, end))
        }
    };
    let (elector, leadership) = LeaderElector::new(client, settings, clock, recorder.clone(), Arc::clone(metrics));
    Ok(PendingElection { elector: Some((elector, identity)), standby: None, leadership })
}

impl PendingElection {
    /// Returns the health check; `None` without election.
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

/// Holds both leases.
///
/// The second lease is acquired after the first, and released before it. Ends when either is lost, or when both are released
/// because `stop` has begun.
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

/// Holds the election on this thread. Does not return when the lease is lost or the other threads are blocked.
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

/// Shows for ever that this runtime runs.
async fn send_heartbeats(pulse: watch::Sender<()>) {
    loop {
        pulse.send_replace(());
        tokio::time::sleep(HEARTBEAT_PERIOD).await;
    }
}

/// Resolves when no heartbeat has come for [`HEARTBEAT_TIMEOUT`], and none in [`HEARTBEAT_GRACE`] after it.
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

/// A runtime for one thread, which may be dropped anywhere.
struct SingleThreadRuntime(Option<Runtime>);

impl SingleThreadRuntime {
    fn new() -> Result<Self, ManagerStartError> {
        // Looking up a name needs a second thread for a moment.
        let mut builder = Builder::new_current_thread();
        builder.enable_all().max_blocking_threads(1).thread_keep_alive(Duration::from_secs(1));
        Ok(Self(Some(builder.build().map_err(ManagerStartError::ElectionThread)?)))
    }

    /// Runs `work` so that what it spawns lives here.
    fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.0.as_ref().map(Runtime::enter);
        work()
    }

    /// Runs `work` on this thread. `None` only when there is no runtime any more.
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
    async fn only_a_runtime_that_shows_no_sign_of_life_is_taken_for_blocked() {
        let (pulse, felt) = watch::channel(());
        let watching = tokio::spawn(heartbeat_lost(felt.clone()));
        let beating = tokio::spawn(send_heartbeats(pulse.clone()));
        sleep(Duration::from_secs(3600)).await;
        assert!(!watching.is_finished());
        let started = Instant::now();
        beating.abort();
        watching.await.unwrap();
        let seconds = started.elapsed().as_secs();
        assert!((65..=70).contains(&seconds), "after {seconds} s");

        let stopped = tokio::spawn(heartbeat_lost(felt));
        drop(pulse);
        sleep(Duration::from_secs(3600)).await;
        assert!(!stopped.is_finished(), "a process that stops in good order is not blocked");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_was_stopped_as_a_whole_is_not_blocked() {
        let (pulse, felt) = watch::channel(());
        let watching = tokio::spawn(heartbeat_lost(felt));
        tokio::task::yield_now().await;
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(600)).await;
            sleep(Duration::from_secs(1)).await;
            pulse.send_replace(());
            tokio::task::yield_now().await;
        }
        sleep(HEARTBEAT_TIMEOUT).await;
        assert!(!watching.is_finished());
    }

    static SAID: std::sync::OnceLock<String> = std::sync::OnceLock::new();

    /// Stands for an end of the process: the thread goes no further.
    fn say(why: &str) -> ! {
        let _ = SAID.set(why.to_owned());
        std::panic::panic_any("ended")
    }

    /// The election is dropped where it is: nothing tells it to release the lease, as `stop` would.
    #[test]
    fn who_is_blocked_and_leads_ends_without_releasing_the_lease() {
        let (state, leadership) = Leadership::channel();
        let until = Instant::now() + Duration::from_secs(3600);
        state.send_replace(leader_election::LeadershipState::Leading { until: until.into() });
        let (_pulse, felt) = watch::channel(());
        let paused = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (released, stop) = (std::sync::atomic::AtomicBool::new(false), Shutdown::new());
        let election = async {
            stop.begun().await;
            released.store(true, std::sync::atomic::Ordering::SeqCst);
            ElectionOutcome::Released
        };
        let run = || on_thread(SingleThreadRuntime(Some(paused)), election, &leadership, felt, say);
        assert!(std::panic::catch_unwind(AssertUnwindSafe(run)).is_err());
        let said = SAID.get().unwrap();
        assert!(said.contains("for 70s") && said.contains("the lease is left to expire"), "{said}");
        assert!(!released.load(std::sync::atomic::Ordering::SeqCst) && !stop.has_begun());
        assert!(!blocked_message(false).contains("lease"), "a standby has none");
    }
}
