//! Membership with the real client and inventory on the simulated cloud.
#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

mod cloud;
mod failures;
mod migration;
mod rules;

use std::collections::BTreeSet;

use cloud::{Cloud, LOAD_BALANCERS, config, names};

use super::*;
use crate::sandbox::azure::topology::{Pool, PoolKind};

const KINDS: [PoolKind; 4] = [PoolKind::Uniform, PoolKind::Flexible, PoolKind::AvailabilitySet, PoolKind::Standalone];

fn of_kind(kind: PoolKind, count: u32) -> Cloud {
    Cloud::new(vec![Pool::new(kind, "pool0", count)], config(kind))
}

#[tokio::test(start_paused = true)]
async fn nodes_of_every_kind_join_and_then_nothing_is_asked_or_written() {
    for kind in KINDS {
        let cloud = of_kind(kind, 5);
        cloud.warm().await;
        let synced = cloud.sync().await.unwrap();
        let models = usize::from(matches!(kind, PoolKind::Uniform | PoolKind::Flexible));
        assert_eq!((synced.models, synced.machines, synced.pools), (models, 5, 0), "{kind:?}");
        assert_eq!(synced.load_balancers, LOAD_BALANCERS.map(|name| cloud.load_balancer_id(name)).into());
        for name in LOAD_BALANCERS {
            assert_eq!(cloud.in_pool(name), cloud.node_names(), "{kind:?} {name}");
            assert_eq!(cloud.models_listing(name), models, "{kind:?} {name}");
        }
        let (reads, writes) = cloud.requests();
        assert!(writes == 5 + models && reads <= 5 + models + 1, "{kind:?}: {reads} reads, {writes} writes");
        assert_eq!(cloud.sync().await, Ok(PoolSyncSummary::default()), "{kind:?}");
        assert_eq!(cloud.requests(), (0, 0), "{kind:?}");
        // Without this Node, the pool would be empty.
        let excluded = cloud.labeled("node.kubernetes.io/exclude-from-external-load-balancers");
        assert_eq!(cloud.sync_nodes(&[], &excluded).await, Ok(PoolSyncSummary::default()), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_more_node_is_one_write_and_a_restart_is_none() {
    for kind in KINDS {
        let cloud = of_kind(kind, 5);
        cloud.warm().await;
        cloud.sync().await.unwrap();
        let node = cloud.world.scale_out("pool0", 1).unwrap().remove(0);
        // When the Node joins the cluster, the lists are already older, unless its id contains the location of its instance.
        if kind != PoolKind::Uniform {
            tokio::time::advance(std::time::Duration::from_secs(60)).await;
        }
        cloud.requests();
        let synced = cloud.sync().await.unwrap();
        assert_eq!((synced.models, synced.machines), (0, 1), "{kind:?}");
        assert!(LOAD_BALANCERS.iter().all(|name| cloud.in_pool(name).contains(&node)), "{kind:?}");
        let (reads, writes) = cloud.requests();
        assert!(writes == 1 && reads <= 4, "{kind:?}: {reads} reads, {writes} writes");
        let restarted = cloud.restarted();
        assert_eq!(restarted.sync().await, Ok(PoolSyncSummary::default()), "{kind:?}");
        let (reads, writes) = cloud.requests();
        assert!(reads <= 1 && writes == 0, "{kind:?}: {reads} reads, {writes} writes");
    }
}

#[tokio::test(start_paused = true)]
async fn machines_that_are_gone_or_off_hold_up_nobody() {
    for kind in KINDS {
        let cloud = of_kind(kind, 4);
        cloud.warm().await;
        let nodes = cloud.nodes();
        let all: Vec<String> = names(&nodes).into_iter().collect();
        cloud.world.delete_machine(&all[0]).unwrap();
        cloud.world.set_power(&all[1], crate::sandbox::azure::topology::Power::Deallocated).unwrap();
        tokio::time::advance(std::time::Duration::from_secs(3600)).await;
        cloud.sync_nodes(&nodes, &nodes).await.unwrap();
        let expected: BTreeSet<String> = match kind {
            // Lists of these kinds have no power states: a machine that is off joins, because its interface can be written.
            PoolKind::AvailabilitySet | PoolKind::Standalone => all[1..].iter().cloned().collect(),
            PoolKind::Uniform | PoolKind::Flexible => all[2..].iter().cloned().collect(),
        };
        assert_eq!(cloud.in_pool("kubernetes"), expected, "{kind:?}");
        cloud.requests();
        assert_eq!(cloud.sync_nodes(&nodes, &nodes).await, Ok(PoolSyncSummary::default()), "{kind:?}");
        assert_eq!(cloud.requests().1, 0, "{kind:?}");
        // A member whose machine and Node are deleted leaves no work.
        cloud.world.delete_machine(&all[3]).unwrap();
        assert_eq!(cloud.sync().await, Ok(PoolSyncSummary::default()), "{kind:?}");
    }
}
