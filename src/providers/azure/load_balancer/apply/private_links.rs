//! Writes of private link services, of their connections, and of the policies of their subnets.
//!
//! A write of a private link service changes the version of its load balancer, so the cached load balancer is invalidated.
//! Other components also write subnets (route tables, security groups), so a subnet is read directly before its write, which
//! is conditional on that version.

use super::{NetworkWriter, PlannedVersion, conflict};
use crate::providers::azure::{
    arm::{Precondition, Urgency},
    load_balancer::observe::{self, NetworkCacheKey, NetworkWriteResult},
    model::{
        ArmError, ArmErrorClass, ArmResult, ResourceId, api,
        network::{PrivateLinkService, Subnet},
    },
    planner::load_balancer::desired::private_links::{PrivateLinkChange, PrivateLinkDeletion, SubnetPolicyChange},
};

/// Largest number of repetitions after another writer has changed the subnet.
const MAX_SUBNET_TRIES: usize = 4;
/// Path segment of a private link service's connections.
const CONNECTIONS: &str = "privateEndpointConnections";

impl NetworkWriter {
    /// Creates or replaces a private link service, after writes of its load balancers have ended: during them, Azure would
    /// refuse it.
    pub async fn put_private_link(&self, change: &PrivateLinkChange, urgency: Urgency) -> ArmResult<()> {
        let (id, document) = (&change.id, &change.document);
        let _turn = self.locks.lock(id).await;
        for balancer in document.load_balancers() {
            drop(self.locks.lock(&balancer).await);
        }
        let what = NetworkCacheKey::PrivateLink(id.clone());
        let planned = PlannedVersion::of(document.id.as_deref(), document.etag.as_deref());
        let etag = self.unchanged_etag(&what, (id, planned), urgency).await?;
        let condition = planned.precondition_with(etag.as_deref());
        let writing = self.observer.begin_write(what);
        let outcome = self.compute.with_urgency(urgency).put(&api::PRIVATE_LINK_SERVICES, id, condition, document).await;
        let written = outcome.map(|answer| NetworkWriteResult::PrivateLink(id.clone(), Box::new(answer)));
        writing.end_with(written, |error| doubtful(error, id, document))
    }

    /// Deletes the connections of a private link service, one after another, and then the service itself if it is still as
    /// planned.
    pub async fn delete_private_link(&self, deletion: &PrivateLinkDeletion, urgency: Urgency) -> ArmResult<()> {
        let id = &deletion.id;
        let _turn = self.locks.lock(id).await;
        let what = NetworkCacheKey::PrivateLink(id.clone());
        if self.is_gone(&what, id) {
            return Ok(());
        }
        let planned = PlannedVersion::Version(deletion.document.etag.as_deref().filter(|etag| !etag.is_empty()));
        self.unchanged_etag(&what, (id, planned), urgency).await?;
        for connection in deletion.document.connections() {
            self.delete_connection(deletion, connection.name.as_deref().unwrap_or_default(), urgency).await?;
        }
        if !deletion.document.connections().is_empty() {
            self.observer.refresh(what.clone(), urgency).await?;
        }
        let Some(known) = self.observer.document::<PrivateLinkService>(id) else { return Ok(()) };
        if !is_same(&known, &deletion.document) {
            return Err(conflict(&api::PRIVATE_LINK_SERVICES, id, "it was modified concurrently"));
        }
        let writing = self.observer.begin_write(what);
        let condition = Precondition::unchanged(known.etag.as_deref());
        let outcome = self.compute.with_urgency(urgency).delete(&api::PRIVATE_LINK_SERVICES, id, condition).await;
        let written = outcome.map(|()| NetworkWriteResult::PrivateLinkDeleted(id.clone()));
        writing.end_with(written, |error| doubtful(error, id, &known))
    }

    async fn delete_connection(&self, deletion: &PrivateLinkDeletion, name: &str, urgency: Urgency) -> ArmResult<()> {
        let connection = deletion.id.child(CONNECTIONS, name);
        // However the deletion ends, the version of the private link service changes.
        let _writing = self.observer.begin_write(NetworkCacheKey::PrivateLink(deletion.id.clone()));
        let client = self.compute.with_urgency(urgency);
        client.delete(&api::PRIVATE_ENDPOINT_CONNECTIONS, &connection, Precondition::Unconditional).await
    }

    fn is_gone(&self, what: &NetworkCacheKey, id: &ResourceId) -> bool {
        self.observer.document::<PrivateLinkService>(id).is_none() && self.observer.cached_version(what).absent
    }

    /// Allows private link services in a subnet: disables the subnet's network policies for them, and changes nothing else.
    pub async fn open_subnet(&self, change: &SubnetPolicyChange, urgency: Urgency) -> ArmResult<()> {
        let (id, name) = (&change.id, change.id.name());
        let _turn = self.locks.lock(id).await;
        let what = NetworkCacheKey::Subnet(name.to_owned());
        if self.observer.subnet(name).is_some_and(|subnet| subnet.allows_private_links()) {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            self.observer.refresh(what.clone(), urgency).await?;
            let Some(mut subnet) = self.observer.subnet(name) else {
                return Err(conflict(&api::SUBNETS, id, "it does not exist any more"));
            };
            if subnet.allows_private_links() {
                return Ok(());
            }
            subnet.properties.get_or_insert_default().private_link_service_network_policies = Some("Disabled".to_owned());
            match self.put_subnet(id, &subnet, urgency).await {
                Err(error) if error.class == ArmErrorClass::Conflict && tries < MAX_SUBNET_TRIES => tries += 1,
                outcome => return outcome,
            }
        }
    }

    async fn put_subnet(&self, id: &ResourceId, document: &Subnet, urgency: Urgency) -> ArmResult<()> {
        let writing = self.observer.begin_write(NetworkCacheKey::Subnet(id.name().to_owned()));
        let condition = Precondition::unchanged(document.etag.as_deref());
        let outcome = self.client.with_urgency(urgency).put(&api::SUBNETS, id, condition, document).await;
        writing.end(outcome.map(|answer| NetworkWriteResult::Subnet(id.name().to_owned(), Box::new(answer))))
    }
}

/// Returns `true` if both documents have the same frontends and the same tags, and so the same owner.
fn is_same(known: &PrivateLinkService, planned: &PrivateLinkService) -> bool {
    let frontends = |link: &PrivateLinkService| link.frontends().map(str::to_ascii_lowercase).collect::<Vec<_>>();
    known.tags == planned.tags && frontends(known) == frontends(planned)
}

/// Returns the documents that a failed write invalidates: none if ARM refused before it processed the document.
///
/// Otherwise these are the whole group, because another private link service that is not cached may conflict with it, and
/// the load balancers.
fn doubtful(error: &ArmError, id: &ResourceId, document: &PrivateLinkService) -> Vec<NetworkCacheKey> {
    let mut keys = observe::invalidated_by(error, &NetworkCacheKey::PrivateLink(id.clone()), Vec::new);
    if !keys.is_empty() {
        keys.extend(id.parent().map(NetworkCacheKey::PrivateLinks));
        keys.extend(document.load_balancers().map(NetworkCacheKey::LoadBalancer));
    }
    keys
}
