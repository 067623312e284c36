//! Index of all Services whose parts are in the shared documents, of this manager and of others, with their requests and the
//! memory of their rules.
//!
//! In: the stores of Services and Nodes, and records of writes. Out: specs (parsed once per version of an object), the other
//! Services for a plan, and a copy of the memory ([`RuleMemory`]). Only `with_memory` and `note_…` change the memory. The
//! memory is lost when the process ends, except for the [`RuleRecords`] in the cluster. Nothing is removed that only lost
//! memory could prove to be unneeded.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use ipnet::IpNet;

use crate::providers::azure::model::ResourceId;
use crate::providers::azure::planner::load_balancer::{
    desired::ServiceRequest,
    pools::nodes::internal_addresses,
    rule_memory::{ParsedService, RuleHistory, RuleMemory},
    rule_records::RuleRecords,
    settings::LoadBalancerSettings,
    spec::{
        ClusterAddresses, ServiceIdentity, ServiceRefusal, ServiceSpec, additional_ip_conflict, annotated_additional_ips,
        has_private_additional_ips, identity_of, status_addresses,
    },
};
use crate::runtime::store::{InformerStore, ObjectKey};
use k8s_openapi::api::core::v1::{Node, Service};
use parking_lot::Mutex;

/// Version of a Service, with its parsed spec once it has been parsed.
///
/// The cost of parsing is linear in the user's input. A version is parsed once, by the first caller that needs it, and never
/// under the lock.
#[derive(Clone)]
struct ServiceVersion {
    service: Arc<Service>,
    parsed: Arc<OnceLock<ParsedService>>,
}

#[derive(Default)]
struct ServiceIndexState {
    /// Versions of Services by key; each is parsed on first use.
    versions: BTreeMap<ObjectKey, ServiceVersion>,
    memory: RuleMemory,
    /// Ranges of the virtual network's subnets, or the reason why they cannot be read; `None`: not read yet.
    subnets: Option<Result<Vec<(IpNet, String)>, String>>,
}

/// Index of the Services, on the stores of the cluster.
pub struct ServiceIndex {
    settings: Arc<LoadBalancerSettings>,
    services: InformerStore<Service>,
    nodes: InformerStore<Node>,
    state: Mutex<ServiceIndexState>,
}

impl ServiceIndex {
    /// Creates an index without memory on the cluster's stores.
    pub fn new(settings: Arc<LoadBalancerSettings>, services: InformerStore<Service>, nodes: InformerStore<Node>) -> Self {
        Self { settings, services, nodes, state: Mutex::default() }
    }

    /// Returns the parsed spec of a Service.
    pub fn parsed(&self, service: &Service) -> ParsedService {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let key = ObjectKey::namespaced(namespace, service.metadata.name.as_deref().unwrap_or_default());
        let known = self.state.lock().versions.get(&key).cloned();
        match known.filter(|version| std::ptr::eq(&raw const *version.service, service)) {
            Some(version) => self.parse_version(&version),
            None => ParsedService::of(service, &self.settings),
        }
    }

    /// Returns the other Services that have or may have a load balancer, unordered. Services of other managers are included
    /// ([`ServiceSpec::is_others`]).
    pub fn others(&self, asking: &BTreeSet<ServiceIdentity>) -> Vec<ParsedService> {
        let current: Vec<_> = self.services.list().into_iter().filter(|service| self.takes_part(service)).collect();
        let claims = self.versions(current).into_iter().map(|version| self.parse_version(&version));
        claims.filter(|claim| !asking.contains(&claim.spec().identity)).collect()
    }

    /// Returns `true` if a Service has or may have a load balancer, of any manager.
    pub fn takes_part(&self, service: &Service) -> bool {
        self.settings.classes.is_managed(service) || self.settings.classes.is_others(service)
    }

    /// Returns `true` if the Service has the load balancer of another manager.
    pub fn is_others(&self, identity: &ServiceIdentity) -> bool {
        self.service(identity).is_some_and(|service| self.settings.classes.is_others(&service))
    }

