//! Services of a case, and their requests to the planner. Pure.

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

/// Input of one plan.
#[derive(Clone)]
pub(super) struct PlanBatch {
    pub(super) settings: LoadBalancerSettings,
    pub(super) requests: Vec<ServiceRequest>,
    pub(super) others: Vec<Arc<ServiceSpec>>,
    /// Nodes with endpoints of each Service that has an EndpointSlice.
    endpoints: BTreeMap<String, BTreeSet<String>>,
    /// Labels of Namespaces.
    pub(super) namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl PlanBatch {
    /// Returns the pools that belong to one Service.
    pub(super) fn local_pools(&self) -> LocalPools {
        let requested = self.requests.iter().filter_map(ServiceRequest::spec);
        let specs: Vec<&ServiceSpec> = requested.chain(&self.others).map(AsRef::as_ref).collect();
        let nodes = |key: String| {
            let found = self.endpoints.get(&key).map(|nodes| EndpointNodes::of(nodes.iter().map(String::as_str)));
            (key, found.unwrap_or(EndpointNodes::All))
        };
        let nodes = local_services(specs.iter().copied()).into_iter().map(nodes).collect();
        LocalPools::new(specs, &nodes)
    }

    /// Returns the batch without the requests of these Services.
    pub(super) fn without(&self, keys: &BTreeSet<String>) -> Self {
        let mut batch = self.clone();
        batch.requests.retain(|request| !keys.contains(&request.identity().key));
        batch
    }
}

/// Cluster state as the controllers see it.
pub(super) struct Cluster {
    config: Value,
    name: String,
    /// Services that the controller serves, with the status of the previous step.
    services: BTreeMap<String, Service>,
    endpoints: BTreeMap<String, BTreeSet<String>>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Cluster {
    /// Returns the state before the first step.
    pub(super) fn new(case: &Case) -> Self {
        let name = case.flags.iter().find_map(|flag| flag.strip_prefix("--cluster-name=")).unwrap_or("kubernetes");
        let namespaces = BTreeMap::from([("default".to_owned(), BTreeMap::new())]);
        let (config, name, endpoints) = (case.config.clone(), name.to_owned(), BTreeMap::new());
        Self { config, name, services: BTreeMap::new(), endpoints, namespaces }
    }

    /// Applies an action. Returns the request of a Service that is deleted or no longer served.
    pub(super) fn act(&mut self, step: &Step, action: &Action) -> Option<ServiceRequest> {
        match action {
            Action::Apply { service } if is_balanced(&step.services[service]) => {
                let mut current = step.services[service].clone();
                current.status = self.services.get(service).and_then(|existing| existing.status.clone());
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

    /// Applies the recorded statuses at the end of the step.
    pub(super) fn finish(&mut self, step: &Step) {
        for (key, service) in &mut self.services {
            let Some(outcome) = step.outcomes.get(key) else { continue };
            let ingress = Some(outcome.load_balancer.ingress.clone());
            service.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus { ingress });
        }
    }

    /// Returns a batch with a request of each valid Service.
    pub(super) fn all_services(&self) -> PlanBatch {
        let settings = self.settings();
        let (mut requests, mut others) = (Vec::new(), Vec::new());
        for service in self.services.values() {
            match parse_service(service, &settings) {
                Ok(spec) => requests.push(ServiceRequest::Ensure(Arc::new(spec))),
                Err(_) => others.push(Arc::new(parse_leniently(service, &settings))),
            }
        }
        PlanBatch { settings, requests, others, endpoints: self.endpoints.clone(), namespaces: self.namespaces.clone() }
    }

    fn settings(&self) -> LoadBalancerSettings {
        LoadBalancerSettings::new(&config::decode(&self.config.to_string()).config, &self.name)
    }

    fn remove(&mut self, key: &str) -> Option<ServiceRequest> {
        let deleted = self.services.remove(key)?;
        let last = parse_leniently(&deleted, &self.settings());
        Some(ServiceRequest::Delete(identity_of(&deleted), Some(Arc::new(last))))
    }
}

fn is_balanced(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none())
}
