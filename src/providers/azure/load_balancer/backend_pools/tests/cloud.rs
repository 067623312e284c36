//! A simulated cloud with the cluster's two load balancers, and a syncer of their members.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::*;
use crate::{
    providers::azure::{
        arm::Precondition,
        config::{AzureConfig, LoadBalancerSku},
        inventory::InventorySettings,
        model::{
            ArmResult, api,
            document::SubResource,
            network::{ArmLoadBalancer, BackendAddressPool},
        },
        planner::load_balancer::{observed::ObservedNetwork, plan::pools},
        samples::arm_client,
    },
    runtime::clock::Clock,
    sandbox::{
        azure::{
            AzureOptions, Class,
            topology::{Pool, PoolKind, Topology},
            world::World,
        },
        objects::ObjectExt,
    },
};

/// Names of the external and the internal load balancer.
pub(super) const LOAD_BALANCERS: [&str; 2] = ["kubernetes", "kubernetes-internal"];
const POOL: &str = "kubernetes";

/// Returns a configuration for machines of this kind, on the standard SKU. With uniform scale sets, it fits every other
/// kind, too.
pub(super) fn config(kind: PoolKind) -> AzureConfig {
    use crate::providers::azure::config::VmType;
    let vm_type = match kind {
        PoolKind::Uniform => VmType::Vmss,
        PoolKind::Flexible => VmType::VmssFlex,
        PoolKind::AvailabilitySet | PoolKind::Standalone => VmType::Standard,
    };
    AzureConfig { vm_type, load_balancer_sku: LoadBalancerSku::Standard, ..AzureConfig::default() }
}

pub(super) struct Cloud {
    pub(super) world: World,
    pub(super) members: BackendPoolSyncer,
    pub(super) config: AzureConfig,
    pub(super) migrate_api: bool,
    /// Whether the Nodes of a sync may be incomplete.
    pub(super) may_lack_nodes: bool,
    /// Delay until the next plan although no Node changes.
    pub(super) resync_after: Mutex<Option<Duration>>,
    arm: ArmClient,
    inventory: Arc<Inventory>,
}

impl Cloud {
    pub(super) fn new(pools: Vec<Pool>, config: AzureConfig) -> Self {
        let clock = Clock::manual(Timestamp::UNIX_EPOCH);
        let topology = pools.into_iter().fold(Topology::new(), Topology::pool);
        let config = AzureConfig {
            subscription_id: topology.subscription.clone(),
            resource_group: topology.resource_group.clone(),
            location: topology.location.clone(),
            vnet_name: topology.vnet.clone(),
            ..config
        };
        let world = World::new(topology, AzureOptions::immediate(), clock).unwrap();
        let arm = arm_client(world.azure(), clock);
        let inventory = Inventory::new(arm.clone(), InventorySettings::from_config(&config), clock);
        let members = members(&arm, &inventory, &config, false);
        let resync_after = Mutex::default();
        let cloud = Self { members, world, config, arm, inventory, migrate_api: false, may_lack_nodes: false, resync_after };
        LOAD_BALANCERS.iter().for_each(|name| cloud.put_load_balancer(name));
        cloud
    }

    /// Returns the syncer of a restarted process. It keeps the inventory, whose cache is not under test.
    pub(super) fn restarted(&self) -> Self {
        self.reconfigured(self.config.clone(), self.migrate_api)
    }

    /// Returns the same cloud with a syncer of another configuration.
    pub(super) fn reconfigured(&self, config: AzureConfig, migrate_api: bool) -> Self {
        let members = members(&self.arm, &self.inventory, &config, migrate_api);
        let (arm, inventory) = (self.arm.clone(), Arc::clone(&self.inventory));
        let resync_after = Mutex::default();
        Self { world: self.world.clone(), members, config, migrate_api, may_lack_nodes: false, resync_after, arm, inventory }
    }

    pub(super) fn load_balancer_id(&self, name: &str) -> ResourceId {
        self.world.topology().group_id().resource("Microsoft.Network/loadBalancers", &[name])
    }

    /// Creates a load balancer with the cluster's pool.
    pub(super) fn put_load_balancer(&self, name: &str) {
        let id = self.load_balancer_id(name);
        let sku = if self.config.load_balancer_sku == LoadBalancerSku::Standard { "Standard" } else { "Basic" };
        let document = json!({"id": id, "name": name, "location": "eastus", "sku": {"name": sku}, "properties": {
            "backendAddressPools": [{"id": format!("{id}/backendAddressPools/{POOL}"), "name": POOL, "properties": {}}]}});
        self.world.azure().put_document(document).unwrap();
    }

