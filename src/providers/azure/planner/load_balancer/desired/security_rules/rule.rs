//! Security rule: conversion to kind and destinations, and back without changes to its other fields.
//!
//! In: rules from ARM, and desired rules. Out: their kinds, destinations and the fields to send. Upstream:
//! `pkg/provider/securitygroup/securityrule.go` and `securitygroup.go`.

use std::{collections::BTreeSet, net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;

use super::super::super::{
    naming,
    spec::{IpFamily, Protocol},
};
use crate::providers::azure::model::{
    network::{SecurityRule, SecurityRuleProperties},
    spelling,
};

/// Priorities of rules that this program may empty.
const MANAGED_PRIORITIES: RangeInclusive<i64> = 500..=4096;

/// Desired security rule, without its priority and destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedSecurityRule {
    pub(super) name: String,
    pub(super) kind: SecurityRuleKind,
}

/// Effect of a security rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SecurityRuleKind {
    /// Access for `sources` (sorted) to `ports`.
    Allow {
        protocol: Protocol,
        sources: Vec<String>,
        ports: BTreeSet<i32>,
    },
    DenyAll,
    /// Denial of all other traffic of a protocol at these ports.
    DenyPorts {
        protocol: Protocol,
        ports: BTreeSet<i32>,
    },
}

impl WantedSecurityRule {
    pub(super) fn allow(family: IpFamily, protocol: Protocol, mut sources: Vec<String>, ports: BTreeSet<i32>) -> Self {
        sources.sort();
        Self {
            name: naming::allow_rule(family, protocol, &sources, &ports),
            kind: SecurityRuleKind::Allow { protocol, sources, ports },
        }
    }

    pub(super) fn deny_all(family: IpFamily) -> Self {
        Self { name: naming::deny_rule(family), kind: SecurityRuleKind::DenyAll }
    }

    /// Returns a rule that denies ports at addresses of hosts, which serve other Services at other ports. A NodePort belongs to one
    /// Service for each protocol.
    pub(super) fn deny_ports(family: IpFamily, protocol: Protocol, ports: BTreeSet<i32>) -> Self {
        Self { name: naming::deny_rule_at(family, protocol, &ports), kind: SecurityRuleKind::DenyPorts { protocol, ports } }
    }

    /// Returns the rule for health probes of load balancers, which reach hosts at NodePorts from this service tag.
    ///
    /// Azure's default rule for this tag comes after every denying rule.
    /// <https://learn.microsoft.com/azure/load-balancer/load-balancer-custom-probe-overview>
    pub(super) fn probes(family: IpFamily, ports: BTreeSet<i32>) -> Self {
        Self::allow(family, Protocol::Tcp, vec!["AzureLoadBalancer".to_owned()], ports)
    }

    /// Returns the number of sources.
    pub(super) fn sources(&self) -> usize {
        match &self.kind {
            SecurityRuleKind::Allow { sources, .. } => sources.len(),
            SecurityRuleKind::DenyAll | SecurityRuleKind::DenyPorts { .. } => 1,
        }
    }

    /// Returns the rule in ARM's form, without destinations.
    pub(super) fn document(&self, priority: i64) -> SecurityRule {
        let properties = SecurityRuleProperties { priority: Some(priority), ..SecurityRuleProperties::default() };
        let mut rule =
            SecurityRule { name: Some(self.name.clone()), properties: Some(properties), ..SecurityRule::default() };
        self.repair(&mut rule);
        rule
    }

    /// Sets the fields of `rule` that define its effect, unless they match. Returns `true` if it set them.
    pub(super) fn repair(&self, rule: &mut SecurityRule) -> bool {
        let properties = rule.properties.get_or_insert_default();
        if self.describes(properties) {
            return false;
        }
        let (access, protocol, sources, ports) = match &self.kind {
            SecurityRuleKind::Allow { protocol, sources, ports } => {
                ("Allow", naming::security_protocol(*protocol), sources.clone(), Some(naming::sorted_texts(ports)))
            }
            SecurityRuleKind::DenyAll => ("Deny", "*", vec!["*".to_owned()], None),
            SecurityRuleKind::DenyPorts { protocol, ports } => {
                ("Deny", naming::security_protocol(*protocol), vec!["*".to_owned()], Some(naming::sorted_texts(ports)))
            }
        };
        properties.access = Some(access.to_owned());
        properties.direction = Some("Inbound".to_owned());
        properties.protocol = Some(protocol.to_owned());
        (properties.source_address_prefix, properties.source_address_prefixes) = one_or_several(sources);
        (properties.source_port_range, properties.source_port_ranges) = (Some("*".to_owned()), None);
        properties.destination_port_range = ports.is_none().then(|| "*".to_owned());
        properties.destination_port_ranges = ports;
        true
    }

    fn describes(&self, rule: &SecurityRuleProperties) -> bool {
        let is_inbound = spelling::is_word(rule.direction.as_deref(), "Inbound");
        is_inbound
            && is_star(&all(&rule.source_port_range, &rule.source_port_ranges))
            && kind(rule).is_some_and(|kind| kind.is_same(&self.kind))
    }
}

