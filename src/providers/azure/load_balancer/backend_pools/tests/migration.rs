//! Tests of pools that list addresses, and of migrations between the kinds.

use super::*;
use crate::{providers::azure::config::AzureConfig, sandbox::azure::Crash};

fn by_address(config: AzureConfig) -> AzureConfig {
    AzureConfig { load_balancer_backend_pool_configuration_type: BackendPoolType::NodeIp, ..config }
}

fn assert_by_address(cloud: &Cloud, about: &str) {
    for name in LOAD_BALANCERS {
        assert_eq!(cloud.addresses(name), cloud.node_addresses(), "{about} {name}");
        assert_eq!((cloud.in_pool(name).len(), cloud.models_listing(name)), (0, 0), "{about} {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_are_one_write_for_each_pool() {
    for kind in KINDS {
        let cloud = Cloud::new(vec![Pool::new(kind, "pool0", 4)], by_address(config(kind)));
        let synced = cloud.sync().await.unwrap();
        assert_eq!((synced.models, synced.machines, synced.pools), (0, 0, 2), "{kind:?}");
        assert_by_address(&cloud, "join");
        cloud.requests();
        assert_eq!(cloud.sync().await, Ok(PoolSyncSummary::default()));
        assert_eq!(cloud.requests(), (0, 0), "{kind:?}");
        cloud.world.scale_out("pool0", 1).unwrap();
        assert_eq!(cloud.sync().await.unwrap().pools, 2, "{kind:?}");
        assert_by_address(&cloud, "one more");
        assert_eq!(cloud.requests(), (0, 2), "{kind:?}");
        let all = cloud.nodes();
        // A Node that will be removed remains, so that its connections can end, and does not rejoin once it has left.
        assert_eq!(cloud.sync_nodes(&all[1..], &all).await, Ok(PoolSyncSummary::default()), "{kind:?}");
        assert_eq!(cloud.sync_nodes(&all[1..], &all[1..]).await.unwrap().pools, 2, "{kind:?}");
        assert_eq!(cloud.addresses("kubernetes").len(), 4, "{kind:?}");
        assert_eq!(cloud.sync_nodes(&all[1..], &all).await, Ok(PoolSyncSummary::default()), "{kind:?}");
        assert_eq!(cloud.sync_nodes(&[], &all).await, Ok(PoolSyncSummary::default()), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn to_addresses_and_back() {
    for kind in KINDS {
        for api in [false, true] {
            let cloud = of_kind(kind, 3);
            cloud.warm().await;
            cloud.sync().await.unwrap();
            let next = cloud.reconfigured(by_address(cloud.config.clone()), api);
            next.sync().await.unwrap();
            assert_by_address(&next, &format!("{kind:?} {api}"));
            assert_eq!(next.sync().await, Ok(PoolSyncSummary::default()), "{kind:?} {api}");
            let back = cloud.restarted();
            back.sync().await.unwrap();
            for name in LOAD_BALANCERS {
                assert_eq!((back.in_pool(name), back.addresses(name).len()), (back.node_names(), 0), "{kind:?} {api}");
            }
            assert_eq!(back.sync().await, Ok(PoolSyncSummary::default()), "{kind:?} {api}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_while_nobody_could_come() {
    let cloud = of_kind(PoolKind::Uniform, 3);
    cloud.warm().await;
    cloud.sync().await.unwrap();
    let next = cloud.reconfigured(by_address(cloud.config.clone()), false);
    assert_eq!(next.sync_nodes(&[], &cloud.nodes()).await, Ok(PoolSyncSummary::default()));
    assert_eq!(cloud.in_pool("kubernetes").len(), 3);
    next.sync().await.unwrap();
    let back = cloud.restarted();
    assert_eq!(back.sync_nodes(&[], &cloud.nodes()).await, Ok(PoolSyncSummary::default()));
    assert_eq!(cloud.addresses("kubernetes").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_migration_is_completed_by_the_next_process() {
    for (kind, crash) in
        [(PoolKind::Uniform, Crash::Before), (PoolKind::Uniform, Crash::After), (PoolKind::Standalone, Crash::After)]
    {
        for nth in 1.. {
            let cloud = of_kind(kind, 2);
            cloud.warm().await;
            cloud.sync().await.unwrap();
            let next = cloud.reconfigured(by_address(cloud.config.clone()), false);
            cloud.world.azure().faults().crash_at(nth, crash);
            let outcome = next.sync().await;
            let crashed = cloud.world.azure().faults().has_crashed();
            cloud.world.azure().faults().recover();
            let next = next.restarted();
            next.sync().await.unwrap();
            assert_by_address(&next, &format!("{kind:?} {crash:?} at {nth}"));
            if !crashed {
                assert!(outcome.is_ok() && nth > 6, "{kind:?}");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn members_stay_while_nodes_may_be_missing() {
    let kind = PoolKind::Uniform;
    for configured in [config(kind), by_address(config(kind))] {
        let mut cloud = Cloud::new(vec![Pool::new(kind, "pool0", 4)], configured);
        cloud.warm().await;
        let nodes = cloud.nodes();
        cloud.sync_nodes(&nodes[..3], &nodes[..3]).await.unwrap();
        // One Node joins, and one is missing.
        for (may_lack_nodes, members) in [(true, 4), (false, 3)] {
            cloud.may_lack_nodes = may_lack_nodes;
            cloud.sync_nodes(&nodes[1..], &nodes[1..]).await.unwrap();
            let found = cloud.in_pool("kubernetes").len() + cloud.addresses("kubernetes").len();
            assert_eq!(found, members, "{:?}", cloud.config.load_balancer_backend_pool_configuration_type);
            assert!(cloud.resync_after.lock().is_some() || !may_lack_nodes, "planned again");
        }
    }
}
