//! Competes for the lease: reads, writes and waits as [`super::lease`] decides.
//!
//! In: a client, an [`ElectorConfig`] and a stop signal that begins only after the controllers have drained. Out: a
//! [`Leadership`] whose `until` is the start of the last successful write plus the renew deadline: it ends before another
//! candidate may take over.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{PostParams, WatchEvent, WatchParams},
};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{
    Leadership, LeadershipState,
    lease::{self, ElectorConfig, LeaseAction, NewestLease, ObservedLease},
};
use crate::{
    metrics::Metrics,
    runtime::{
        clock::{Clock, Uptime},
        events::{EventDescription, EventRecorder},
        host_name::host_name,
        patch::ApiError,
        shutdown::Shutdown,
        watch,
    },
};

const LEADER_ELECTION: EventDescription =
    EventDescription::normal("LeaderElection", "A replica became leader or stopped leading; recorded about the Lease.");

/// Events of the election, for the reference page. Upstream: client-go `resourcelock/leaselock.go`, `RecordEvent`.
pub const EVENTS: &[EventDescription] = &[LEADER_ELECTION];

/// Time that a leader may go without renewing, beyond the lease duration, before its health check fails. Upstream:
/// cloud-provider `app/controllermanager.go`, `leaderElectionHealthTimeout`.
const HEALTH_TOLERANCE: Duration = Duration::from_secs(20);
/// Duration of a watch, which is shorter than the client's read timeout, so that a quiet watch ends without an error.
const WATCH_SECONDS: u32 = 25;

/// Returns a unique identity: `<host name>_<random UUID>`.
pub fn identity() -> String {
    format!("{}_{}", host_name(), uuid::Uuid::new_v4())
}

impl ElectorConfig {
    /// Returns the deadline of one request: two must fit into the renew deadline.
    fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }
}

/// Outcome of an election for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionOutcome {
    /// Loss of the lease: renewal failed, or another candidate took the lease. The process must exit.
    Lost,
    /// Release of the lease after a stop.
    Released,
    /// Stop before the lease was acquired.
    Stopped,
}

/// State for the health check `leaderElection`.
#[derive(Debug, Clone)]
pub struct LeaderElectionHealth {
    state: watch::Receiver<LeadershipState>,
    renew_deadline: Duration,
    limit: Duration,
}

impl LeaderElectionHealth {
    /// Fails if this process leads, but has not renewed the lease for its duration plus 20 s, because the elector hangs.
    pub fn check(&self) -> Result<(), String> {
        let LeadershipState::Leading { until } = *self.state.borrow() else { return Ok(()) };
        let silent = Instant::now().saturating_duration_since(until.running()) + self.renew_deadline;
        if !until.is_over() || silent <= self.limit {
            return Ok(());
        }
        Err(format!("the lease was last renewed {silent:?} ago, more than {:?}", self.limit))
    }
}

enum LeaseAttempt {
    Holding { until: Uptime },
    Waiting { expires_in: Duration },
}

/// Candidate for the lease, which [`LeaderElector::run`] acquires and renews.
pub struct LeaderElector {
    api: Api<Lease>,
    config: ElectorConfig,
    clock: Clock,
    events: EventRecorder,
    metrics: Arc<Metrics>,
    state: watch::Sender<LeadershipState>,
    leadership: Leadership,
    observed: Option<ObservedLease>,
    newest: NewestLease,
}

impl LeaderElector {
    /// Creates an elector that has not started, and the leadership it will decide. `client` must not retry.
    pub fn new(
        client: kube::Client,
        config: ElectorConfig,
        clock: Clock,
        events: EventRecorder,
        metrics: Arc<Metrics>,
    ) -> (Self, Leadership) {
        let (state, leadership) = Leadership::channel();
        let api = Api::namespaced(client, &config.namespace);
        metrics.leader_election_master_status.with_label_values(&[&config.name]).set(0.0);
        (
            Self {
                api,
                config,
                clock,
                events,
                metrics,
                state,
                leadership: leadership.clone(),
                observed: None,
                newest: NewestLease::default(),
            },
            leadership,
        )
    }

    /// Returns the health check of this election.
    pub fn health(&self) -> LeaderElectionHealth {
        LeaderElectionHealth {
            state: self.state.subscribe(),
            renew_deadline: self.config.renew_deadline,
            limit: self.config.lease_duration + HEALTH_TOLERANCE,
        }
    }

    /// Waits for the lease, holds it, and returns the outcome.
    ///
    /// Begin `stop` only when no component writes any more: the lease is renewed until then and released directly after.
    pub async fn run(mut self, stop: Shutdown) -> ElectionOutcome {
        // The holder last reported by the watch is a hint to read the Lease now, never the basis of a decision.
        let (sender, mut hints) = watch::channel(None);
        let watching = watch_holder(self.api.clone(), self.config.name.clone(), sender, self.config.retry_period);
        tokio::select! {
            biased;
            ended = self.elect(&mut hints, &stop) => ended,
            never = watching => match never {},
        }
    }

