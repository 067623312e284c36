//! The traits over the real inventory and ARM client, on the simulated Azure.

use k8s_openapi::api::core::v1::Node;

use super::super::*;
use crate::{
    cloud_provider::{Existence, InstanceMetadata, InstancesV2},
    metrics::Metrics,
    providers::azure::{
        arm::{ArmClient, ArmParts, ArmSettings, Charge, Gate, TokenError, TokenProvider, Urgency},
        inventory::InventorySettings,
    },
    runtime::leader_election::Leadership,
    sandbox::azure::{
        Azure, AzureOptions, Class, Effect, Fault,
        topology::{Machine as Simulated, Pool, PoolKind, Power, Topology},
        world::{Change, Estate},
    },
};

/// The pause between two looks of the node-lifecycle controller.
const PERIOD: Duration = Duration::from_secs(5);

struct Open;

#[async_trait]
impl Gate for Open {
    async fn acquire(&self, _: &Charge, _: Urgency) {}
    fn observe(&self, _: &Charge, _: u16, _: &http::HeaderMap, _: &str) {}
}

#[async_trait]
impl TokenProvider for Open {
    async fn bearer(&self) -> Result<String, TokenError> {
        Ok("token".to_owned())
    }
    fn rejected(&self, _: &str) {}
}

struct World {
    azure: Azure,
    estate: Estate,
    instances: AzureInstances,
}

impl World {
    fn new(topology: Topology) -> Self {
        let options = AzureOptions { subscriptions: vec![topology.subscription.clone()], ..AzureOptions::default() };
        let azure = Azure::new(options);
        let estate = Estate::new(topology.clone());
        azure.load(topology.documents(&topology.machines())).unwrap();

        let config = AzureConfig {
            subscription_id: topology.subscription,
            resource_group: topology.resource_group,
            enable_vmss_flex_nodes: true,
            ..AzureConfig::default()
        };
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let parts = ArmParts {
            transport: azure.transport(),
            tokens: Arc::new(Open),
            gate: Arc::new(Open),
            leadership: Leadership::channel().1,
            metrics: Arc::new(Metrics::new().unwrap()),
            clock,
        };
        let arm = ArmClient::new(ArmSettings::new("https://management.azure.com", "test").unwrap(), parts);
        let inventory = Inventory::new(arm, InventorySettings::from_config(&config), clock);
        Self { azure, estate, instances: AzureInstances::new(&config, inventory, clock) }
    }

    fn of_all_kinds() -> Self {
        let topology = Topology::new()
            .pool(Pool::new(PoolKind::Uniform, "uni", 3).zones(&["1", "2"]))
            .pool(Pool::new(PoolKind::Flexible, "flex", 2).fault_domains(2).public_ips())
            .pool(Pool::new(PoolKind::AvailabilitySet, "avset", 2).fault_domains(2))
            .pool(Pool::new(PoolKind::Standalone, "vm", 2).in_group("rg-other"));
        Self::new(topology)
    }

    fn simulated(&self) -> Vec<Simulated> {
        self.estate.machines().map(|(_, machine)| machine.clone()).collect()
    }

    /// The Node on a machine, as a provider has initialised it, not ready.
    fn node(&self, name: &str) -> Node {
        self.estate.topology().node(self.estate.machine(name).unwrap())
    }

    fn happen(&self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Put(document) => self.azure.put_document(document).unwrap(),
                // What is below a document goes with it, so that its own removal finds nothing.
                Change::Remove(id) => {
                    self.azure.delete_document(id.as_str());
                }
                Change::Edit(id, edit) => {
                    assert!(self.azure.change_document(id.as_str(), |document| edit.apply(document)), "{id}");
                }
            }
        }
    }

    /// What the node-lifecycle controller sees one period later.
    async fn look(&self, node: &Node) -> (Existence, Option<bool>) {
        tokio::time::sleep(PERIOD).await;
        (self.instances.existence(node).await, self.instances.instance_shutdown(node).await.ok())
    }

    fn reads(&self) -> usize {
        self.azure.count(|request| request.class == Class::Read)
    }
}

