//! The inventory with the real client on the simulated cloud.
#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

pub(super) mod arm_fixture;

use futures::future::join_all;
use jiff::Timestamp;

use self::arm_fixture::{named, with_id};
use super::*;
use crate::{
    providers::azure::{
        config::{AzureConfig, VmType},
        samples::arm_client,
    },
    sandbox::azure::{
        AzureOptions, Effect, Fault,
        topology::{Pool, PoolKind, Topology},
        world::World,
    },
};

/// A simulated cloud with pages of 20, and an inventory that reads it.
struct Cloud {
    simulation: World,
    inventory: Arc<Inventory>,
}

fn cloud(kind: PoolKind, pools: usize, each: u32) -> Cloud {
    let clock = Clock::manual(Timestamp::UNIX_EPOCH);
    let vm_type = match kind {
        PoolKind::Uniform => VmType::Vmss,
        PoolKind::Flexible => VmType::VmssFlex,
        PoolKind::AvailabilitySet | PoolKind::Standalone => VmType::Standard,
    };
    let pools = (0..pools).map(|number| Pool::new(kind, &format!("pool{number}"), each));
    let topology = pools.fold(Topology::new(), Topology::pool);
    let config = AzureConfig {
        subscription_id: topology.subscription.clone(),
        resource_group: topology.resource_group.clone(),
        vm_type,
        disable_availability_set_nodes: vm_type == VmType::Vmss,
        ..AzureConfig::default()
    };
    let simulation = World::new(topology, AzureOptions { page_size: 20, ..AzureOptions::immediate() }, clock).unwrap();
    let inventory = Inventory::new(arm_client(simulation.azure(), clock), InventorySettings::from_config(&config), clock);
    Cloud { simulation, inventory }
}

impl Cloud {
    fn queries(&self) -> Vec<MachineQuery> {
        let names = self.simulation.uninitialized_nodes().into_iter().filter_map(|node| node.metadata.name);
        names.map(|name| named(&name)).collect()
    }

    async fn lookup(&self, queries: &[MachineQuery]) -> Vec<Result<Arc<Machine>, LookupError>> {
        self.inventory.lookup(queries, Freshness::Cached).await
    }

    /// Looks up all machines; returns them in the order of [`Cloud::queries`].
    async fn warmed_machines(&self) -> Vec<Arc<Machine>> {
        let found = self.lookup(&self.queries()).await;
        self.requests();
        tokio::time::advance(Duration::from_secs(60)).await;
        found.into_iter().map(Result::unwrap).collect()
    }

    async fn confirm(&self, machine: &Machine) -> MachineExistence {
        self.inventory.check_existence(&with_id(machine.node_name(), &machine.id), Duration::ZERO).await
    }

    /// Returns the number of requests since the last call.
    fn requests(&self) -> usize {
        let count = self.simulation.azure().count(|request| request.method == "GET");
        assert_eq!(self.simulation.azure().count(|_| true), count, "nothing but reads");
        self.simulation.azure().clear_requests();
        count
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_lookups_share_the_lists() {
    for (kind, lists) in
        [(PoolKind::Uniform, 1 + 50 + 50), (PoolKind::Flexible, 1 + 50 + 48), (PoolKind::AvailabilitySet, 48 + 48)]
    {
        let cloud = cloud(kind, 5, 190);
        let queries = cloud.queries();
        let all = join_all(queries.iter().map(|query| cloud.lookup(std::slice::from_ref(query)))).await;
        let is_whole = |machine: &Arc<Machine>| !machine.interfaces[0].ip_configurations.is_empty();
        assert!(all.iter().all(|it| it[0].as_ref().is_ok_and(is_whole)), "{kind:?}");
        let requests = cloud.requests();
        // The first lookups may be served alone, before the others begin.
        assert!((lists..=lists + 10).contains(&requests), "{kind:?}: {requests}");
        assert!(cloud.lookup(&queries).await.iter().all(Result::is_ok));
        assert_eq!(cloud.requests(), 0, "{kind:?}");
        assert_eq!(cloud.inventory.health(), Ok(()));
        assert_eq!(cloud.inventory.status().waiting, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn arm_failures_prove_no_deletion_and_the_inventory_recovers() {
    let faults = [
        Fault::refuse(401, "ExpiredAuthenticationToken"),
        Fault::refuse(403, "AuthorizationFailed"),
        Fault::refuse(404, "ResourceGroupNotFound"),
        Fault::refuse(404, "ResourceNotFound"),
        Fault::refuse(429, "TooManyRequests"),
        Fault::refuse(500, "InternalServerError"),
        Fault::new(Effect::Garbage),
        Fault::new(Effect::EmptyList),
        Fault::new(Effect::Truncated),
        Fault::new(Effect::Hang),
        Fault::new(Effect::NoConnection),
    ];
    for fault in faults {
        for kind in [PoolKind::Uniform, PoolKind::Flexible, PoolKind::Standalone] {
            let (warm, cold) = (cloud(kind, 1, 30), cloud(kind, 1, 30));
            let warmed_machines = warm.warmed_machines().await;
            for cloud in [&warm, &cold] {
                cloud.simulation.azure().add_fault(fault.clone());
                tokio::time::advance(Duration::from_secs(3600)).await;
                let _ = cloud.inventory.warm().await;
                assert_eq!(cloud.lookup(&cloud.queries()).await.len(), 30);
                assert!(cloud.inventory.health().is_err(), "{fault:?} {kind:?}");
                for machine in &warmed_machines[..2] {
                    let sighting = cloud.confirm(machine).await;
                    assert_ne!(sighting, MachineExistence::Gone, "{fault:?} {kind:?}");
                }
                cloud.simulation.azure().faults().clear();
                tokio::time::advance(Duration::from_secs(61)).await;
                assert_eq!(cloud.inventory.warm().await, Ok(()), "{fault:?} {kind:?}");
                assert!(cloud.lookup(&cloud.queries()).await.iter().all(Result::is_ok), "{fault:?} {kind:?}");
                assert_eq!(cloud.inventory.health(), Ok(()), "{fault:?} {kind:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_blocks_no_other() {
    let cloud = cloud(PoolKind::Uniform, 1, 30);
    cloud.simulation.azure().add_fault(Fault::new(Effect::Hang).times(1));
    let queries = cloud.queries();
    tokio::time::timeout(Duration::from_secs(1), cloud.lookup(&queries)).await.unwrap_err();
    assert!(cloud.lookup(&queries).await.iter().all(Result::is_ok));
    assert_eq!(cloud.inventory.status().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn writes_update_the_snapshot() {
    let cloud = cloud(PoolKind::Standalone, 1, 2);
    let warmed_machines = cloud.warmed_machines().await;
    let mut changed = Machine::clone(&warmed_machines[0]);
    changed.provisioning_state = "Updating".to_owned();
    cloud.inventory.observe(changed.clone());
    cloud.inventory.forget(&warmed_machines[1].id);
    let queries = cloud.queries();
    let found = cloud.lookup(&queries).await;
    assert_eq!(*found[0].clone().unwrap(), changed);
    assert!(matches!(found[1], Err(LookupError::NotListed(_))));
    assert_eq!(cloud.requests(), 0);
}