    async fn elect(&mut self, hints: &mut watch::Receiver<Option<String>>, stop: &Shutdown) -> ElectionOutcome {
        let Some(mut until) = self.acquire(hints, stop).await else {
            return if self.newest.went_back() { self.lost(NewestLease::WENT_BACK) } else { ElectionOutcome::Stopped };
        };
        self.started_leading(until);
        loop {
            let me = self.config.identity.clone();
            tokio::select! {
                biased;
                () = stop.begun() => {
                    self.stopped_leading();
                    self.release().await;
                    return ElectionOutcome::Released;
                }
                () = sleep_until(until.running()) => return self.lost("it could not be renewed within the renew deadline"),
                () = sleep(self.config.retry_period) => {}
                () = holder_changed(hints, |holder| !holder.is_empty() && holder != me) => {}
            }
            // The timer above does not advance while the machine is suspended.
            if until.is_over() {
                return self.lost("it was not renewed within the renew deadline");
            }
            match timeout_at(until.running(), self.renew()).await {
                Ok(Ok(_)) if self.newest.went_back() => return self.lost(NewestLease::WENT_BACK),
                Ok(Ok(LeaseAttempt::Holding { until: renewed })) => {
                    until = renewed;
                    self.state.send_replace(LeadershipState::Leading { until });
                }
                Ok(Ok(LeaseAttempt::Waiting { .. })) => return self.lost("another replica holds it"),
                Ok(Err(error)) => tracing::error!(lease = self.config.name, %error, "cannot renew the lease, retrying"),
                Err(_) => {}
            }
        }
    }

    /// Waits until the lease is held; returns its expiry, or `None` if stopped or if the API server went back to an older
    /// state.
    async fn acquire(&mut self, hints: &mut watch::Receiver<Option<String>>, stop: &Shutdown) -> Option<Uptime> {
        tracing::info!(lease = self.config.name, identity = self.config.identity, "attempting to acquire the leader lease");
        while !stop.has_begun() {
            // `stop` does not cancel this, because a write in flight would leave a lease that is never released.
            let expires_in = match self.try_acquire_or_renew().await {
                Ok(_) if self.newest.went_back() => return None,
                Ok(LeaseAttempt::Holding { until }) => return Some(until),
                Ok(LeaseAttempt::Waiting { expires_in }) => Some(expires_in),
                Err(error) => {
                    tracing::error!(lease = self.config.name, %error, "cannot acquire the lease, retrying");
                    None
                }
            };
            let chance = self.clock.chance(&self.config.identity);
            let pause = lease::next_poll_delay(self.config.retry_period, expires_in, chance);
            tokio::select! {
                biased;
                () = stop.begun() => {}
                () = sleep(pause) => {}
                () = holder_changed(hints, str::is_empty) => {}
            }
        }
        None
    }

    /// Writes without reading first, as long as there is no other writer; else reads and decides again.
    async fn renew(&mut self) -> Result<LeaseAttempt, ApiError> {
        match self.write_if_due().await {
            Err(error) => {
                self.metrics.leader_election_slowpath_total.with_label_values(&[&self.config.name]).inc();
                tracing::info!(lease = self.config.name, %error, "lease renewal conflicted, reading the lease");
            }
            attempt => return attempt,
        }
        self.read_lease().await?;
        match lease::taken_by(self.observed.as_ref(), &self.config) {
            Some(_) => Ok(LeaseAttempt::Waiting { expires_in: Duration::ZERO }),
            None => self.write_if_due().await,
        }
    }

    async fn try_acquire_or_renew(&mut self) -> Result<LeaseAttempt, ApiError> {
        self.read_lease().await?;
        self.write_if_due().await
    }

    async fn read_lease(&mut self) -> Result<(), ApiError> {
        let lease = self.with_request_timeout(self.api.get_opt(&self.config.name)).await?;
        lease.iter().for_each(|lease| self.newest.note(lease));
        let before = self.observed.take();
        self.observed = lease.map(|lease| ObservedLease::of(before.as_ref(), lease, self.clock.now()));
        let (old, new) = (before.as_ref().map(ObservedLease::holder), self.observed.as_ref().map(ObservedLease::holder));
        if old != new {
            tracing::info!(lease = self.config.name, holder = new.unwrap_or_default(), "new leader seen");
        }
        Ok(())
    }

