//! A provider for a cloud with machines, load balancers and routes. The cloud is a value in memory, [`Api`]; a real one sends requests.
//!
//! In: Nodes and Services. Out: their state in [`Api`]. Each call reads the cloud again, which is the only memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use cloud_controller_manager::{
    cloud_provider::{
        AddressType, CloudError, CloudProvider, CloudResult, InstanceMetadata, InstancesV2, LoadBalancer,
        LoadBalancerIngress, LoadBalancerStatus, NodeAddress, ProviderContext, Registry, Route, Routes,
        registry::ProviderConfig,
    },
    flags::declare_flags,
    metrics::declare_metrics,
};
use k8s_openapi::api::core::v1::{Node, Service};

/// Name for `--cloud-provider`, and scheme of provider ids.
pub const NAME: &str = "example";

declare_flags! {
    REGION: String = "example-region" "north" "Region of the machines.";
}

declare_metrics! {
    /// Metrics of this provider.
    ExampleMetrics {
        api_requests: counter "example_api_requests_total" ["operation"] "[ALPHA] Requests to the cloud's API.";
    }
}

/// Adds this provider, its flags and its metrics.
pub fn register(registry: Registry) -> Registry {
    let registry = registry.register(NAME, |config| Example::from_config(config).map(|provider| Arc::new(provider) as _));
    registry.with_flags("Example", FLAGS).with_metrics::<ExampleMetrics>()
}

/// Machine as the cloud's API describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub size: String,
    pub address: String,
    pub is_running: bool,
}

/// Load balancer as the cloud's API describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Balancer {
    pub address: String,
    pub ports: Vec<i32>,
    pub hosts: BTreeSet<String>,
}

/// Content of the cloud, by name; routes by destination.
#[derive(Debug, Default)]
pub struct Contents {
    pub machines: BTreeMap<String, Machine>,
    pub balancers: BTreeMap<String, Balancer>,
    pub routes: BTreeMap<String, String>,
    /// Whether every request fails.
    pub is_down: bool,
}

/// The cloud's API. Clones share one cloud.
#[derive(Debug, Clone, Default)]
pub struct Api(Arc<Mutex<Contents>>);

impl Api {
    /// Returns the content of the cloud, for tests.
    pub fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request. An outage is an error, which proves nothing about the existence of resources.
    fn request<T>(&self, request: impl FnOnce(&mut Contents) -> T) -> CloudResult<T> {
        let mut contents = self.contents();
        if contents.is_down {
            Err(CloudError::failed("the cloud's API does not respond"))
        } else {
            Ok(request(&mut contents))
        }
    }
}

/// Provider for one cloud and region.
#[derive(Debug, Clone)]
pub struct Example {
    api: Api,
    region: String,
}

impl Example {
    /// Creates a provider for the cloud behind `api`.
    pub fn new(api: Api, region: &str) -> Self {
        Self { api, region: region.to_owned() }
    }

    /// Reads the flags and `--cloud-config`. An error ends the process, so it names the file or flag.
    fn from_config(config: &ProviderConfig) -> CloudResult<Self> {
        if let Some(path) = &config.cloud_config {
            std::fs::read_to_string(path)
                .map_err(|error| CloudError::invalid(format!("cloud config {}: {error}", path.display())))?;
        }
        Ok(Self::new(Api::default(), &config.flags.read(&REGION)))
    }

    /// Returns the name of a Node's machine, from the provider id if there is one, else from the Node's name. Returns `None` for a Node of another
    /// cloud.
    fn machine_name(node: &Node) -> Option<&str> {
        match node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).filter(|id| !id.is_empty()) {
            Some(id) => id.strip_prefix(NAME)?.strip_prefix("://"),
            None => node.metadata.name.as_deref(),
        }
    }

    fn machine(&self, name: &str) -> CloudResult<Machine> {
        self.api.request(|cloud| cloud.machines.get(name).cloned())?.ok_or(CloudError::InstanceNotFound)
    }
}

#[async_trait]
impl CloudProvider for Example {
    fn provider_name(&self) -> &str {
        NAME
    }

