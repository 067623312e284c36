//! The third stage: the nodes behind the load balancers, once for everybody who waits. It is also a duty of its own, for nobody's sake:
//! pools follow the Nodes when no Service can be ensured.
//!
//! In: the Nodes that the service controller gave last. Out: pools with the right members.

use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tokio::time::Instant;

use super::world::World;
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{
            ArmError, ArmResult, ResourceId, Urgency,
            network::{BackendAddressPool, LoadBalancer},
        },
        inventory::LookupError,
        load_balancer::{
            apply::Writer,
            desired::Ask,
            events::Call,
            members::{MembersError, PoolWriter, Round, Synced, fingerprint},
            observe::Doubt,
            observed::Observed,
        },
    },
};

#[async_trait]
impl PoolWriter for Writer {
    async fn put_pool(&self, pool: &ResourceId, document: &BackendAddressPool, urgency: Urgency) -> ArmResult<()> {
        Writer::put_pool(self, pool, document, urgency).await
    }

    async fn migrate_to_ip_based(&self, load_balancer: &ResourceId, pools: &[String], urgency: Urgency) -> ArmResult<()> {
        Writer::migrate_to_ip_based(self, load_balancer, pools, urgency).await
    }
}

/// Brings the pools to the Nodes. Before the first call with Nodes there is nothing to go by.
pub(super) async fn join(world: &World, asks: &[Ask], urgency: Urgency) -> CloudResult<()> {
    let members = world.members.lock().await;
    let Some(nodes) = world.hosts() else { return Ok(()) };
    let since = world.unfollow();
    // With all that the asks need: what a look does not need may be forgotten, and with it addresses for somebody's status.
    let observed = world.look(asks, urgency).await?.observed;
    let all_nodes = world.roster.nodes();
    let created: Vec<ResourceId> = world.created().iter().cloned().collect();
    let leaving: Vec<ResourceId> = world.lock_leaving().iter().cloned().collect();
    let round =
        Round { observed: &observed, nodes: &nodes, all_nodes: &all_nodes, created: &created, leaving: &leaving, urgency };
    let doubtful = Doubtful::all(world, &observed);
    let synced = members.sync(&round, &world.writer).await;
    doubtful.settle();
    if let Some(error) = synced.as_ref().err().and_then(of_interface) {
        world.tell(asks, Call::CreateOrUpdateInterface, error);
    }
    ended(world, synced)?;
    world.created().retain(|pool| !created.contains(pool));
    let fingerprint = fingerprint(&nodes, &all_nodes, &world.settings);
    let due = members.again().map(|after| Instant::now() + after);
    // Pools that were passed over may want members by now.
    if leaving.is_empty() {
        world.lock_following().follow(since, Followed { fingerprint, due });
    }
    Ok(())
}

/// Load balancers whose members are being written: how they look is not known when that ends before it says so.
struct Doubtful<'a> {
    world: &'a World,
    load_balancers: Vec<ResourceId>,
}

impl<'a> Doubtful<'a> {
    fn all(world: &'a World, observed: &Observed) -> Self {
        let ids = observed.load_balancers.iter().filter_map(|balancer| ResourceId::parse(balancer.id.as_deref()?).ok());
        Self { world, load_balancers: ids.collect() }
    }

    /// What was written is known.
    fn settle(mut self) {
        self.load_balancers.clear();
    }
}

impl Drop for Doubtful<'_> {
    fn drop(&mut self) {
        self.load_balancers.drain(..).for_each(|balancer| self.world.observer.doubt(Doubt::LoadBalancer(balancer)));
    }
}

/// Whether the pools are where they have to be.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// How often that was called into question.
    questioned: u64,
    /// What the pools were last brought to; `None`: something is missing, or nobody knows.
    followed: Option<Followed>,
}

impl Following {
    /// Pools are not where they have to be, as of what is answered.
    fn question(&mut self) -> u64 {
        self.questioned = self.questioned.wrapping_add(1);
        self.followed = None;
        self.questioned
    }

    /// The pools were brought to this, unless somebody has called that into question `since`.
    fn follow(&mut self, since: u64, followed: Followed) {
        if self.questioned == since {
            self.followed = Some(followed);
        }
    }
}

