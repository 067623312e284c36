//! Check of a load balancer against ARM's constraints: limits, ports, and references within the document. Pure.
//!
//! In: a document, before it is sent. Out: the violations, each with its part.
//! Upstream: "Azure subscription and service limits, quotas, and constraints", Load Balancer; ARM's rules for ports.

use std::collections::BTreeSet;

use super::{
    draft::{self, frontend_uses},
    rules,
};
use crate::providers::azure::model::{
    network::{ArmLoadBalancer, LoadBalancingRule, Probe},
    spelling,
};

/// Maximum numbers of parts of one load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartLimits {
    pub frontends: usize,
    /// Load balancing rules and inbound NAT rules together.
    pub rules: usize,
}

impl PartLimits {
    /// Returns the limits of the load balancer's SKU. Every SKU but Standard has the limits of Basic.
    pub fn of(document: &ArmLoadBalancer) -> Self {
        let sku = document.sku.as_ref().and_then(|sku| sku.name.as_deref());
        match spelling::is_word(sku, "Standard") {
            true => Self { frontends: 600, rules: 1_500 },
            false => Self { frontends: 200, rules: 250 },
        }
    }
}

/// Returns the number of rules, which includes inbound NAT rules, and the number of frontends, as Azure counts them.
pub fn part_counts(document: &ArmLoadBalancer) -> (usize, usize) {
    let nat = document.properties.iter().flat_map(|properties| &properties.inbound_nat_rules).map(Vec::len).sum::<usize>();
    (draft::rules(document).len() + nat, draft::frontends(document).len())
}

/// Violation for which ARM would reject a load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadBalancerViolation {
    /// Number of parts above Azure's limit.
    LimitExceeded {
        /// Kind of the parts, as words for a message.
        what: &'static str,
        /// Number of parts in the document.
        count: usize,
        /// Azure's maximum for the SKU.
        limit: usize,
    },
    /// Part with an invalid port or with a reference to a missing part.
    InvalidPart {
        name: String,
        /// Text that follows the name of the part in a refusal.
        message: String,
    },
}

/// Returns every violation in a load balancer.
pub fn check(document: &ArmLoadBalancer) -> Vec<LoadBalancerViolation> {
    let mut violations = limits(document);
    violations.extend(draft::rules(document).iter().filter_map(|rule| part(rule.name.as_deref(), check_rule(rule))));
    violations.extend(draft::probes(document).iter().filter_map(|probe| part(probe.name.as_deref(), check_probe(probe))));
    violations.extend(dangling(document));
    violations
}

fn part(name: Option<&str>, message: Option<String>) -> Option<LoadBalancerViolation> {
    message.map(|message| LoadBalancerViolation::InvalidPart { name: name.unwrap_or_default().to_owned(), message })
}

fn limits(document: &ArmLoadBalancer) -> Vec<LoadBalancerViolation> {
    let ((rules, frontends), limits) = (part_counts(document), PartLimits::of(document));
    let counts = [("front ends", frontends, limits.frontends), ("rules", rules, limits.rules)];
    let too_many =
        |(what, count, most)| (count > most).then_some(LoadBalancerViolation::LimitExceeded { what, count, limit: most });
    counts.into_iter().filter_map(too_many).collect()
}

fn is_port(port: Option<i64>) -> bool {
    port.is_some_and(|port| (1..=65_535).contains(&port))
}

fn check_rule(rule: &LoadBalancingRule) -> Option<String> {
    let properties = rule.properties.as_ref()?;
    let (front, back) = (properties.frontend_port, properties.backend_port);
    if spelling::is_word(properties.protocol.as_deref(), "All") {
        let are_zero = front.unwrap_or_default() == 0 && back.unwrap_or_default() == 0;
        return (!are_zero).then(|| {
            "rules of load balancers know TCP and UDP ports; SCTP needs azure-load-balancer-enable-high-availability-ports".to_owned()
        });
    }
    (!is_port(front) || !is_port(back)).then(|| {
        format!(
            "port {} to port {} cannot be: both must be between 1 and 65535; without floating IP a node port must be allocated",
            front.unwrap_or_default(),
            back.unwrap_or_default()
        )
    })
}

fn check_probe(probe: &Probe) -> Option<String> {
    let port = probe.properties.as_ref()?.port;
    (!is_port(port)).then(|| {
        format!(
            "port {} cannot be probed: it must be between 1 and 65535; allocate node ports or set health-probe_port",
            port.unwrap_or_default()
        )
    })
}

fn dangling(document: &ArmLoadBalancer) -> Vec<LoadBalancerViolation> {
    let names = |list: Vec<Option<&str>>| list.into_iter().flatten().map(str::to_ascii_lowercase).collect::<BTreeSet<_>>();
    let frontends = names(draft::frontends(document).iter().map(|part| part.name.as_deref()).collect());
    let probes = names(draft::probes(document).iter().map(|part| part.name.as_deref()).collect());
    let pools = names(draft::pools(document).iter().map(|part| part.name.as_deref()).collect());
    let last = |id: &str| id.rsplit('/').next().unwrap_or_default().to_owned();
    let missing = |known: &BTreeSet<String>, id: &str| !id.is_empty() && !known.contains(&last(id));
    let mut violations = Vec::new();
    for (frontend, user) in frontend_uses(document) {
        if missing(&frontends, &frontend) {
            let message = format!("{} refers to front end {}, which is missing", user.kind, last(&frontend));
            violations.push(LoadBalancerViolation::InvalidPart { name: user.name, message });
        }
    }
    for rule in draft::rules(document) {
        let Some(properties) = &rule.properties else { continue };
        let references = [("pool", &pools, &properties.backend_address_pool), ("probe", &probes, &properties.probe)];
        for (kind, known, id) in references {
            let id = rules::reference_key(id.as_ref());
            if missing(known, &id) {
                violations.extend(part(rule.name.as_deref(), Some(format!("{kind} {} is missing", last(&id)))));
            }
        }
    }
    violations
}
