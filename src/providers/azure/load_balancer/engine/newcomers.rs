//! Services on their way to a load balancer that does not exist yet, so that machines join all new load balancers at once.
//!
//! In: who sets out, which load balancers are there by now, whether pools are new. Out: the moment when nobody is on the way to one that is
//! not. The first external Service waits for its public IP and the first internal one for nothing; the machines of both are written once when
//! they are written last. Machines wait once after pools were made: with one that cannot join for long, every Service would wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::timeout;

use crate::{providers::azure::model::ResourceId, runtime::watched::Watched};

/// See the module.
#[derive(Default)]
pub(super) struct Newcomers {
    tickets: Watched<NewcomerTickets>,
}

#[derive(Default)]
struct NewcomerTickets {
    issued: u64,
    /// Whether pools were made since machines last waited.
    has_new_pools: bool,
    by_load_balancer: BTreeMap<ResourceId, BTreeSet<u64>>,
}

/// Somebody on the way. Dropping it says that they have come, or come no more.
pub(super) struct Newcomer<'a> {
    all: &'a Newcomers,
    load_balancer: ResourceId,
    ticket: u64,
}

impl Drop for Newcomer<'_> {
    fn drop(&mut self) {
        self.all.tickets.update(|tickets| {
            if let Some(issued) = tickets.by_load_balancer.get_mut(&self.load_balancer) {
                issued.remove(&self.ticket);
            }
        });
    }
}

impl Newcomers {
    /// Somebody sets out for a load balancer that does not exist.
    pub(super) fn announce(&self, load_balancer: ResourceId) -> Newcomer<'_> {
        let ticket = self.tickets.update(|tickets| {
            tickets.issued += 1;
            tickets.by_load_balancer.entry(load_balancer.clone()).or_default().insert(tickets.issued);
            tickets.issued
        });
        Newcomer { all: self, load_balancer, ticket }
    }

    /// It exists now: nobody is new to it.
    pub(super) fn created(&self, load_balancer: &ResourceId) {
        self.tickets.update(|tickets| tickets.by_load_balancer.remove(load_balancer));
    }

    /// Pools were made that machines are about to join.
    pub(super) fn pools_created(&self) {
        self.tickets.update(|tickets| tickets.has_new_pools = true);
    }

    /// Waits until nobody is on the way, but no longer than `longest`, and not at all unless pools were made since the last time.
    pub(super) async fn all_here(&self, longest: Duration) {
        if !self.tickets.read(|tickets| tickets.has_new_pools) {
            return;
        }
        let is_empty = |tickets: &NewcomerTickets| tickets.by_load_balancer.values().all(BTreeSet::is_empty);
        // Whoever takes longer finds the machines written, and has them written again.
        let _ = timeout(longest, self.tickets.until(is_empty)).await;
        self.tickets.update(|tickets| tickets.has_new_pools = false);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(10);

    fn id(name: &str) -> ResourceId {
        ResourceId::parse(&format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/{name}"))
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_waits_for_those_who_set_out_and_not_for_ever() {
        let all = Newcomers::default();
        let waited = async |until: &Newcomers| {
            let started = Instant::now();
            until.pools_created();
            until.all_here(LONGEST).await;
            started.elapsed().as_secs()
        };
        assert_eq!(waited(&all).await, 0);
        let first = all.announce(id("a"));
        assert_eq!(waited(&all).await, 10);
        let started = Instant::now();
        all.all_here(LONGEST).await;
        assert!(started.elapsed().is_zero(), "no pools were made since");
        let comes = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(first);
        };
        assert_eq!(tokio::join!(waited(&all), comes).0, 2);
        let (_second, _third) = (all.announce(id("a")), all.announce(id("b")));
        let made = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            all.created(&id("a"));
            tokio::time::sleep(Duration::from_secs(3)).await;
            all.created(&id("B"));
        };
        assert_eq!(tokio::join!(waited(&all), made).0, 4);
    }
}
