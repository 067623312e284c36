//! Cache of the network documents, with their ages and invalidations. Pure: time comes in.
//!
//! In: results of reads and writes. Out: the snapshot, and the reads that must precede its use. A counter orders events, not
//! time: a read does not show facts that were recorded after it began, and does not clear invalidations that were made
//! since.
//!
//! The absence of a document is proven only by a read of it alone, and by our own deletion of it. A list removes nothing:
//! documents that were cached, are referred to, or are expected by a query, and that the list lacks, are read individually
//! first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

mod event_order;
mod lists;
pub(super) mod record;
pub(super) mod write_back;

pub(super) use event_order::CacheSequence;

use event_order::EventOrder;

use crate::providers::azure::{
    model::{
        ResourceId,
        network::{NetworkSecurityGroup, Subnet},
    },
    planner::load_balancer::{
        desired::plan_index::IndexTables,
        network_query::{CacheLifetimes, NetworkCacheKey, NetworkQuery},
        observed::ObservedNetwork,
    },
};

/// Largest number of invalidated documents of one list that are read one by one; with more, the list is read.
const MAX_SINGLE_READS: usize = 3;
/// Lifetime of the absence of a document that may be created at any moment.
const ABSENCE_LIFETIME: Duration = Duration::from_secs(15);
/// Lifetime of the absence of subnets and groups. It is shorter than the shortest pause in `denials`, which prevents earlier
/// reads.
const MISSING_LIFETIME: Duration = Duration::from_secs(4);
/// Lifetime of the result of a read that a caller did not wait for: its Services are retried within this time.
const LATE_LIFETIME: Duration = Duration::from_secs(10);

/// Cached version of a document that is about to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::providers::azure::load_balancer) struct CachedVersion {
    /// Etag of the cached document; `None`: the document is not cached. A document may have no etag.
    pub etag: Option<Option<String>>,
    /// Whether the document must be read before it is used.
    pub invalidated: bool,
    /// Whether the etag is known to be outdated while the rest of the document is current.
    pub etag_stale: bool,
    /// Whether a recent read of this document alone has shown that it does not exist.
    pub absent: bool,
}

#[derive(Debug)]
struct CachedRead {
    at: Instant,
    ended: CacheSequence,
    found: bool,
}

#[derive(Debug)]
pub(super) struct NetworkCache {
    own_group: ResourceId,
    security_group: Option<ResourceId>,
    lifetimes: CacheLifetimes,
    observed: Arc<ObservedNetwork>,
    /// Lookup tables of the current version of `observed`.
    tables: Arc<IndexTables>,
    order: EventOrder,
    /// Last reads of lists, the network security group and subnets.
    reads: BTreeMap<NetworkCacheKey, CachedRead>,
    /// Reads that a caller did not wait for, each with the time until which its result counts as fresh.
    late: BTreeMap<NetworkCacheKey, Instant>,
    invalidated: BTreeMap<NetworkCacheKey, CacheSequence>,
    /// Invalidated documents that a list lacked: another list would prove nothing.
    unlisted: BTreeSet<NetworkCacheKey>,
    /// Documents that reads of single documents found absent, and documents that were deleted.
    absent: BTreeMap<ResourceId, CachedRead>,
    /// Public IPs whose cached etag is known to be outdated.
    stale_etags: BTreeMap<ResourceId, CacheSequence>,
    /// Load balancers whose cached etag is outdated since our own write of them ended.
    outdated_balancers: BTreeSet<ResourceId>,
}

impl NetworkCache {
    /// Creates an empty cache. `own_group` is the cluster's resource group, whose public IPs every query needs.
    pub(super) fn new(own_group: ResourceId, security_group: Option<ResourceId>, lifetimes: CacheLifetimes) -> Self {
        Self {
            own_group,
            security_group,
            lifetimes,
            observed: Arc::default(),
            tables: Arc::default(),
            order: EventOrder::default(),
            reads: BTreeMap::new(),
            late: BTreeMap::new(),
            invalidated: BTreeMap::new(),
            unlisted: BTreeSet::new(),
            absent: BTreeMap::new(),
            stale_etags: BTreeMap::new(),
            outdated_balancers: BTreeSet::new(),
        }
    }

