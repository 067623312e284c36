//! The lease that keeps other components from changing load balancers at the same time.
//!
//! In: a client. Out: a [`LeaseGuard`] for each operation. The first operation acquires the lease, concurrent operations
//! share it, and it is released when the last guard is dropped. No request is sent while no operation needs the lease.
//! `plan` decides, and a task acts.
//!
//! When the lease is lost during an operation, the [`LeaseFence`] refuses all writes, and the lease is acquired again only
//! after all guards were dropped. Upstream (`pkg/provider/azure_lock.go`) acquires the lease once per Service, in every
//! configuration. The AKS resource provider and a Go controller during a migration respect it.

mod fence;
pub mod plan;

use std::{convert::Infallible, future::Future, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::PostParams};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

pub use fence::{LeaseFence, LeaseLost};
use plan::{LeaseAcquisition, NAME, NAMESPACE};

use crate::{
    cloud_provider::{CloudError, CloudResult},
    runtime::{clock::Clock, leader_election::Leadership, patch::ApiError, shutdown::Shutdown},
};

/// Interval at which a held lease is renewed.
const RENEW_PERIOD: Duration = Duration::from_secs(300);
/// Delay after a failed renewal.
const RENEW_RETRY_PERIOD: Duration = Duration::from_secs(30);
/// Longest delay of a retry while another component holds the lease.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(15);
/// Timeout of one request to the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest number of reads of the lease when other writers change it in between.
const ATTEMPTS: usize = 5;

type LeaseGuardResult = CloudResult<LeaseGuard>;

/// Guard that keeps the lease held until it is dropped.
#[derive(Debug)]
pub struct LeaseGuard {
    epoch: u64,
    fence: LeaseFence,
    /// Sender that is only counted, never used.
    _alive: mpsc::Sender<Infallible>,
}

impl LeaseGuard {
    /// Returns a number that grows whenever another component has held the lease. Data that was read from Azure in an
    /// earlier epoch must be read again.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Checks that the lease was not lost since this guard was created.
    ///
    /// # Errors
    ///
    /// Fails if the lease was lost.
    pub fn check(&self) -> Result<(), LeaseLost> {
        self.fence.check()
    }
}

/// Source of [`LeaseGuard`]s. Clones share one lease.
#[derive(Debug, Clone)]
pub struct ResourceLocker {
    requests: mpsc::UnboundedSender<oneshot::Sender<LeaseGuardResult>>,
    fence: LeaseFence,
}

impl ResourceLocker {
    /// Creates a locker and starts its task, which ends when `shutdown` begins and no guard exists any more.
    ///
    /// When a process is killed, its lease expires; the next leader does not have to wait for the expiry.
    pub fn new(client: kube::Client, leadership: Leadership, clock: Clock, shutdown: &Shutdown) -> Self {
        let (asks, asked) = mpsc::unbounded_channel();
        let (api, fence) = (Api::namespaced(client, NAMESPACE), LeaseFence::new(clock));
        let keeper = ResourceLockerTask {
            api,
            leadership,
            clock,
            requests: asked,
            lease: None,
            own_version: None,
            epoch: 0,
            fence: fence.clone(),
        };
        shutdown.spawn(keeper.run(shutdown.clone()));
        Self { requests: asks, fence }
    }

    /// Returns the fence that refuses writes after the lease was lost.
    pub fn fence(&self) -> LeaseFence {
        self.fence.clone()
    }

