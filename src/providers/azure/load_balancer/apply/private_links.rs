//! Writes of private link services, of their connections, and of the policies of their subnets.
//!
//! A private link service gives its load balancer another version: what is known of that is doubtful afterwards. A subnet is a document
//! that others write as well (route tables, security groups), so it is read a moment before and written on that version.

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

/// How often a subnet is read and written again because somebody else has written it.
const MAX_SUBNET_TRIES: usize = 4;
/// The list of a private link service's connections.
const CONNECTIONS: &str = "privateEndpointConnections";

impl NetworkWriter {
    /// Creates or replaces a private link service. While one of its load balancers is being written, Azure would refuse it.
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

    /// Deletes the connections of a private link service, one after another, and then itself, if it still is what was planned on.
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
        // However it ends, it is another version then.
        let _writing = self.observer.begin_write(NetworkCacheKey::PrivateLink(deletion.id.clone()));
        let client = self.compute.with_urgency(urgency);
        client.delete(&api::PRIVATE_ENDPOINT_CONNECTIONS, &connection, Precondition::Unconditional).await
    }

    fn is_gone(&self, what: &NetworkCacheKey, id: &ResourceId) -> bool {
        self.observer.document::<PrivateLinkService>(id).is_none() && self.observer.cached_version(what).absent
    }

    /// Lets private link services into a subnet: its network policies for them are disabled, and all else stays.
    pub async fn open_subnet(&self, change: &SubnetPolicyChange, urgency: Urgency) -> ArmResult<()> {
        let (id, name) = (&change.id, change.id.name());
        let _turn = self.locks.lock(id).await;
        let what = NetworkCacheKey::Subnet(name.to_owned());
        if self.observer.subnet(name).is_some_and(|subnet| subnet.lets_links_in()) {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            self.observer.refresh(what.clone(), urgency).await?;
            let Some(mut subnet) = self.observer.subnet(name) else {
                return Err(conflict(&api::SUBNETS, id, "it does not exist any more"));
            };
            if subnet.lets_links_in() {
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

/// Whether it leads where it led and belongs to whom it belonged.
fn is_same(known: &PrivateLinkService, planned: &PrivateLinkService) -> bool {
    let frontends = |link: &PrivateLinkService| link.frontends().map(str::to_ascii_lowercase).collect::<Vec<_>>();
    known.tags == planned.tags && frontends(known) == frontends(planned)
}

/// Returns the documents that a failed write invalidates: none if ARM did not look at it.
///
/// Otherwise these are the whole group, since another one may be in the way that was not known, and its load balancers.
fn doubtful(error: &ArmError, id: &ResourceId, document: &PrivateLinkService) -> Vec<NetworkCacheKey> {
    let mut keys = observe::invalidated_by(error, &NetworkCacheKey::PrivateLink(id.clone()), Vec::new);
    if !keys.is_empty() {
        keys.extend(id.parent().map(NetworkCacheKey::PrivateLinks));
        keys.extend(document.load_balancers().map(NetworkCacheKey::LoadBalancer));
    }
    keys
}
