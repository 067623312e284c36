//! What is known of private link services. Pure.
//!
//! As with public IPs, a list takes nothing away: what it lacks is read by itself. A write of one gives its load balancers other versions.

use super::{NetworkCache, NetworkCacheKey, event_order::CacheSequence};
use crate::providers::azure::{
    arm::{ResourceId, api, private_link::PrivateLinkService},
    load_balancer::observe::documents::{self, ListedDocument},
};

impl NetworkCache {
    /// A private link service, as it is known.
    pub(crate) fn private_link(&self, id: &ResourceId) -> Option<&PrivateLinkService> {
        self.observed.private_links.services.iter().find(|known| known.is(id))
    }

    /// Answers what the list lacks.
    pub(super) fn set_listed_links(
        &mut self,
        list: Vec<PrivateLinkService>,
        group: &ResourceId,
        since: CacheSequence,
    ) -> Vec<NetworkCacheKey> {
        let known = &self.observed.private_links;
        let is_in = |id: &ResourceId| id.parent().as_ref() == Some(group);
        let (list, lacking) = documents::listed(&known.services, list, is_in, |id| self.order.is_newer(id, since));
        if known.services != list || !known.groups.contains(group) {
            let links = &mut self.observed_mut().private_links;
            links.services = list;
            links.groups.insert(group.clone());
        }
        lacking.into_iter().map(NetworkCacheKey::PrivateLink).collect()
    }

    /// The group does not exist, and so nothing in it.
    pub(super) fn set_no_links(&mut self, group: &ResourceId) {
        self.drop_links(group);
        self.observed_mut().private_links.groups.insert(group.clone());
    }

    /// Nothing is known of the private link services of a group any more.
    pub(super) fn drop_links(&mut self, group: &ResourceId) {
        let is_in = |id: &ResourceId| id.parent().as_ref() == Some(group);
        self.unlisted.retain(|id| !is_in(id) || !id.is_type(api::PRIVATE_LINK_SERVICES.resource_type));
        let links = &mut self.observed_mut().private_links;
        links.services.retain(|known| !known.resource_id().is_some_and(|id| is_in(&id)));
        links.groups.remove(group);
    }

    pub(super) fn put_link(&mut self, id: &ResourceId, document: PrivateLinkService) {
        let written: Vec<ResourceId> = document.load_balancers().collect();
        documents::put(&mut self.observed_mut().private_links.services, id, document);
        written.into_iter().for_each(|balancer| self.invalidate(NetworkCacheKey::LoadBalancer(balancer)));
    }

    pub(super) fn remove_link(&mut self, id: &ResourceId) {
        let left: Vec<ResourceId> = self.private_link(id).into_iter().flat_map(PrivateLinkService::load_balancers).collect();
        self.observed_mut().private_links.services.retain(|known| !known.is(id));
        left.into_iter().for_each(|balancer| self.invalidate(NetworkCacheKey::LoadBalancer(balancer)));
    }
}
