//! Updates of the cache by reads. Pure.
//!
//! In: ARM's responses to reads. Out: the snapshot with the facts that they prove, and invalidations of documents that a
//! list lacks.

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

/// Time after which absences are removed from the cache.
const ABSENCE_RETENTION: Duration = Duration::from_secs(600);

/// Result of a read; `None`: ARM says that the document does not exist.
#[derive(Debug)]
pub(crate) enum NetworkReadResult {
    /// Document of a kind that ARM lists, or a list of such documents.
    Listed(Box<dyn ListedRead>),
    /// Error of the list: ARM says that its group does not exist.
    GroupMissing(Box<ArmError>),
    SecurityGroup(Option<Box<NetworkSecurityGroup>>),
    Subnet(Option<Box<Subnet>>),
}

/// Key and start of a read.
pub(crate) struct SentRead<'a> {
    what: &'a NetworkCacheKey,
    since: CacheSequence,
    at: Instant,
}

/// Documents of one kind as a read showed them.
pub(crate) trait ListedRead: Debug + Send {
    /// Records the documents of the read, and returns those that a list lacks; `None`: the read was not a list.
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
    /// Records the result of a read of `what` that was sent at `since` and `at`.
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

    /// Invalidates a document that a list lacks.
    fn invalidate_unlisted(&mut self, what: NetworkCacheKey) {
        self.unlisted.insert(what.clone());
        self.invalidate(what);
    }

    /// Invalidates public IPs that frontends refer to and that are missing from the cache.
    ///
    /// ARM deletes no public IP in use, so the list of its group was incomplete.
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

    /// Removes the marks of outdated etags from documents that a list read of `what` has shown.
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

    /// Records a single read of a document, unless a newer fact is cached. In that case, the document remains invalidated
    /// and is read again.
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

    /// Records whether a document exists, as a read of it alone showed.
    pub(super) fn record_existence(&mut self, id: &ResourceId, at: Instant, found: bool) {
        let ended = self.next_sequence();
        match found {
            true => drop(self.absent.remove(id)),
            false => drop(self.absent.insert(id.clone(), CachedRead { at, ended, found })),
        }
    }

    /// Clears invalidations older than `since` that the read covers, except those of documents that were updated after it
    /// began.
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
