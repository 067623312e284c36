//! Single documents: what is known of one, and of which one a read tells. Pure.

use tokio::time::Instant;

use super::{NetworkCache, NetworkCacheKey, event_order::CacheSequence, types::CachedVersion};
use crate::providers::azure::arm::{
    ResourceId,
    network::{ArmLoadBalancer, PublicIpAddress},
};

impl NetworkCache {
    /// A public IP, as it is known.
    pub(crate) fn public_ip(&self, id: &ResourceId) -> Option<&PublicIpAddress> {
        self.observed.public_ips.iter().find(|known| known.is(id))
    }

    /// A load balancer, as it is known.
    pub(crate) fn load_balancer(&self, id: &ResourceId) -> Option<&ArmLoadBalancer> {
        self.observed.load_balancers.iter().find(|known| known.is(id))
    }

    /// What is known of the document that a single read of `what` would show.
    pub(crate) fn cached_version(&self, what: &NetworkCacheKey, now: Instant) -> CachedVersion {
        let (etag, stale, whole) = match what {
            NetworkCacheKey::LoadBalancer(id) => {
                let etag = self.load_balancer(id).map(|known| known.etag.clone());
                (etag, self.outdated_balancers.contains(id), Some(NetworkCacheKey::LoadBalancers))
            }
            NetworkCacheKey::PublicIp(id) => {
                let etag = self.public_ip(id).map(|known| known.etag.clone());
                (etag, self.stale_etags.contains_key(id), id.parent().map(NetworkCacheKey::PublicIps))
            }
            NetworkCacheKey::PrivateLink(id) => {
                let etag = self.private_link(id).map(|known| known.etag.clone());
                (etag, false, id.parent().map(NetworkCacheKey::PrivateLinks))
            }
            NetworkCacheKey::SecurityGroup => {
                (self.observed.security_group.as_ref().map(|known| known.etag.clone()), false, None)
            }
            _ => (None, false, None),
        };
        let doubted =
            self.invalidated.contains_key(what) || whole.is_some_and(|whole| self.invalidated.contains_key(&whole));
        let never = CacheSequence::LAST;
        let absent = what.single_id().is_some_and(|id| self.is_absent(what, id, never, now));
        CachedVersion { etag, invalidated: doubted, etag_stale: stale, absent }
    }
}
