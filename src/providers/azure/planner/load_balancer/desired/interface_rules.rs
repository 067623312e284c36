//! Number of rules on the network interfaces of Nodes, over all load balancers that the Nodes are behind. Pure.
//!
//! In: load balancers, and the rules that each request adds. Out: counts by the external name of load balancers, and the requests without
//! room. They are refused if the limit is configured or Azure has enforced it in this process. Otherwise, the request that crosses the
//! limit gets an event.
//! A Node behind a load balancer is also behind the internal one of the same name, so its interface has the rules of both. Rules of pools
//! that belong to single Services are not counted, because they reach only Nodes with endpoints. Rules that a Node has only while it
//! replaces the Nodes of an entry without Nodes are not counted either.
//! Upstream: "Azure subscription and service limits, quotas, and constraints", Load Balancer: "Rules per NIC (across all IPs on a NIC)".

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        naming,
        settings::{InterfaceRuleLimit, LoadBalancerSettings},
        spec::ServiceRefusal,
    },
    context::{NameOwners, PlanContext},
    draft::{self, LoadBalancerDraft},
    rules::{self, RulesAndProbes},
    types::{RequestIdx, ServicePlacement},
};
use crate::providers::azure::model::network::{ArmLoadBalancer, LoadBalancingRule};

/// Returns `true` if all Nodes behind the load balancer have the rule.
fn is_carried(rule: &LoadBalancingRule, settings: &LoadBalancerSettings) -> bool {
    let pool = rule.properties.as_ref().and_then(|properties| properties.backend_address_pool.as_ref());
    let key = rules::reference_key(pool);
    settings.shares_pool(key.rsplit('/').next().unwrap_or_default())
}

/// Counts the rules of a load balancer that all Nodes behind it have.
fn carried(document: &ArmLoadBalancer, settings: &LoadBalancerSettings) -> usize {
    draft::rules(document).iter().filter(|rule| is_carried(rule, settings)).count()
}

/// Counts the rules at each interface behind these load balancers, by external name. The first load balancer determines its letter case.
pub fn interface_rules<'a>(
    load_balancers: impl Iterator<Item = &'a ArmLoadBalancer>,
    settings: &LoadBalancerSettings,
) -> Vec<(String, usize)> {
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for document in load_balancers {
        let (external, _) = naming::split_load_balancer(document.name.as_deref().unwrap_or_default());
        let counted = found.entry(external.to_lowercase()).or_insert_with(|| (external.to_owned(), 0));
        counted.1 += carried(document, settings);
    }
    found.into_values().collect()
}

/// Refuses the requests that add rules to interfaces without room for them, in order of precedence, if the limit applies. Otherwise, these
/// requests get an event.
///
/// The desired rules have the index of their draft. Rules that existed before are attributed to no request.
pub(super) fn report_crowded(
    context: &PlanContext<'_>,
    owners: &NameOwners,
    drafts: &[LoadBalancerDraft<'_>],
    wanted: &[Vec<(RequestIdx, RulesAndProbes)>],
    (refused, placements): (&mut Vec<(RequestIdx, ServiceRefusal)>, &mut [ServicePlacement]),
) {
    let Some(InterfaceRuleLimit { count: most, is_configured }) = context.settings.interface_rules else { return };
    let is_refused = is_configured || context.observed.interface_limit_reached;
    let mut twins: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, draft) in drafts.iter().enumerate().filter(|(_, draft)| draft.is_ours && !draft.after.is_basic()) {
        twins.entry(draft.external_name.to_lowercase()).or_default().push(place);
    }
    for places in twins.into_values() {
        let of = |document: &ArmLoadBalancer| carried(document, context.settings);
        let count: usize = places.iter().map(|place| of(&drafts[*place].after)).sum();
        let before: usize = places.iter().filter_map(|place| drafts[*place].before).map(of).sum();
        let is_reported = is_refused || before <= most;
        if count <= most || count <= before || !is_reported {
            continue;
        }
        let desired = places.iter().flat_map(|place| &wanted[*place]);
        let existing = places.iter().flat_map(|place| drafts[*place].rules_before());
        let added = added_rules(owners, desired, existing, |rule| is_carried(rule, context.settings));
        let left = without_room(&added, count, most);
        // Number of rules including those of the requests that have room.
        let had = count.saturating_sub(left.iter().map(|request| added[request]).sum());
        for request in left {
            let name = &drafts[places[0]].external_name;
            if is_refused {
                let message = refusal(name, (had, added[&request], most), context.settings);
                refused.push((request, ServiceRefusal { field: "spec.ports".to_owned(), message }));
            } else {
                placements[request.0].crowded_interfaces = Some(warning(name, (count, most), context.settings));
            }
        }
    }
}

