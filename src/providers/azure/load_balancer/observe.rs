//! The only reader of the network documents: load balancers, public IPs, the network security group, subnets.
//!
//! In: the documents that a query needs. Out: [`ObservedNetwork`], within the configured cache lifetimes, with as few
//! requests as possible.
//!
//!
//! ```text
//! observe ─► network_cache (what is due?) ─► fetch ◄── ARM
//!                  ▲  record, write_back        │
//!                  └────────────────────────────┘
//! ```
//! Reads run in separate tasks and are shared by all callers that wait for the same document. The writer (`super::apply`)
//! passes ARM's responses to the observer, so no read repeats the result of a write. Everything but [`NetworkObserver`] and
//! `fetch` is pure.
//!
//! Absence is a fact about a single resource. `fetch` decides what proves it; `network_cache` requests a read of each
//! document that a list should have shown; `denials` records which resource groups and subnets may not be read.

mod denials;
mod documents;
mod effects;
mod fetch;
mod network_cache;

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use denials::{DenialCause, ReadDenials};
use documents::ListedDocument;
pub(super) use effects::{invalidated_by, referenced_keys};
use futures::future::join_all;
pub(super) use network_cache::CachedVersion;
pub(super) use network_cache::write_back::NetworkWriteResult;
use network_cache::{CacheSequence, NetworkCache, record::NetworkReadResult};
pub use network_query::{CacheLifetimes, NetworkCacheKey, NetworkQuery, NetworkReadFailure};
use parking_lot::{Mutex, MutexGuard};

use crate::providers::azure::planner::load_balancer::{
    desired::plan_index::PlanIndex,
    network_query::{self, is_lasting},
    observed::ObservedNetwork,
    settings::LoadBalancerSettings,
    spec::ServiceSpec,
};
use crate::{
    providers::azure::{
        arm::{ArmClient, Urgency},
        model::{
            ArmError, ArmErrorClass, ArmResult, ResourceId,
            network::{ArmLoadBalancer, Subnet},
        },
    },
    runtime::{clock::Clock, single_flight::SharedTask},
};
use tokio::time::{Instant, timeout};

/// Longest wait for a read that only some Services name, after the reads that every plan needs have ended.
///
/// ARM responds to nearly all reads within this time, and a resource group that does not respond delays no other Service any
/// longer.
const MAX_NAMED_DELAY: Duration = Duration::from_secs(1);

type SharedRead = SharedTask<ArmResult<()>>;

/// Read in flight, shared by all callers that wait for it.
#[derive(Clone)]
struct ReadInFlight {
    task: SharedRead,
    /// Whether a caller continued without this read. Later callers do not wait for it.
    is_overdue: bool,
}

/// Reader of network documents, with its cache and the reads in flight.
pub struct NetworkObserver {
    client: ArmClient,
    /// Client for private link services, which are in the subscription of the machines.
    compute: ArmClient,
    settings: Arc<LoadBalancerSettings>,
    clock: Clock,
    state: Mutex<ObserverState>,
}

struct ObserverState {
    cache: NetworkCache,
    denials: ReadDenials,
    reads: HashMap<NetworkCacheKey, ReadInFlight>,
}

impl ObserverState {
    /// Records the result of a read of `what` that began at `since` and `at`, and ended at `now`.
    ///
    /// # Errors
    ///
    /// Fails if the read failed, or if the resource group does not exist.
    fn record(
        &mut self,
        what: NetworkCacheKey,
        since: CacheSequence,
        at: Instant,
        now: Instant,
        answer: ArmResult<NetworkReadResult>,
        settings: &LoadBalancerSettings,
    ) -> ArmResult<()> {
        let was_overdue = self.reads.remove(&what).is_some_and(|read| read.is_overdue);
        let cause = match &answer {
            Ok(NetworkReadResult::GroupMissing(error)) => Some(DenialCause::GroupMissing((**error).clone())),
            Ok(NetworkReadResult::Subnet(None)) => Some(DenialCause::Absent),
            Ok(_) => None,
            Err(error) if was_overdue && !is_lasting(error) => Some(DenialCause::FailedLate(error.clone())),
            Err(error) => Some(DenialCause::Failed(error.clone())),
        };
        let denied = cause.as_ref().and_then(DenialCause::error).cloned();
        match cause {
            // A missing subnet is denied to the Services that need it, even if it is the configured subnet.
            Some(cause) if denied.is_none() || what.is_service_specific(settings) => {
                self.denials.record_failure(&what, cause, now);
            }
            Some(_) => {}
            None => self.denials.clear(&what),
        }
        if let Ok(answer) = answer {
            if was_overdue {
                self.cache.keep_late(&what, now);
            }
            self.cache.record(what, since, at, answer);
        }
        denied.map_or(Ok(()), Err)
    }

