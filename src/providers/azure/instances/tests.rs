//! The traits over the real inventory and ARM client, on the simulated Azure.

use k8s_openapi::api::core::v1::Node;

use super::*;
use crate::{
    cloud_provider::{Existence, InstanceMetadata, InstancesV2},
    providers::azure::{inventory::InventorySettings, node::LABEL_MANAGED, samples::arm_client},
    sandbox::{
        azure::{
            AzureOptions, Class, Effect, Fault,
            topology::{Pool, PoolKind, Power, Topology},
            world::World,
        },
        objects::{NodeExt, ObjectExt},
    },
};

/// Interval at which the node-lifecycle controller checks a Node.
const PERIOD: Duration = Duration::from_secs(5);

/// Age until which Nodes without a machine are kept.
const GRACE: Duration = Duration::from_secs(3600);

struct Setup {
    cloud: World,
    instances: AzureInstances,
}

impl Setup {
    fn of_all_kinds() -> Self {
        let topology = Topology::new()
            .pool(Pool::new(PoolKind::Uniform, "uni", 3).zones(&["1", "2"]))
            .pool(Pool::new(PoolKind::Flexible, "flex", 2).fault_domains(2).public_ips())
            .pool(Pool::new(PoolKind::AvailabilitySet, "avset", 2).fault_domains(2))
            .pool(Pool::new(PoolKind::Standalone, "vm", 2).in_group("rg-other"));
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let config = AzureConfig {
            subscription_id: topology.subscription.clone(),
            resource_group: topology.resource_group.clone(),
            node_instance_not_found_grace_period: GRACE,
            ..AzureConfig::default()
        };
        let cloud = World::new(topology, AzureOptions::immediate(), clock).unwrap();
        let inventory = Inventory::new(arm_client(cloud.azure(), clock), InventorySettings::from_config(&config), clock);
        Self { cloud, instances: AzureInstances::new(&config, inventory, clock) }
    }

    /// Returns the Node on a machine, as initialized by a provider.
    fn node(&self, name: &str) -> Node {
        self.cloud.topology().node(&self.cloud.machine(name).unwrap())
    }

    /// Describes all Nodes, so that their machines and the UUIDs that their firmware reports are known.
    async fn learn(&self) {
        let nodes: Vec<_> = self.cloud.nodes().into_iter().map(Arc::new).collect();
        assert!(self.instances.instance_metadata_batch(&nodes).await.iter().all(Result::is_ok));
    }

    /// Returns the existence that the node-lifecycle controller observes one period later.
    async fn existence_after_period(&self, node: &Node) -> Existence {
        tokio::time::sleep(PERIOD).await;
        self.instances.existence(node).await
    }

    fn reads(&self) -> usize {
        self.cloud.azure().count(|request| request.class == Class::Read)
    }
}

