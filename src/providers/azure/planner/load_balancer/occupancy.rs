//! Occupancy of load balancers, and the number of rules at each Node's network interface. Pure, and prints.
//!
//! In: observed or planned load balancers. Out: counts next to Azure's limits. Documents above a limit are refused before they are written
//! (`desired::arm_constraints`, `desired::interface_rules`).
//! Upstream: "Azure subscription and service limits, quotas, and constraints", Load Balancer.

use std::fmt;

use super::{
    desired::{
        arm_constraints::{PartLimits, part_counts},
        interface_rules::interface_rules,
    },
    observed::ObservedNetwork,
    pools::managed_pool,
    settings::LoadBalancerSettings,
};
/// Percentage of a limit from which a load balancer or an interface is reported.
const NEARLY_FULL: usize = 80;

/// Occupancy of one load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerOccupancy {
    pub name: String,
    /// Load balancing and inbound NAT rules.
    pub rules: usize,
    pub frontends: usize,
    /// Limits of Azure for this load balancer.
    pub limits: PartLimits,
}

impl LoadBalancerOccupancy {
    /// Returns `true` if few rules or frontends remain.
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

/// Number of rules at the network interface of each Node behind an external load balancer and its internal counterpart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceOccupancy {
    /// Name of the external load balancer.
    pub load_balancer: String,
    /// Rules of both load balancers.
    pub rules: usize,
    /// Largest number that Azure allows.
    pub limit: usize,
}

impl fmt::Display for InterfaceOccupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load_balancer, rules, limit } = self;
        write!(f, "the network interface of each Node behind {load_balancer} has {rules} of {limit} rules")?;
        f.write_str(match rules > limit {
            true => "; Azure may refuse more",
            false if is_nearly_full(*rules, *limit) => "; it is nearly full",
            false => "",
        })
    }
}

/// Occupancy of all managed load balancers and network interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkOccupancy {
    /// Managed load balancers, in ARM's order.
    pub load_balancers: Vec<LoadBalancerOccupancy>,
    /// Network interfaces of the Nodes behind each load balancer; empty: their rules are not limited.
    pub interfaces: Vec<InterfaceOccupancy>,
    /// Whether every load balancer has a line, not only those that are nearly full.
    is_spread: bool,
}

fn is_nearly_full(count: usize, limit: usize) -> bool {
    count * 100 >= limit * NEARLY_FULL
}

/// Counts the rules and frontends of `network`, observed or planned.
pub fn occupancy(network: &ObservedNetwork, settings: &LoadBalancerSettings) -> NetworkOccupancy {
    let managed = || network.load_balancers.iter().filter(|document| managed_pool::is_managed(document, settings));
    let load_balancers: Vec<LoadBalancerOccupancy> = managed()
        .map(|document| {
            let ((rules, frontends), limits) = (part_counts(document), PartLimits::of(document));
            LoadBalancerOccupancy { name: document.name.clone().unwrap_or_default(), rules, frontends, limits }
        })
        .collect();
    let of_interfaces = |limit| {
        let counts = interface_rules(managed(), settings).into_iter();
        counts.map(move |(load_balancer, rules)| InterfaceOccupancy { load_balancer, rules, limit })
    };
    let interfaces = settings.interface_rules.into_iter().flat_map(|limit| of_interfaces(limit.count)).collect();
    NetworkOccupancy { load_balancers, interfaces, is_spread: settings.has_entries() }
}

impl NetworkOccupancy {
    /// Returns a line for each load balancer if Services are spread over several, else only for those that are nearly full.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let balancers = self.load_balancers.iter().filter(|balancer| self.is_spread || balancer.is_nearly_full());
        let is_shown = |interface: &&InterfaceOccupancy| is_nearly_full(interface.rules, interface.limit);
        let interfaces = self.interfaces.iter().filter(move |interface| self.is_spread || is_shown(interface));
        balancers.map(ToString::to_string).chain(interfaces.map(ToString::to_string))
    }
}

impl fmt::Display for NetworkOccupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.notes().try_for_each(|line| writeln!(f, "note: {line}"))
    }
}