    /// Removes the keys from `query` that were denied recently, and adds the reasons to `unread`.
    ///
    /// A subnet that does not exist is no error, as after a read.
    fn leave_out_denied(&self, query: &mut NetworkQuery, unread: &mut Vec<NetworkReadFailure>, now: Instant) {
        for what in query.named_keys() {
            let Some(cause) = self.denials.of(&what, now) else { continue };
            query.remove(&what);
            unread.extend(cause.error().map(|error| read_failure(&self.denials, what, error.clone(), now)));
        }
    }
}

impl NetworkObserver {
    /// Creates an observer with an empty cache. The clients are for the subscription of the network, and for that of the
    /// machines.
    pub fn new(
        (client, compute): (ArmClient, ArmClient),
        settings: Arc<LoadBalancerSettings>,
        lifetimes: CacheLifetimes,
        clock: Clock,
    ) -> Arc<Self> {
        let knowledge = NetworkCache::new(settings.group.clone(), settings.security_group.clone(), lifetimes);
        let state = Mutex::new(ObserverState { cache: knowledge, denials: ReadDenials::default(), reads: HashMap::new() });
        Arc::new(Self { client, compute, settings, clock, state })
    }

    /// Returns the observed state, after reads of documents that are missing, invalidated or expired.
    ///
    /// Concurrent callers share reads. If nothing has changed, the result is the same `Arc` as before.
    ///
    /// A network security group or subnet counts as absent if ARM says that it does not exist. An error about a resource
    /// that `query` names is returned next to the rest, because it concerns only the Services that need the resource; any
    /// other error is the result. Denied or missing resource groups and subnets are remembered for minutes. After any other
    /// error, the next call retries, and reads only what failed.
    ///
    /// A read that only some Services name and that does not end in time ([`MAX_NAMED_DELAY`]) is also an error about a
    /// named resource. The read continues, and the next call uses its result.
    pub async fn observe(
        self: &Arc<Self>,
        query: &NetworkQuery,
        urgency: Urgency,
    ) -> ArmResult<(Arc<ObservedNetwork>, Vec<NetworkReadFailure>)> {
        let asked = self.lock().cache.next_sequence();
        let (mut query, mut unread) = (query.clone(), Vec::new());
        // The loop ends: each round completes the due reads, or removes failed and overdue keys from the query.
        loop {
            let reads: Vec<_> = {
                let (mut state, now) = (self.lock(), self.clock.now());
                state.leave_out_denied(&mut query, &mut unread, now);
                let ObserverState { cache, reads, .. } = &mut *state;
                cache.evict(&query, asked, now, |what| reads.contains_key(what));
                let due = state.cache.due(&query, asked, now);
                if due.is_empty() {
                    return Ok((state.cache.observed(), unread));
                }
                due.into_iter().map(|what| (what.clone(), self.join(&mut state, what, urgency))).collect()
            };
            for failure in self.wait_for(reads).await {
                if !query.remove(&failure.key) {
                    return Err(failure.error);
                }
                unread.push(failure);
            }
        }
    }

    /// Waits for reads, and returns those that failed or are overdue.
    async fn wait_for(&self, reads: Vec<(NetworkCacheKey, ReadInFlight)>) -> Vec<NetworkReadFailure> {
        let (named, common): (Vec<_>, Vec<_>) = reads.into_iter().partition(|(what, _)| what.is_named(&self.settings));
        let mut results = join_all(common.into_iter().map(|(what, read)| async move { (what, read.task.await) })).await;
        let named = named.into_iter().map(|(what, read)| async move {
            let delay = if read.is_overdue { Duration::ZERO } else { MAX_NAMED_DELAY };
            let result = timeout(delay, read.task).await.unwrap_or_else(|_| Err(self.go_on_without(&what)));
            (what, result)
        });
        results.extend(join_all(named).await);
        let (state, now) = (self.lock(), self.clock.now());
        let failure = |(what, result): (_, ArmResult<()>)| Some(read_failure(&state.denials, what, result.err()?, now));
        results.into_iter().filter_map(failure).collect()
    }