    /// Returns `true` if the Service exists according to the store, and has or may have a load balancer.
    fn exists(&self, identity: &ServiceIdentity) -> bool {
        self.service(identity).is_some_and(|service| self.takes_part(&service))
    }

    /// Returns the Services of this manager that have or may have a load balancer, unordered.
    pub fn managed(&self) -> Vec<ParsedService> {
        self.others(&BTreeSet::new()).into_iter().filter(|service| !service.spec().is_others).collect()
    }

    /// Returns `true` if any Service of this manager has or may have a load balancer.
    pub fn has_any_service(&self) -> bool {
        self.services.any(|service| self.settings.classes.is_managed(service))
    }

    /// Returns the versions of the current Services, and keeps the parsed specs of unchanged versions. Nothing is parsed
    /// here.
    fn versions(&self, current: Vec<Arc<Service>>) -> Vec<ServiceVersion> {
        let mut inner = self.state.lock();
        let mut known = std::mem::take(&mut inner.versions);
        let versions = current.into_iter().map(|service| {
            let key = ObjectKey::of(service.as_ref());
            let known = known.remove(&key).filter(|version| Arc::ptr_eq(&version.service, &service));
            (key, known.unwrap_or_else(|| ServiceVersion { service, parsed: Arc::default() }))
        });
        inner.versions = versions.collect();
        inner.versions.values().cloned().collect()
    }

    fn parse_version(&self, version: &ServiceVersion) -> ParsedService {
        version.parsed.get_or_init(|| ParsedService::of(&version.service, &self.settings)).clone()
    }

    /// Returns the spec without the additional addresses that the Service may not have, and the refusal if there are any.
    ///
    /// An address is refused if it belongs to a Node or leads to another Service. The rest of the spec is served, because
    /// any address may be assigned to another owner at any time.
    pub fn without_conflicting_ips(&self, spec: Arc<ServiceSpec>) -> (Arc<ServiceSpec>, Option<ServiceRefusal>) {
        if spec.additional_ips.is_empty() {
            return (spec, None);
        }
        let cluster = self.cluster_addresses(&spec.identity);
        let Some(refusal) = additional_ip_conflict(&spec, &cluster) else { return (spec, None) };
        let mut served = ServiceSpec::clone(&spec);
        served.additional_ips.retain(|address| cluster.obstacle(&spec, *address).is_none());
        (Arc::new(served), Some(refusal))
    }

    /// Records the ranges of the virtual network's subnets, or the reason why they cannot be read.
    pub fn note_subnets(&self, ranges: Result<Vec<(IpNet, String)>, String>) {
        self.state.lock().subnets = Some(ranges);
    }

    /// Returns `true` if the additional addresses of a Service can be compared with the subnets: they are public, or the
    /// subnets have been read.
    pub fn knows_subnets_for(&self, spec: &ServiceSpec) -> bool {
        !has_private_additional_ips(spec) || matches!(self.state.lock().subnets, Some(Ok(_)))
    }

    /// Returns the addresses and ranges of the cluster and its network, except for those in the status of the Service `but`.
    fn cluster_addresses(&self, but: &ServiceIdentity) -> ClusterAddresses {
        let networks = &self.settings.networks;
        let named = |ranges: &[IpNet], name: &str| ranges.iter().map(|range| (*range, name.to_owned())).collect::<Vec<_>>();
        let mut ranges = named(&networks.pods, "--cluster-cidr");
        ranges.extend(named(&networks.services, "--service-cluster-ip-range"));
        ranges.extend(self.nodes.list().iter().flat_map(|node| pod_ranges(node)));
        let unknown = match &self.state.lock().subnets {
            Some(Ok(subnets)) => {
                ranges.extend(subnets.iter().cloned());
                None
            }
            Some(Err(reason)) => Some(reason.clone()),
            None => {
                Some(format!("the subnets of virtual network {} are not read yet", self.settings.virtual_network.name()))
            }
        };
        let (owners, unsettled) = self.address_owners(but);
        ClusterAddresses { owners, unsettled, ranges, unknown }
    }