impl SecurityRuleKind {
    /// Returns `true` if both have the same effect. ARM may return another spelling of a service tag or range.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (SecurityRuleKind::Allow { ports, .. }, SecurityRuleKind::Allow { ports: others, .. }) => {
                ports == others && self.has_same_sources(other)
            }
            _ => self == other,
        }
    }

    /// Returns the ports that the rule opens.
    pub(super) fn ports(&self) -> impl Iterator<Item = i32> {
        let ports = match self {
            SecurityRuleKind::Allow { ports, .. } => Some(ports),
            SecurityRuleKind::DenyAll | SecurityRuleKind::DenyPorts { .. } => None,
        };
        ports.into_iter().flatten().copied()
    }

    /// Returns `true` if both allow the same protocol from the same sources.
    pub(super) fn has_same_sources(&self, other: &Self) -> bool {
        match (self, other) {
            (
                SecurityRuleKind::Allow { protocol: a, sources: from, .. },
                SecurityRuleKind::Allow { protocol: b, sources: others, .. },
            ) => {
                a == b
                    && from.len() == others.len()
                    && (from == others || normalized_sources(from) == normalized_sources(others))
            }
            _ => false,
        }
    }
}

/// Returns the sources in a uniform spelling. A rule may have thousands of sources.
fn normalized_sources(sources: &[String]) -> BTreeSet<String> {
    let meaning =
        |text: &String| text.parse::<IpNet>().map_or_else(|_| text.to_ascii_lowercase(), |range| range.to_string());
    sources.iter().map(meaning).collect()
}

/// Returns `true` if this program may remove destinations from `rule`, by its name and priority.
pub(super) fn is_managed(rule: &SecurityRule) -> bool {
    let priority = rule.properties.as_ref().and_then(|properties| properties.priority);
    let is_named = rule.name.as_deref().is_some_and(|name| name.starts_with(naming::SECURITY_RULE_PREFIX));
    is_named && priority.is_some_and(|priority| MANAGED_PRIORITIES.contains(&priority))
}

/// Returns the kind of a rule. `None` if this program does not create such rules.
pub(super) fn kind(rule: &SecurityRuleProperties) -> Option<SecurityRuleKind> {
    let access = rule.access.as_deref()?;
    let protocol = rule.protocol.as_deref()?;
    let sources = all(&rule.source_address_prefix, &rule.source_address_prefixes);
    let ports = all(&rule.destination_port_range, &rule.destination_port_ranges);
    let is_deny = spelling::same_word(access, "Deny");
    if is_deny && is_star(&ports) {
        return (protocol == "*" && is_star(&sources)).then_some(SecurityRuleKind::DenyAll);
    }
    let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let protocol = protocols.into_iter().find(|one| spelling::same_word(naming::security_protocol(*one), protocol))?;
    let ports = ports.into_iter().map(|port| port.parse().ok()).collect::<Option<BTreeSet<i32>>>()?;
    if is_deny {
        return (is_star(&sources) && !ports.is_empty()).then_some(SecurityRuleKind::DenyPorts { protocol, ports });
    }
    let sources = sources.into_iter().map(str::to_owned).collect();
    spelling::same_word(access, "Allow").then_some(SecurityRuleKind::Allow { protocol, sources, ports })
}

/// Returns the destinations of a rule: addresses, and all other destinations, such as ranges and service tags.
pub(super) fn destinations(rule: &SecurityRuleProperties) -> (BTreeSet<IpAddr>, BTreeSet<String>) {
    let (mut addresses, mut others) = (BTreeSet::new(), BTreeSet::new());
    for text in all(&rule.destination_address_prefix, &rule.destination_address_prefixes) {
        match address(text) {
            Some(address) => drop(addresses.insert(address)),
            None => drop(others.insert(text.to_owned())),
        }
    }
    (addresses, others)
}

fn address(text: &str) -> Option<IpAddr> {
    let range = || text.parse::<IpNet>().ok().filter(|range| range.prefix_len() == range.max_prefix_len());
    text.parse().ok().or_else(|| range().map(|range| range.addr()))
}

/// Sets the destinations, sorted as text. The API has one field for a single destination and another field for several.
pub(super) fn set_destinations(rule: &mut SecurityRule, addresses: &BTreeSet<IpAddr>, others: &BTreeSet<String>) {
    let texts: BTreeSet<String> = addresses.iter().map(ToString::to_string).chain(others.iter().cloned()).collect();
    let properties = rule.properties.get_or_insert_default();
    (properties.destination_address_prefix, properties.destination_address_prefixes) =
        one_or_several(texts.into_iter().collect());
}

pub(super) fn count_sources(rule: &SecurityRuleProperties) -> usize {
    all(&rule.source_address_prefix, &rule.source_address_prefixes).len()
}

/// Returns the values of a field for one value and of its counterpart for several values. Empty texts are omitted.
fn all<'a>(one: &'a Option<String>, several: &'a Option<Vec<String>>) -> BTreeSet<&'a str> {
    let texts = one.iter().chain(several.iter().flatten()).map(String::as_str);
    texts.filter(|text| !text.is_empty()).collect()
}

fn is_star(texts: &BTreeSet<&str>) -> bool {
    texts.len() == 1 && texts.contains("*")
}

fn one_or_several(mut texts: Vec<String>) -> (Option<String>, Option<Vec<String>>) {
    if texts.len() == 1 { (texts.pop(), None) } else { (None, Some(texts)) }
}
