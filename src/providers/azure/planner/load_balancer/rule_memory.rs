//! What is remembered of Services and Nodes, and what the security group has to know of each Service. Pure.
//!
//! In: Services as they were read, what there is, and a [`RuleMemory`] by value. Out: [`ServiceRules`]. Planning only reads a memory; what
//! was written changes it ([`RuleMemory::record_applied`]), and which Nodes there are ([`RuleMemory::note_nodes`]).

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
        security_rules::{NodeAddresses, PortsByProtocol, RuleOwnership, ServiceRules},
        traces::ports_of,
    },
    rule_records::{ListedDestinations, RuleRecord, RuleRecords},
    settings::LoadBalancerSettings,
    spec::{ServiceIdentity, ServiceRefusal, ServiceSpec, parse_leniently, parse_service},
};

/// What a Service asks for, or why it gets nothing new.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedService {
    /// This.
    Valid(Arc<ServiceSpec>),
    /// It cannot be read; the spec has what is needed to leave alone what it has.
    Refused(Arc<ServiceSpec>, Arc<[ServiceRefusal]>),
}

impl ParsedService {
    /// Of a Service object.
    pub fn of(service: &Service, settings: &LoadBalancerSettings) -> Self {
        match parse_service(service, settings) {
            Ok(spec) => ParsedService::Valid(Arc::new(spec)),
            Err(refusals) => ParsedService::Refused(Arc::new(parse_leniently(service, settings)), refusals.into()),
        }
    }

    /// The spec, valid or not.
    pub fn spec(&self) -> &Arc<ServiceSpec> {
        match self {
            ParsedService::Valid(spec) | ParsedService::Refused(spec, _) => spec,
        }
    }
}

/// What is remembered of one Service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuleHistory {
    /// Addresses of its front ends and of machines behind it, now and before.
    addresses: BTreeSet<IpAddr>,
    /// Other addresses that it has or had: it only claims them.
    pub claimed: BTreeSet<IpAddr>,
    /// Addresses that were destinations of its rules when its rules were last right, or in the records of a process before this one.
    recorded: BTreeSet<IpAddr>,
    /// What its rules are, where it only claims an address.
    ownership: RuleOwnership,
    /// NodePorts that it has or had.
    node_ports: PortsByProtocol,
    /// The spec that its security rules follow.
    pub applied: Option<Arc<ServiceSpec>>,
}

impl RuleHistory {
    fn record(&self) -> RuleRecord {
        RuleRecord { addresses: self.recorded.clone(), rules: self.ownership.rules.clone() }
    }
}

/// The machines of the cluster.
pub struct BackendLookup<'a> {
    /// Internal addresses of all Nodes.
    pub all_nodes: &'a BTreeSet<IpAddr>,
    /// Addresses of those behind a Service.
    pub of_service: &'a dyn Fn(&ServiceSpec) -> Vec<IpAddr>,
}

impl BackendLookup<'_> {
    /// Those that the rules of the Service lead to: with floating IP they lead to front ends.
    fn of(&self, spec: &ServiceSpec) -> Vec<IpAddr> {
        if spec.floating_ip { Vec::new() } else { (self.of_service)(spec) }
    }
}

/// What a process has learnt while it runs and no document tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuleMemory {
    history: BTreeMap<ServiceIdentity, RuleHistory>,
    /// Services with a history that are known not to exist any more.
    gone: BTreeSet<ServiceIdentity>,
    nodes: NodeAddresses,
}

impl RuleMemory {
    /// Addresses of Nodes that there were when they were last noted, and of those that have gone while this process looked.
    pub fn nodes(&self) -> &NodeAddresses {
        &self.nodes
    }

    /// Takes note of the Nodes that there are.
    pub fn note_nodes(&mut self, present: BTreeSet<IpAddr>) {
        let NodeAddresses { present: before, gone } = std::mem::take(&mut self.nodes);
        let gone = gone.into_iter().chain(before).filter(|address| !present.contains(address)).collect();
        self.nodes = NodeAddresses { present, gone };
    }

    /// Takes note of addresses that Nodes of this cluster had.
    pub fn note_gone(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.nodes.gone.extend(addresses);
    }

