//! Updates of the cache by writes. Pure.
//!
//! In: ARM's responses to writes. Out: the snapshot after them, without another read, and invalidations of documents whose
//! state the response does not show.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{CachedRead, NetworkCache, event_order::CacheSequence};
use crate::providers::azure::{
    load_balancer::observe::{documents::ListedDocument, effects},
    model::{
        ResourceId,
        document::SubResource,
        network::{ArmLoadBalancer, BackendAddressPool, NetworkSecurityGroup, PrivateLinkService, PublicIpAddress, Subnet},
    },
    planner::load_balancer::network_query::NetworkCacheKey,
};

/// Result of a successful write.
#[derive(Debug)]
pub(in crate::providers::azure::load_balancer) enum NetworkWriteResult {
    /// Load balancer as stored by ARM.
    LoadBalancer(ResourceId, Box<ArmLoadBalancer>),
    /// Load balancer as accepted by ARM: its etag is already outdated, the rest is current.
    LoadBalancerAccepted(ResourceId, Box<ArmLoadBalancer>),
    LoadBalancerDeleted(ResourceId),
    /// Pool of a load balancer as stored by ARM.
    Pool(ResourceId, Box<BackendAddressPool>),
    /// Load balancer with a change that the response does not show.
    LoadBalancerChanged(ResourceId),
    /// Public IP as stored by ARM.
    PublicIp(ResourceId, Box<PublicIpAddress>),
    PublicIpDeleted(ResourceId),
    /// Private link service as stored by ARM. Its load balancer has a new version.
    PrivateLink(ResourceId, Box<PrivateLinkService>),
    /// Deleted private link service. Its load balancer has a new version.
    PrivateLinkDeleted(ResourceId),
    /// Subnet of the configured virtual network as stored by ARM.
    Subnet(String, Box<Subnet>),
    /// Network security group as stored by ARM.
    SecurityGroup(Box<NetworkSecurityGroup>),
}

impl NetworkCache {
    /// Records the result of a write that was sent at `since` and ended at `at`. Invalidations made since then remain.
    pub(crate) fn write_back(&mut self, written: NetworkWriteResult, since: CacheSequence, at: Instant) {
        match written {
            NetworkWriteResult::LoadBalancer(id, document) => {
                self.outdated_balancers.remove(&id);
                self.put_load_balancer(&id, document, since, at);
            }
            NetworkWriteResult::LoadBalancerAccepted(id, document) => {
                self.put_load_balancer(&id, document, since, at);
                self.outdated_balancers.insert(id);
            }
            NetworkWriteResult::LoadBalancerDeleted(id) => {
                self.outdated_balancers.remove(&id);
                self.update_attachments(&id, &BTreeMap::new());
                self.record_written::<ArmLoadBalancer>(&id, None, since, at);
            }
            NetworkWriteResult::Pool(id, pool) => {
                let Some(balancer) = id.parent() else { return };
                if let Some(known) = self.observed_mut().load_balancers.iter_mut().find(|known| known.is(&balancer)) {
                    effects::put_pool(known, id.name(), *pool);
                }
                self.order.mark_updated(&balancer);
                self.invalidate(NetworkCacheKey::LoadBalancer(balancer));
            }
            NetworkWriteResult::LoadBalancerChanged(balancer) => self.invalidate(NetworkCacheKey::LoadBalancer(balancer)),
            NetworkWriteResult::PublicIp(id, document) => self.put_public_ip(&id, document, since, at),
            NetworkWriteResult::PublicIpDeleted(id) => {
                self.stale_etags.remove(&id);
                self.record_written::<PublicIpAddress>(&id, None, since, at);
            }
            NetworkWriteResult::PrivateLink(id, document) => {
                let balancers = document.load_balancers().collect();
                self.record_written(&id, Some(document), since, at);
                self.invalidate_balancers(balancers);
            }
            NetworkWriteResult::PrivateLinkDeleted(id) => {
                let known = self.document::<PrivateLinkService>(&id);
                let balancers = known.into_iter().flat_map(PrivateLinkService::load_balancers).collect();
                self.record_written::<PrivateLinkService>(&id, None, since, at);
                self.invalidate_balancers(balancers);
            }
            NetworkWriteResult::Subnet(name, document) => self.set_subnet(&name.to_ascii_lowercase(), Some(*document)),
            NetworkWriteResult::SecurityGroup(document) => {
                if let Some(id) = self.security_group.clone() {
                    self.record_update(&NetworkCacheKey::SecurityGroup, &id, since);
                }
                self.set_security_group(Some(*document));
                let ended = self.next_sequence();
                self.reads.insert(NetworkCacheKey::SecurityGroup, CachedRead { at, ended, found: true });
            }
        }
    }

    fn put_load_balancer(&mut self, id: &ResourceId, document: Box<ArmLoadBalancer>, since: CacheSequence, at: Instant) {
        self.update_attachments(id, &effects::attachments(&document));
        self.record_written(id, Some(document), since, at);
    }

    /// Records a document after our own write, or its deletion.
    fn record_written<D: ListedDocument>(
        &mut self,
        id: &ResourceId,
        document: Option<Box<D>>,
        since: CacheSequence,
        at: Instant,
    ) {
        self.record_update(&D::key(id.clone()), id, since);
        self.record_existence(id, at, document.is_some());
        self.set(id, document);
    }

    /// Invalidates load balancers, whose versions change with a write of a private link service.
    fn invalidate_balancers(&mut self, ids: Vec<ResourceId>) {
        ids.into_iter().for_each(|id| self.invalidate(NetworkCacheKey::LoadBalancer(id)));
    }

    fn record_update(&mut self, what: &NetworkCacheKey, id: &ResourceId, since: CacheSequence) {
        self.invalidated.retain(|key, tick| key != what || *tick > since);
        self.order.mark_updated(id);
    }

    /// Records the response to a write of a public IP. If a load balancer was written after `since`, the response's etag and
    /// attachment may be outdated.
    fn put_public_ip(&mut self, id: &ResourceId, mut document: Box<PublicIpAddress>, since: CacheSequence, at: Instant) {
        if self.stale_etags.get(id).is_some_and(|tick| *tick > since) {
            let known = self.document::<PublicIpAddress>(id);
            let attached = known.and_then(|known| known.properties.as_ref()?.ip_configuration.clone());
            document.properties.get_or_insert_default().ip_configuration = attached;
        } else {
            self.stale_etags.remove(id);
        }
        self.record_written(id, Some(document), since, at);
    }

    /// Updates public IPs after a write of the load balancer `id`, which now has these attachments.
    fn update_attachments(&mut self, id: &ResourceId, attachments: &BTreeMap<ResourceId, SubResource>) {
        let changed = |public_ip: &PublicIpAddress| effects::on_public_ip(id, attachments, public_ip);
        if self.observed.public_ips.iter().all(|public_ip| changed(public_ip).is_none()) {
            return;
        }
        let mut touched = Vec::new();
        for public_ip in &mut self.observed_mut().public_ips {
            if let Some(attached) = changed(public_ip) {
                public_ip.properties.get_or_insert_default().ip_configuration = attached;
                touched.extend(public_ip.resource_id());
            }
        }
        let now = self.next_sequence();
        self.order.updated.extend(touched.iter().map(|id| (id.clone(), now)));
        self.stale_etags.extend(touched.into_iter().map(|id| (id, now)));
    }
}