fn advice(settings: &LoadBalancerSettings) -> &'static str {
    match settings.has_entries() {
        true => {
            "name an entry with other Nodes in azure-load-balancer-configurations, add one with Nodes of its own to \
             multipleStandardLoadBalancerConfigurations, or give Services fewer ports"
        }
        false => {
            "give Services fewer ports, or spread them over several load balancers, each with Nodes of its own, with \
             multipleStandardLoadBalancerConfigurations"
        }
    }
}

fn refusal(load_balancer: &str, (had, added, most): (usize, usize, usize), settings: &LoadBalancerSettings) -> String {
    format!(
        "the network interface of each Node behind load balancer {load_balancer} has {had} of {most} rules, those of external and internal \
         Services together, and no room for {added} more; if Azure allows more, set maximumNetworkInterfaceRuleCount; else {}",
        advice(settings)
    )
}

fn warning(load_balancer: &str, (count, most): (usize, usize), settings: &LoadBalancerSettings) -> String {
    format!(
        "the network interface of each Node behind load balancer {load_balancer} has {count} rules now, those of external and internal \
         Services together; Azure documents a limit of {most} and may refuse further changes: {}, or set maximumNetworkInterfaceRuleCount to \
         what Azure allows, so that Services beyond it are refused",
        advice(settings)
    )
}

/// Returns the number of rules that each request adds to `before`, counting only the rules for which `is_counted` is `true`.
pub(super) fn added_rules<'r>(
    owners: &NameOwners,
    wanted: impl IntoIterator<Item = &'r (RequestIdx, RulesAndProbes)>,
    before: impl IntoIterator<Item = &'r LoadBalancingRule>,
    is_counted: impl Fn(&&LoadBalancingRule) -> bool,
) -> BTreeMap<RequestIdx, usize> {
    let mut added: BTreeMap<RequestIdx, usize> = BTreeMap::new();
    for (request, wanted) in wanted {
        *added.entry(*request).or_default() += wanted.rules.iter().filter(&is_counted).count();
    }
    for owner in before.into_iter().filter(&is_counted).filter_map(|rule| owners.of_rule(rule.name.as_deref()?)) {
        added.entry(owner).and_modify(|count| *count = count.saturating_sub(1));
    }
    added
}

/// Returns the requests without room. `count` is the number of rules with all requests, and `added` the number that each request adds, in
/// order of precedence.
pub(super) fn without_room(added: &BTreeMap<RequestIdx, usize>, count: usize, most: usize) -> BTreeSet<RequestIdx> {
    let mut room = (most + added.values().sum::<usize>()).saturating_sub(count);
    let mut left = BTreeSet::new();
    for (request, count) in added.iter().filter(|(_, count)| **count > 0) {
        match room.checked_sub(*count) {
            Some(rest) => room = rest,
            None => _ = left.insert(*request),
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            load_balancers::{LoadBalancerWrite, plan_load_balancers},
            samples::{self, ensure, internal, observed, pinned, public_ips, service, settings},
        },
        *,
    };
    use crate::providers::azure::planner::load_balancer::{
        observed::ObservedNetwork,
        spec::{Protocol, ServiceSpec},
    };

    fn with_ports(spec: ServiceSpec, count: i32) -> ServiceSpec {
        ServiceSpec { ports: (1..=count).map(|port| samples::port(Protocol::Udp, port, 30_000 + port)).collect(), ..spec }
    }

    /// Includes interfaces that had more rules than the limit before, too.
    #[test]
    fn a_limit_that_azure_has_enforced_is_kept() {
        let limit = InterfaceRuleLimit { count: 300, is_configured: false };
        let settings = LoadBalancerSettings { interface_rules: Some(limit), ..settings() };
        for (before, added, is_granted) in [(290, 10, true), (290, 11, false), (301, 11, false)] {
            let (old, late) = (with_ports(service("a"), before), with_ports(pinned("10.0.0.9", internal("c")), added));
            let ips = public_ips(&[&old, &late]);
            let plan_on = |there: &ObservedNetwork, specs: &[&ServiceSpec]| {
                let requests: Vec<_> = specs.iter().map(|spec| ensure(spec)).collect();
                plan_load_balancers(there, &requests, &[], &ips, &settings)
            };
            let changes = plan_on(&observed(Vec::new()), &[&old]).changes;
            let written = changes.into_iter().filter_map(|change| match change.write {
                LoadBalancerWrite::Put(document) => Some(*document),
                LoadBalancerWrite::Delete => None,
            });
            let there = ObservedNetwork { interface_limit_reached: true, ..observed(written.collect()) };
            let services = plan_on(&there, &[&old, &late]).services;
            let told = services[&late.identity].as_ref().err().map(ToString::to_string).unwrap_or_default();
            assert!(services[&old.identity].is_ok(), "{before}: {services:?}");
            assert_eq!(told.is_empty(), is_granted, "{before} {added}: {told}");
            assert!(is_granted || told.contains(&format!("has {before} of 300 rules")), "{told}");
        }
    }
}
