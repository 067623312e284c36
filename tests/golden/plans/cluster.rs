//! Services and Nodes of a case, and what each action asks of the planner. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use cloud_controller_manager::providers::azure::{
    config,
    planner::load_balancer::{
        desired::{ServiceRequest, security_rules::NodeAddresses},
        pools::{
            endpoint_nodes::EndpointNodes,
            local_pools::{LocalPools, local_services},
        },
        settings::LoadBalancerSettings,
        spec::{ServiceSpec, identity_of, parse_leniently, parse_service},
    },
};
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};
use serde_json::Value;

use crate::golden::case::{Action, Case, State, Step};

/// What is to be planned at once.
#[derive(Clone)]
pub(super) struct Turn {
    pub(super) settings: LoadBalancerSettings,
    pub(super) asks: Vec<ServiceRequest>,
    pub(super) others: Vec<Arc<ServiceSpec>>,
    /// Services that cannot be read, by namespace/name, and why.
    pub(super) refused: BTreeMap<String, String>,
    pub(super) nodes: NodeAddresses,
    /// Addresses of the machines in the pools at the end of the step.
    pub(super) members: BTreeSet<IpAddr>,
    /// Addresses that Services had in earlier steps, by namespace/name.
    pub(super) memory: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Nodes with endpoints of each Service that has an EndpointSlice.
    pub(super) endpoints: BTreeMap<String, BTreeSet<String>>,
    /// Labels of Namespaces.
    pub(super) namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Turn {
    /// The pools that Services have for themselves.
    pub(super) fn local_pools(&self) -> LocalPools {
        let asking = self.asks.iter().filter_map(ServiceRequest::spec);
        let specs: Vec<&ServiceSpec> = asking.chain(&self.others).map(AsRef::as_ref).collect();
        let nodes = |key: String| {
            let found = self.endpoints.get(&key).map(|nodes| EndpointNodes::of(nodes.iter().map(String::as_str)));
            (key, found.unwrap_or(EndpointNodes::All))
        };
        let nodes = local_services(specs.iter().copied()).into_iter().map(nodes).collect();
        LocalPools::new(specs, &nodes)
    }

    /// The same without what these Services ask for.
    pub(super) fn without(&self, keys: &BTreeSet<String>) -> Self {
        let mut turn = self.clone();
        turn.asks.retain(|ask| !keys.contains(&ask.identity().key));
        turn
    }
}

/// What the controllers would know.
pub(super) struct Cluster {
    config: Value,
    name: String,
    /// Those with a load balancer of ours, with the status of the step before.
    services: BTreeMap<String, Service>,
    nodes: NodeAddresses,
    members: BTreeSet<IpAddr>,
    memory: BTreeMap<String, BTreeSet<IpAddr>>,
    endpoints: BTreeMap<String, BTreeSet<String>>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Cluster {
    /// Before the first step.
    pub(super) fn new(case: &Case) -> Self {
        let name = case.flags.iter().find_map(|flag| flag.strip_prefix("--cluster-name=")).unwrap_or("kubernetes");
        let nodes = NodeAddresses { present: addresses(&case.nodes), gone: BTreeSet::new() };
        let (services, members, memory) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let namespaces = BTreeMap::from([("default".to_owned(), BTreeMap::new())]);
        let (config, name, endpoints) = (case.config.clone(), name.to_owned(), BTreeMap::new());
        Self { config, name, services, nodes, members, memory, endpoints, namespaces }
    }

    /// Before the first action of a step: who will be in the pools, which is planned elsewhere.
    pub(super) fn begin(&mut self, step: &Step) {
        self.members = members(&step.after);
    }

    /// Takes note of an action; answers what has to be planned then.
    pub(super) fn act(&mut self, step: &Step, action: &Action) -> Option<Turn> {
        match action {
            Action::Apply { service } if is_balanced(&step.services[service]) => {
                let mut current = step.services[service].clone();
                current.status = self.services.get(service).and_then(|known| known.status.clone());
                self.services.insert(service.clone(), current);
                Some(self.turn(&BTreeSet::from([service.clone()])))
            }
            Action::Apply { service } | Action::Delete { service } => self.remove(service),
            Action::Restart { config } => {
                json_patch::merge(&mut self.config, config);
                Some(self.everybody())
            }
            Action::CreateNodes | Action::DeleteNode { .. } | Action::LabelNode { .. } => {
                self.change_nodes(step);
                Some(self.everybody())
            }
            Action::Namespace { name, labels } => {
                self.namespaces.insert(name.clone(), labels.clone());
                None
            }
            Action::EndpointSlice { service, nodes } => {
                self.endpoints.insert(service.clone(), nodes.iter().cloned().collect());
                Some(self.everybody())
            }
            Action::Azure | Action::Settle => None,
        }
    }

    /// Takes the recorded statuses at the end of the step.
    pub(super) fn finish(&mut self, step: &Step) {
        let settings = self.settings();
        for (key, service) in &mut self.services {
            let Some(outcome) = step.outcomes.get(key) else { continue };
            let ingress = Some(outcome.load_balancer.ingress.clone());
            service.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus { ingress });
            let told = parse_leniently(service, &settings);
            let memory = self.memory.entry(key.clone()).or_default();
            memory.extend(told.status_addresses.into_iter().chain(told.additional_ips));
        }
    }

