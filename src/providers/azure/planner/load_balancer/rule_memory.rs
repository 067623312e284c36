//! Remembered facts about Services and Nodes, and the needs of each Service in the security group. Pure.
//!
//! In: Services as they were read, the observed state, and a [`RuleMemory`] by value. Out: [`ServiceRules`]. Planning only
//! reads a memory. Completed writes ([`RuleMemory::record_applied`]) and the present Nodes ([`RuleMemory::note_nodes`])
//! change it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use k8s_openapi::api::core::v1::Service;

use super::{
    desired::{
        ServiceRequest,
        plan_index::PlanIndex,
        public_ips::public_ip_addresses_of,
        security_rules::{
            NodeAddresses, PortsByProtocol, RuleOwnership, SecurityRulePlan, ServiceRules, add_ports, listed_destinations,
        },
        traces::ports_of,
    },
    rule_records::{ListedDestinations, PlannedRecords, RuleRecord, RuleRecords},
    settings::LoadBalancerSettings,
    spec::{PublicIpSpec, ServiceIdentity, ServiceRefusal, ServiceSpec, is_public, parse_leniently, parse_service},
};
use crate::providers::azure::model::network::NetworkSecurityGroup;

/// Spec of a Service, with the reasons if it is refused.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedService {
    Valid(Arc<ServiceSpec>),
    /// Service that cannot be read. The spec has the parts that are needed to leave its existing resources unchanged.
    Refused(Arc<ServiceSpec>, Arc<[ServiceRefusal]>),
}

impl ParsedService {
    /// Parses a Service object.
    pub fn of(service: &Service, settings: &LoadBalancerSettings) -> Self {
        match parse_service(service, settings) {
            Ok(spec) => ParsedService::Valid(Arc::new(spec)),
            Err(refusals) => ParsedService::Refused(Arc::new(parse_leniently(service, settings)), refusals.into()),
        }
    }

    /// Returns `true` if both request the same. The status is not compared.
    pub fn is_same_request(&self, other: &Self) -> bool {
        let refusals = |claim: &Self| match claim {
            ParsedService::Valid(_) => None,
            ParsedService::Refused(_, refusals) => Some(Arc::clone(refusals)),
        };
        self.spec().is_same_request(other.spec()) && refusals(self) == refusals(other)
    }

    /// Returns the spec, whether or not it is valid.
    pub fn spec(&self) -> &Arc<ServiceSpec> {
        match self {
            ParsedService::Valid(spec) | ParsedService::Refused(spec, _) => spec,
        }
    }
}

/// Remembered facts about the security rules of one Service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuleHistory {
    /// Current and former addresses of its frontends and of the machines behind it.
    addresses: BTreeSet<IpAddr>,
    /// Other current and former addresses, which it only claims.
    pub claimed: BTreeSet<IpAddr>,
    /// Additional and former public addresses that were in the group when its rules were last applied, or in the records of
    /// an earlier process.
    recorded: BTreeSet<IpAddr>,
    /// Rules and ports that are its own, to recognize them at addresses that it only claims.
    ownership: RuleOwnership,
    /// Current and former NodePorts.
    node_ports: PortsByProtocol,
    /// Spec that its security rules follow.
    pub applied: Option<Arc<ServiceSpec>>,
}

impl RuleHistory {
    fn record(&self) -> RuleRecord {
        RuleRecord { addresses: self.recorded.clone(), rules: self.ownership.rules.clone() }
    }
}

/// Addresses of the machines that security rules may lead to.
pub struct BackendLookup<'a> {
    /// Internal addresses of all Nodes.
    pub all_nodes: &'a BTreeSet<IpAddr>,
    /// Function that returns the addresses of the machines behind a Service.
    pub of_service: &'a dyn Fn(&ServiceSpec) -> Vec<IpAddr>,
}

impl BackendLookup<'_> {
    /// Returns the machines that the rules of the Service lead to. With floating IP there are none, because the rules lead
    /// to frontends.
    fn of(&self, spec: &ServiceSpec) -> Vec<IpAddr> {
        if spec.floating_ip { Vec::new() } else { (self.of_service)(spec) }
    }
}

/// Facts that a process learned while it runs and that no document shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuleMemory {
    history: BTreeMap<ServiceIdentity, RuleHistory>,
    /// Recorded Services that no longer exist.
    gone: BTreeSet<ServiceIdentity>,
    nodes: NodeAddresses,
}

impl RuleMemory {
    /// Returns the addresses of Nodes as last recorded, and those of Nodes that were deleted while this process ran.
    pub fn nodes(&self) -> &NodeAddresses {
        &self.nodes
    }

    /// Records the addresses of the present Nodes.
    pub fn note_nodes(&mut self, present: BTreeSet<IpAddr>) {
        let NodeAddresses { present: before, gone } = std::mem::take(&mut self.nodes);
        let gone = gone.into_iter().chain(before).filter(|address| !present.contains(address)).collect();
        self.nodes = NodeAddresses { present, gone };
    }

    /// Records former addresses of Nodes of this cluster.
    pub fn note_gone(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.nodes.gone.extend(addresses);
    }

