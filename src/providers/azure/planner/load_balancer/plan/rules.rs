//! Security rules of all Services with requests, planned on the observed documents or on documents as they will be. Pure.
//!
//! In: the network security group, documents with the frontends that the rules must lead to, and the memory of earlier rules. Out: the
//! group with the desired rules, the rules that each Service needs, and the Services whose rules cannot be planned, for example because
//! an address is missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    super::{
        desired::{
            ServiceRequest,
            plan_index::PlanIndex,
            ruled_ports::RuledPorts,
            security_rules::{self, ServiceRules, managed_destinations},
            status::frontend_owners,
        },
        observed::ObservedNetwork,
        pools::{
            member_addresses::{PoolMemberAddresses, listed_in_pools},
            nodes::internal_addresses,
        },
        rule_memory::{BackendLookup, ParsedService, RuleMemory},
        settings::LoadBalancerSettings,
        spec::{ServiceIdentity, ServiceSpec},
    },
    pools::{self, PoolNeeds},
    types::{MachineRules, PlanInput, PlannedSecurityRules},
};
use crate::providers::azure::model::network::NetworkSecurityGroup;

/// Facts that security rules are planned on.
pub struct RuleInput<'a> {
    /// Documents as they were observed, or as they will be after earlier writes.
    pub observed: &'a ObservedNetwork,
    /// Services whose rules are planned.
    pub requests: &'a [ServiceRequest],
    /// Other Services, whose rules remain.
    pub others: &'a [ParsedService],
    /// Memory of earlier rules, with the current Nodes.
    pub memory: &'a RuleMemory,
    /// Pools and addresses of the Nodes' machines.
    pub members: &'a PoolMemberAddresses,
    pub settings: &'a LoadBalancerSettings,
}

impl MachineRules {
    /// Returns the Services whose rules are due and that have a frontend on the observed load balancers.
    pub fn due(&self, observed: &ObservedNetwork, settings: &LoadBalancerSettings) -> Vec<ServiceRequest> {
        if !self.are_due {
            return Vec::new();
        }
        let index = PlanIndex::new(observed);
        self.services.iter().filter(|request| is_served(request, &index, settings)).cloned().collect()
    }
}

fn is_served(request: &ServiceRequest, index: &PlanIndex<'_>, settings: &LoadBalancerSettings) -> bool {
    request.spec().is_some_and(|spec| !index.frontend_addresses(spec, settings).is_empty())
}

/// Returns `true` if the rules of at least one Service lead to addresses of machines.
pub fn leads_to_machines(requests: &[ServiceRequest], others: &[ParsedService]) -> bool {
    let mut specs = requests.iter().filter_map(ServiceRequest::spec).chain(others.iter().map(ParsedService::spec));
    specs.any(|spec| !spec.floating_ip)
}

/// Plans the network security group on documents as they will be after all earlier writes, together with the rules of other Services that
/// follow machines.
///
/// Returns `None` if there is no group. The memory is changed only in a copy.
pub(super) fn plan_group(
    input: &PlanInput<'_>,
    written: &ObservedNetwork,
    requests: &[ServiceRequest],
    others: &[ParsedService],
) -> Option<(PlannedSecurityRules, PoolNeeds)> {
    let PlanInput { observed, settings, machine_rules, .. } = *input;
    let group = observed.security_group.as_ref()?;
    let all_nodes = input.pools.all_nodes;
    let mut memory = input.memory.clone();
    if !input.pools.reads.may_lack_nodes {
        memory.note_gone(listed_in_pools(observed, settings));
    }
    memory.note_nodes(all_nodes.iter().flat_map(|node| internal_addresses(node)).collect());
    memory.forget_unlisted(|| managed_destinations(group));
    let (members, needs) = match leads_to_machines(requests, others) {
        true => pools::member_addresses(all_nodes, input.pools.reads, settings),
        false => Default::default(),
    };
    let (index, mut asking) = (PlanIndex::new(written), BTreeSet::new());
    asking.extend(requests.iter().map(ServiceRequest::identity));
    let before = PlanIndex::new(observed);
    let has_other_machines = |spec: &ServiceSpec| {
        let behind = |index: &PlanIndex<'_>| members.of_service(spec, index, settings);
        !std::ptr::eq(observed, written) && behind(&before) != behind(&index)
    };
    let follows = |request: &&ServiceRequest| {
        let follows = || machine_rules.are_due || request.spec().is_some_and(|spec| has_other_machines(spec));
        !asking.contains(request.identity()) && is_served(request, &index, settings) && follows()
    };
    let following: Vec<ServiceRequest> = machine_rules.services.iter().filter(follows).cloned().collect();
    asking.extend(following.iter().map(ServiceRequest::identity));
    let others: Vec<ParsedService> =
        others.iter().filter(|other| !asking.contains(&other.spec().identity)).cloned().collect();
    let requests: Vec<ServiceRequest> = requests.iter().cloned().chain(following.iter().cloned()).collect();
    let rules =
        RuleInput { observed: written, requests: &requests, others: &others, memory: &memory, members: &members, settings };
    Some((plan_rules(group, &rules), needs))
}

