//! The only reader of the network documents: load balancers, public IPs, the security group, subnets.
//!
//! In: what a look needs. Out: [`ObservedNetwork`], as young as the configuration asks, with as few requests as that takes.
//!
//! ```text
//! observe ─► network_cache (what is due?) ─► fetch ◄── ARM
//!                  ▲  record, write_back        │
//!                  └────────────────────────────┘
//! ```
//! Reads run in tasks of their own and are shared by all who wait for the same. What the writer (`super::apply`) was answered comes in
//! here, so that nothing is read that a write has shown. Everything but [`NetworkObserver`] and `fetch` is pure.
//!
//! Absent is a fact about one thing: `fetch` says what proves it, `network_cache` reads again by itself what a list should have shown, and
//! `denials` remembers which resource groups and subnets may not be read.

mod denials;
mod documents;
mod effects;
mod fetch;
mod network_cache;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use denials::{DenialCause, ReadDenials};
pub(super) use effects::{invalidated_by, referenced_keys};
use futures::future::join_all;
use network_cache::{CacheSequence, NetworkCache, NetworkReadResult};
pub(super) use network_cache::{CachedVersion, NetworkWriteResult};
pub use network_query::{CacheLifetimes, NetworkCacheKey, NetworkQuery, NetworkReadFailure};
use parking_lot::{Mutex, MutexGuard};
use tracing::Instrument;

use crate::providers::azure::planner::load_balancer::{
    desired::plan_index::PlanIndex, labels::LabelMap, network_query, observed::ObservedNetwork,
    settings::LoadBalancerSettings, spec::ServiceSpec,
};
use crate::{
    providers::azure::arm::{
        ArmClient, ArmError, ArmErrorClass, ArmResult, ResourceId, Urgency,
        network::{ArmLoadBalancer, PublicIpAddress, Subnet},
        private_link::PrivateLinkService,
        spelling,
    },
    runtime::{clock::Clock, single_flight::SharedTask},
};
use tokio::time::Instant;

/// A read under way, for all who wait for it.
type SharedRead = SharedTask<ArmResult<()>>;

/// What is known of the network, and how to learn the rest.
pub struct NetworkObserver {
    client: ArmClient,
    /// For private link services, which are in the subscription of the machines.
    compute: ArmClient,
    settings: Arc<LoadBalancerSettings>,
    clock: Clock,
    state: Mutex<ObserverState>,
}

struct ObserverState {
    cache: NetworkCache,
    denials: ReadDenials,
    reads: HashMap<NetworkCacheKey, SharedRead>,
}

impl ObserverState {
    /// The answer to a read of `what`. That there is no such group is an error for those who name it.
    fn record(
        &mut self,
        what: NetworkCacheKey,
        since: CacheSequence,
        at: Instant,
        answer: ArmResult<NetworkReadResult>,
        settings: &LoadBalancerSettings,
    ) -> ArmResult<()> {
        let cause = match &answer {
            Ok(NetworkReadResult::GroupMissing(error)) => Some(DenialCause::GroupMissing((**error).clone())),
            Ok(NetworkReadResult::Subnet(None)) => Some(DenialCause::Absent),
            Ok(_) => None,
            Err(error) => Some(DenialCause::Failed(error.clone())),
        };
        let denied = cause.as_ref().and_then(DenialCause::error).cloned();
        match cause {
            // A subnet that does not exist is refused to those who need it, also the configured one.
            Some(cause) if denied.is_none() || is_service_specific(&what, settings) => {
                self.denials.record_failure(&what, cause, at);
            }
            Some(_) => {}
            None => self.denials.clear(&what),
        }
        if let Ok(answer) = answer {
            self.cache.record(what, since, at, answer);
        }
        denied.map_or(Ok(()), Err)
    }
}

impl NetworkObserver {
    /// An observer that knows nothing yet. The clients: for the subscription of the network, and for that of the machines.
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