    /// Marks the read of `what` as overdue, and returns the error for the Services that name it.
    fn go_on_without(&self, what: &NetworkCacheKey) -> ArmError {
        if let Some(read) = self.lock().reads.get_mut(what) {
            read.is_overdue = true;
        }
        // This class makes the caller retry after a few seconds without backoff. By then the result is probably cached.
        let message = "ARM has not answered yet; the read goes on";
        read_error(ArmErrorClass::Busy, fetch::request_line(&self.settings, what), message)
    }

    /// Returns keys that could not be read for a lasting reason. Each concerns only the Services that name it.
    pub fn denied(&self) -> BTreeSet<NetworkCacheKey> {
        self.lock().denials.keys().cloned().collect()
    }

    /// Returns how long a Service of `namespace` waits for one of `keys` that does not exist; `None`: none is known to be
    /// missing.
    pub fn pause_of(&self, keys: &[NetworkCacheKey], namespace: &str) -> Option<Duration> {
        self.lock().denials.pause_of(keys, namespace, self.clock.now())
    }

    /// Returns the cached state without any request; empty before the first read.
    pub fn cached(&self) -> Arc<ObservedNetwork> {
        self.lock().cache.observed()
    }

    /// Returns the addresses of a Service according to the cache, without any request.
    ///
    /// Calls for Services that use the same version of the documents share its index.
    pub fn cached_status(&self, spec: &ServiceSpec) -> Vec<IpAddr> {
        let (observed, tables) = {
            let state = self.lock();
            (state.cache.observed(), state.cache.tables())
        };
        PlanIndex::with_tables(&observed, tables).status(spec, &self.settings)
    }

    /// Marks a cached document as possibly outdated: the next query that needs it reads it again, and writes planned earlier
    /// are refused.
    pub fn invalidate(&self, what: NetworkCacheKey) {
        self.lock().cache.invalidate(what);
    }

    /// Invalidates cached public IPs that are attached to frontends and have no address.
    ///
    /// A previous process may have ended while ARM was creating them, so the list of this process shows them incomplete.
    pub fn invalidate_public_ips_without_address(&self) {
        let mut state = self.lock();
        for id in effects::attached_without_address(&state.cache.observed()) {
            state.cache.invalidate(NetworkCacheKey::PublicIp(id));
        }
    }

    /// Changes facts that are in no network document, such as [`ObservedNetwork::zones`], unless `is_known` finds them.
    pub fn update(&self, is_known: impl FnOnce(&ObservedNetwork) -> bool, change: impl FnOnce(&mut ObservedNetwork)) {
        self.lock().cache.update(is_known, change);
    }

    fn lock(&self) -> MutexGuard<'_, ObserverState> {
        self.state.lock()
    }

    /// Returns the read of `what` that is in flight, or starts one.
    fn join(self: &Arc<Self>, state: &mut ObserverState, what: NetworkCacheKey, urgency: Urgency) -> ReadInFlight {
        let in_flight = state.reads.get(&what).cloned();
        let is_overdue = in_flight.as_ref().is_some_and(|read| read.is_overdue);
        let in_flight = in_flight.map(|read| read.task);
        let task = SharedTask::join_or_start(in_flight.as_ref(), || self.start(state, what, urgency));
        ReadInFlight { task, is_overdue }
    }

    /// Starts a read in a separate task, so that a caller that stops waiting does not cause another request.
    fn start(self: &Arc<Self>, state: &mut ObserverState, what: NetworkCacheKey, urgency: Urgency) -> SharedRead {
        let since = state.cache.begin_read();
        let client = if what.is_in_machines_subscription() { &self.compute } else { &self.client };
        let (this, read, client) = (Arc::clone(self), what.clone(), client.with_urgency(urgency));
        let flight = SharedTask::start(async move { this.read(&client, read, since).await }, |_| {
            Err(read_error(ArmErrorClass::Transient, "network documents".to_owned(), "the read was interrupted; retrying"))
        });
        state.reads.insert(what, ReadInFlight { task: flight.clone(), is_overdue: false });
        flight
    }

    async fn read(&self, client: &ArmClient, what: NetworkCacheKey, since: CacheSequence) -> ArmResult<()> {
        let at = self.clock.now();
        let answer = fetch::read(client, &self.settings, &what).await;
        let mut state = self.lock();
        let outcome = state.record(what, since, at, self.clock.now(), answer, &self.settings);
        state.cache.end_read(since);
        outcome
    }
}