    /// Forgets the addresses of deleted Nodes that no managed rule has any more.
    ///
    /// In a group that several clusters share, a Node of another cluster may get such an address later.
    pub fn forget_unlisted(&mut self, listed: impl FnOnce() -> BTreeSet<IpAddr>) {
        if !self.nodes.gone.is_empty() {
            let listed = listed();
            self.nodes.gone.retain(|address| listed.contains(address));
        }
    }

    /// Returns the remembered facts about a Service.
    pub fn history_of(&self, identity: &ServiceIdentity) -> Option<&RuleHistory> {
        self.history.get(identity)
    }

    /// Adds the records of an earlier process to the facts that this process has learned.
    pub fn restore(&mut self, records: RuleRecords) {
        for (identity, RuleRecord { addresses, rules }) in records {
            let history = self.history.entry(identity).or_default();
            history.recorded.extend(addresses);
            history.ownership.rules.extend(rules);
        }
    }

    /// Returns the recorded Services that this process has not served.
    pub fn unserved(&self) -> Vec<ServiceIdentity> {
        let unserved = self.history.iter().filter(|(_, history)| history.applied.is_none());
        unserved.map(|(identity, _)| identity.clone()).collect()
    }

    /// Marks recorded Services that no longer exist.
    pub fn note_deleted(&mut self, services: impl IntoIterator<Item = ServiceIdentity>) {
        let recorded = services.into_iter().filter(|identity| self.history.contains_key(identity));
        self.gone.extend(recorded);
    }

    /// Returns the recorded Services that no longer exist and whose addresses are in the group.
    pub fn deleted(&self) -> &BTreeSet<ServiceIdentity> {
        &self.gone
    }