fn lines(metadata: &InstanceMetadata) -> Vec<String> {
    metadata.node_addresses.iter().map(|address| format!("{} {}", address.type_, address.address)).collect()
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_machine_is_described_as_upstream_does() {
    let setup = Setup::of_all_kinds();
    let machines = setup.cloud.machines();
    let topology = setup.cloud.topology();
    let nodes: Vec<_> = machines.iter().map(|machine| Arc::new(topology.uninitialized_node(machine))).collect();
    let results = setup.instances.instance_metadata_batch(&nodes).await;
    for (machine, result) in machines.iter().zip(results) {
        let (name, metadata) = (machine.computer_name(), result.unwrap().unwrap());
        let expected = topology.node(machine);
        assert_eq!(Some(&metadata.provider_id), expected.spec.as_ref().unwrap().provider_id.as_ref(), "{name}");
        assert_eq!(metadata.instance_type, machine.pool.vm_size);
        let domain = match machine.pool.kind {
            PoolKind::Uniform => format!("eastus-{}", machine.zone().unwrap()),
            PoolKind::Flexible => machine.fault_domain().unwrap().to_string(),
            PoolKind::AvailabilitySet | PoolKind::Standalone => "0".to_owned(),
        };
        assert_eq!((metadata.zone.as_str(), metadata.region.as_str()), (domain.as_str(), "eastus"), "{name}");
        let first = &machine.ip_configurations[0];
        let mut addresses = vec![format!("InternalIP {}", first.address), format!("Hostname {name}")];
        addresses.extend(first.public_address.map(|public| format!("ExternalIP {public}")));
        assert_eq!(lines(&metadata), addresses);
    }
    let reads = setup.reads();
    setup.instances.instance_metadata_batch(&nodes).await;
    assert_eq!(setup.reads(), reads, "known machines are not read again");
    assert_eq!(setup.cloud.azure().count(|request| matches!(request.class, Class::Write | Class::Delete)), 0);
}

#[tokio::test(start_paused = true)]
async fn a_404_of_an_instance_counts_and_of_its_parent_does_not() {
    for (code, is_gone) in [
        ("VMScaleSetVMNotFound", true),
        ("VirtualMachineNotFound", true),
        ("ParentResourceNotFound", false),
        ("ResourceGroupNotFound", false),
        ("InvalidResourceType", false),
    ] {
        let setup = Setup::of_all_kinds();
        let node = setup.node("uni000001");
        assert_eq!(setup.existence_after_period(&node).await, Existence::Exists);
        setup.cloud.azure().add_fault(Fault::refuse(404, code).path("*/virtualMachineScaleSets/uni/virtualMachines/1"));
        setup.cloud.azure().add_fault(Fault::refuse(404, code).path("*/virtualMachineScaleSets/uni/virtualMachines"));
        let existence = setup.existence_after_period(&node).await;
        assert_eq!(existence == Existence::Gone, is_gone, "{code}: {existence:?}");
        // The surroundings of the instance must be intact as well.
        setup.cloud.azure().add_fault(Fault::new(Effect::Forbidden).path("*/virtualMachineScaleSets").lists());
        tokio::time::sleep(Duration::from_secs(60)).await;
        let existence = setup.existence_after_period(&node).await;
        assert!(matches!(existence, Existence::Unknown(_)), "{code}: {existence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recreated_machine_is_described_from_new_reads() {
    let setup = Setup::of_all_kinds();
    setup.learn().await;
    setup.cloud.recreate_machine("uni000001").unwrap();
    setup.cloud.move_address("uni000001", "10.224.9.9".parse().unwrap()).unwrap();
    tokio::time::sleep(PERIOD).await;
    let metadata = setup.instances.instance_metadata(&setup.node("uni000001")).await.unwrap().unwrap();
    assert_eq!(lines(&metadata)[0], "InternalIP 10.224.9.9");
}

#[tokio::test(start_paused = true)]
async fn existence_follows_direct_reads() {
    let setup = Setup::of_all_kinds();
    setup.learn().await;
    let (former, deleted) = (setup.node("uni000001"), setup.node("flex000001"));
    setup.cloud.recreate_machine("uni000001").unwrap();
    setup.cloud.delete_machine("flex000001").unwrap();
    setup.cloud.azure().add_fault(Fault::refuse(500, "InternalServerError").path("*/virtualMachines/avset-0"));
    let mut young = deleted.clone();
    young.metadata.creation_timestamp = Some(setup.instances.clock.wall().into());
    let disk = deleted.spec.as_ref().unwrap().provider_id.as_ref().unwrap().replace("virtualMachines", "disks");
    for (node, expected) in [
        (setup.node("uni000000"), Some(true)),
        (former, Some(false)),
        (setup.node("uni000001"), Some(true)),
        (young, Some(true)),
        (deleted.clone(), Some(false)),
        (deleted.clone().label(LABEL_MANAGED, "false"), Some(true)),
        (deleted.clone().provider_id("kind://flex000001"), Some(true)),
        (deleted.provider_id(&disk), None),
        (setup.node("avset-0"), None),
    ] {
        let exists = match setup.existence_after_period(&node).await {
            Existence::Exists => Some(true),
            Existence::Gone => Some(false),
            Existence::Unknown(_) => None,
        };
        assert_eq!(exists, expected, "{node:?}");
        assert_eq!(setup.instances.instance_exists(&node).await.ok(), expected, "{node:?}");
    }
    let is_single = |path: &str| path.ends_with("/virtualMachineScaleSets/uni/virtualMachines/1");
    assert!(
        setup.cloud.azure().count(|request| is_single(&request.path)) > 0,
        "another machine is confirmed by its own read"
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_follows_the_power_state() {
    let setup = Setup::of_all_kinds();
    setup.cloud.set_power("uni000000", Power::Deallocated).unwrap();
    setup.cloud.azure().add_fault(Fault::refuse(500, "InternalServerError").path("*/virtualMachines/avset-0"));
    let deleted = setup.node("vm-1");
    setup.cloud.delete_machine("vm-1").unwrap();
    for (node, is_down, is_running) in [
        (setup.node("uni000000"), Some(true), Some(false)),
        (setup.node("uni000001"), Some(false), Some(true)),
        (setup.node("uni000000").label(LABEL_MANAGED, "false"), Some(false), Some(false)),
        (setup.node("uni000000").provider_id("kind://uni000000"), Some(false), Some(false)),
        (deleted, Some(false), Some(false)),
        (setup.node("avset-0"), None, None),
    ] {
        assert_eq!(setup.instances.instance_shutdown(&node).await.ok(), is_down, "{node:?}");
        assert_eq!(setup.instances.instance_runs(&node).await.ok(), is_running, "{node:?}");
    }
}
