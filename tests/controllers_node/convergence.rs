//! Whatever happens in whatever order, Nodes and cloud agree in the end.

use proptest::prelude::*;

use super::*;

/// Something that happens to a cluster.
#[derive(Debug, Clone)]
enum Happening {
    Create(usize),
    Relabel(usize),
    Readiness(usize, bool),
    CloudFails(usize),
    ApiFails(usize, u16),
    WatchBreaks,
    Compaction,
    Time(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let node = 0..4_usize;
    prop_oneof![
        node.clone().prop_map(Happening::Create),
        node.clone().prop_map(Happening::Relabel),
        (node, any::<bool>()).prop_map(|(node, ready)| Happening::Readiness(node, ready)),
        (1..4_usize).prop_map(Happening::CloudFails),
        (1..4_usize, prop_oneof![Just(409_u16), Just(500), Just(403)]).prop_map(|(n, code)| Happening::ApiFails(n, code)),
        Just(Happening::WatchBreaks),
        Just(Happening::Compaction),
        (0..20_u64).prop_map(Happening::Time),
    ]
}

async fn happen(world: &World, happening: Happening) {
    let name = |node: usize| format!("n{node}");
    match happening {
        Happening::Create(node) if world.node(&name(node)).is_none() => drop(world.server.create(&tainted(&name(node)))),
        Happening::Relabel(node) if world.node(&name(node)).is_some() => {
            drop(world.server.update_with::<Node>("", &name(node), |node| {
                node.metadata.labels.get_or_insert_default().insert(LABEL_REGION.into(), "wrong".into());
            }));
        }
        Happening::Readiness(node, is_ready) if world.node(&name(node)).is_some() => {
            let status = if is_ready { "True" } else { "Unknown" };
            drop(world.server.update_with("", &name(node), |node| ready(node, status)));
        }
        Happening::Create(_) | Happening::Relabel(_) | Happening::Readiness(..) => {}
        Happening::CloudFails(times) => {
            let error = CloudError::failed("injected");
            for call in [CallName::InstanceMetadataBatch, CallName::InstanceExists, CallName::InstanceShutdown] {
                world.cloud.fail_next(call, &error, times);
            }
        }
        Happening::ApiFails(times, code) => {
            world.server.faults().fail_next(times, code, |request| request.user_agent == "controllers");
        }
        Happening::WatchBreaks => world.server.faults().drop_watches(),
        Happening::Compaction => world.server.faults().compact(),
        Happening::Time(seconds) => pass(seconds).await,
    }
}

/// Whatever happens in whatever order: nodes whose instance is there become whole, and go if and only if it is gone and they are
/// not ready. Answers the nodes that are left. Nodes 0 to 2 have an instance, the one of node 2 is shut down; node 3 has none.
async fn converges(happenings: Vec<Happening>) -> Vec<String> {
    let cloud = cloud(&["n0", "n1", "n2"]);
    cloud.set_power("n2", PowerState::Stopped);
    let world = World::start(server(), cloud).await;
    for happening in happenings {
        happen(&world, happening).await;
        for node in ["n0", "n1", "n2"].iter().filter_map(|name| world.node(name)) {
            let is_whole = provider_id(&node).is_some() && addresses(&node).len() == 3;
            assert!(is_whole || taints::is_uninitialized(&node), "the taint goes last: {node:?}");
        }
    }
    world.server.faults().clear();
    // Each failure that is still to come may cost the longest back-off, a thousand seconds.
    for _ in 0..25 {
        pass(4000).await;
        let waits = |name: &&str| world.node(name).is_some_and(|node| taints::is_uninitialized(&node));
        if !["n0", "n1", "n2"].iter().any(waits) {
            break;
        }
    }
    for node in world.server.list::<Node>() {
        let name = node.metadata.name.clone().unwrap();
        let is_ready = cloud_controller_manager::node::is_ready(&node);
        if name == "n3" {
            assert!(is_ready, "an orphan stays only while it is ready");
            continue;
        }
        assert!(!taints::is_uninitialized(&node), "{node:?}");
        assert_eq!(provider_id(&node), Some(format!("fake://{name}").as_str()));
        assert_eq!(addresses(&node)[0], "InternalIP 10.0.0.1");
        let region = &node.metadata.labels.as_ref().unwrap()[LABEL_REGION];
        assert!(["fake-region", "wrong"].contains(&region.as_str()), "the cloud's or the user's: {region}");
        let may_keep = name == "n2";
        assert!(!taints::has_shutdown(&node) || (may_keep && !is_ready), "{node:?}");
        assert!(taints::has_shutdown(&node) || !may_keep || is_ready, "{node:?}");
    }
    world.server.clear_requests();
    pass(4000).await;
    assert_eq!(world.writes(), [], "converged");
    world.server.list::<Node>().into_iter().filter_map(|node| node.metadata.name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn any_order_of_events_and_failures_converges(happenings in proptest::collection::vec(happening(), 1..30)) {
        let created = happenings.iter().filter_map(|happening| match happening {
            Happening::Create(node) => Some(*node),
            _ => None,
        });
        let with_instance: std::collections::BTreeSet<_> = created.filter(|node| *node < 3).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let left = converges(happenings).await;
            prop_assert!(with_instance.iter().all(|node| left.contains(&format!("n{node}"))), "none with an instance goes");
            Ok(())
        })?;
    }
}
