//! The only writer of the network documents: load balancers and their pools, public IPs, the network security group, private
//! link services and the policies of their subnets.
//!
//! In: documents from the planner. Out: `()` when ARM has stored them and the observer has recorded ARM's response; or the
//! error, and the documents whose state it leaves unconfirmed are invalidated. A document that was planned on a version
//! known to be outdated is not sent. This is a conflict without a request, and the caller reads and plans again. Writes of
//! one document are sequential.
//!
//! Every create is conditional on absence and every change on the version that it was planned on, so ARM refuses a write
//! that was planned on an incomplete list. Only a pool is written without a condition: its load balancer's version changes
//! with each machine, and the pool's contents follow from the Nodes.

mod accepted;
mod locks;
mod planned_version;
mod private_links;

use std::sync::Arc;

use locks::DocumentLocks;
use planned_version::{PlannedVersion, WriteDecision};
use serde_json::json;

use super::observe::{self, CachedVersion, NetworkCacheKey, NetworkObserver, NetworkWriteResult};
use crate::providers::azure::planner::load_balancer::{
    desired::public_ips::{PublicIpChange, PublicIpRelease},
    spec::ServiceIdentity,
};
use crate::providers::azure::{
    arm::{AcceptedDocument, ArmClient, Causes, Precondition, Urgency},
    model::{
        ApiType, ArmError, ArmErrorClass, ArmResult, ResourceId, api,
        network::{ArmLoadBalancer, BackendAddressPool, NetworkSecurityGroup, PublicIpAddress},
    },
};

/// Writer that reports each result to the observer. Cheap to clone.
#[derive(Clone)]
pub struct NetworkWriter {
    observer: Arc<NetworkObserver>,
    client: ArmClient,
    /// Client for private link services, which are in the subscription of the machines.
    compute: ArmClient,
    locks: Arc<DocumentLocks>,
}

impl NetworkWriter {
    /// Creates a writer that reports ARM's responses to `observer`. The clients are for the subscription of the network, and
    /// for that of the machines.
    pub fn new(observer: Arc<NetworkObserver>, (client, compute): (ArmClient, ArmClient)) -> Self {
        Self { observer, client, compute, locks: Arc::default() }
    }