/// What the pools were brought to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Followed {
    fingerprint: u64,
    /// When there is something to do although no Node changes.
    due: Option<Instant>,
}

/// Whether the pools were last brought to what they have to be now.
pub(super) fn is_followed(world: &World) -> bool {
    let (Some(nodes), Some(followed)) = (world.hosts(), world.lock_following().followed) else { return false };
    world.created().is_empty()
        && followed.due.is_none_or(|due| due > Instant::now())
        && followed.fingerprint == fingerprint(&nodes, &world.roster.nodes(), &world.settings)
}

/// While it lives, nobody joins the pools of a load balancer.
pub(super) struct Leaving<'a> {
    world: &'a World,
    id: ResourceId,
    /// Whether it is deleted.
    pub(super) is_gone: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.world.lock_leaving().remove(&self.id);
        // What stays after all wants the members of its pools back.
        if !self.is_gone {
            self.world.unfollow();
        }
    }
}

/// The first failure of a network interface.
fn of_interface(error: &MembersError) -> Option<&ArmError> {
    let errors = error.failures.iter().filter_map(|failure| match &failure.error {
        LookupError::Arm(error) => Some(error),
        LookupError::NotListed(_) | LookupError::NoAddress(_) => None,
    });
    errors.into_iter().find(|error| error.request.starts_with("PUT") && error.request.contains("/networkInterfaces/"))
}

/// Takes everybody out of the pools of a load balancer that is about to go.
pub(super) async fn leave(world: &World, asks: &[Ask], balancer: &LoadBalancer, urgency: Urgency) -> CloudResult<()> {
    let running = world.counting.leave(asks);
    let members = world.members.lock().await;
    let left = ended(world, members.leave(balancer, urgency).await);
    running.into_iter().for_each(|one| one.end(left.is_ok()));
    left
}

/// Load balancers whose members have changed look different now.
fn ended(world: &World, result: Result<Synced, MembersError>) -> CloudResult<()> {
    let synced = result.as_ref().unwrap_or_else(|error| &error.synced);
    for balancer in &synced.load_balancers {
        world.observer.doubt(Doubt::LoadBalancer(balancer.clone()));
    }
    result.map(drop).map_err(CloudError::from)
}

/// Pools that `after` has and what is known has not.
pub(super) fn new_pools(observed: &Observed, id: &ResourceId, after: &LoadBalancer) -> BTreeSet<ResourceId> {
    let is_it = |known: &&LoadBalancer| known.id.as_deref().is_some_and(|known| known.eq_ignore_ascii_case(id.as_str()));
    let before = observed.load_balancers.iter().find(is_it).map(names).unwrap_or_default();
    let new = names(after).into_iter().filter(|name| !before.iter().any(|known| known.eq_ignore_ascii_case(name)));
    new.map(|name| id.child("backendAddressPools", name)).collect()
}

fn names(balancer: &LoadBalancer) -> Vec<&str> {
    let pools = balancer.properties.iter().flat_map(|properties| properties.backend_address_pools.iter().flatten());
    pools.filter_map(|pool| pool.name.as_deref()).collect()
}

impl World {
    /// A load balancer is about to be deleted.
    pub(super) fn leaves(&self, id: &ResourceId) -> Leaving<'_> {
        self.lock_leaving().insert(id.clone());
        Leaving { world: self, id: id.clone(), is_gone: false }
    }

    /// Pools are not where they have to be, whatever the Nodes say; as of what is answered.
    pub(super) fn unfollow(&self) -> u64 {
        self.lock_following().question()
    }

    fn lock_leaving(&self) -> MutexGuard<'_, BTreeSet<ResourceId>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_following(&self) -> MutexGuard<'_, Following> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pools that were made and not filled yet.
    pub(super) fn created(&self) -> MutexGuard<'_, BTreeSet<ResourceId>> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_into_question_meanwhile_is_not_followed() {
        let (mut following, followed) = (Following::default(), Followed { fingerprint: 1, due: None });
        let since = following.question();
        following.follow(since, followed);
        assert_eq!(following.followed, Some(followed));
        let since = following.question();
        assert_eq!(following.followed, None);
        // A load balancer stays after all, or a pool is new.
        following.question();
        following.follow(since, followed);
        assert_eq!(following.followed, None);
    }
}
