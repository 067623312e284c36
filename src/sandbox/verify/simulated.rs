//! A simulated Azure to play the table against, with all of Azure's limits and quota headers, and an empty resource group.

use serde_json::json;

use crate::{
    runtime::clock::Clock,
    sandbox::azure::{
        AzureOptions, Latencies, Latency, LoadBalancerLimits, Quotas,
        throttle::{ArmQuota, BucketSize},
        topology::{Pool, PoolKind, Topology},
        world::{StartError, World},
    },
};

/// The empty resource group.
pub const GROUP: &str = "scratch";
/// The machine whose metadata service is served.
const MACHINE: &str = "lone";
/// Duration of each operation.
const OPERATION: std::time::Duration = std::time::Duration::from_millis(60);

/// Returns a world in which every row can be played.
pub fn build_world(clock: Clock) -> Result<World, StartError> {
    let topology = Topology::new().pool(Pool::new(PoolKind::Standalone, MACHINE, 1).public_ips());
    let bucket = BucketSize { burst: 12_000.0, per_second: 1_000.0 };
    let arm = ArmQuota { reads: bucket, writes: bucket, deletes: bucket, principals: 15.0 };
    let options = AzureOptions {
        limits: LoadBalancerLimits::azure(),
        quotas: Quotas { arm: Some(arm), network: None, compute: true },
        latencies: Latencies::writes(Latency { operation: OPERATION, ..Latency::default() }),
        ..AzureOptions::default()
    };
    let simulation = World::new(topology, options, clock)?;
    let id = format!("/subscriptions/{}/resourceGroups/{GROUP}", simulation.topology().subscription);
    let group = json!({"id": id, "location": simulation.topology().location});
    simulation.azure().put_document(group).map_err(|error| StartError::Topology(error.to_string()))?;
    let node = simulation.machines().first().map(|machine| simulation.topology().node(machine));
    let name = node.and_then(|node| node.metadata.name).unwrap_or_default();
    let identity = simulation.managed_identity(crate::sandbox::azure::world::CLIENT_ID, None);
    simulation.run_on(&name, vec![identity]).map_err(|error| StartError::Topology(format!("{error:?}")))?;
    Ok(simulation)
}