    /// Checks credentials and fills caches. An error is retried; meanwhile the process runs and is not ready.
    async fn initialize(&self, context: ProviderContext) -> CloudResult<()> {
        if let Some(metrics) = context.metrics.table::<ExampleMetrics>() {
            metrics.api_requests.with_label_values(&["list"]).inc();
        }
        self.api.request(|cloud| cloud.machines.len()).map(drop)
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.clone()))
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl InstancesV2 for Example {
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool> {
        // A Node of another cloud must be kept: `false` would delete it.
        let Some(name) = Self::machine_name(node) else { return Ok(true) };
        self.api.request(|cloud| cloud.machines.contains_key(name))
    }

    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool> {
        let Some(name) = Self::machine_name(node) else { return Ok(false) };
        Ok(!self.machine(name)?.is_running)
    }

    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        let Some(name) = Self::machine_name(node) else { return Ok(None) };
        let machine = self.machine(name)?;
        Ok(Some(InstanceMetadata {
            provider_id: format!("{NAME}://{name}"),
            instance_type: machine.size,
            node_addresses: vec![NodeAddress { type_: AddressType::InternalIP, address: machine.address }],
            region: self.region.clone(),
            ..InstanceMetadata::default()
        }))
    }
}

fn status_of(balancer: &Balancer) -> LoadBalancerStatus {
    let ingress = LoadBalancerIngress { ip: Some(balancer.address.clone()), ..LoadBalancerIngress::default() };
    LoadBalancerStatus { ingress: Some(vec![ingress]) }
}

/// Returns the lowest address that no load balancer has.
fn free_address(balancers: &BTreeMap<String, Balancer>) -> CloudResult<String> {
    let is_free = |address: &String| !balancers.values().any(|balancer| balancer.address == *address);
    let mut addresses = (1..255).map(|last| format!("203.0.113.{last}"));
    addresses.find(is_free).ok_or_else(|| CloudError::failed("all 254 addresses are taken"))
}

#[async_trait]
impl LoadBalancer for Example {
    async fn get_load_balancer(&self, cluster: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        let name = self.get_load_balancer_name(cluster, service);
        self.api.request(|cloud| cloud.balancers.get(&name).map(status_of))
    }

    async fn ensure_load_balancer(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        let name = self.get_load_balancer_name(cluster, service);
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).map(|port| port.port).collect();
        let hosts = nodes.iter().filter_map(|node| Self::machine_name(node).map(str::to_owned)).collect();
        self.api.request(|cloud| {
            let address = match cloud.balancers.get(&name) {
                Some(balancer) => balancer.address.clone(),
                None => free_address(&cloud.balancers)?,
            };
            let balancer = Balancer { address, ports, hosts };
            let status = status_of(&balancer);
            cloud.balancers.insert(name, balancer);
            Ok(status)
        })?
    }

    async fn update_load_balancer(&self, cluster: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()> {
        self.ensure_load_balancer(cluster, service, nodes).await.map(drop)
    }

    async fn ensure_load_balancer_deleted(&self, cluster: &str, service: &Service) -> CloudResult<()> {
        let name = self.get_load_balancer_name(cluster, service);
        self.api.request(|cloud| cloud.balancers.remove(&name)).map(drop)
    }
}

#[async_trait]
impl Routes for Example {
    async fn list_routes(&self, _cluster: &str) -> CloudResult<Vec<Route>> {
        let route = |(destination, node): (&String, &String)| Route {
            name: destination.clone(),
            target_node: node.clone(),
            destination_cidr: destination.clone(),
            ..Route::default()
        };
        self.api.request(|cloud| cloud.routes.iter().map(route).collect())
    }

    async fn create_route(&self, _cluster: &str, _name_hint: &str, route: &Route) -> CloudResult<()> {
        let (destination, node) = (route.destination_cidr.clone(), route.target_node.clone());
        self.api.request(|cloud| cloud.routes.insert(destination, node)).map(drop)
    }

    async fn delete_route(&self, _cluster: &str, route: &Route) -> CloudResult<()> {
        self.api.request(|cloud| cloud.routes.remove(&route.destination_cidr)).map(drop)
    }
}