    /// Returns the current snapshot.
    pub(super) fn observed(&self) -> Arc<ObservedNetwork> {
        Arc::clone(&self.observed)
    }

    /// Returns the lookup tables of the current snapshot, shared by all lookups in this version.
    pub(super) fn tables(&self) -> Arc<IndexTables> {
        Arc::clone(&self.tables)
    }

    /// Returns the next position in the order of events.
    pub(super) fn next_sequence(&mut self) -> CacheSequence {
        self.order.next()
    }

    /// Returns the snapshot for a change. Callers keep the earlier snapshots that they hold.
    fn observed_mut(&mut self) -> &mut ObservedNetwork {
        self.tables = Arc::default();
        Arc::make_mut(&mut self.observed)
    }

    /// Changes the snapshot, unless `is_known` finds that the change was made.
    pub(super) fn update(
        &mut self,
        is_known: impl FnOnce(&ObservedNetwork) -> bool,
        change: impl FnOnce(&mut ObservedNetwork),
    ) {
        if !is_known(&self.observed) {
            change(self.observed_mut());
        }
    }

    /// Marks a document as possibly outdated.
    pub(super) fn invalidate(&mut self, what: NetworkCacheKey) {
        let now = self.next_sequence();
        self.invalidated.insert(what.normalized(), now);
    }
}

impl NetworkCache {
    /// Returns the keys of everything that a query needs, in the order of the reads.
    fn required_keys(&self, query: &NetworkQuery) -> Vec<NetworkCacheKey> {
        let subnets: BTreeSet<String> = query.subnets.iter().map(|name| name.to_ascii_lowercase()).collect();
        let mut needed = vec![NetworkCacheKey::LoadBalancers];
        needed.extend(query.list_keys(Some(&self.own_group)));
        needed.extend(self.security_group.is_some().then_some(NetworkCacheKey::SecurityGroup));
        needed.extend(subnets.into_iter().map(NetworkCacheKey::Subnet));
        needed
    }

    fn lifetime(&self, what: &NetworkCacheKey, found: bool) -> Duration {
        let lifetime = self.lifetimes.of(what);
        match what {
            _ if found => lifetime,
            NetworkCacheKey::Subnet(_) => lifetime.min(MISSING_LIFETIME),
            _ if what.listed_group().is_some() => lifetime.min(MISSING_LIFETIME),
            _ => lifetime.min(ABSENCE_LIFETIME),
        }
    }

    /// Returns `true` if the cached state is current enough for a query that began at the given position.
    ///
    /// The state was read after that position or is young enough, and was not invalidated itself.
    fn is_fresh(&self, what: &NetworkCacheKey, asked: CacheSequence, now: Instant) -> bool {
        !self.invalidated.contains_key(what)
            && self.reads.get(what).is_some_and(|reading| {
                reading.ended > asked
                    || now.saturating_duration_since(reading.at) < self.lifetime(what, reading.found)
                    || (reading.found && self.late.get(what).is_some_and(|until| now < *until))
            })
    }

    /// Returns the reads that must precede the result of a query that began at the given position.
    pub(super) fn due(&self, query: &NetworkQuery, asked: CacheSequence, now: Instant) -> Vec<NetworkCacheKey> {
        let mut due = Vec::new();
        let undetermined = self.undetermined(&query.expected, asked, now);
        for what in self.required_keys(query) {
            if !self.is_fresh(&what, asked, now) {
                due.push(what);
                continue;
            }
            let doubted = self.invalidated.keys().filter(|key| what.covers(key)).cloned();
            let (unlisted, singles): (Vec<_>, Vec<_>) = doubted.partition(|key| self.unlisted.contains(key));
            due.extend(unlisted);
            due.extend(undetermined.iter().filter(|read| what.covers(read)).cloned());
            if singles.len() > MAX_SINGLE_READS { due.push(what) } else { due.extend(singles) }
        }
        due
    }

