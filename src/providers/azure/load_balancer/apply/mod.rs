//! The only writer of the network documents: load balancers and their pools, public IPs, the security group.
//!
//! In: documents as the planner made them. Out: `()` when ARM has them, and the observer knows what ARM answered; or the error, and what
//! is doubtful now is marked so. Nothing is written that was planned on a version which is known to be an old one: that is a conflict
//! without a request, and the caller looks and plans again. Writes of one document wait for each other.
//!
//! Every create is conditional on absence and every change on the version that was looked at, so that ARM refuses what was planned on a
//! list that lacked something. A pool alone is written without a condition: its load balancer's version changes with each machine, and
//! what is written follows from the Nodes.

mod basis;
mod locks;

use std::sync::Arc;

use basis::{Basis, Verdict};
use locks::Locks;
use serde_json::json;

use super::{
    desired::public_ips::{Change, Release},
    observe::{self, Doubt, Observer, Writing, Written},
};
use crate::providers::azure::arm::{
    ApiType, ArmClient, ArmError, ArmResult, ErrorClass, Precondition, ResourceId, Urgency, api,
    network::{BackendAddressPool, LoadBalancer, NetworkSecurityGroup},
};

/// Writes, and tells the observer.
pub struct Writer {
    observer: Arc<Observer>,
    client: ArmClient,
    locks: Locks,
}

impl Writer {
    /// A writer that tells `observer` what it was answered.
    pub fn new(observer: Arc<Observer>, client: ArmClient) -> Self {
        Self { observer, client, locks: Locks::default() }
    }

    /// Creates or replaces a load balancer. `document` carries the etag of the version that it changes; none when it is new.
    pub async fn put_load_balancer(&self, id: &ResourceId, document: &LoadBalancer, urgency: Urgency) -> ArmResult<()> {
        let _turn = self.locks.lock(id).await;
        let planned = Basis::of(document.id.as_deref(), document.etag.as_deref());
        let what = Doubt::LoadBalancer(id.clone());
        let standing = self.observer.standing(&what);
        if planned == Basis::Absence && standing.etag.is_none() && !standing.absent {
            // It would take the rules of all Services with it: not on the word of a list, and not on that of a condition alone.
            self.observer.read_again(what.clone(), urgency).await?;
        }
        let condition = self.require(&what, planned, id, urgency).await?;
        let writing = self.observer.begin_write(what.clone());
        let outcome = self.client.with_urgency(urgency).put(&api::LOAD_BALANCERS, id, condition, document).await;
        let written = outcome.map(|answer| Written::LoadBalancer(id.clone(), Box::new(answer)));
        let network = &self.observer.settings().virtual_network;
        ended(writing, &what, written, || observe::references(document, network))
    }

    /// Deletes a load balancer, if its front ends and rules are still those of `planned`, whoever is in its pools. One without an etag is
    /// read by itself first: nothing else guards it. Absent before is success.
    pub async fn delete_load_balancer(&self, id: &ResourceId, planned: &LoadBalancer, urgency: Urgency) -> ArmResult<()> {
        let _turn = self.locks.lock(id).await;
        let what = Doubt::LoadBalancer(id.clone());
        let is_unguarded = |known: LoadBalancer| known.etag.is_none_or(|etag| etag.is_empty());
        let known = self.observer.load_balancer(id);
        if known.is_some_and(|known| is_unguarded(known) || self.observer.standing(&what).doubted) {
            self.observer.read_again(what.clone(), urgency).await?;
        }
        let Some(now) = self.observer.load_balancer(id) else { return Ok(()) };
        if self.observer.standing(&what).doubted || !basis::same_load_balancer(planned, &now) {
            return Err(conflict(&api::LOAD_BALANCERS, id, "it has been changed by somebody else"));
        }
        let (etag, gone) = (now.etag, Written::NoLoadBalancer(id.clone()));
        self.delete(&api::LOAD_BALANCERS, id, Precondition::unchanged(etag.as_deref()), what, gone, urgency).await
    }

