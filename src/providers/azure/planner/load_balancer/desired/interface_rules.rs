//! How many rules the network interfaces of Nodes carry, over all load balancers that they are behind. Pure.
//!
//! In: load balancers, and for each request what it adds. Out: counts by the external name of load balancers, and the requests without room:
//! they are refused if the limit is configured or Azure has enforced it in this process, else the one that crosses it gets an event.
//! Each Node behind a load balancer is behind its internal twin, too, so that its interface carries the rules of both. Rules of pools that
//! Services have for themselves reach those Nodes alone that have endpoints, and are not counted; nor are those that a Node carries only
//! while it stands in for an entry without Nodes.
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

/// Whether all Nodes behind the load balancer carry the rule.
fn is_carried(rule: &LoadBalancingRule, settings: &LoadBalancerSettings) -> bool {
    let pool = rule.properties.as_ref().and_then(|properties| properties.backend_address_pool.as_ref());
    let key = rules::reference_key(pool);
    settings.shares_pool(key.rsplit('/').next().unwrap_or_default())
}

/// Rules of a load balancer that all Nodes behind it carry.
fn carried(document: &ArmLoadBalancer, settings: &LoadBalancerSettings) -> usize {
    draft::rules(document).iter().filter(|rule| is_carried(rule, settings)).count()
}

/// Rules at each interface behind these load balancers, by external name as the first of them has it.
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

/// Refuses the requests that add rules to interfaces without room for them, in order of precedence, if the limit applies. Otherwise, they get
/// an event.
///
/// `wanted` is by the draft's position. Rules that were there before are no request's fault.
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
        // With those who have room.
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

/// Returns the number of rules that each request adds, of those that count.
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

/// Those who have no room, when there are `count` rules with all of them. `added`: how many more each has, in order of precedence.
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

    /// Also where more rules than that were there before.
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