    /// Acquires or shares the lease.
    ///
    /// # Errors
    ///
    /// [`CloudError::RetryAfter`] while another component holds the lease, [`CloudError::NotLeader`] when this process may
    /// not write.
    pub async fn hold(&self) -> CloudResult<LeaseGuard> {
        let (answer, answered) = oneshot::channel();
        let stopped = || CloudError::NotLeader("the process is stopping".to_owned());
        self.requests.send(answer).map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

struct ResourceLockerTask {
    api: Api<Lease>,
    leadership: Leadership,
    clock: Clock,
    requests: mpsc::UnboundedReceiver<oneshot::Sender<LeaseGuardResult>>,
    /// Lease as this process last wrote it; `None`: the lease must be read.
    lease: Option<Lease>,
    /// Resource version that this process last wrote.
    own_version: Option<String>,
    epoch: u64,
    fence: LeaseFence,
}

impl ResourceLockerTask {
    async fn run(mut self, shutdown: Shutdown) {
        loop {
            let first = tokio::select! {
                biased;
                request = self.requests.recv() => request,
                () = shutdown.begun() => None,
            };
            let Some(first) = first else { return };
            let mut waiting = vec![first];
            waiting.extend(self.queued_requests());
            match self.acquire().await {
                Ok(()) => {
                    self.serve(waiting).await;
                    self.fence.free();
                    self.release().await;
                }
                Err(error) => waiting.into_iter().for_each(|request| drop(request.send(Err(error.clone())))),
            }
        }
    }

    /// Returns the other requests that are queued.
    fn queued_requests(&mut self) -> Vec<oneshot::Sender<LeaseGuardResult>> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).collect()
    }

    /// Shares the lease until no guard remains. Refuses further guards once the lease is lost.
    async fn serve(&mut self, waiting: Vec<oneshot::Sender<LeaseGuardResult>>) {
        let mut renew_at = self.clock.now() + RENEW_PERIOD;
        let (mut alive, mut ended) = mpsc::channel(1);
        waiting.into_iter().for_each(|request| self.grant(request, &alive));
        let mut shared = alive.downgrade();
        drop(alive);
        loop {
            tokio::select! {
                biased;
                Some(request) = self.requests.recv() => {
                    if self.fence.check().is_err() {
                        // The wall clock may have jumped past the expiry of a lease that no other component took.
                        renew_at = self.clock.now();
                        let _ = request.send(Err(LeaseLost.into()));
                    } else if let Some(alive) = shared.upgrade() {
                        self.grant(request, &alive);
                    } else {
                        (alive, ended) = mpsc::channel(1);
                        self.grant(request, &alive);
                        shared = alive.downgrade();
                    }
                }
                _ = ended.recv() => return,
                () = sleep_until(renew_at), if self.lease.is_some() => match self.renew().await {
                    Some(next) => renew_at = next,
                    None => self.fence.lose(),
                },
            }
        }
    }

    /// Sends a guard. If the requester no longer waits, the guard is dropped here.
    fn grant(&self, request: oneshot::Sender<LeaseGuardResult>, alive: &mpsc::Sender<Infallible>) {
        drop(request.send(Ok(LeaseGuard { epoch: self.epoch, fence: self.fence.clone(), _alive: alive.clone() })));
    }

    async fn acquire(&mut self) -> CloudResult<()> {
        for _ in 0..ATTEMPTS {
            self.leadership.check().map_err(|error| CloudError::NotLeader(error.to_string()))?;
            if self.lease.is_none() {
                self.lease = self.read().await.map_err(|error| not_locked(&error))?;
            }
            let seen = self.lease.take();
            let foreign = seen.as_ref().is_some_and(|seen| plan::others_held(seen, self.own_version.as_deref()));
            let written = match plan::acquire(seen.as_ref(), self.clock.wall()) {
                LeaseAcquisition::Create(lease) => self.with_timeout(self.api.create(&PostParams::default(), &lease)).await,
                LeaseAcquisition::Take(lease) => self.replace(&lease).await,
                LeaseAcquisition::Wait { holder, until } => return Err(self.held_by(&holder, until)),
            };
            match written {
                Ok(lease) => {
                    self.epoch += u64::from(foreign);
                    self.fence.hold(plan::expires(&lease));
                    self.remember(lease);
                    return Ok(());
                }
                // Another writer changed the lease in between: read it again.
                Err(ApiError::Conflict(_) | ApiError::NotFound(_)) => {}
                Err(error) => return Err(not_locked(&error)),
            }
        }
        Err(CloudError::failed(format!("{NAMESPACE}/{NAME}: lease modified concurrently; gave up")))
    }