    /// Creates or replaces a public IP. `had_address`: whether the Service had an address before. Then the public IP may be there although
    /// a list lacks it, and is read by itself before it is created. The name of a new Service's has its UID, so that the condition suffices.
    pub async fn put_public_ip(&self, change: &Change, had_address: bool, urgency: Urgency) -> ArmResult<()> {
        let id = &change.id;
        let _turn = self.locks.lock(id).await;
        let what = Doubt::PublicIp(id.clone());
        let planned = Basis::of(change.document.id.as_deref(), change.etag.as_deref());
        let standing = self.observer.standing(&what);
        if had_address && planned == Basis::Absence && standing.etag.is_none() && !standing.absent {
            self.observer.read_again(what.clone(), urgency).await?;
        }
        let etag = self.current(id, planned, urgency).await?;
        let condition = match planned {
            Basis::Absence => Precondition::Absent,
            Basis::Version(_) => Precondition::unchanged(etag.as_deref()),
        };
        let mut document = change.document.clone();
        document.etag.clone_from(&etag);
        let writing = self.observer.begin_write(what.clone());
        let outcome = self.client.with_urgency(urgency).put(&api::PUBLIC_IPS, id, condition, &document).await;
        ended(writing, &what, outcome.map(|answer| Written::PublicIp(id.clone(), Box::new(answer))), Vec::new)
    }

    /// Deletes a public IP. Absent before is success, if that is known of itself; one that something uses by now is a conflict. One whose
    /// etag is out of date only because our own load balancer has left it is not read first: it goes without a condition, as upstream, and
    /// ARM refuses when something uses it.
    pub async fn delete_public_ip(&self, release: &Release, urgency: Urgency) -> ArmResult<()> {
        let id = &release.id;
        let _turn = self.locks.lock(id).await;
        let what = Doubt::PublicIp(id.clone());
        let Some(known) = self.observer.public_ip(id) else {
            let is_absent = self.observer.standing(&what).absent;
            return is_absent.then_some(()).ok_or_else(|| conflict(&api::PUBLIC_IPS, id, "nothing is known of it any more"));
        };
        let etag = match basis::judge(Basis::Version(release.etag.as_deref()), &self.observer.standing(&what)) {
            Verdict::Send => release.etag.as_deref(),
            Verdict::ReadFirst => None,
            Verdict::Refuse(why) => return Err(conflict(&api::PUBLIC_IPS, id, why)),
        };
        if let Some(user) = known.properties.and_then(|properties| properties.ip_configuration?.id) {
            return Err(conflict(&api::PUBLIC_IPS, id, &format!("`{user}` still uses it")));
        }
        let condition = etag.map_or(Precondition::Unconditional, |etag| Precondition::unchanged(Some(etag)));
        self.delete(&api::PUBLIC_IPS, id, condition, what, Written::NoPublicIp(id.clone()), urgency).await
    }

    /// Creates or replaces a pool of a load balancer. Without a condition, as upstream: the load balancer's etag changes with each of
    /// its machines. The load balancer is doubtful afterwards.
    pub async fn put_pool(&self, pool: &ResourceId, document: &BackendAddressPool, urgency: Urgency) -> ArmResult<()> {
        let balancer = pool.parent().unwrap_or_else(|| pool.clone());
        let _turn = self.locks.lock(&balancer).await;
        let what = Doubt::LoadBalancer(balancer);
        let writing = self.observer.begin_write(what.clone());
        let outcome =
            self.client.with_urgency(urgency).put(&api::BACKEND_POOLS, pool, Precondition::Unconditional, document).await;
        ended(writing, &what, outcome.map(|answer| Written::Pool(pool.clone(), Box::new(answer))), Vec::new)
    }

    /// Replaces the security group, which is never created. `document` carries the etag of the version that it changes.
    pub async fn put_security_group(
        &self,
        id: &ResourceId,
        document: &NetworkSecurityGroup,
        urgency: Urgency,
    ) -> ArmResult<()> {
        let _turn = self.locks.lock(id).await;
        let (what, planned) = (Doubt::SecurityGroup, Basis::Version(document.etag.as_deref()));
        let condition = self.require(&what, planned, id, urgency).await?;
        let writing = self.observer.begin_write(what.clone());
        let outcome = self.client.with_urgency(urgency).put(&api::SECURITY_GROUPS, id, condition, document).await;
        ended(writing, &what, outcome.map(|answer| Written::SecurityGroup(Box::new(answer))), Vec::new)
    }

