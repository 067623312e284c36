//! The traits over the real inventory and ARM client, on the simulated Azure.

use k8s_openapi::api::core::v1::Node;

use super::super::*;
use crate::{
    cloud_provider::{Existence, InstanceMetadata, InstancesV2},
    providers::azure::{inventory::InventorySettings, samples::arm_client},
    sandbox::azure::{
        AzureOptions, Class, Effect, Fault,
        topology::{Pool, PoolKind, Power, Topology},
        world::World,
    },
};

/// The pause between two looks of the node-lifecycle controller.
const PERIOD: Duration = Duration::from_secs(5);

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
            ..AzureConfig::default()
        };
        let cloud = World::new(topology, AzureOptions::immediate(), clock).unwrap();
        let inventory = Inventory::new(arm_client(cloud.azure(), clock), InventorySettings::from_config(&config), clock);
        Self { cloud, instances: AzureInstances::new(&config, inventory, clock) }
    }

    /// The Node on a machine, as a provider has initialised it.
    fn node(&self, name: &str) -> Node {
        self.cloud.topology().node(&self.cloud.machine(name).unwrap())
    }

    /// What the node-lifecycle controller sees one period later.
    async fn look(&self, node: &Node) -> (Existence, Option<bool>) {
        tokio::time::sleep(PERIOD).await;
        (self.instances.existence(node).await, self.instances.instance_shutdown(node).await.ok())
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
    let told = setup.instances.instance_metadata_batch(&nodes).await;
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
    let reads = setup.reads();
    setup.instances.instance_metadata_batch(&nodes).await;
    assert_eq!(setup.reads(), reads, "known machines are not read again");
    assert_eq!(setup.cloud.azure().count(|request| matches!(request.class, Class::Write | Class::Delete)), 0);
}

#[tokio::test(start_paused = true)]
async fn of_a_machine_made_anew_the_old_node_goes_and_the_new_one_stays() {
    for name in ["uni000001", "flex000001", "avset-1", "vm-1"] {
        let setup = Setup::of_all_kinds();
        let old = setup.node(name);
        // Some more that show that firmware tells vmId.
        for name in ["uni000000", "uni000001", "uni000002", "flex000001", "avset-1", "vm-1"] {
            setup.look(&setup.node(name)).await;
        }
        setup.cloud.recreate_machine(name).unwrap();
        let new = setup.node(name);
        assert_eq!(setup.look(&old).await.0, Existence::Gone, "{name}");
        assert_eq!(setup.look(&new).await.0, Existence::Exists, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn power_is_seen_freshly() {
    for name in ["uni000001", "flex000001", "avset-1", "vm-1"] {
        let setup = Setup::of_all_kinds();
        let node = setup.node(name);
        for (power, expected) in [
            (Power::Running, false),
            (Power::Stopped, true),
            (Power::Deallocating, true),
            (Power::Deallocated, true),
            (Power::Starting, false),
            (Power::Running, false),
        ] {
            setup.cloud.set_power(name, power).unwrap();
            assert_eq!(setup.look(&node).await, (Existence::Exists, Some(expected)), "{name} {power:?}");
        }
        setup.cloud.set_provisioning_state(name, "Deleting").unwrap();
        assert!(matches!(setup.look(&node).await, (Existence::Unknown(_), Some(false))), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instances_own_404_counts_whatever_its_code_and_a_missing_parent_does_not() {
    for (code, gone) in [
        ("VMScaleSetVMNotFound", true),
        ("VirtualMachineNotFound", true),
        ("ParentResourceNotFound", false),
        ("ResourceGroupNotFound", false),
        ("InvalidResourceType", false),
    ] {
        let setup = Setup::of_all_kinds();
        let node = setup.node("uni000001");
        assert_eq!(setup.look(&node).await.0, Existence::Exists);
        setup.cloud.azure().add_fault(Fault::refuse(404, code).path("*/virtualMachineScaleSets/uni/virtualMachines/1"));
        setup.cloud.azure().add_fault(Fault::refuse(404, code).path("*/virtualMachineScaleSets/uni/virtualMachines"));
        let existence = setup.look(&node).await.0;
        assert_eq!(existence == Existence::Gone, gone, "{code}: {existence:?}");
        // What surrounds it has to be as it should all the same.
        setup.cloud.azure().add_fault(Fault::new(Effect::Forbidden).path("*/virtualMachineScaleSets").lists());
        tokio::time::sleep(Duration::from_secs(60)).await;
        let existence = setup.look(&node).await.0;
        assert!(matches!(existence, Existence::Unknown(_)), "{code}: {existence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn broken_answers_and_empty_groups_are_no_evidence() {
    let setup = Setup::of_all_kinds();
    let names = ["uni000001", "flex000001", "avset-1", "vm-1"];
    let nodes = names.map(|name| setup.node(name));
    for node in &nodes {
        assert_eq!(setup.look(node).await.0, Existence::Exists);
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
        setup.cloud.azure().add_fault(fault.clone());
        for node in &nodes {
            let (existence, shut_down) = setup.look(node).await;
            assert!(matches!(existence, Existence::Unknown(_)), "{fault:?} {existence:?}");
            assert_eq!(shut_down, None);
        }
        setup.cloud.azure().faults().clear();
    }
    setup.cloud.azure().add_fault(Fault::new(Effect::EmptyList));
    for node in &nodes {
        assert_ne!(setup.look(node).await.0, Existence::Gone, "empty lists");
    }
    setup.cloud.azure().faults().clear();
    for group in ["rg-test", "rg-other"] {
        assert!(!setup.cloud.empty_group(group).is_empty());
    }
    for node in &nodes {
        let (existence, _) = setup.look(node).await;
        assert!(matches!(existence, Existence::Unknown(_)), "{existence:?}");
    }
}