    /// What there is, after reading what is missing, doubted or older than its lifetime. Callers at the same time share reads. The same
    /// `Arc` as before when nothing has changed.
    ///
    /// A security group or subnet of which ARM says that it does not exist counts as absent. An error about a resource that `query` names is
    /// returned next to the rest, because it concerns only the Services that need the resource; any other error is the result. That a resource
    /// group or subnet may not be read or does not exist is remembered for minutes; after any other error the next look tries again, and
    /// reads only what failed.
    pub async fn observe(
        self: &Arc<Self>,
        query: &NetworkQuery,
        urgency: Urgency,
    ) -> ArmResult<(Arc<ObservedNetwork>, Vec<NetworkReadFailure>)> {
        let (mut query, mut unread) = self.without_denied(query.clone());
        loop {
            let failed = match self.observe_all(&query, urgency).await {
                Ok(observed) => return Ok((observed, unread)),
                Err(failed) => failed,
            };
            for one in failed {
                if !query.remove(&one.key) {
                    return Err(one.error);
                }
                unread.push(one);
            }
        }
    }

    /// Returns `query` without the resources that were refused recently, and the reasons. A subnet that does not exist is no error, as when it has just been read.
    fn without_denied(&self, mut query: NetworkQuery) -> (NetworkQuery, Vec<NetworkReadFailure>) {
        let (state, now, mut unread) = (self.lock(), self.clock.now(), Vec::new());
        for what in query.named_keys() {
            let Some(cause) = state.denials.of(&what, now) else { continue };
            query.remove(&what);
            unread.extend(cause.error().map(|error| read_failure(&state.denials, what, error.clone(), now)));
        }
        (query, unread)
    }

    /// What could not be read for a reason that lasts. Each concerns only those who name it.
    pub fn denied(&self) -> BTreeSet<NetworkCacheKey> {
        self.lock().denials.keys().cloned().collect()
    }

    /// Returns how long a Service of `namespace` waits for one of `keys` that does not exist; `None`: none is known to be missing.
    pub fn pause_of(&self, keys: &[NetworkCacheKey], namespace: &str) -> Option<Duration> {
        self.lock().denials.pause_of(keys, namespace, self.clock.now())
    }

    /// The same; an error is what could not be read.
    async fn observe_all(
        self: &Arc<Self>,
        query: &NetworkQuery,
        urgency: Urgency,
    ) -> Result<Arc<ObservedNetwork>, Vec<NetworkReadFailure>> {
        let asked = self.begin_query(query);
        loop {
            let flights: Vec<_> = {
                let mut state = self.lock();
                let due = state.cache.due(query, asked, self.clock.now());
                if due.is_empty() {
                    return Ok(state.cache.observed());
                }
                let join = |what: NetworkCacheKey| (what.clone(), self.join(&mut state, what, urgency));
                due.into_iter().map(join).collect()
            };
            let reads = flights.into_iter().map(|(what, flight)| async move {
                let error = flight.await.err()?;
                Some(read_failure(&self.lock().denials, what, error, self.clock.now()))
            });
            let failed: Vec<NetworkReadFailure> = join_all(reads).await.into_iter().flatten().collect();
            if !failed.is_empty() {
                return Err(failed);
            }
        }
    }

    /// What is known now, without any request; empty before the first look.
    pub fn cached(&self) -> Arc<ObservedNetwork> {
        self.lock().cache.observed()
    }

    /// Returns the addresses of a Service, as far as is known without any request. Services that ask about the same version of the
    /// documents share its index.
    pub fn cached_status(&self, spec: &ServiceSpec) -> Vec<IpAddr> {
        let (observed, tables) = {
            let state = self.lock();
            (state.cache.observed(), state.cache.tables())
        };
        PlanIndex::with_tables(&observed, tables).status(spec, &self.settings)
    }

    /// What is known of this may be wrong: the next look that needs it reads it again, and nothing planned before is written.
    pub fn invalidate(&self, what: NetworkCacheKey) {
        self.lock().cache.invalidate(what);
    }