/// Methods for the writer.
impl NetworkObserver {
    /// Returns the cached version of the document that a read of `what` shows.
    pub(super) fn cached_version(&self, what: &NetworkCacheKey) -> CachedVersion {
        self.lock().cache.cached_version(what, self.clock.now())
    }

    /// Returns a cached load balancer, public IP or other listed document.
    pub(super) fn document<D: ListedDocument>(&self, id: &ResourceId) -> Option<D> {
        self.lock().cache.document(id).cloned()
    }

    /// Returns a cached subnet of the virtual network.
    pub(super) fn subnet(&self, name: &str) -> Option<Subnet> {
        self.lock().cache.observed().subnets.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Returns `true` if the load balancer is cached.
    pub(super) fn has_load_balancer(&self, id: &ResourceId) -> bool {
        self.lock().cache.document::<ArmLoadBalancer>(id).is_some()
    }

    /// Returns `true` if the cached load balancer of a pool has that pool.
    pub(super) fn has_pool(&self, pool: &ResourceId) -> bool {
        let state = self.lock();
        let document = pool.parent().and_then(|balancer| state.cache.document::<ArmLoadBalancer>(&balancer));
        let mut pools = document.iter().flat_map(|document| document.properties.iter());
        pools.any(|it| it.backend_address_pools.iter().flatten().any(|known| known.name_is(pool.name())))
    }

    /// Reads this document now, even if another read of it is in flight.
    pub(super) async fn refresh(self: &Arc<Self>, what: NetworkCacheKey, urgency: Urgency) -> ArmResult<()> {
        let flight = self.start(&mut self.lock(), what, urgency);
        flight.await
    }

    /// Records that a write of the document that a read of `what` shows is about to be sent.
    pub(super) fn begin_write(self: &Arc<Self>, what: NetworkCacheKey) -> PendingWrite {
        let since = self.lock().cache.next_sequence();
        PendingWrite { observer: Arc::clone(self), key: what, since, has_ended: false }
    }

    pub(super) fn settings(&self) -> &LoadBalancerSettings {
        &self.settings
    }
}

/// Write in flight. Its document is invalidated if the value is dropped without a result.
pub(super) struct PendingWrite {
    observer: Arc<NetworkObserver>,
    key: NetworkCacheKey,
    since: CacheSequence,
    has_ended: bool,
}

impl PendingWrite {
    /// Records the end of a write of a document whose references do not matter.
    pub(super) fn end(self, outcome: ArmResult<NetworkWriteResult>) -> ArmResult<()> {
        let key = self.key.clone();
        self.end_with(outcome, |error| effects::invalidated_by(error, &key, Vec::new))
    }

    /// Records the end of a write. `invalidated` returns the documents whose state is unconfirmed after a failure.
    pub(super) fn end_with(
        mut self,
        outcome: ArmResult<NetworkWriteResult>,
        invalidated: impl FnOnce(&ArmError) -> Vec<NetworkCacheKey>,
    ) -> ArmResult<()> {
        self.has_ended = true;
        let (at, mut state) = (self.observer.clock.now(), self.observer.lock());
        match outcome {
            Ok(written) => state.cache.write_back(written, self.since, at),
            Err(error) => {
                invalidated(&error).into_iter().for_each(|key| state.cache.invalidate(key));
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        if !self.has_ended {
            self.observer.invalidate(self.key.clone());
        }
    }
}

fn read_failure(denials: &ReadDenials, key: NetworkCacheKey, error: ArmError, now: Instant) -> NetworkReadFailure {
    let group_missing = matches!(denials.of(&key, now), Some(DenialCause::GroupMissing(_)));
    NetworkReadFailure { missing_for: denials.missing_for(&key, now), group_missing, key, error }
}

/// Returns the error of a read without a response.
fn read_error(class: ArmErrorClass, request: String, message: &str) -> ArmError {
    ArmError {
        class,
        status: None,
        code: String::new(),
        message: message.to_owned(),
        request,
        correlation_id: None,
        retry_after: None,
    }
}
