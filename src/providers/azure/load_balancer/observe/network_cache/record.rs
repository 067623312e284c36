//! What a read brings to what is known of the network documents. Pure.
//!
//! In: ARM's answers to reads. Out: the snapshot with what they prove, and what must be read alone because a list lacks it.

use std::{collections::BTreeSet, fmt::Debug, time::Duration};

use tokio::time::Instant;

use super::{CachedRead, NetworkCache, NetworkCacheKey, event_order::CacheSequence};
use crate::providers::azure::{
    load_balancer::observe::{documents::ListedDocument, effects::attachments},
    model::{
        ArmError, ResourceId,
        network::{NetworkSecurityGroup, Subnet},
    },
};

/// How long it is remembered at all that something was missing.
const ABSENCE_RETENTION: Duration = Duration::from_secs(600);

/// What a read brought; `None`: ARM says that it does not exist.
#[derive(Debug)]
pub(crate) enum NetworkReadResult {
    /// A document of a kind that ARM lists, or a list of them.
    Listed(Box<dyn ListedRead>),
    /// ARM says that the group of the list does not exist, and the list said this.
    GroupMissing(Box<ArmError>),
    SecurityGroup(Option<Box<NetworkSecurityGroup>>),
    Subnet(Option<Box<Subnet>>),
}

/// When a read was sent, and what it shows.
pub(crate) struct SentRead<'a> {
    what: &'a NetworkCacheKey,
    since: CacheSequence,
    at: Instant,
}

/// Documents of one kind as a read showed them.
pub(crate) trait ListedRead: Debug + Send {
    /// Records what the read showed, and returns what a list lacks; `None`: it was no list.
    fn record(self: Box<Self>, cache: &mut NetworkCache, read: &SentRead<'_>) -> Option<Vec<NetworkCacheKey>>;
}

impl<D: ListedDocument> ListedRead for Vec<D> {
    fn record(self: Box<Self>, cache: &mut NetworkCache, read: &SentRead<'_>) -> Option<Vec<NetworkCacheKey>> {
        Some(cache.set_listed(*self, read.what, read.since))
    }
}

impl<D: ListedDocument> ListedRead for Option<Box<D>> {
    fn record(self: Box<Self>, cache: &mut NetworkCache, read: &SentRead<'_>) -> Option<Vec<NetworkCacheKey>> {
        cache.record_single(read.what.single_id()?, read, *self);
        None
    }
}

impl NetworkCache {
    /// Records what a read of `what` brought that was sent at `since` and `at`.
    pub(crate) fn record(&mut self, what: NetworkCacheKey, since: CacheSequence, at: Instant, answer: NetworkReadResult) {
        let (mut found, mut lacking) = (true, Vec::new());
        match (&what, answer) {
            (_, NetworkReadResult::Listed(documents)) => {
                match documents.record(self, &SentRead { what: &what, since, at }) {
                    Some(unlisted) => {
                        lacking = unlisted;
                        self.forget_old_versions(&what, &lacking, since);
                    }
                    None if matches!(what, NetworkCacheKey::LoadBalancer(_)) => return self.invalidate_referenced(),
                    None => return,
                }
            }
            (_, NetworkReadResult::GroupMissing(_)) => {
                found = false;
                what.listed_group().into_iter().for_each(|group| self.forget_group(&what, group, true));
            }
            (_, NetworkReadResult::SecurityGroup(document)) => {
                found = document.is_some();
                if self.security_group.as_ref().is_some_and(|id| self.order.is_newer(id, since)) {
                    return;
                }
                self.set_security_group(document.map(|document| *document));
            }
            (NetworkCacheKey::Subnet(name), NetworkReadResult::Subnet(document)) => {
                found = document.is_some();
                self.set_subnet(name, document.map(|document| *document));
            }
            (_, NetworkReadResult::Subnet(_)) => return,
        }
        self.clear_invalidations(&what, since);
        lacking.into_iter().for_each(|key| self.invalidate_unlisted(key));
        let ended = self.next_sequence();
        self.reads.insert(what, CachedRead { at, ended, found });
        self.absent.retain(|_, reading| at.saturating_duration_since(reading.at) < ABSENCE_RETENTION);
        self.invalidate_referenced();
    }

    /// A list lacks it.
    fn invalidate_unlisted(&mut self, what: NetworkCacheKey) {
        self.unlisted.insert(what.clone());
        self.invalidate(what);
    }

    /// ARM deletes no public IP that a front end refers to: one that the list of its group lacks was left out.
    fn invalidate_referenced(&mut self) {
        let is_listed =
            |id: &ResourceId| id.parent().is_some_and(|group| self.reads.contains_key(&NetworkCacheKey::PublicIps(group)));
        let attached = self.observed.load_balancers.iter().flat_map(|balancer| attachments(balancer).into_keys());
        let mut unknown: BTreeSet<ResourceId> = attached.collect();
        for known in &self.observed.public_ips {
            if unknown.is_empty() {
                return;
            }
            if let Some(id) = known.resource_id() {
                unknown.remove(&id);
            }
        }
        unknown.retain(|id| is_listed(id) && !self.absent.contains_key(id));
        unknown.into_iter().for_each(|id| self.invalidate_unlisted(NetworkCacheKey::PublicIp(id)));
    }

    /// Forgets which etags are outdated of the documents that a list read of `what` has shown.
    fn forget_old_versions(&mut self, what: &NetworkCacheKey, lacking: &[NetworkCacheKey], since: CacheSequence) {
        let order = &self.order;
        match what {
            NetworkCacheKey::LoadBalancers => {
                let is_lacking = |id: &ResourceId| lacking.iter().any(|key| key.single_id() == Some(id));
                self.outdated_balancers.retain(|id| order.is_newer(id, since) || is_lacking(id));
            }
            NetworkCacheKey::PublicIps(group) => {
                self.stale_etags.retain(|id, _| order.is_newer(id, since) || id.parent().as_ref() != Some(group));
            }
            _ => {}
        }
    }

    /// Records a single read of a document, unless something newer is known. Then it stays doubtful and is read again.
    fn record_single<D: ListedDocument>(&mut self, id: &ResourceId, read: &SentRead<'_>, document: Option<Box<D>>) {
        if !self.order.is_newer(id, read.since) {
            let found = document.is_some();
            self.set(id, document);
            self.stale_etags.remove(id);
            self.outdated_balancers.remove(id);
            self.clear_invalidations(&D::key(id.clone()), read.since);
            self.record_existence(id, read.at, found);
            self.order.mark_updated(id);
        }
    }

    /// Records whether a document exists, which a read of it alone showed.
    pub(super) fn record_existence(&mut self, id: &ResourceId, at: Instant, found: bool) {
        let ended = self.next_sequence();
        match found {
            true => drop(self.absent.remove(id)),
            false => drop(self.absent.insert(id.clone(), CachedRead { at, ended, found })),
        }
    }

    /// Doubts older than `since` that the read has settled: not those about documents that it did not get to say anything about.
    fn clear_invalidations(&mut self, what: &NetworkCacheKey, since: CacheSequence) {
        let order = &self.order;
        let is_newer = |id: &ResourceId| order.is_newer(id, since);
        self.invalidated.retain(|key, tick| {
            let untold = key.single_id().is_some_and(is_newer);
            *tick > since || untold || !what.covers(key)
        });
        self.unlisted.retain(|key| self.invalidated.contains_key(key));
    }
}