    /// Renews the lease, and returns the time of the next renewal; `None` if the lease is lost.
    async fn renew(&mut self) -> Option<Instant> {
        let held = self.lease.clone()?;
        let error = match self.replace(&plan::renewed(&held, self.clock.wall())).await {
            Ok(lease) => {
                self.fence.hold(plan::expires(&lease));
                self.remember(lease);
                return Some(self.clock.now() + RENEW_PERIOD);
            }
            Err(error) => error,
        };
        tracing::warn!(lease = NAME, %error, "cannot renew the load balancer lease, retrying");
        if matches!(error, ApiError::Conflict(_) | ApiError::NotFound(_)) {
            self.lease = self.read().await.unwrap_or(Some(held)).filter(plan::is_ours);
        }
        let expires = self.lease.as_ref().and_then(plan::expires).filter(|expires| self.clock.wall() < *expires);
        if expires.is_none() {
            tracing::error!(lease = NAME, "load balancer lease lost during a change");
            self.lease = None;
        }
        expires.map(|_| self.clock.now() + RENEW_RETRY_PERIOD)
    }

    /// Releases the lease. A failure is harmless, because the lease expires and this program may take its own lease at any
    /// time.
    async fn release(&mut self) {
        let Some(held) = self.lease.take() else { return };
        let mut result = self.replace(&plan::released(&held)).await;
        // If this process no longer leads, the conflicting write may be that of the next leader.
        if matches!(result, Err(ApiError::Conflict(_))) && self.leadership.is_leading() {
            match self.read().await {
                Ok(Some(lease)) if plan::is_ours(&lease) => result = self.replace(&plan::released(&lease)).await,
                Ok(_) => return,
                Err(error) => result = Err(error),
            }
        }
        match result {
            Ok(lease) => self.remember(lease),
            Err(error) => {
                tracing::warn!(lease = NAME, %error, "cannot release the load balancer lease; it will expire")
            }
        }
    }

    fn remember(&mut self, lease: Lease) {
        self.own_version.clone_from(&lease.metadata.resource_version);
        self.lease = Some(lease);
    }

    fn held_by(&self, holder: &str, until: jiff::Timestamp) -> CloudError {
        let left = Duration::try_from(until.duration_since(self.clock.wall())).unwrap_or_default();
        let message = format!(
            "{holder} is changing resources of this cluster in Azure: it holds the lease {NAMESPACE}/{NAME}, which expires at {until}. \
             Should {holder} be gone, clear spec.holderIdentity of that lease"
        );
        CloudError::RetryAfter { after: left.clamp(Duration::from_secs(1), MAX_RETRY_DELAY), message }
    }

    async fn read(&self) -> Result<Option<Lease>, ApiError> {
        self.with_timeout(self.api.get_opt(NAME)).await
    }

    /// Replaces the lease; fails with a conflict if another component wrote since `lease` was read.
    async fn replace(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.with_timeout(self.api.replace(NAME, &PostParams::default(), lease)).await
    }

    async fn with_timeout<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
        let about = format!("lease {NAMESPACE}/{NAME}");
        match timeout(REQUEST_TIMEOUT, request).await {
            Ok(result) => result.map_err(|error| ApiError::from_kube(about, &error)),
            Err(_) => Err(ApiError::Failed(format!("{about}: no response from the API server within {REQUEST_TIMEOUT:?}"))),
        }
    }
}

fn not_locked(error: &ApiError) -> CloudError {
    match error {
        ApiError::NotLeading(_) => CloudError::NotLeader(error.to_string()),
        _ => CloudError::failed(format!("cannot acquire the load balancer lease: {error}")),
    }
}

#[cfg(test)]
mod tests;
