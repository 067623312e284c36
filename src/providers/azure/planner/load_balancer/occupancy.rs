//! How full load balancers are, and how many rules each Node's network interface carries. Pure, and prints.
//!
//! In: load balancers as they are or will be. Out: counts beside what Azure allows. What would be too much is refused before it is written
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

/// How many rules the network interface of each Node behind a load balancer and its internal twin carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceOccupancy {
    /// Name of the external load balancer.
    pub load_balancer: String,
    /// Rules of both.
    pub rules: usize,
    /// What Azure allows.
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

/// How full load balancers are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkOccupancy {
    /// Managed load balancers, in ARM's order.
    pub load_balancers: Vec<LoadBalancerOccupancy>,
    /// Network interfaces of the Nodes behind each of them, unless their limit is not looked at.
    pub interfaces: Vec<InterfaceOccupancy>,
    /// Whether each load balancer is worth a line, not only those that are nearly full.
    is_spread: bool,
}

fn is_nearly_full(count: usize, limit: usize) -> bool {
    count * 100 >= limit * NEARLY_FULL
}

/// Counts. `network`: as it is or will be.
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
    /// Returns a line for each load balancer if Services are spread over several, else for those alone that are nearly full.
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
