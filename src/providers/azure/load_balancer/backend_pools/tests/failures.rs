//! Tests of failures: other writers, machines that fail, a killed process.

use std::time::Duration;

use super::*;
use crate::{
    cloud_provider::CloudError,
    providers::azure::planner::load_balancer::plan::pools::POWERED_OFF_RESYNC,
    sandbox::azure::{Effect, Fault, topology::Machine},
};

#[tokio::test(start_paused = true)]
async fn what_somebody_else_has_written_is_read_again() {
    for path in ["*/virtualMachineScaleSets/pool0", "*/virtualMachineScaleSets/pool0/virtualMachines/1"] {
        let cloud = of_kind(PoolKind::Uniform, 3);
        cloud.warm().await;
        cloud.world.azure().add_fault(Fault::refuse(412, "PreconditionFailed").method("PUT").path(path).times(2));
        let synced = cloud.sync().await.unwrap();
        assert_eq!((synced.models, synced.machines), (1, 3), "{path}");
        assert_eq!(cloud.requests().1, 4 + 2, "{path}");
        // A conflict that never ends is an error after the last attempt.
        let cloud = of_kind(PoolKind::Uniform, 3);
        cloud.warm().await;
        cloud.world.azure().add_fault(Fault::refuse(412, "PreconditionFailed").method("PUT").path(path));
        assert_eq!(cloud.sync().await.unwrap_err().failures.len(), 1, "{path}");
    }
}

/// Makes ARM refuse writes of the document of this machine that lists its pools.
fn refuse_writes(cloud: &Cloud, kind: PoolKind, machine: &Machine) {
    let topology = cloud.world.topology();
    let document = if kind == PoolKind::Uniform { machine.id(&topology) } else { machine.interface_id(&topology) };
    cloud.world.azure().add_fault(Fault::refuse(400, "InvalidParameter").method("PUT").path(document.as_str()));
}

#[tokio::test(start_paused = true)]
async fn one_machine_that_fails_keeps_no_other_out() {
    for kind in KINDS {
        let cloud = of_kind(kind, 30);
        cloud.warm().await;
        let victim = cloud.world.machines().remove(7);
        refuse_writes(&cloud, kind, &victim);
        let error = cloud.sync().await.unwrap_err();
        assert_eq!((error.summary.machines, error.failures.len()), (29, 1), "{kind:?}");
        assert_eq!(error.failures[0].what, victim.computer_name(), "{kind:?}");
        let error = CloudError::from(error);
        assert!(matches!(&error, CloudError::Failed(why) if why.contains(&victim.computer_name())), "{kind:?}: {error:?}");
        assert_eq!(cloud.in_pool("kubernetes").len(), 29, "{kind:?}");
        cloud.world.azure().faults().clear();
        cloud.requests();
        let error = cloud.sync().await.unwrap_err();
        assert_eq!((error.failures.len(), cloud.requests().1), (1, 0), "{kind:?}: not sent again at once");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(cloud.sync().await.unwrap().machines, 1, "{kind:?}");
    }
}

/// ARM accepts a write and then fails to carry it out. The document lists the pools, and is still written again, once.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_carried_out_is_made_up_for() {
    for (kind, document) in [
        (PoolKind::Uniform, "*/virtualMachineScaleSets/pool0"),
        (PoolKind::Flexible, "*/virtualMachineScaleSets/pool0"),
        (PoolKind::Uniform, "*/virtualMachineScaleSets/pool0/virtualMachines/1"),
        (PoolKind::AvailabilitySet, "*/networkInterfaces/*"),
    ] {
        let cloud = of_kind(kind, 3);
        cloud.warm().await;
        let fails = Effect::FailOperation("InternalServerError".to_owned(), "An error occurred.".to_owned());
        cloud.world.azure().add_fault(Fault::new(fails).method("PUT").path(document).times(1));
        assert_eq!(cloud.sync().await.unwrap_err().failures.len(), 1, "{kind:?} {document}");
        let is_failed = |document: &serde_json::Value| document["properties"]["provisioningState"] == "Failed";
        let failed = || {
            let types = ["Microsoft.Compute/virtualMachineScaleSets", "Microsoft.Network/networkInterfaces"];
            let instances = ["Microsoft.Compute/virtualMachineScaleSets/virtualMachines"];
            let all = types.iter().chain(&instances).flat_map(|kind| cloud.world.azure().documents_of(kind));
            all.filter(is_failed).count()
        };
        assert_eq!(failed(), 1, "{kind:?} {document}");
        tokio::time::advance(Duration::from_secs(60)).await;
        let synced = cloud.sync().await.unwrap();
        assert_eq!((synced.models + synced.machines, failed()), (1, 0), "{kind:?} {document}");
        cloud.requests();
        assert_eq!(cloud.sync().await, Ok(PoolSyncSummary::default()), "{kind:?} {document}");
        assert_eq!(cloud.requests(), (0, 0), "{kind:?} {document}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_keeps_no_instance_out() {
    let cloud = of_kind(PoolKind::Uniform, 3);
    cloud.warm().await;
    cloud.world.forbid("Microsoft.Compute/virtualMachineScaleSets/write");
    let error = cloud.sync().await.unwrap_err();
    assert_eq!((error.summary.models, error.summary.machines, error.failures.len()), (0, 3, 1));
    cloud.world.azure().allow_all();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(cloud.sync().await.unwrap().models, 1);
}

/// No Service waits for the machine: it is read again after a while. The load balancer cannot be deleted while the machine
/// is a member.
#[tokio::test(start_paused = true)]
async fn a_machine_without_a_node_that_fails_fails_nobody() {
    for kind in KINDS {
        let cloud = of_kind(kind, 3);
        cloud.warm().await;
        cloud.sync().await.unwrap();
        let nodes = cloud.nodes();
        let machines = cloud.world.machines();
        let victim = machines.iter().find(|machine| machine.computer_name() == node::name(&nodes[0])).unwrap();
        refuse_writes(&cloud, kind, victim);
        for _ in 0..2 {
            let synced = cloud.sync_nodes(&nodes[1..], &nodes[1..]).await;
            assert_eq!(synced.map(|synced| synced.machines), Ok(0), "{kind:?}");
            assert_eq!(*cloud.resync_after.lock(), Some(POWERED_OFF_RESYNC), "{kind:?}");
        }
        assert!(cloud.leave(&cloud.load_balancer("kubernetes-internal")).await.is_err(), "{kind:?}");
        cloud.world.azure().faults().clear();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(cloud.sync_nodes(&nodes[1..], &nodes[1..]).await.is_ok(), "{kind:?}");
        assert_eq!(cloud.in_pool("kubernetes"), names(&nodes[1..]), "{kind:?}");
        assert_eq!(*cloud.resync_after.lock(), None, "{kind:?}");
    }
}

/// The previous process wrote the document and was killed before it could record that.
#[tokio::test(start_paused = true)]
async fn who_is_in_already_shows_that_the_load_balancer_is_known_from_before() {
    for kind in KINDS {
        let cloud = of_kind(kind, 3);
        cloud.warm().await;
        let before = cloud.observed();
        cloud.sync().await.unwrap();
        let (next, nodes) = (cloud.restarted(), cloud.nodes());
        let balancers = LOAD_BALANCERS.map(|name| cloud.load_balancer_id(name));
        let synced = next.sync_observed(&before, &nodes, &nodes, &[]).await.unwrap();
        assert_eq!(synced, PoolSyncSummary { load_balancers: balancers.into(), ..PoolSyncSummary::default() }, "{kind:?}");
    }
}