    pub(super) fn load_balancer(&self, name: &str) -> ArmLoadBalancer {
        serde_json::from_value(self.world.azure().document(self.load_balancer_id(name).as_str()).unwrap()).unwrap()
    }

    pub(super) fn observed(&self) -> ObservedNetwork {
        let documents = self.world.azure().documents_of("Microsoft.Network/loadBalancers");
        let load_balancers = documents.into_iter().map(|document| serde_json::from_value(document).unwrap());
        ObservedNetwork { load_balancers: load_balancers.collect(), ..ObservedNetwork::default() }
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.world.nodes().into_iter().map(Arc::new).collect()
    }

    pub(super) fn node_names(&self) -> BTreeSet<String> {
        names(&self.nodes())
    }

    /// Returns all Nodes, with this label.
    pub(super) fn labeled(&self, label: &str) -> Vec<Arc<Node>> {
        self.world.nodes().into_iter().map(|node| Arc::new(node.label(label, ""))).collect()
    }

    pub(super) async fn sync(&self) -> Result<PoolSyncSummary, PoolSyncError> {
        let nodes = self.nodes();
        self.sync_nodes(&nodes, &nodes).await
    }

    pub(super) async fn sync_nodes(
        &self,
        nodes: &[Arc<Node>],
        all_nodes: &[Arc<Node>],
    ) -> Result<PoolSyncSummary, PoolSyncError> {
        self.sync_observed(&self.observed(), nodes, all_nodes, &[]).await
    }