    /// All Services ask.
    pub(super) fn everybody(&self) -> Turn {
        self.turn(&self.services.keys().cloned().collect())
    }

    fn settings(&self) -> LoadBalancerSettings {
        LoadBalancerSettings::new(&config::decode(&self.config.to_string()).config, &self.name)
    }

    fn remove(&mut self, key: &str) -> Option<Turn> {
        let gone = self.services.remove(key)?;
        let mut turn = self.turn(&BTreeSet::new());
        let last = parse_leniently(&gone, &turn.settings);
        turn.asks.push(ServiceRequest::Delete(identity_of(&gone), Some(Arc::new(last))));
        self.memory.remove(key);
        Some(turn)
    }

    fn change_nodes(&mut self, step: &Step) {
        let present = addresses(step.nodes.as_deref().unwrap_or_default());
        self.nodes.gone.extend(&self.nodes.present);
        self.nodes.gone.retain(|address| !present.contains(address));
        self.nodes.present = present;
    }

    fn turn(&self, asking: &BTreeSet<String>) -> Turn {
        let settings = self.settings();
        let (mut asks, mut others, mut refused) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (key, service) in &self.services {
            match parse_service(service, &settings) {
                Ok(spec) if asking.contains(key) => asks.push(ServiceRequest::Ensure(Arc::new(spec))),
                Ok(spec) => others.push(Arc::new(spec)),
                Err(refusals) => {
                    others.push(Arc::new(parse_leniently(service, &settings)));
                    refused.insert(key.clone(), refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
                }
            }
        }
        let (nodes, members, memory) = (self.nodes.clone(), self.members.clone(), self.memory.clone());
        let (endpoints, namespaces) = (self.endpoints.clone(), self.namespaces.clone());
        Turn { settings, asks, others, refused, nodes, members, memory, endpoints, namespaces }
    }
}

fn is_balanced(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none())
}

/// Members of pools, by address and by network interface.
fn members(state: &State) -> BTreeSet<IpAddr> {
    let pools = state.values().flat_map(|document| list(&document["properties"]["backendAddressPools"]));
    let listed = pools.flat_map(|pool| list(&pool["properties"]["loadBalancerBackendAddresses"]));
    let by_address = listed.filter_map(|entry| entry["properties"]["ipAddress"].as_str());
    let configurations = state.values().flat_map(|document| list(&document["properties"]["ipConfigurations"]));
    let joined = configurations.filter(|one| !list(&one["properties"]["loadBalancerBackendAddressPools"]).is_empty());
    let by_interface = joined.filter_map(|one| one["properties"]["privateIPAddress"].as_str());
    by_address.chain(by_interface).map(|address| address.parse().unwrap()).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn addresses(nodes: &[Node]) -> BTreeSet<IpAddr> {
    let listed = nodes.iter().filter_map(|node| node.status.as_ref()?.addresses.as_ref()).flatten();
    let internal = listed.filter(|address| address.type_ == "InternalIP");
    internal.map(|address| address.address.parse().unwrap()).collect()
}