    /// Returns the reads of expected documents of which nothing is known and that are not invalidated, in order.
    ///
    /// The caller holds the lock of the observer, so the observed documents are iterated once for all expected documents.
    fn undetermined(
        &self,
        expected: &BTreeSet<NetworkCacheKey>,
        asked: CacheSequence,
        now: Instant,
    ) -> Vec<NetworkCacheKey> {
        let reads = expected.iter().filter_map(|read| Some((read, read.single_id()?)));
        let mut undetermined: BTreeMap<String, NetworkCacheKey> = reads
            .filter(|(read, id)| !self.invalidated.contains_key(*read) && !self.is_absent(read, id, asked, now))
            .map(|(read, id)| (id.key(), read.clone()))
            .collect();
        for id in self.observed.ids() {
            if undetermined.is_empty() {
                break;
            }
            undetermined.remove(&id.to_ascii_lowercase());
        }
        undetermined.into_values().collect()
    }

    fn is_absent(&self, what: &NetworkCacheKey, id: &ResourceId, asked: CacheSequence, now: Instant) -> bool {
        let lifetime = self.lifetime(what, false);
        let is_young = |at: Instant| now.saturating_duration_since(at) < lifetime;
        self.absent.get(id).is_some_and(|reading| reading.ended > asked || is_young(reading.at))
    }

    /// Evicts public IPs of groups and subnets that this query does not need and that the next one must read again, unless a
    /// read of them is in flight.
    pub(super) fn evict(
        &mut self,
        query: &NetworkQuery,
        asked: CacheSequence,
        now: Instant,
        is_reading: impl Fn(&NetworkCacheKey) -> bool,
    ) {
        let needed = self.required_keys(query);
        let doubted = |what: &NetworkCacheKey| self.invalidated.keys().any(|key| what.covers(key));
        let is_old = |what: &&NetworkCacheKey| {
            !needed.contains(*what) && !is_reading(what) && (!self.is_fresh(what, asked, now) || doubted(what))
        };
        let old: Vec<NetworkCacheKey> = self.reads.keys().filter(is_old).cloned().collect();
        for what in old {
            self.reads.remove(&what);
            self.invalidated.retain(|key, _| !what.covers(key));
            self.unlisted.retain(|key| !what.covers(key));
            match (&what, what.listed_group()) {
                (NetworkCacheKey::Subnet(name), _) => self.set_subnet(name, None),
                (_, Some(group)) => self.forget_group(&what, group, false),
                _ => {}
            }
        }
    }

    /// Extends the lifetime of the result of a read that ended at `now`, after a caller had continued without it.
    pub(super) fn keep_late(&mut self, what: &NetworkCacheKey, now: Instant) {
        self.late.retain(|_, until| now < *until);
        self.late.insert(what.clone(), now + LATE_LIFETIME);
    }

    /// Records the start of a read, and returns its position. Call [`NetworkCache::end_read`] at its end.
    pub(super) fn begin_read(&mut self) -> CacheSequence {
        self.order.begin_read()
    }

    /// Records the end of the read that began at `since`.
    pub(super) fn end_read(&mut self, since: CacheSequence) {
        self.order.end_read(since);
    }

    fn set_security_group(&mut self, document: Option<NetworkSecurityGroup>) {
        if self.observed.security_group != document {
            self.observed_mut().security_group = document;
        }
    }

    fn set_subnet(&mut self, name: &str, document: Option<Subnet>) {
        if self.observed.subnets.get(name) != document.as_ref() {
            let subnets = &mut self.observed_mut().subnets;
            match document {
                Some(document) => drop(subnets.insert(name.to_owned(), document)),
                None => drop(subnets.remove(name)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
