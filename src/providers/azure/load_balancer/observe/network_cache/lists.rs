//! Load balancers, public IPs and private link services as they are known. Pure.
//!
//! A list removes nothing: documents that it lacks are read by themselves.

use tokio::time::Instant;

use super::{NetworkCache, NetworkCacheKey, event_order::CacheSequence, types::CachedVersion};
use crate::providers::azure::{
    arm::{
        ResourceId,
        network::{ArmLoadBalancer, PublicIpAddress},
        private_link::PrivateLinkService,
    },
    load_balancer::observe::documents::{self, ListedDocument},
};

impl NetworkCache {
    /// Returns a document as it is known.
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

    /// Records a list of the documents that are `in_scope`, and returns those that it lacks.
    pub(super) fn set_listed<D: ListedDocument>(
        &mut self,
        list: Vec<D>,
        in_scope: impl Fn(&ResourceId) -> bool,
        since: CacheSequence,
    ) -> Vec<NetworkCacheKey> {
        let known = D::all(&self.observed);
        let (list, lacking) = documents::listed(known, list, in_scope, |id| self.order.is_newer(id, since));
        if *known != list {
            *D::all_mut(self.observed_mut()) = list;
        }
        lacking.into_iter().map(D::key).collect()
    }

    /// Forgets the documents of one kind in a resource group.
    pub(super) fn forget_group<D: ListedDocument>(&mut self, group: &ResourceId) {
        let is_in = |known: &D| known.resource_id().and_then(|id| id.parent()).as_ref() == Some(group);
        if D::all(&self.observed).iter().any(is_in) {
            D::all_mut(self.observed_mut()).retain(|known| !is_in(known));
        }
    }

    /// Returns what is known of the document that a single read of `what` would show.
    pub(crate) fn cached_version(&self, what: &NetworkCacheKey, now: Instant) -> CachedVersion {
        let etag = match what {
            NetworkCacheKey::LoadBalancer(id) => self.etag::<ArmLoadBalancer>(id),
            NetworkCacheKey::PublicIp(id) => self.etag::<PublicIpAddress>(id),
            NetworkCacheKey::PrivateLink(id) => self.etag::<PrivateLinkService>(id),
            NetworkCacheKey::SecurityGroup => self.observed.security_group.as_ref().map(|known| known.etag.clone()),
            _ => None,
        };
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