    /// Returns the records for a group with these destinations, in which Services may also have the `planned` ones.
    pub fn records<'a>(
        &self,
        planned: impl IntoIterator<Item = &'a ServiceRules>,
        listed: &ListedDestinations,
    ) -> RuleRecords {
        let remembered = self.history.iter().filter(|(_, history)| !history.recorded.is_empty());
        let mut records: RuleRecords = remembered.map(|(identity, history)| (identity.clone(), history.record())).collect();
        for rules in planned.into_iter().filter(|rules| !rules.recorded.is_empty()) {
            records.entry(rules.identity.clone()).or_default().add(rules.record());
        }
        records.into_iter().filter_map(|(identity, record)| Some((identity, record.within(listed)?))).collect()
    }

    /// Returns the records around the write of `group` that `plan` makes for `services`.
    pub fn planned_records(
        &self,
        group: &NetworkSecurityGroup,
        plan: &SecurityRulePlan,
        services: &[ServiceRules],
    ) -> PlannedRecords {
        let is_recorded = self.history.values().any(|history| !history.recorded.is_empty());
        if !is_recorded && services.iter().all(|rules| rules.recorded.is_empty()) {
            return PlannedRecords::default();
        }
        let document = plan.document.as_ref();
        let before = self.records([], &listed_destinations([group]));
        let listed = listed_destinations([document.unwrap_or(group)]);
        let mut after = self.records([], &listed);
        for rules in services.iter().filter(|rules| plan.services.get(&rules.identity).is_some_and(Result::is_ok)) {
            after.remove(&rules.identity);
            after.extend(rules.record().within(&listed).map(|record| (rules.identity.clone(), record)));
        }
        let during = document.map(|document| self.records(services, &listed_destinations([group, document])));
        PlannedRecords { before, during: during.unwrap_or_else(|| after.clone()), after }
    }

    /// Returns the rules to remove from the security group with Services that no longer exist. Services that exist again are
    /// omitted.
    pub fn rules_of_gone(&self, requests: &[ServiceRequest], others: &[ParsedService]) -> Vec<ServiceRules> {
        if self.gone.is_empty() {
            return Vec::new();
        }
        let asking = requests.iter().map(ServiceRequest::identity);
        let present: BTreeSet<_> = asking.chain(others.iter().map(|other| &other.spec().identity)).collect();
        let gone = self.gone.iter().filter(|identity| !present.contains(identity));
        let histories = gone.filter_map(|identity| Some((identity, self.history_of(identity)?)));
        let removed = histories.map(|(identity, history)| {
            let mut rules = ServiceRules::removed(identity.clone(), None, &[]);
            self.add_history(&mut rules, history);
            rules
        });
        removed.collect()
    }

    /// Returns the rules that the Service of a request needs in the security group.
    ///
    /// # Errors
    ///
    /// A refusal names the part that is missing.
    pub fn rules_of_request(
        &self,
        request: &ServiceRequest,
        index: &PlanIndex<'_>,
        machines: &BackendLookup<'_>,
        settings: &LoadBalancerSettings,
    ) -> Result<ServiceRules, ServiceRefusal> {
        let listed = public_ip_addresses_of(index, &request.identity().key, settings);
        let mut reach = match request {
            ServiceRequest::Ensure(spec) => {
                let frontends = index.frontend_addresses(spec, settings);
                ServiceRules::wanted(spec, &frontends, &machines.of(spec))?.with_former_addresses(spec, &frontends, &listed)
            }
            ServiceRequest::Delete(identity, last) => ServiceRules::removed(identity.clone(), last.as_deref(), &listed),
        };
        if let Some(memory) = self.history_of(request.identity()) {
            self.add_history(&mut reach, memory);
        }
        Ok(reach)
    }

    /// Returns the rules that a Service without a request needs in the security group.
    ///
    /// They follow its spec if its applied rules do. Otherwise they include everything that it may have.
    pub fn rules_of_other(
        &self,
        service: &ParsedService,
        index: &PlanIndex<'_>,
        machines: &BackendLookup<'_>,
        settings: &LoadBalancerSettings,
    ) -> ServiceRules {
        let spec = service.spec();
        let addresses = index.frontend_addresses(spec, settings);
        let memory = self.history_of(&spec.identity);
        let settled = memory.and_then(|memory| memory.applied.as_ref());
        let is_settled = settled.is_some_and(|settled| has_same_rules(settled, spec));
        if let Some(Ok(reach)) = is_settled.then(|| ServiceRules::wanted(spec, &addresses, &machines.of(spec))) {
            return reach;
        }
        let told = addresses.iter().chain(&spec.status_addresses).chain(&spec.additional_ips).chain(machines.all_nodes);
        let mut known: BTreeSet<IpAddr> = told.copied().collect();
        let mut ports = all_ports(spec);
        if matches!(service, ParsedService::Refused(..)) {
            add_ports(&mut ports, &ports_of(index, &spec.identity));
        }
        if let Some(memory) = memory {
            known.extend(memory.addresses.union(&memory.claimed).chain(&memory.recorded));
            add_ports(&mut ports, &memory.node_ports);
        }
        settled.into_iter().for_each(|settled| add_ports(&mut ports, &all_ports(settled)));
        ServiceRules::unknown(spec.identity.clone(), known, ports)
    }

    /// Records that the security group has the planned rules of a Service, and the `listed` destinations.
    pub fn record_applied(&mut self, request: &ServiceRequest, reach: &ServiceRules, listed: &ListedDestinations) {
        match request {
            ServiceRequest::Delete(identity, _) => {
                self.history.remove(identity);
                self.gone.remove(identity);
            }
            ServiceRequest::Ensure(spec) => {
                self.gone.remove(&spec.identity);
                let memory = self.history.entry(spec.identity.clone()).or_default();
                let reached = reach.destinations.union(&reach.former);
                memory.addresses = reached.filter(|address| !reach.claimed.contains(address)).copied().collect();
                memory.claimed.clone_from(&reach.claimed);
                memory.recorded = reach.record().within(listed).unwrap_or_default().addresses;
                memory.ownership.clone_from(&reach.ownership);
                add_ports(&mut memory.node_ports, &reach.node_ports);
                memory.applied = Some(Arc::clone(spec));
            }
        }
    }

    /// Adds the history: addresses of frontends remain the Service's own, even if it only claims them now.
    ///
    /// A Service that is deleted has nothing more to record than before.
    fn add_history(&self, reach: &mut ServiceRules, memory: &RuleHistory) {
        let ServiceRules { destinations, former, claimed, recorded, .. } = reach;
        let is_left = |address: &&IpAddr| !destinations.contains(*address) && !former.contains(*address);
        if reach.wanted {
            let public = memory.addresses.iter().filter(|address| is_public(**address));
            recorded.extend(memory.recorded.iter().chain(public).filter(is_left));
            recorded.retain(|address| !self.nodes.present.contains(address) && !self.nodes.gone.contains(address));
        }
        claimed.extend(memory.recorded.iter().filter(is_left));
        claimed.retain(|address| !memory.addresses.contains(address));
        former.extend(memory.addresses.iter().filter(|address| !destinations.contains(address)));
        reach.ownership.add(&memory.ownership);
        add_ports(&mut reach.node_ports, &memory.node_ports);
    }
}

/// Returns `true` if both specs lead to the same security rules. Addresses in the status follow the rules, and a DNS label
/// has none.
fn has_same_rules(one: &ServiceSpec, other: &ServiceSpec) -> bool {
    let public_ip = |spec: &ServiceSpec| PublicIpSpec { dns_label: None, ..spec.public_ip.clone() };
    (one.internal, one.floating_ip, one.own_pool, one.is_others)
        == (other.internal, other.floating_ip, other.own_pool, other.is_others)
        && (&one.families, &one.pinned, &one.additional_ips) == (&other.families, &other.pinned, &other.additional_ips)
        && (&one.ports, &one.access) == (&other.ports, &other.access)
        && public_ip(one) == public_ip(other)
}

fn all_ports(spec: &ServiceSpec) -> PortsByProtocol {
    let mut ports = PortsByProtocol::new();
    for port in &spec.ports {
        let numbers = [port.port, port.node_port].into_iter().filter(|number| *number > 0);
        ports.entry(port.protocol).or_default().extend(numbers);
    }
    ports
}

#[cfg(test)]
mod tests;