    /// Returns the owners of addresses, first the certain and then the unsettled ones, without the status of the Service
    /// `but`.
    ///
    /// The status of a managed Service also lists additional addresses that it claims or claimed, so Services that are not
    /// synchronized yet are returned separately. `spec.externalIPs` are ignored, because any author of a Service can set any
    /// address there.
    fn address_owners(&self, but: &ServiceIdentity) -> (HashMap<IpAddr, String>, HashMap<IpAddr, String>) {
        let (mut owners, mut unsettled) = (HashMap::new(), HashMap::new());
        for service in self.services.list() {
            let identity = identity_of(&service);
            owners.extend(cluster_ips(&service).map(|address| (address, format!("Service {}", identity.key))));
            if identity == *but {
                continue;
            }
            let mut own: BTreeSet<IpAddr> = status_addresses(&service).into_iter().collect();
            let mut is_settled = true;
            if self.settings.classes.is_managed(&service) {
                let history = self.history_of(&identity).unwrap_or_default();
                is_settled = history.applied.is_some();
                let claimed: BTreeSet<_> = annotated_additional_ips(&service).chain(history.claimed).collect();
                own.retain(|address| !claimed.contains(address));
            }
            let holders = if is_settled { &mut owners } else { &mut unsettled };
            holders.extend(own.into_iter().map(|address| (address, format!("Service {}", identity.key))));
        }
        for node in self.nodes.list() {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            owners.extend(addresses_of(&node).map(|address| (address, format!("Node {name}"))));
        }
        (owners, unsettled)
    }

    /// Returns the number of Services of this manager in a namespace that have or may have a load balancer.
    pub fn count_in(&self, namespace: &str) -> usize {
        let is_there = |service: &Service| service.metadata.namespace.as_deref() == Some(namespace);
        self.services.count(|service| is_there(service) && self.settings.classes.is_managed(service))
    }

    /// Returns the number of Services of this manager that are being deleted.
    pub fn going(&self) -> usize {
        self.services
            .count(|service| service.metadata.deletion_timestamp.is_some() && self.settings.classes.is_managed(service))
    }

    /// Returns the request to delete all parts of a Service, with its last valid spec.
    ///
    /// If the current spec is refused, its public IPs and private link service are those of the last applied spec.
    pub fn deletion_request(&self, service: &Service) -> ServiceRequest {
        let claim = self.parsed(service);
        let mut last = Arc::clone(claim.spec());
        let settled = self.history_of(&last.identity).and_then(|memory| memory.applied);
        if let (ParsedService::Refused(..), Some(settled)) = (&claim, settled) {
            let last = Arc::make_mut(&mut last);
            (last.public_ip, last.pinned) = (settled.public_ip.clone(), settled.pinned.clone());
            last.private_link.clone_from(&settled.private_link);
        }
        ServiceRequest::Delete(last.identity.clone(), Some(last))
    }

    /// Returns the resource group of the private link service that the Service last had; `None` if its current spec has one
    /// in the same group.
    pub fn former_private_link_group(&self, request: &ServiceRequest) -> Option<ResourceId> {
        let group = |spec: &ServiceSpec| spec.private_link.as_ref().map(|link| link.group.clone());
        let former = self.history_of(request.identity())?.applied.as_deref().and_then(group)?;
        (request.spec().and_then(|spec| group(spec)).as_ref() != Some(&former)).then_some(former)
    }

    /// Returns the object of a Service if it exists with the same UID.
    pub fn service(&self, identity: &ServiceIdentity) -> Option<Arc<Service>> {
        let (namespace, name) = identity.key.split_once('/')?;
        let found = self.services.get(&ObjectKey::namespaced(namespace, name));
        found.filter(|service| identity_of(service) == *identity)
    }