    /// What is known of public IPs without address that front ends have may be wrong: a process that ended had them made, and the list
    /// that this one read showed them half-made.
    pub fn invalidate_public_ips_without_address(&self) {
        let mut state = self.lock();
        for id in effects::attached_without_address(&state.cache.observed()) {
            state.cache.invalidate(NetworkCacheKey::PublicIp(id));
        }
    }

    /// What is known of private link services may be wrong, whichever groups they are in: another process may have made or deleted some.
    pub fn invalidate_private_links(&self) {
        let mut state = self.lock();
        let groups = state.cache.observed().private_links.groups.clone();
        groups.into_iter().for_each(|group| state.cache.invalidate(NetworkCacheKey::PrivateLinks(group)));
    }

    /// Tells the zones of the region, for [`ObservedNetwork::zones`].
    pub fn set_zones(&self, zones: Vec<String>) {
        self.lock().cache.set_zones(zones);
    }

    /// Tells the scale sets or availability sets of the cluster's machines, for [`ObservedNetwork::vm_sets`].
    pub fn set_vm_sets(&self, vm_sets: Vec<String>) {
        self.lock().cache.set_vm_sets(vm_sets);
    }

    /// Tells the labels of the cluster's Namespaces, for [`ObservedNetwork::namespace_labels`].
    pub fn set_namespace_labels(&self, labels: BTreeMap<String, LabelMap>) {
        self.lock().cache.set_namespace_labels(labels);
    }

    /// Records that Azure enforces its limit of rules at a network interface, for [`ObservedNetwork::interface_limit_reached`].
    pub fn record_interface_limit(&self) {
        self.lock().cache.record_interface_limit();
    }

    fn begin_query(&self, query: &NetworkQuery) -> CacheSequence {
        let mut state = self.lock();
        let asked = state.cache.next_sequence();
        state.cache.evict(query, asked, self.clock.now());
        asked
    }

    fn lock(&self) -> MutexGuard<'_, ObserverState> {
        self.state.lock()
    }

    /// The read of `what` that is under way, or a new one.
    fn join(self: &Arc<Self>, state: &mut ObserverState, what: NetworkCacheKey, urgency: Urgency) -> SharedRead {
        let under_way = state.reads.get(&what).cloned();
        SharedTask::join_or_start(under_way.as_ref(), || self.start(state, what, urgency))
    }

    /// A new read, in a task of its own: whoever asked may go away without its being sent again.
    fn start(self: &Arc<Self>, state: &mut ObserverState, what: NetworkCacheKey, urgency: Urgency) -> SharedRead {
        let since = state.cache.begin_read();
        let client = match &what {
            NetworkCacheKey::PrivateLinks(_) | NetworkCacheKey::PrivateLink(_) => &self.compute,
            _ => &self.client,
        };
        let (this, read, client) = (Arc::clone(self), what.clone(), client.with_urgency(urgency));
        let flight = SharedTask::start(async move { this.read(&client, read, since).await }.in_current_span(), |_| {
            Err(read_aborted())
        });
        state.reads.insert(what, flight.clone());
        flight
    }

    async fn read(&self, client: &ArmClient, what: NetworkCacheKey, since: CacheSequence) -> ArmResult<()> {
        let at = self.clock.now();
        let answer = fetch::read(client, &self.settings, &what).await;
        let mut state = self.lock();
        state.reads.remove(&what);
        let outcome = state.record(what, since, at, answer, &self.settings);
        state.cache.end_read(since);
        outcome
    }
}

/// For the writer.
impl NetworkObserver {
    /// What is known of the document that a read of `what` shows.
    pub(super) fn cached_version(&self, what: &NetworkCacheKey) -> CachedVersion {
        self.lock().cache.cached_version(what, self.clock.now())
    }

    /// What is known of a public IP.
    pub(super) fn public_ip(&self, id: &ResourceId) -> Option<PublicIpAddress> {
        self.lock().cache.public_ip(id).cloned()
    }