/// Plans the rules of `group` for the requests, and keeps the rules of the other Services.
pub fn plan_rules(group: &NetworkSecurityGroup, input: &RuleInput<'_>) -> PlannedSecurityRules {
    let RuleInput { observed, requests, others, memory, members, settings } = *input;
    let index = PlanIndex::new(observed);
    let behind = |spec: &ServiceSpec| members.of_service(spec, &index, settings);
    let machines = BackendLookup { all_nodes: &memory.nodes().present, of_service: &behind };
    let rules_of_other = |service: &ParsedService| memory.rules_of_other(service, &index, &machines, settings);
    let mut other_rules: Vec<ServiceRules> = others.iter().map(rules_of_other).collect();
    let (mut services, mut refused) = (memory.rules_of_gone(requests, others), BTreeMap::new());
    for request in requests {
        match memory.rules_of_request(request, &index, &machines, settings) {
            Ok(rules) => services.push(rules),
            Err(refusal) => {
                // A refused Service keeps its rules, even if another Service leaves an address that both share.
                let kept = request.spec().map(|spec| rules_of_other(&ParsedService::Valid(Arc::clone(spec))));
                other_rules.extend(kept);
                refused.insert(request.identity().clone(), refusal);
            }
        }
    }
    let identities = || {
        let requested = requests.iter().map(ServiceRequest::identity);
        requested.chain(others.iter().map(|other| &other.spec().identity))
    };
    let specs = || requests.iter().filter_map(ServiceRequest::spec).chain(others.iter().map(ParsedService::spec));
    if specs().any(|spec| spec.families.iter().any(|family| spec.pins(*family))) {
        let ruled = RuledPorts::new(&index, settings, identities());
        other_rules = other_rules.into_iter().flat_map(|rules| ruled.restrict(rules)).collect();
    }
    if services.iter().chain(&other_rules).any(ServiceRules::denies_rest) {
        let owners = frontend_owners(&index, settings, identities());
        // If the owner of an address denies other traffic itself, the deny rule of a guest blocks nothing more. The Go CCM writes this
        // rule for both.
        let denying = specs().filter(|spec| security_rules::denies_rest(&spec.access)).map(|spec| &spec.identity);
        let denying: BTreeSet<&ServiceIdentity> = denying.collect();
        let as_guest = |rules: ServiceRules| {
            let identity = rules.identity.clone();
            let is_others = |owner: &&ServiceIdentity| **owner != identity && !denying.contains(*owner);
            rules.as_guest(|address| owners.get(address).is_some_and(is_others))
        };
        services = services.into_iter().map(as_guest).collect();
        other_rules = other_rules.into_iter().map(as_guest).collect();
    }
    let plan = security_rules::plan_security_rules(group, &services, &other_rules, memory.nodes(), settings);
    let records = memory.planned_records(group, &plan, &services);
    PlannedSecurityRules { plan, services, refused, records }
}