    /// Returns a writer whose writes are charged to the namespaces of these Services.
    pub fn caused_by<'a>(&self, services: impl IntoIterator<Item = &'a ServiceIdentity>) -> Self {
        let causes: Causes = services.into_iter().map(ServiceIdentity::namespace).collect();
        let (client, compute) = (self.client.with_causes(causes.clone()), self.compute.with_causes(causes));
        Self { client, compute, ..self.clone() }
    }

    /// Creates or replaces a load balancer. `document` contains the etag of the version that it changes; none if it is new.
    pub async fn put_load_balancer(&self, id: &ResourceId, document: &ArmLoadBalancer, urgency: Urgency) -> ArmResult<()> {
        let _turn = self.locks.lock(id).await;
        let planned = PlannedVersion::of(document.id.as_deref(), document.etag.as_deref());
        let what = NetworkCacheKey::LoadBalancer(id.clone());
        // A wrong create would remove the rules of all Services: neither a list nor a condition alone is enough evidence of
        // absence.
        self.confirm_absence(&what, planned, urgency).await?;
        let cached = || self.observer.document::<ArmLoadBalancer>(id);
        let etag = self.current_etag(&what, (id, planned), urgency, cached, accepted::says_the_same).await?;
        let condition = planned.precondition_with(etag.as_deref());
        let writing = self.observer.begin_write(what.clone());
        let client = self.client.with_urgency(urgency);
        let is_whole = |answer: &ArmLoadBalancer| accepted::is_whole(document, answer);
        let outcome = client.put_accepted(&api::LOAD_BALANCERS, id, condition, document, is_whole).await;
        let written = outcome.map(|AcceptedDocument { document, is_etag_outdated }| match is_etag_outdated {
            true => NetworkWriteResult::LoadBalancerAccepted(id.clone(), Box::new(document)),
            false => NetworkWriteResult::LoadBalancer(id.clone(), Box::new(document)),
        });
        let network = &self.observer.settings().virtual_network;
        let references = || observe::referenced_keys(document, network);
        writing.end_with(written, |error| observe::invalidated_by(error, &what, references))
    }

    /// Deletes a load balancer if its frontends and rules are still those of `planned`; the members of its pools may differ.
    ///
    /// A document without an etag is read first, because no condition can guard its deletion. An absent load balancer is a
    /// success.
    pub async fn delete_load_balancer(&self, id: &ResourceId, planned: &ArmLoadBalancer, urgency: Urgency) -> ArmResult<()> {
        let _turn = self.locks.lock(id).await;
        let what = NetworkCacheKey::LoadBalancer(id.clone());
        let is_unguarded = |cached: ArmLoadBalancer| cached.etag.is_none_or(|etag| etag.is_empty());
        let cached = self.observer.document::<ArmLoadBalancer>(id);
        let is_old = |version: CachedVersion| version.invalidated || version.etag_stale;
        if cached.is_some_and(|cached| is_unguarded(cached) || is_old(self.observer.cached_version(&what))) {
            self.observer.refresh(what.clone(), urgency).await?;
        }
        let Some(now) = self.observer.document::<ArmLoadBalancer>(id) else { return Ok(()) };
        if self.observer.cached_version(&what).invalidated || !planned_version::same_load_balancer(planned, &now) {
            return Err(conflict(&api::LOAD_BALANCERS, id, "it was modified concurrently"));
        }
        let (etag, gone) = (now.etag, NetworkWriteResult::LoadBalancerDeleted(id.clone()));
        self.delete(id, Precondition::unchanged(etag.as_deref()), what, gone, urgency).await
    }

    /// Creates or replaces a public IP. `had_address` is `true` if the Service had an address before.
    ///
    /// In that case, the public IP may exist although a list lacks it, so it is read individually before it is created. The
    /// name of a new Service's public IP contains the UID, so the condition is enough.
    pub async fn put_public_ip(&self, change: &PublicIpChange, had_address: bool, urgency: Urgency) -> ArmResult<()> {
        let id = &change.id;
        let _turn = self.locks.lock(id).await;
        let what = NetworkCacheKey::PublicIp(id.clone());
        let planned = PlannedVersion::of(change.document.id.as_deref(), change.etag.as_deref());
        if had_address {
            self.confirm_absence(&what, planned, urgency).await?;
        }
        let (known, is_same) = (|| self.observer.document::<PublicIpAddress>(id), planned_version::same_public_ip);
        let etag = self.current_etag(&what, (id, planned), urgency, known, is_same).await?;
        let condition = planned.precondition_with(etag.as_deref());
        let mut document = change.document.clone();
        document.etag.clone_from(&etag);
        let writing = self.observer.begin_write(what);
        let outcome = self.client.with_urgency(urgency).put(&api::PUBLIC_IPS, id, condition, &document).await;
        writing.end(outcome.map(|answer| NetworkWriteResult::PublicIp(id.clone(), Box::new(answer))))
    }

    /// Deletes a public IP. An absent public IP is a success if a read of it alone proves the absence; a public IP in use is
    /// a conflict.
    ///
    /// If the etag is outdated only because our own load balancer no longer uses the public IP, no read precedes the
    /// deletion. The deletion is then unconditional, as upstream, and ARM refuses it if the public IP is in use.
    pub async fn delete_public_ip(&self, release: &PublicIpRelease, urgency: Urgency) -> ArmResult<()> {
        let id = &release.id;
        let _turn = self.locks.lock(id).await;
        let what = NetworkCacheKey::PublicIp(id.clone());
        let Some(known) = self.observer.document::<PublicIpAddress>(id) else {
            let is_absent = self.observer.cached_version(&what).absent;
            return is_absent.then_some(()).ok_or_else(|| conflict(&api::PUBLIC_IPS, id, "nothing is known of it any more"));
        };
        let etag = match planned_version::decide(
            PlannedVersion::Version(release.etag.as_deref()),
            &self.observer.cached_version(&what),
        ) {
            WriteDecision::Send => release.etag.as_deref(),
            WriteDecision::ReadFirst => None,
            WriteDecision::Refuse(why) => return Err(conflict(&api::PUBLIC_IPS, id, why)),
        };
        if let Some(user) = known.properties.and_then(|properties| properties.ip_configuration?.id) {
            return Err(conflict(&api::PUBLIC_IPS, id, &format!("`{user}` still uses it")));
        }
        let condition = etag.map_or(Precondition::Unconditional, |etag| Precondition::unchanged(Some(etag)));
        self.delete(id, condition, what, NetworkWriteResult::PublicIpDeleted(id.clone()), urgency).await
    }

    /// Creates or replaces a pool of a load balancer.
    ///
    /// Returns `false` if the pool was deleted while this call waited; nothing is sent then, because a write would recreate
    /// the pool.
    ///
    /// The write is unconditional, as upstream, because the load balancer's etag changes with each of its machines. The
    /// cached load balancer is invalidated.
    pub async fn put_pool(&self, pool: &ResourceId, document: &BackendAddressPool, urgency: Urgency) -> ArmResult<bool> {
        let balancer = pool.parent().unwrap_or_else(|| pool.clone());
        let _turn = self.locks.lock(&balancer).await;
        if !self.observer.has_pool(pool) {
            return Ok(false);
        }
        let writing = self.observer.begin_write(NetworkCacheKey::LoadBalancer(balancer));
        let outcome =
            self.client.with_urgency(urgency).put(&api::BACKEND_POOLS, pool, Precondition::Unconditional, document).await;
        writing.end(outcome.map(|answer| NetworkWriteResult::Pool(pool.clone(), Box::new(answer))))?;
        Ok(true)
    }

    /// Replaces the network security group, which is never created. `document` contains the etag of the version that it
    /// changes.
    pub async fn put_security_group(
        &self,
        id: &ResourceId,
        document: &NetworkSecurityGroup,
        urgency: Urgency,
    ) -> ArmResult<()> {
        let _turn = self.locks.lock(id).await;
        let (what, planned) = (NetworkCacheKey::SecurityGroup, PlannedVersion::Version(document.etag.as_deref()));
        let etag = self.unchanged_etag(&what, (id, planned), urgency).await?;
        let condition = planned.precondition_with(etag.as_deref());
        let writing = self.observer.begin_write(what);
        let outcome = self.client.with_urgency(urgency).put(&api::SECURITY_GROUPS, id, condition, document).await;
        writing.end(outcome.map(|answer| NetworkWriteResult::SecurityGroup(Box::new(answer))))
    }

    /// Migrates pools, by name, from network interfaces to addresses, without an outage.
    ///
    /// The cached load balancer is invalidated, because ARM fills the pools asynchronously. Upstream:
    /// `pkg/provider/azure_loadbalancer_backendpool.go`.
    pub async fn migrate_to_ip_based(
        &self,
        load_balancer: &ResourceId,
        pools: &[String],
        urgency: Urgency,
    ) -> ArmResult<()> {
        let _turn = self.locks.lock(load_balancer).await;
        let writing = self.observer.begin_write(NetworkCacheKey::LoadBalancer(load_balancer.clone()));
        let (client, input) = (self.client.with_urgency(urgency), json!({"pools": pools}));
        let outcome =
            client.post::<serde_json::Value>(&api::LOAD_BALANCERS, load_balancer, "migrateToIpBased", &input).await;
        writing.end(outcome.map(|_| NetworkWriteResult::LoadBalancerChanged(load_balancer.clone())))
    }

    /// Reads a document that was planned as a new one, unless a recent read of it alone has shown that it does not exist.
    async fn confirm_absence(&self, key: &NetworkCacheKey, planned: PlannedVersion<'_>, urgency: Urgency) -> ArmResult<()> {
        let cached = self.observer.cached_version(key);
        if planned == PlannedVersion::Absent && cached.etag.is_none() && !cached.absent {
            self.observer.refresh(key.clone(), urgency).await?;
        }
        Ok(())
    }

    /// Returns the etag with which a document can be written that must be of the version `planned`.
    ///
    /// A document without an etag is read again. If it then has an etag, the result is a conflict, and the caller plans
    /// again.
    async fn unchanged_etag(
        &self,
        what: &NetworkCacheKey,
        (id, planned): (&ResourceId, PlannedVersion<'_>),
        urgency: Urgency,
    ) -> ArmResult<Option<String>> {
        let cached = || self.observer.cached_version(what).etag;
        self.current_etag(what, (id, planned), urgency, cached, PartialEq::eq).await
    }

    /// Returns the etag with which a document can be written that was planned on the version `planned`.
    ///
    /// An outdated etag is read again. The write may then proceed if `is_same` accepts the `cached` values before and after
    /// the read.
    async fn current_etag<D>(
        &self,
        what: &NetworkCacheKey,
        (id, planned): (&ResourceId, PlannedVersion<'_>),
        urgency: Urgency,
        cached: impl Fn() -> Option<D>,
        is_same: impl Fn(&D, &D) -> bool,
    ) -> ArmResult<Option<String>> {
        match planned_version::decide(planned, &self.observer.cached_version(what)) {
            WriteDecision::Send => return Ok(planned.etag().map(str::to_owned)),
            WriteDecision::Refuse(why) => return Err(conflict(what.api_type(), id, why)),
            WriteDecision::ReadFirst => {}
        }
        let before = cached();
        self.observer.refresh(what.clone(), urgency).await?;
        let standing = self.observer.cached_version(what);
        let is_known = !standing.etag_stale && !standing.invalidated;
        match (before, cached()) {
            (Some(before), Some(now)) if is_known && is_same(&before, &now) => Ok(standing.etag.flatten()),
            _ => Err(conflict(what.api_type(), id, "it was modified concurrently")),
        }
    }

    async fn delete(
        &self,
        id: &ResourceId,
        condition: Precondition<'_>,
        what: NetworkCacheKey,
        written: NetworkWriteResult,
        urgency: Urgency,
    ) -> ArmResult<()> {
        let kind = what.api_type();
        let writing = self.observer.begin_write(what);
        let outcome = self.client.with_urgency(urgency).delete(kind, id, condition).await;
        writing.end(outcome.map(|()| written))
    }
}

fn conflict(kind: &ApiType, id: &ResourceId, why: &str) -> ArmError {
    let message = format!("nothing was written: {why}; reading and planning again");
    ArmError::without_response(ArmErrorClass::Conflict, format!("{} {id}", kind.resource_type), message)
}

#[cfg(all(test, feature = "sandbox"))]
mod tests;
