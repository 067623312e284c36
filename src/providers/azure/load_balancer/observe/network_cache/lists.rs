//! Lists of load balancers and public IPs. Pure.
//!
//! A list removes nothing: documents that it lacks are read by themselves.

use super::{NetworkCache, NetworkCacheKey, event_order::CacheSequence};
use crate::providers::azure::{
    arm::{
        ResourceId,
        network::{ArmLoadBalancer, PublicIpAddress},
    },
    load_balancer::observe::documents,
};

impl NetworkCache {
    /// Records a list and returns the documents that it lacks.
    pub(super) fn set_listed_balancers(&mut self, list: Vec<ArmLoadBalancer>, since: CacheSequence) -> Vec<NetworkCacheKey> {
        let known = &self.observed.load_balancers;
        let (list, lacking) = documents::listed(known, list, |_| true, |id| self.order.is_newer(id, since));
        if *known != list {
            self.observed_mut().load_balancers = list;
        }
        self.outdated_balancers.retain(|id| self.order.is_newer(id, since) || lacking.contains(id));
        lacking.into_iter().map(NetworkCacheKey::LoadBalancer).collect()
    }

    /// Records a list and returns the documents that it lacks.
    pub(super) fn set_listed_ips(
        &mut self,
        list: Vec<PublicIpAddress>,
        group: &ResourceId,
        since: CacheSequence,
    ) -> Vec<NetworkCacheKey> {
        let known = &self.observed.public_ips;
        let is_in = |id: &ResourceId| id.parent().as_ref() == Some(group);
        let (list, lacking) = documents::listed(known, list, is_in, |id| self.order.is_newer(id, since));
        if *known != list {
            self.observed_mut().public_ips = list;
        }
        lacking.into_iter().map(NetworkCacheKey::PublicIp).collect()
    }
}