fn lines(metadata: &InstanceMetadata) -> Vec<String> {
    metadata.node_addresses.iter().map(|address| format!("{} {}", address.type_, address.address)).collect()
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_machine_is_described_as_upstream_does() {
    let world = World::of_all_kinds();
    let machines = world.simulated();
    let topology = world.estate.topology();
    let nodes: Vec<_> = machines.iter().map(|machine| Arc::new(topology.uninitialized_node(machine))).collect();
    let told = world.instances.instance_metadata_batch(&nodes).await;
    for (machine, told) in machines.iter().zip(told) {
        let (name, told) = (machine.computer_name(), told.unwrap().unwrap());
        let expected = topology.node(machine);
        assert_eq!(Some(&told.provider_id), expected.spec.as_ref().unwrap().provider_id.as_ref(), "{name}");
        assert_eq!(told.instance_type, machine.pool.vm_size);
        let domain = match machine.pool.kind {
            PoolKind::Uniform => format!("eastus-{}", machine.zone().unwrap()),
            PoolKind::Flexible => machine.fault_domain().unwrap().to_string(),
            PoolKind::AvailabilitySet | PoolKind::Standalone => "0".to_owned(),
        };
        assert_eq!((told.zone.as_str(), told.region.as_str()), (domain.as_str(), "eastus"), "{name}");
        let first = &machine.ip_configurations[0];
        let mut addresses = vec![format!("InternalIP {}", first.address), format!("Hostname {name}")];
        addresses.extend(first.public_address.map(|public| format!("ExternalIP {public}")));
        assert_eq!(lines(&told), addresses);
    }
    let reads = world.reads();
    world.instances.instance_metadata_batch(&nodes).await;
    assert_eq!(world.reads(), reads, "known machines are not read again");
    assert_eq!(world.azure.count(|request| matches!(request.class, Class::Write | Class::Delete)), 0);
}

#[tokio::test(start_paused = true)]
async fn dual_stack_nodes_get_both_families_when_they_ask() {
    let world = World::new(Topology::new().pool(Pool::new(PoolKind::Uniform, "uni", 1).public_ips()).dual_stack());
    let mut node = world.estate.topology().uninitialized_node(&world.simulated()[0]);
    let told = world.instances.instance_metadata(&node).await.unwrap().unwrap();
    let four = ["InternalIP 10.224.0.4", "Hostname uni000000", "ExternalIP 52.224.0.4"];
    assert_eq!(lines(&told), four);

    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.insert("alpha.kubernetes.io/provided-node-ip".into(), "10.224.0.4,fd00:10::4".into());
    let told = world.instances.instance_metadata(&node).await.unwrap().unwrap();
    assert_eq!(lines(&told), [&four[..], &["InternalIP fd00:10::4", "ExternalIP 2603:1030:8::4"]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_deleted_is_gone_and_its_siblings_are_not() {
    for (gone, stays) in [("uni000001", "uni000000"), ("flex000001", "flex000000"), ("avset-1", "avset-0"), ("vm-1", "vm-0")]
    {
        let mut world = World::of_all_kinds();
        let (gone, stays) = (world.node(gone), world.node(stays));
        assert_eq!(world.look(&gone).await, (Existence::Exists, Some(false)));
        let ((), changes) = world.estate.delete(gone.metadata.name.as_deref().unwrap()).unwrap();
        world.happen(changes);
        assert_eq!(world.look(&gone).await, (Existence::Gone, Some(false)));
        assert_eq!(world.look(&stays).await, (Existence::Exists, Some(false)));
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_machine_made_anew_the_old_node_goes_and_the_new_one_stays() {
    for name in ["uni000001", "flex000001", "avset-1", "vm-1"] {
        let mut world = World::of_all_kinds();
        let old = world.node(name);
        assert_eq!(world.look(&old).await.0, Existence::Exists);
        let ((), changes) = world.estate.recreate(name).unwrap();
        world.happen(changes);
        let new = world.node(name);
        assert_eq!(world.look(&old).await.0, Existence::Gone, "{name}");
        assert_eq!(world.look(&new).await.0, Existence::Exists, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn power_is_seen_freshly() {
    for name in ["uni000001", "flex000001", "avset-1", "vm-1"] {
        let mut world = World::of_all_kinds();
        let node = world.node(name);
        for (power, expected) in [
            (Power::Running, false),
            (Power::Stopped, true),
            (Power::Deallocating, true),
            (Power::Deallocated, true),
            (Power::Starting, false),
            (Power::Running, false),
        ] {
            let ((), changes) = world.estate.power(name, power).unwrap();
            world.happen(changes);
            assert_eq!(world.look(&node).await, (Existence::Exists, Some(expected)), "{name} {power:?}");
        }
        let ((), changes) = world.estate.provisioning(name, "Deleting").unwrap();
        world.happen(changes);
        assert!(matches!(world.look(&node).await, (Existence::Unknown(_), Some(false))), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn broken_answers_and_empty_groups_are_no_evidence() {
    let mut world = World::of_all_kinds();
    let names = ["uni000001", "flex000001", "avset-1", "vm-1"];
    let nodes = names.map(|name| world.node(name));
    for node in &nodes {
        assert_eq!(world.look(node).await.0, Existence::Exists);
    }
    for fault in [
        Fault::refuse(401, "ExpiredAuthenticationToken"),
        Fault::refuse(403, "AuthorizationFailed"),
        Fault::refuse(429, "SubscriptionRequestsThrottled"),
        Fault::refuse(500, "InternalServerError"),
        Fault::refuse(404, "ResourceGroupNotFound"),
        Fault::new(Effect::Garbage),
        Fault::new(Effect::Truncated),
        Fault::new(Effect::NoConnection),
    ] {
        world.azure.add_fault(fault.clone());
        for node in &nodes {
            let (existence, shut_down) = world.look(node).await;
            assert!(matches!(existence, Existence::Unknown(_)), "{fault:?} {existence:?}");
            assert_eq!(shut_down, None);
        }
        world.azure.faults().clear();
    }
    world.azure.add_fault(Fault::new(Effect::EmptyList));
    for node in &nodes {
        assert_ne!(world.look(node).await.0, Existence::Gone, "empty lists");
    }
    world.azure.faults().clear();
    for group in ["rg-test", "rg-other"] {
        let (_, changes) = world.estate.empty_group(group);
        world.happen(changes);
    }
    for node in &nodes {
        let (existence, _) = world.look(node).await;
        assert!(matches!(existence, Existence::Unknown(_)), "{existence:?}");
    }
}