    /// Forgets addresses of gone Nodes that no managed rule has any more: in a group that several clusters share, another one's Node may
    /// get such an address later.
    pub fn forget_unlisted(&mut self, listed: impl FnOnce() -> BTreeSet<IpAddr>) {
        if !self.nodes.gone.is_empty() {
            let listed = listed();
            self.nodes.gone.retain(|address| listed.contains(address));
        }
    }

    /// What is remembered of a Service.
    pub fn history_of(&self, identity: &ServiceIdentity) -> Option<&RuleHistory> {
        self.history.get(identity)
    }

    /// Takes over what a process before this one recorded. What this one has learnt itself is newer. `gone`: Services that do not exist any
    /// more.
    pub fn restore(&mut self, records: RuleRecords, gone: BTreeSet<ServiceIdentity>) {
        for (identity, RuleRecord { addresses, rules }) in records {
            let ownership = RuleOwnership { rules, ..RuleOwnership::default() };
            let restored = || RuleHistory { recorded: addresses, ownership, ..RuleHistory::default() };
            self.history.entry(identity).or_insert_with(restored);
        }
        self.gone.extend(gone);
        self.gone =
            std::mem::take(&mut self.gone).into_iter().filter(|identity| self.history.contains_key(identity)).collect();
    }

    /// What each Service has in a group with these destinations, as far as this process knows, with what is planned.
    pub fn records(&self, planned: &[ServiceRules], listed: &ListedDestinations) -> RuleRecords {
        let mut records: RuleRecords =
            self.history.iter().map(|(identity, history)| (identity.clone(), history.record())).collect();
        for rules in planned {
            records.entry(rules.identity.clone()).or_default().add(rules.record());
        }
        records.into_iter().filter_map(|(identity, record)| Some((identity, record.within(listed)?))).collect()
    }

    /// What has to leave the security group with Services that do not exist any more, but for those that are here again.
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
            add_history(&mut rules, history);
            rules
        });
        removed.collect()
    }

    /// What an asking Service needs of the security group; an error says what is missing.
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
            add_history(&mut reach, memory);
        }
        Ok(reach)
    }

    /// What a Service that does not ask now needs of the security group: what its spec says if its rules follow that, else whatever it
    /// may have.
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

    /// The security group has become as `reach` says, and has the `listed` destinations.
    pub fn record_applied(&mut self, request: &ServiceRequest, reach: &ServiceRules, listed: &ListedDestinations) {
        match request {
            ServiceRequest::Delete(identity, _) => {
                self.history.remove(identity);
                self.gone.remove(identity);
            }
            ServiceRequest::Ensure(spec) => {
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
}

/// Adds what is remembered: addresses of front ends are known to have been the Service's, whatever it only claims now.
fn add_history(reach: &mut ServiceRules, memory: &RuleHistory) {
    let ServiceRules { destinations, former, claimed, .. } = reach;
    claimed.extend(memory.recorded.iter().filter(|address| !destinations.contains(address) && !former.contains(address)));
    claimed.retain(|address| !memory.addresses.contains(address));
    former.extend(memory.addresses.iter().filter(|address| !destinations.contains(address)));
    reach.ownership.add(&memory.ownership);
    add_ports(&mut reach.node_ports, &memory.node_ports);
}

/// Returns whether both specs lead to the same security rules. Addresses in the status follow the rules, and decide nothing.
fn has_same_rules(one: &ServiceSpec, other: &ServiceSpec) -> bool {
    (one.internal, one.floating_ip, one.own_pool, one.is_others)
        == (other.internal, other.floating_ip, other.own_pool, other.is_others)
        && (&one.families, &one.pinned, &one.additional_ips) == (&other.families, &other.pinned, &other.additional_ips)
        && (&one.ports, &one.access, &one.public_ip) == (&other.ports, &other.access, &other.public_ip)
}

fn all_ports(spec: &ServiceSpec) -> PortsByProtocol {
    let mut ports = PortsByProtocol::new();
    for port in &spec.ports {
        let numbers = [port.port, port.node_port].into_iter().filter(|number| *number > 0);
        ports.entry(port.protocol).or_default().extend(numbers);
    }
    ports
}

fn add_ports(ports: &mut PortsByProtocol, more: &PortsByProtocol) {
    for (protocol, numbers) in more {
        ports.entry(*protocol).or_default().extend(numbers);
    }
}
