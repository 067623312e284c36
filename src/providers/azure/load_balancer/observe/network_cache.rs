//! What is known of the documents, how old it is, and what of it is doubtful. Pure: time comes in.
//!
//! In: answers of reads and writes. Out: the snapshot, and what has to be read before it can be used. Events are put in order by a
//! counter, not by time: a read shows nothing of what became known after it began, and settles no doubt raised since.
//!
//! That a document is absent is known only from a read of it alone, and from our own deletion of it. A list takes nothing away: what was
//! known or is referred to and is not listed, and what somebody who asks may have, is read by itself before anything is concluded.

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

/// So many doubtful documents of one list are read one by one; with more, the list is read.
const MAX_SINGLE_READS: usize = 3;
/// How long something is believed to be missing that may be created any moment.
const ABSENCE_LIFETIME: Duration = Duration::from_secs(15);
/// The same of subnets and groups, which are not read while `denials` says so: shorter than its shortest pause.
const MISSING_LIFETIME: Duration = Duration::from_secs(4);
/// Time in which the result of a read that a look went on without counts as fresh: its Services are retried in it.
const LATE_LIFETIME: Duration = Duration::from_secs(10);

/// What is known of a document that is about to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::providers::azure::load_balancer) struct CachedVersion {
    /// The version that is known, if the document is: a document may have no etag.
    pub etag: Option<Option<String>>,
    /// Whether it has to be read before it is believed.
    pub invalidated: bool,
    /// Whether its etag is known to be an old one, while the rest is as it was.
    pub etag_stale: bool,
    /// Whether a read of it alone has shown a moment ago that it does not exist.
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
    /// Of this version of the observed documents.
    tables: Arc<IndexTables>,
    order: EventOrder,
    /// Whole lists, the security group and subnets.
    reads: BTreeMap<NetworkCacheKey, CachedRead>,
    /// Reads that a look went on without, and until when what they found counts as fresh.
    late: BTreeMap<NetworkCacheKey, Instant>,
    invalidated: BTreeMap<NetworkCacheKey, CacheSequence>,
    /// Those of the doubtful documents that a list lacked: another list would prove nothing.
    unlisted: BTreeSet<NetworkCacheKey>,
    /// What reads of single documents found absent, and what was deleted.
    absent: BTreeMap<ResourceId, CachedRead>,
    /// Public IPs of whose etag it is known that it changed.
    stale_etags: BTreeMap<ResourceId, CacheSequence>,
    /// Load balancers that have another etag than the known one since our own write of them ended.
    outdated_balancers: BTreeSet<ResourceId>,
}

impl NetworkCache {
    /// Nothing. `own_group`: the cluster's, whose public IPs every look needs.
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

    /// What is known now.
    pub(super) fn observed(&self) -> Arc<ObservedNetwork> {
        Arc::clone(&self.observed)
    }

    /// Returns the lookup tables of what is observed now, for all who look something up in this version.
    pub(super) fn tables(&self) -> Arc<IndexTables> {
        Arc::clone(&self.tables)
    }

    /// The next place in the order of events.
    pub(super) fn next_sequence(&mut self) -> CacheSequence {
        self.order.next()
    }

    /// Makes a change in the snapshot, which others may hold as it was.
    fn observed_mut(&mut self) -> &mut ObservedNetwork {
        self.tables = Arc::default();
        Arc::make_mut(&mut self.observed)
    }

    /// Changes the snapshot, unless `is_known` finds there what the change would bring.
    pub(super) fn update(
        &mut self,
        is_known: impl FnOnce(&ObservedNetwork) -> bool,
        change: impl FnOnce(&mut ObservedNetwork),
    ) {
        if !is_known(&self.observed) {
            change(self.observed_mut());
        }
    }

    /// What is known of this may be wrong.
    pub(super) fn invalidate(&mut self, what: NetworkCacheKey) {
        let now = self.next_sequence();
        self.invalidated.insert(what.normalized(), now);
    }
}

impl NetworkCache {
    /// Everything that a look needs, in the order in which it is read.
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

    /// Whether it is known well enough for a look that began at `asked`: read since, or young enough, and not doubted itself.
    fn is_fresh(&self, what: &NetworkCacheKey, asked: CacheSequence, now: Instant) -> bool {
        !self.invalidated.contains_key(what)
            && self.reads.get(what).is_some_and(|reading| {
                reading.ended > asked
                    || now.saturating_duration_since(reading.at) < self.lifetime(what, reading.found)
                    || (reading.found && self.late.get(what).is_some_and(|until| now < *until))
            })
    }

    /// What has to be read before a look that began at `asked` can be answered.
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

    /// Reads of the expected documents of which nothing is known and that are not invalidated, in order. The caller holds the lock of the
    /// observer, so the observed documents are walked once for all expected ones.
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

    /// Forgets public IPs of groups and subnets that this look does not need and the next one must read anyway, unless they are being read.
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

    /// Lets looks use what this read finds, which ends at `now` after a look went on without it, however short its lifetime is.
    pub(super) fn keep_late(&mut self, what: &NetworkCacheKey, now: Instant) {
        self.late.retain(|_, until| now < *until);
        self.late.insert(what.clone(), now + LATE_LIFETIME);
    }

    /// A read is sent now. Answers its place; [`NetworkCache::end_read`] has to follow.
    pub(super) fn begin_read(&mut self) -> CacheSequence {
        self.order.begin_read()
    }

    /// The read that began at `since` has ended.
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