    /// Turns pools, by name, from listing network interfaces to listing addresses, without an outage. The load balancer is doubtful
    /// afterwards: ARM fills the pools in its own time. Upstream: `pkg/provider/azure_loadbalancer_backendpool.go`.
    pub async fn migrate_to_ip_based(
        &self,
        load_balancer: &ResourceId,
        pools: &[String],
        urgency: Urgency,
    ) -> ArmResult<()> {
        let _turn = self.locks.lock(load_balancer).await;
        let what = Doubt::LoadBalancer(load_balancer.clone());
        let writing = self.observer.begin_write(what.clone());
        let (client, input) = (self.client.with_urgency(urgency), json!({"pools": pools}));
        let outcome =
            client.post::<serde_json::Value>(&api::LOAD_BALANCERS, load_balancer, "migrateToIpBased", &input).await;
        ended(writing, &what, outcome.map(|_| Written::Inside(load_balancer.clone())), Vec::new)
    }

    /// Refuses what was planned on another version than the known one; otherwise what ARM shall require. What came without an etag is
    /// read by itself, and planned for again when it has one then.
    async fn require<'a>(
        &self,
        what: &Doubt,
        planned: Basis<'a>,
        id: &ResourceId,
        urgency: Urgency,
    ) -> ArmResult<Precondition<'a>> {
        let mut verdict = basis::judge(planned, &self.observer.standing(what));
        if verdict == Verdict::ReadFirst {
            self.observer.read_again(what.clone(), urgency).await?;
            verdict = basis::judge(planned, &self.observer.standing(what));
        }
        match verdict {
            Verdict::Refuse(why) => Err(conflict(kind_of(what), id, why)),
            Verdict::Send | Verdict::ReadFirst => Ok(planned.precondition()),
        }
    }

    /// The etag with which a public IP can be written that was planned on the version `planned`.
    async fn current(&self, id: &ResourceId, planned: Basis<'_>, urgency: Urgency) -> ArmResult<Option<String>> {
        let what = Doubt::PublicIp(id.clone());
        match basis::judge(planned, &self.observer.standing(&what)) {
            Verdict::Send => {
                return Ok(match planned {
                    Basis::Version(etag) => etag.map(str::to_owned),
                    Basis::Absence => None,
                });
            }
            Verdict::Refuse(why) => return Err(conflict(&api::PUBLIC_IPS, id, why)),
            Verdict::ReadFirst => {}
        }
        let before = self.observer.public_ip(id);
        self.observer.read_again(what.clone(), urgency).await?;
        let standing = self.observer.standing(&what);
        match (before, self.observer.public_ip(id)) {
            (Some(before), Some(now)) if !standing.stale && basis::same_public_ip(&before, &now) => Ok(now.etag),
            _ => Err(conflict(&api::PUBLIC_IPS, id, "it has been changed by somebody else")),
        }
    }

    async fn delete(
        &self,
        kind: &'static ApiType,
        id: &ResourceId,
        condition: Precondition<'_>,
        what: Doubt,
        written: Written,
        urgency: Urgency,
    ) -> ArmResult<()> {
        let writing = self.observer.begin_write(what.clone());
        let outcome = self.client.with_urgency(urgency).delete(kind, id, condition).await;
        ended(writing, &what, outcome.map(|()| written), Vec::new)
    }
}

fn kind_of(what: &Doubt) -> &'static ApiType {
    match what {
        Doubt::SecurityGroup => &api::SECURITY_GROUPS,
        Doubt::PublicIp(_) | Doubt::PublicIps(_) => &api::PUBLIC_IPS,
        Doubt::Subnet(_) => &api::SUBNETS,
        Doubt::LoadBalancer(_) | Doubt::LoadBalancers => &api::LOAD_BALANCERS,
    }
}

fn ended(
    writing: Writing,
    what: &Doubt,
    outcome: ArmResult<Written>,
    references: impl FnOnce() -> Vec<Doubt>,
) -> ArmResult<()> {
    match outcome {
        Ok(written) => {
            writing.succeeded(written);
            Ok(())
        }
        Err(error) => {
            writing.failed(observe::doubts(&error, what, references));
            Err(error)
        }
    }
}

fn conflict(kind: &ApiType, id: &ResourceId, why: &str) -> ArmError {
    ArmError {
        class: ErrorClass::Conflict,
        status: None,
        code: String::new(),
        message: format!("nothing was sent: {why}; it is read and planned for again"),
        request: format!("{} {id}", kind.resource_type),
        correlation_id: None,
        retry_after: None,
    }
}

#[cfg(all(test, feature = "sandbox"))]
mod tests;