    /// Returns `true` if a Node may exist that [`Self::nodes`] lacks.
    pub fn may_lack_nodes(&self) -> bool {
        !self.nodes.proves_absence()
    }

    /// Returns all Nodes of the cluster.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.list()
    }

    /// Returns a copy of the memory of a Service, so that the caller does not hold the lock.
    fn history_of(&self, identity: &ServiceIdentity) -> Option<RuleHistory> {
        self.state.lock().memory.history_of(identity).cloned()
    }

    /// Returns a copy of the memory of Services and Nodes, to plan with. Planning does not change the index.
    pub fn memory(&self) -> RuleMemory {
        self.state.lock().memory.clone()
    }

    /// Records the addresses of the current Nodes. The address of a Node that is deleted before the first plan of rules
    /// still counts as one of this cluster.
    pub fn note_nodes(&self, nodes: &[Arc<Node>]) {
        let present = nodes.iter().flat_map(|node| internal_addresses(node)).collect();
        self.state.lock().memory.note_nodes(present);
    }

    /// Calls `work` with the memory under the lock. `work` may change the memory.
    pub fn with_memory<R>(&self, work: impl FnOnce(&mut RuleMemory) -> R) -> R {
        work(&mut self.state.lock().memory)
    }

    /// Returns the memory of a process that restores these records, to plan with.
    pub fn memory_with(&self, records: RuleRecords) -> RuleMemory {
        let are_all_listed = self.lists_all_services();
        let mut memory = self.memory();
        memory.restore(records);
        if are_all_listed {
            let missing = self.missing(memory.unserved());
            memory.note_deleted(missing);
        }
        memory
    }

    /// Records which recorded Services no longer exist. Returns those that the store lacks without proof that they do not
    /// exist.
    pub fn note_deleted(&self) -> Vec<ServiceIdentity> {
        let are_all_listed = self.lists_all_services();
        let unserved = self.state.lock().memory.unserved();
        let missing = self.missing(unserved);
        if !are_all_listed {
            return missing;
        }
        self.state.lock().memory.note_deleted(missing);
        Vec::new()
    }

    /// Returns a recorded Service that no longer exists and whose addresses are still in the network security group.
    pub fn deleted_service(&self) -> Option<ServiceIdentity> {
        let deleted = self.state.lock().memory.deleted().clone();
        deleted.into_iter().find(|identity| !self.exists(identity))
    }

    /// Returns `true` if no Service exists that the store lacks. Call this method before the store is read.
    fn lists_all_services(&self) -> bool {
        self.services.status().synced && self.services.proves_absence()
    }

    fn missing(&self, services: Vec<ServiceIdentity>) -> Vec<ServiceIdentity> {
        services.into_iter().filter(|identity| !self.exists(identity)).collect()
    }
}

/// Sorted output, so that tests can compare it.
impl fmt::Debug for ServiceIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let versions: BTreeMap<String, _> =
            state.versions.iter().map(|(key, version)| (key.to_string(), version.parsed.get())).collect();
        f.debug_struct("ServiceIndex").field("versions", &versions).field("memory", &state.memory).finish_non_exhaustive()
    }
}

/// Returns all addresses of a Node, of every type.
fn addresses_of(node: &Node) -> impl Iterator<Item = IpAddr> {
    let listed = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    listed.filter_map(|address| address.address.parse().ok())
}

/// Returns the addresses of a Service inside the cluster.
fn cluster_ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    let listed = service.spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip));
    listed.filter_map(|address| address.parse().ok())
}