    async fn write_if_due(&mut self) -> Result<LeaseAttempt, ApiError> {
        let started = self.clock.uptime();
        if self.newest.went_back() {
            return Ok(LeaseAttempt::Waiting { expires_in: Duration::ZERO });
        }
        let params = PostParams::default();
        let written = match lease::decide(self.observed.as_ref(), started.running(), self.clock.wall(), &self.config) {
            LeaseAction::Wait(expires_in) => return Ok(LeaseAttempt::Waiting { expires_in }),
            LeaseAction::Create(lease) => self.with_request_timeout(self.api.create(&params, &lease)).await?,
            LeaseAction::TakeOver(lease) => {
                // It is recorded before the response, which may get lost.
                self.leadership.note_take_over();
                self.with_request_timeout(self.api.replace(&self.config.name, &params, &lease)).await?
            }
            LeaseAction::Renew(lease) => {
                self.with_request_timeout(self.api.replace(&self.config.name, &params, &lease)).await?
            }
        };
        self.newest.note(&written);
        self.observed = Some(ObservedLease::of(None, written, self.clock.now()));
        Ok(LeaseAttempt::Holding { until: started + self.config.renew_deadline })
    }

    async fn with_request_timeout<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
        let (about, limit) =
            (format!("lease {}/{}", self.config.namespace, self.config.name), self.config.request_timeout());
        match timeout(limit, request).await {
            Ok(result) => result.map_err(|error| ApiError::from_kube(about, &error)),
            Err(_) => Err(ApiError::Failed(format!("{about}: no response from the API server within {limit:?}"))),
        }
    }

    fn started_leading(&self, until: Uptime) {
        tracing::info!(lease = self.config.name, identity = self.config.identity, "became leader");
        self.metrics.leader_election_master_status.with_label_values(&[&self.config.name]).set(1.0);
        self.state.send_replace(LeadershipState::Leading { until });
        self.record_event("became leader");
    }

    fn stopped_leading(&self) {
        let before = self.state.send_replace(LeadershipState::Standby);
        self.metrics.leader_election_master_status.with_label_values(&[&self.config.name]).set(0.0);
        // A standby also ends if the state of the API server is older than before.
        if before != LeadershipState::Standby {
            self.record_event("stopped leading");
        }
    }

    fn lost(&self, reason: &'static str) -> ElectionOutcome {
        self.stopped_leading();
        tracing::error!(lease = self.config.name, identity = self.config.identity, reason, "leaderelection lost");
        ElectionOutcome::Lost
    }

    fn record_event(&self, detail: &str) {
        let Some(observed) = &self.observed else { return };
        self.events.record(LEADER_ELECTION.about(&observed.lease, format!("{} {detail}", self.config.identity)));
    }

    /// Releases the lease. After a failure, the lease expires.
    async fn release(&mut self) {
        let mut result = self.write_release().await;
        if result.is_err() && self.read_lease().await.is_ok() {
            result = self.write_release().await;
        }
        match result {
            Ok(()) => tracing::info!(lease = self.config.name, "lease released"),
            Err(error) => tracing::warn!(lease = self.config.name, %error, "lease not released, it will expire"),
        }
    }

    async fn write_release(&self) -> Result<(), ApiError> {
        let Some(observed) = self.observed.as_ref().filter(|observed| observed.holder() == self.config.identity) else {
            return Ok(());
        };
        let lease = lease::released(&observed.lease, self.clock.wall());
        self.with_request_timeout(self.api.replace(&self.config.name, &PostParams::default(), &lease)).await.map(drop)
    }
}

/// Resolves when the watch reports a new holder that `matters`.
async fn holder_changed(hints: &mut watch::Receiver<Option<String>>, matters: impl Fn(&str) -> bool) {
    loop {
        if hints.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        if hints.borrow_and_update().as_deref().is_some_and(&matters) {
            return;
        }
    }
}

/// Updates `hints` with the holder of the Lease. Polling continues, so the election also works without the right to watch
/// Leases.
async fn watch_holder(api: Api<Lease>, name: String, hints: watch::Sender<Option<String>>, pause: Duration) -> Infallible {
    loop {
        let started = Instant::now();
        match watch_once(&api, &name, &hints).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::info!(lease = name, error = status.message, "cannot watch the lease, polling it instead");
                return std::future::pending().await;
            }
            Err(error) => tracing::debug!(lease = name, %error, "watch of the lease ended"),
            Ok(()) if started.elapsed() >= pause => continue,
            Ok(()) => {}
        }
        sleep(pause).await;
    }
}

async fn watch_once(api: &Api<Lease>, name: &str, hints: &watch::Sender<Option<String>>) -> kube::Result<()> {
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    // Version "0": starts with the current object, without a list.
    let mut changes = api.watch(&params, "0").await?.boxed();
    while let Some(change) = changes.try_next().await? {
        let holder = match change {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => lease::holder(&lease).to_owned(),
            WatchEvent::Deleted(_) => String::new(),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        };
        hints.send_if_modified(|current_holder| {
            let has_changed = current_holder.as_deref() != Some(holder.as_str());
            *current_holder = Some(holder);
            has_changed
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
