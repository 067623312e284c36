//! Services of a case, and what they ask of the planner. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cloud_controller_manager::providers::azure::{
    config,
    planner::load_balancer::{
        desired::ServiceRequest,
        pools::{
            endpoint_nodes::EndpointNodes,
            local_pools::{LocalPools, local_services},
        },
        settings::LoadBalancerSettings,
        spec::{ServiceSpec, identity_of, parse_leniently, parse_service},
    },
};
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};
use serde_json::Value;

use crate::golden::case::{Action, Case, Step};

/// What is to be planned at once.
#[derive(Clone)]
pub(super) struct Turn {
    pub(super) settings: LoadBalancerSettings,
    pub(super) asks: Vec<ServiceRequest>,
    pub(super) others: Vec<Arc<ServiceSpec>>,
    /// Nodes with endpoints of each Service that has an EndpointSlice.
    endpoints: BTreeMap<String, BTreeSet<String>>,
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
    endpoints: BTreeMap<String, BTreeSet<String>>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Cluster {
    /// Before the first step.
    pub(super) fn new(case: &Case) -> Self {
        let name = case.flags.iter().find_map(|flag| flag.strip_prefix("--cluster-name=")).unwrap_or("kubernetes");
        let namespaces = BTreeMap::from([("default".to_owned(), BTreeMap::new())]);
        let (config, name, endpoints) = (case.config.clone(), name.to_owned(), BTreeMap::new());
        Self { config, name, services: BTreeMap::new(), endpoints, namespaces }
    }

    /// Takes note of an action; answers what a Service that goes asks for.
    pub(super) fn act(&mut self, step: &Step, action: &Action) -> Option<ServiceRequest> {
        match action {
            Action::Apply { service } if is_balanced(&step.services[service]) => {
                let mut current = step.services[service].clone();
                current.status = self.services.get(service).and_then(|known| known.status.clone());
                self.services.insert(service.clone(), current);
            }
            Action::Apply { service } | Action::Delete { service } => return self.remove(service),
            Action::Restart { config } => json_patch::merge(&mut self.config, config),
            Action::Namespace { name, labels } => drop(self.namespaces.insert(name.clone(), labels.clone())),
            Action::EndpointSlice { service, nodes } => {
                self.endpoints.insert(service.clone(), nodes.iter().cloned().collect());
            }
            _ => {}
        }
        None
    }

    /// Takes the recorded statuses at the end of the step.
    pub(super) fn finish(&mut self, step: &Step) {
        for (key, service) in &mut self.services {
            let Some(outcome) = step.outcomes.get(key) else { continue };
            let ingress = Some(outcome.load_balancer.ingress.clone());
            service.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus { ingress });
        }
    }

    /// All Services that can be read ask.
    pub(super) fn everybody(&self) -> Turn {
        let settings = self.settings();
        let (mut asks, mut others) = (Vec::new(), Vec::new());
        for service in self.services.values() {
            match parse_service(service, &settings) {
                Ok(spec) => asks.push(ServiceRequest::Ensure(Arc::new(spec))),
                Err(_) => others.push(Arc::new(parse_leniently(service, &settings))),
            }
        }
        Turn { settings, asks, others, endpoints: self.endpoints.clone(), namespaces: self.namespaces.clone() }
    }

    fn settings(&self) -> LoadBalancerSettings {
        LoadBalancerSettings::new(&config::decode(&self.config.to_string()).config, &self.name)
    }

    fn remove(&mut self, key: &str) -> Option<ServiceRequest> {
        let gone = self.services.remove(key)?;
        let last = parse_leniently(&gone, &self.settings());
        Some(ServiceRequest::Delete(identity_of(&gone), Some(Arc::new(last))))
    }
}

fn is_balanced(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none())
}