    /// Plans and writes with a network that was observed earlier, and with pools that were just created.
    pub(super) async fn sync_observed(
        &self,
        observed: &ObservedNetwork,
        nodes: &[Arc<Node>],
        all_nodes: &[Arc<Node>],
        unfilled: &[ResourceId],
    ) -> Result<PoolSyncSummary, PoolSyncError> {
        let (started, memory, local) = (Instant::now(), self.members.memory(), LocalPools::default());
        let plan = |reads: &PoolReads| {
            let input = self.members.input(reads, &memory, &local);
            let input = PoolInput { hosts: Some(nodes), all_nodes, unfilled, ..input };
            pools::plan_members(observed, &input, &self.members.settings)
        };
        let work: BoxFuture<'_, _> = Box::pin(async {
            let plan = self.planned(plan, Urgency::Node).await;
            self.members.remember(&plan);
            self.write(&plan, started, Urgency::Node).await
        });
        work.await
    }

    /// Executes a plan until all its writes have ended.
    async fn write(&self, plan: &PoolPlan, started: Instant, urgency: Urgency) -> Result<PoolSyncSummary, PoolSyncError> {
        let round = self.members.begin(plan);
        let (sender, mut ends) = mpsc::unbounded_channel();
        let collect = async {
            let mut ended = Vec::new();
            while let Some(end) = ends.recv().await {
                ended.push(end);
            }
            ended
        };
        let writes = self.members.write(plan, started, self, urgency, PoolWriteEnds(sender));
        let ((), ended) = futures::future::join(writes, collect).await;
        self.members.end(round, &ended);
        let mut outcome = PoolSyncOutcome::planned(plan);
        ended.into_iter().for_each(|end| outcome.merge(end.outcome));
        let deferred = outcome.deferred.then_some(pools::POWERED_OFF_RESYNC);
        *self.resync_after.lock() = deferred.into_iter().chain(plan.resync_after).min();
        outcome.into_result()
    }

    /// Returns a plan, after all reads that it needs.
    async fn planned(&self, plan: impl Fn(&PoolReads) -> PoolPlan, urgency: Urgency) -> PoolPlan {
        let mut reads = PoolReads { may_lack_nodes: self.may_lack_nodes, ..PoolReads::default() };
        loop {
            let plan = plan(&reads);
            if plan.needs.is_empty() {
                return plan;
            }
            self.members.read(&plan.needs, &mut reads, urgency).await;
        }
    }

    pub(super) async fn leave(&self, load_balancer: &ArmLoadBalancer) -> Result<PoolSyncSummary, PoolSyncError> {
        let (started, memory, local) = (Instant::now(), self.members.memory(), LocalPools::default());
        self.members.expire_models();
        let plan = |reads: &PoolReads| {
            pools::plan_eviction(&[load_balancer], &self.members.input(reads, &memory, &local), &self.members.settings)
        };
        let work: BoxFuture<'_, _> = Box::pin(async {
            let plan = self.planned(plan, Urgency::Deletion).await;
            self.write(&plan, started, Urgency::Deletion).await
        });
        work.await
    }

    /// Fills the inventory with all machines and their interfaces.
    pub(super) async fn warm(&self) {
        self.inventory.warm().await.unwrap();
        let wanted: Vec<_> = self.nodes().iter().map(|node| nodes::machine_query(node)).collect();
        assert!(self.inventory.lookup(&wanted, Freshness::Cached).await.iter().all(Result::is_ok));
        self.requests();
    }

    fn pool_document(&self, load_balancer: &str) -> BackendAddressPool {
        self.load_balancer(load_balancer).properties.unwrap().backend_address_pools.as_ref().unwrap()[0].clone()
    }

    /// Returns the names of nodes whose interfaces list the cluster's pool of a load balancer.
    pub(super) fn in_pool(&self, load_balancer: &str) -> BTreeSet<String> {
        let properties = self.pool_document(load_balancer).properties.unwrap();
        let listed = properties.backend_ip_configurations.unwrap_or_default();
        let entries: BTreeSet<ResourceId> = listed.iter().filter_map(SubResource::resource_id).collect();
        let (topology, machines) = (self.world.topology(), self.world.machines());
        let id = |machine: &crate::sandbox::azure::topology::Machine| {
            machine.ip_configuration_id(&topology, &machine.ip_configurations[0])
        };
        machines.iter().filter(|machine| entries.contains(&id(machine))).map(|machine| machine.computer_name()).collect()
    }

    /// Returns the addresses that the pool itself lists.
    pub(super) fn addresses(&self, load_balancer: &str) -> BTreeSet<String> {
        let properties = self.pool_document(load_balancer).properties.unwrap();
        let entries = properties.load_balancer_backend_addresses.into_iter().flatten().filter_map(|entry| entry.properties);
        entries.filter_map(|entry| entry.ip_address).collect()
    }

    /// Returns the addresses of the nodes' machines.
    pub(super) fn node_addresses(&self) -> BTreeSet<String> {
        self.world.machines().iter().map(|machine| machine.ip_configurations[0].address.to_string()).collect()
    }

    /// Returns the number of models that list the pool.
    pub(super) fn models_listing(&self, load_balancer: &str) -> usize {
        let pool = self.load_balancer_id(load_balancer).child("backendAddressPools", POOL).key();
        let sets = self.world.azure().documents_of("Microsoft.Compute/virtualMachineScaleSets");
        sets.iter().filter(|set| set.to_string().to_ascii_lowercase().contains(&format!("\"{pool}\""))).count()
    }

    /// Returns the numbers of reads and writes since the last call.
    pub(super) fn requests(&self) -> (usize, usize) {
        let azure = self.world.azure();
        let counts = (azure.count(|it| it.class == Class::Read), azure.count(|it| it.class != Class::Read));
        azure.clear_requests();
        counts
    }
}

fn members(arm: &ArmClient, inventory: &Arc<Inventory>, config: &AzureConfig, migrate_api: bool) -> BackendPoolSyncer {
    let settings = Arc::new(LoadBalancerSettings::new(config, "kubernetes"));
    BackendPoolSyncer::new(arm.clone(), arm.clone(), Arc::clone(inventory), settings, 0, migrate_api)
}

pub(super) fn names(nodes: &[Arc<Node>]) -> BTreeSet<String> {
    nodes.iter().filter_map(|node| node.metadata.name.clone()).collect()
}

#[async_trait]
impl PoolWriter for Cloud {
    async fn put_pool(&self, pool: &ResourceId, document: &BackendAddressPool, urgency: Urgency) -> ArmResult<bool> {
        self.arm
            .with_urgency(urgency)
            .put(&api::BACKEND_POOLS, pool, Precondition::Unconditional, document)
            .await
            .map(|_| true)
    }

    async fn migrate_to_ip_based(&self, load_balancer: &ResourceId, pools: &[String], urgency: Urgency) -> ArmResult<()> {
        let arm = self.arm.with_urgency(urgency);
        arm.post::<Value>(&api::LOAD_BALANCERS, load_balancer, "migrateToIpBased", &json!({"pools": pools})).await.map(drop)
    }
}
