//! How full load balancers are, and how many rules each Node's network interface carries. Pure, and prints.
//!
//! In: load balancers as they are or will be. Out: counts beside what Azure allows. What would be too much on one load balancer is refused
//! before it is written (`desired::arm_constraints`); what is too much at a network interface is a warning here, since which machines are
//! behind how many load balancers changes by itself.
//! Upstream: "Azure subscription and service limits, quotas, and constraints", Load Balancer.

use std::fmt;

use super::{
    desired::arm_constraints::{PartLimits, part_counts},
    naming,
    observed::ObservedNetwork,
    pools::managed_pool,
    settings::LoadBalancerSettings,
};
use crate::providers::azure::arm::spelling;

/// Rules that Azure allows at one network interface, over all load balancers.
pub const MAX_RULES_OF_INTERFACE: usize = 300;
/// From this share on, a load balancer or an interface is told about, in percent.
const NEARLY_FULL: usize = 80;

/// How full one load balancer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerOccupancy {
    /// Its name.
    pub name: String,
    /// Load balancing and inbound NAT rules.
    pub rules: usize,
    /// Front ends.
    pub frontends: usize,
    /// What Azure allows.
    pub limits: PartLimits,
}

impl LoadBalancerOccupancy {
    /// Whether there is little room left.
    fn is_nearly_full(&self) -> bool {
        is_nearly_full(self.rules, self.limits.rules) || is_nearly_full(self.frontends, self.limits.frontends)
    }
}

impl fmt::Display for LoadBalancerOccupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rules, frontends, limits } = self;
        write!(
            f,
            "load balancer {name} has {rules} of {} rules, {frontends} of {} front ends",
            limits.rules, limits.frontends
        )?;
        f.write_str(if self.is_nearly_full() { "; it is nearly full" } else { "" })
    }
}

/// More rules at the network interfaces of an entry's Nodes than Azure allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrowdedEntry {
    /// Name of the entry.
    pub entry: String,
    /// Rules of both of its load balancers.
    pub rules: usize,
}

impl fmt::Display for CrowdedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the network interfaces of the Nodes of entry {} carry {} rules of both load balancers, and Azure allows {MAX_RULES_OF_INTERFACE} \
             at each: add an entry to multipleStandardLoadBalancerConfigurations with Nodes of its own, and move Services there",
            self.entry, self.rules
        )
    }
}

/// How full load balancers are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkOccupancy {
    /// Managed load balancers, in ARM's order.
    pub load_balancers: Vec<LoadBalancerOccupancy>,
    /// Entries with too many rules at each interface.
    pub crowded: Vec<CrowdedEntry>,
    /// Whether each load balancer is worth a line, not only those that are nearly full.
    is_spread: bool,
}

fn is_nearly_full(count: usize, limit: usize) -> bool {
    count * 100 >= limit * NEARLY_FULL
}

/// Counts. `network`: as it is or will be.
pub fn occupancy(network: &ObservedNetwork, settings: &LoadBalancerSettings) -> NetworkOccupancy {
    let managed = network.load_balancers.iter().filter(|document| managed_pool::is_managed(document, settings));
    let load_balancers: Vec<LoadBalancerOccupancy> = managed
        .map(|document| {
            let ((rules, frontends), limits) = (part_counts(document), PartLimits::of(document));
            LoadBalancerOccupancy { name: document.name.clone().unwrap_or_default(), rules, frontends, limits }
        })
        .collect();
    let rules_of = |name: &str| {
        let its = load_balancers.iter().filter(|one| spelling::same_name(name, naming::split_load_balancer(&one.name).0));
        its.map(|one| one.rules).sum::<usize>()
    };
    let loads =
        settings.entries.iter().map(|entry| CrowdedEntry { entry: entry.name.clone(), rules: rules_of(&entry.name) });
    let crowded = loads.filter(|load| load.rules > MAX_RULES_OF_INTERFACE).collect();
    NetworkOccupancy { load_balancers, crowded, is_spread: settings.has_entries() }
}

/// A line for each load balancer, if Services are spread over several; else for those alone that are nearly full.
impl fmt::Display for NetworkOccupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.load_balancers.iter().filter(|one| self.is_spread || one.is_nearly_full());
        told.into_iter().try_for_each(|one| writeln!(f, "note: {one}"))?;
        self.crowded.iter().try_for_each(|one| writeln!(f, "note: {one}"))
    }
}