    /// What is known of a private link service.
    pub(super) fn private_link(&self, id: &ResourceId) -> Option<PrivateLinkService> {
        self.lock().cache.private_link(id).cloned()
    }

    /// What is known of a subnet of the virtual network.
    pub(super) fn subnet(&self, name: &str) -> Option<Subnet> {
        self.lock().cache.observed().subnets.get(&name.to_ascii_lowercase()).cloned()
    }

    /// What is known of a load balancer.
    pub(super) fn load_balancer(&self, id: &ResourceId) -> Option<ArmLoadBalancer> {
        self.lock().cache.load_balancer(id).cloned()
    }

    /// Returns `true` if the load balancer is known to exist.
    pub(super) fn has_load_balancer(&self, id: &ResourceId) -> bool {
        self.lock().cache.load_balancer(id).is_some()
    }

    /// Returns `true` if the load balancer of a pool is known to have that pool.
    pub(super) fn has_pool(&self, pool: &ResourceId) -> bool {
        let state = self.lock();
        let document = pool.parent().and_then(|balancer| state.cache.load_balancer(&balancer));
        let mut pools = document.iter().flat_map(|document| document.properties.iter());
        pools.any(|it| it.backend_address_pools.iter().flatten().any(|known| known.name_is(pool.name())))
    }

    /// Reads this again now, whatever is under way.
    pub(super) async fn refresh(self: &Arc<Self>, what: NetworkCacheKey, urgency: Urgency) -> ArmResult<()> {
        let flight = self.start(&mut self.lock(), what, urgency);
        flight.await
    }

    /// A write of the document that a read of `what` shows is sent now.
    pub(super) fn begin_write(self: &Arc<Self>, what: NetworkCacheKey) -> PendingWrite {
        let since = self.lock().cache.next_sequence();
        PendingWrite { observer: Arc::clone(self), key: Some(what), since }
    }

    pub(super) fn settings(&self) -> &LoadBalancerSettings {
        &self.settings
    }
}

/// A write under way. What it is about is doubtful when nobody says how it ended.
pub(super) struct PendingWrite {
    observer: Arc<NetworkObserver>,
    key: Option<NetworkCacheKey>,
    since: CacheSequence,
}

impl PendingWrite {
    pub(super) fn succeeded(mut self, written: NetworkWriteResult) {
        self.key = None;
        let at = self.observer.clock.now();
        self.observer.lock().cache.write_back(written, self.since, at);
    }

    /// Records a failed write. `keys`: documents whose state is unconfirmed now.
    pub(super) fn failed(mut self, keys: Vec<NetworkCacheKey>) {
        self.key = None;
        let mut state = self.observer.lock();
        keys.into_iter().for_each(|key| state.cache.invalidate(key));
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        if let Some(what) = self.key.take() {
            self.observer.invalidate(what);
        }
    }
}

/// Whether only some Services name it. The cluster's own group and subnet have to exist.
fn is_service_specific(what: &NetworkCacheKey, settings: &LoadBalancerSettings) -> bool {
    match what {
        NetworkCacheKey::PublicIps(group) => *group != settings.group,
        NetworkCacheKey::PrivateLinks(_) => true,
        NetworkCacheKey::Subnet(name) => !spelling::same_name(name, &settings.subnet),
        _ => false,
    }
}

fn read_failure(denials: &ReadDenials, key: NetworkCacheKey, error: ArmError, now: Instant) -> NetworkReadFailure {
    let group_missing = matches!(denials.of(&key, now), Some(DenialCause::GroupMissing(_)));
    NetworkReadFailure { missing_for: denials.missing_for(&key, now), group_missing, key, error }
}

fn read_aborted() -> ArmError {
    ArmError {
        class: ArmErrorClass::Transient,
        status: None,
        code: String::new(),
        message: "the read was interrupted; retrying".to_owned(),
        request: "network documents".to_owned(),
        correlation_id: None,
        retry_after: None,
    }
}