/// Returns the ranges of the Pods of a Node, each with a description for people.
fn pod_ranges(node: &Node) -> Vec<(IpNet, String)> {
    let name = format!("the Pods of Node {}", node.metadata.name.as_deref().unwrap_or_default());
    let listed = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    listed.filter_map(|range| Some((range.parse().ok()?, name.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::azure::planner::load_balancer::{
        desired::{
            plan_index::PlanIndex,
            samples::*,
            security_rules::{NodeAddresses, ServiceRules},
        },
        observed::ObservedNetwork,
        rule_memory::BackendLookup,
        rule_records::ListedDestinations,
    };

    impl ServiceIndex {
        fn rules_of_request(
            &self,
            request: &ServiceRequest,
            observed: &ObservedNetwork,
            machines: &BackendLookup<'_>,
        ) -> Result<ServiceRules, ServiceRefusal> {
            self.memory().rules_of_request(request, &PlanIndex::new(observed), machines, &self.settings)
        }

        /// Returns the addresses of Nodes in the same way as the stage that writes the network security group.
        fn node_addresses(&self, listed: impl FnOnce() -> BTreeSet<IpAddr>) -> NodeAddresses {
            self.note_nodes(&self.nodes());
            self.with_memory(|memory| memory.forget_unlisted(listed));
            self.memory().nodes().clone()
        }
    }

    fn roster() -> ServiceIndex {
        ServiceIndex::new(Arc::new(settings()), InformerStore::of(Vec::new()), InformerStore::of(Vec::new()))
    }

    static NONE: BTreeSet<IpAddr> = BTreeSet::new();

    fn nobody() -> BackendLookup<'static> {
        BackendLookup { all_nodes: &NONE, of_service: &|_| Vec::new() }
    }

    /// Returns a network security group with the rule of a Service that is open to the Internet at port 80.
    fn listing() -> ListedDestinations {
        let rules = ServiceRules::wanted(&service("web"), &["20.0.0.1".parse().unwrap()], &[]).unwrap().ownership.rules;
        rules.into_iter().map(|rule| (rule, addresses(&["20.0.0.1", "20.0.0.3", "20.0.0.9"]))).collect()
    }

    /// Records that the rules of a Service with this address have been written.
    fn apply(index: &ServiceIndex, spec: &ServiceSpec, address: &str) {
        let reach = ServiceRules::wanted(spec, &[address.parse().unwrap()], &[]).unwrap();
        index.with_memory(|memory| memory.record_applied(&ensure(spec), &reach, &listing()));
    }

    fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_a_service_had_is_remembered_until_its_rules_are_gone() {
        let (index, web, there) = (roster(), service("web"), observed(Vec::new()));
        apply(&index, &web, "20.0.0.1");
        let removed = || index.rules_of_request(&remove(&web), &there, &nobody()).unwrap();
        assert_eq!((removed().wanted, removed().former), (false, addresses(&["20.0.0.1"])));
        let rules = removed();
        index.with_memory(|memory| memory.record_applied(&remove(&web), &rules, &listing()));
        assert_eq!(removed().former, addresses(&[]));
        assert!(index.state.lock().memory.history_of(&web.identity).is_none());
    }

    #[test]
    fn the_address_of_a_node_that_is_gone_counts_until_no_rule_has_it() {
        let with = |addresses: &[&str]| {
            let list: Vec<_> = addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
            serde_json::from_value::<Node>(json!({"metadata": {"name": "n"}, "status": {"addresses": list}})).unwrap()
        };
        let index = |node| ServiceIndex { nodes: InformerStore::of(vec![node]), ..roster() };
        let before = index(with(&["10.0.0.4", "10.0.0.5"]));
        let all = || addresses(&["10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        assert_eq!(before.node_addresses(all).gone, addresses(&[]));
        let after = ServiceIndex { nodes: InformerStore::of(vec![with(&["10.0.0.4"])]), ..before };
        assert_eq!(after.node_addresses(all).gone, addresses(&["10.0.0.5"]));
        assert_eq!(after.node_addresses(|| addresses(&["10.0.0.4"])).gone, addresses(&[]));
        assert_eq!(after.node_addresses(all).gone, addresses(&[]), "by now it may be somebody else's");
    }

    /// Covers a process that was killed before it wrote the status, and a deletion after that of the load balancer.
    #[test]
    fn a_public_ip_tells_where_a_service_was_that_nobody_remembers() {
        let public = |name: &str, services: &str, cluster: &str, address: &str| {
            serde_json::from_value(json!({"id": public_ip(name).as_str(), "name": name,
                "tags": {"k8s-azure-service": services, "k8s-azure-cluster-name": cluster},
                "properties": {"ipAddress": address, "publicIPAddressVersion": "IPv4"}}))
            .unwrap()
        };
        let mut there = observed(Vec::new());
        there.public_ips = vec![
            public("own", "default/web", "kubernetes", "20.0.0.1"),
            public("foreign", "default/web", "other", "20.0.0.2"),
            public("another", "default/other", "kubernetes", "20.0.0.3"),
        ];
        let reach = roster().rules_of_request(&remove(&service("web")), &there, &nobody()).unwrap();
        assert_eq!(reach.former, addresses(&["20.0.0.1"]));

        // The Service became internal after the process was killed, so the status never listed the public address.
        let inside = internal("web");
        let undecided = ServiceRules::wanted(&inside, &["2001:db8::9".parse().unwrap()], &[]).unwrap();
        let undecided =
            undecided.with_former_addresses(&inside, &["2001:db8::9".parse().unwrap()], &["20.0.0.1".parse().unwrap()]);
        assert_eq!(undecided.former, addresses(&[]), "its front end of that family is still to come");
    }

    /// In a network security group that clusters share, the address may belong to a Service of another cluster.
    #[test]
    fn an_additional_address_never_becomes_one_of_a_front_end() {
        let (index, there) = (roster(), observed(Vec::new()));
        let web = ServiceSpec { additional_ips: vec!["20.0.0.9".parse().unwrap()], ..ServiceSpec::clone(&service("web")) };
        apply(&index, &web, "20.0.0.1");
        let dropped = ServiceSpec {
            additional_ips: Vec::new(),
            status_addresses: vec!["20.0.0.9".parse().unwrap(), "20.0.0.1".parse().unwrap()],
            ..web
        };
        let reach = index.rules_of_request(&remove(&dropped), &there, &nobody()).unwrap();
        assert_eq!((reach.former, reach.claimed), (addresses(&["20.0.0.1"]), addresses(&["20.0.0.9"])));
    }

    fn object(name: &str, annotations: &serde_json::Value, status: &str) -> Arc<Service> {
        let service = json!({
            "metadata": {"namespace": "default", "name": name, "uid": name, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
            "status": {"loadBalancer": {"ingress": [{"ip": status}]}},
        });
        Arc::new(serde_json::from_value(service).unwrap())
    }

    #[test]
    fn each_version_is_read_once() {
        let services = ["one", "two"].map(|name| Service::clone(&object(name, &json!({}), "20.0.0.1")));
        let index = ServiceIndex { services: InformerStore::of(services.to_vec()), ..roster() };
        let before = index.others(&BTreeSet::new());
        let stored: Vec<_> = index.services.list().iter().map(|service| index.parsed(service)).collect();
        for again in [index.others(&BTreeSet::new()), stored] {
            let is_known = |one: &ParsedService| before.iter().any(|known| Arc::ptr_eq(known.spec(), one.spec()));
            assert!(again.len() == 2 && again.iter().all(is_known), "{again:?}");
        }
    }

    #[test]
    fn what_a_service_has_is_found_when_its_annotations_are_garbage() {
        let group = "service.beta.kubernetes.io/azure-load-balancer-resource-group";
        let index = roster();
        let valid = index.parsed(&object("web", &json!({group: "pips"}), "20.0.0.1"));
        apply(&index, valid.spec(), "20.0.0.1");
        let last = |text: &str| {
            index.deletion_request(&object("web", &json!({group: text}), "20.0.0.1")).spec().unwrap().public_ip.group.clone()
        };
        assert_eq!(last("../garbage").name(), "pips");
        assert_eq!(last("other").name(), "other");
    }

    #[test]
    fn addresses_of_nodes_and_of_other_services_are_left_out() {
        let additional = "service.beta.kubernetes.io/azure-additional-public-ips";
        let node = json!({"metadata": {"name": "n"}, "spec": {"podCIDRs": ["10.244.1.0/24"]},
                "status": {"addresses": [{"type": "ExternalIP", "address": "20.0.0.7"}]}});
        let other = object("other", &json!({additional: "20.0.0.5"}), "20.0.0.5");
        // The Service is refused and keeps its status, which does not prove a frontend.
        let refused = object("refused", &json!({additional: "20.0.0.4,10.0.0.1"}), "20.0.0.4");
        let mut victim = Service::clone(&object("victim", &json!({}), "20.0.0.6"));
        victim.spec.as_mut().unwrap().cluster_ips = Some(vec!["10.0.12.34".into()]);
        let victim = Arc::new(victim);
        let mut foreign = Service::clone(&object("foreign", &json!({}), "20.0.0.9"));
        foreign.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into());
        let index = ServiceIndex {
            services: InformerStore::of(vec![
                Service::clone(&other),
                Service::clone(&refused),
                Service::clone(&victim),
                foreign,
            ]),
            nodes: InformerStore::of(vec![serde_json::from_value(node).unwrap()]),
            ..roster()
        };
        // A former additional address remains in the status until the next reconciliation of the Service.
        let once = ServiceSpec {
            identity: identity_of(&victim),
            additional_ips: vec!["20.0.0.3".parse().unwrap()],
            ..ServiceSpec::clone(&service("victim"))
        };
        apply(&index, &once, "20.0.0.6");
        let key = || ObjectKey::namespaced("default", "victim");
        index.services.insert(key(), object("victim", &json!({}), "20.0.0.3"));
        assert!(!index.address_owners(&service("web").identity).0.contains_key(&"20.0.0.3".parse().unwrap()));
        index.services.insert(key(), victim);
        index.note_subnets(Ok(vec![("10.224.0.0/16".parse().unwrap(), "subnet nodes".to_owned())]));
        for (address, owner) in [
            ("10.20.0.1", None),
            ("10.224.0.9", Some("subnet nodes")),
            ("10.244.1.7", Some("the Pods of Node n")),
            ("10.0.12.34", Some("Service default/victim")),
            ("20.0.0.4", None),
            ("20.0.0.5", None),
            ("20.0.0.6", Some("Service default/victim")),
            ("20.0.0.7", Some("Node n")),
            ("20.0.0.8", None),
            ("20.0.0.9", Some("Service default/foreign")),
        ] {
            let ips = ["20.1.1.1", address].map(|text| text.parse().unwrap()).to_vec();
            let claiming = Arc::new(ServiceSpec { additional_ips: ips, ..ServiceSpec::clone(&service("web")) });
            let (served, refusal) = index.without_conflicting_ips(claiming);
            assert_eq!(refusal.is_some(), owner.is_some(), "{address}: {refusal:?}");
            assert_eq!(served.additional_ips.len(), if owner.is_some() { 1 } else { 2 }, "{address}");
            assert!(owner.is_none_or(|owner| refusal.is_some_and(|refusal| refusal.message.contains(owner))));
        }
        // After a restart, the index does not know whether a Service has an address or only claimed it.
        index.services.insert(ObjectKey::namespaced("default", "unsynced"), object("unsynced", &json!({}), "20.0.0.8"));
        let shared: IpAddr = "20.0.0.8".parse().unwrap();
        for (has_it, is_refused) in [(false, true), (true, false)] {
            let status_addresses = if has_it { vec![shared] } else { Vec::new() };
            let spec = ServiceSpec { additional_ips: vec![shared], status_addresses, ..ServiceSpec::clone(&service("web")) };
            assert_eq!(index.without_conflicting_ips(Arc::new(spec)).1.is_some(), is_refused, "{has_it}");
        }
    }
}
