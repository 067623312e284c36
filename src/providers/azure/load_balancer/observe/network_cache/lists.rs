//! Cached load balancers, public IPs and private link services. Pure.
//!
//! A list removes nothing: documents that it lacks are read individually.

use tokio::time::Instant;

use super::{CachedVersion, NetworkCache, NetworkCacheKey, event_order::CacheSequence};
use crate::providers::azure::{
    load_balancer::observe::documents::{self, ListedDocument, with_document},
    model::ResourceId,
};

impl NetworkCache {
    /// Returns a cached document.
    pub(in crate::providers::azure::load_balancer::observe) fn document<D: ListedDocument>(
        &self,
        id: &ResourceId,
    ) -> Option<&D> {
        D::all(&self.observed).iter().find(|known| known.is(id))
    }

    /// Replaces a document, or removes it.
    pub(super) fn set<D: ListedDocument>(&mut self, id: &ResourceId, document: Option<Box<D>>) {
        let list = D::all_mut(self.observed_mut());
        match document {
            Some(document) => documents::put(list, id, *document),
            None => list.retain(|known| !known.is(id)),
        }
    }

    /// Records the documents that a list read of `what` shows, and returns those that it lacks.
    pub(super) fn set_listed<D: ListedDocument>(
        &mut self,
        list: Vec<D>,
        what: &NetworkCacheKey,
        since: CacheSequence,
    ) -> Vec<NetworkCacheKey> {
        let (known, group) = (D::all(&self.observed), what.listed_group());
        let in_scope = |id: &ResourceId| group.is_none_or(|group| id.parent().as_ref() == Some(group));
        let (list, lacking) = documents::listed(known, list, in_scope, |id| self.order.is_newer(id, since));
        if *known != list {
            *D::all_mut(self.observed_mut()) = list;
        }
        group.into_iter().for_each(|group| self.note_group::<D>(group, true));
        lacking.into_iter().map(D::key).collect()
    }

    /// Removes the documents in a resource group that a list read of `what` would show.
    ///
    /// `is_observed` is `true` if ARM says that there are none.
    pub(super) fn forget_group(&mut self, what: &NetworkCacheKey, group: &ResourceId, is_observed: bool) {
        with_document!(what, Document => {
            let is_in = |known: &Document| known.resource_id().and_then(|id| id.parent()).as_ref() == Some(group);
            if Document::all(&self.observed).iter().any(is_in) {
                Document::all_mut(self.observed_mut()).retain(|known| !is_in(known));
            }
            self.note_group::<Document>(group, is_observed);
        }, NetworkCacheKey::SecurityGroup | NetworkCacheKey::Subnet(_) => {},)
    }

    /// Records whether all documents of a group are observed.
    fn note_group<D: ListedDocument>(&mut self, group: &ResourceId, is_observed: bool) {
        if D::groups(&self.observed).is_none_or(|known| known.contains(group) == is_observed) {
            return;
        }
        let Some(groups) = D::groups_mut(self.observed_mut()) else { return };
        if is_observed {
            groups.insert(group.clone());
        } else {
            groups.remove(group);
        }
    }

    /// Returns the cached version of the document that a single read of `what` would show.
    pub(crate) fn cached_version(&self, what: &NetworkCacheKey, now: Instant) -> CachedVersion {
        let etag = with_document!(what, Document => what.single_id().and_then(|id| self.etag::<Document>(id)),
            NetworkCacheKey::SecurityGroup => self.observed.security_group.as_ref().map(|known| known.etag.clone()),
            NetworkCacheKey::Subnet(_) => None,
        );
        let is_invalidated = |key: &NetworkCacheKey| self.invalidated.contains_key(key);
        let is_stale = |id: &ResourceId| self.outdated_balancers.contains(id) || self.stale_etags.contains_key(id);
        let is_absent = |id: &ResourceId| self.is_absent(what, id, CacheSequence::LAST, now);
        CachedVersion {
            etag,
            invalidated: is_invalidated(what) || what.list().as_ref().is_some_and(is_invalidated),
            etag_stale: what.single_id().is_some_and(is_stale),
            absent: what.single_id().is_some_and(is_absent),
        }
    }

    fn etag<D: ListedDocument>(&self, id: &ResourceId) -> Option<Option<String>> {
        self.document::<D>(id).map(|known| known.etag().clone())
    }
}
