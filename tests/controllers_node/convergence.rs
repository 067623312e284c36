//! Nodes and cloud converge after any sequence of actions.

use proptest::prelude::*;

use super::*;

/// Change or failure in a cluster.
#[derive(Debug, Clone)]
enum Action {
    Create(usize),
    Relabel(usize),
    Readiness(usize, bool),
    CloudFails(usize),
    ApiFails(usize, u16),
    WatchBreaks,
    Compaction,
    Time(u64),
}

fn any_action() -> impl Strategy<Value = Action> {
    let node = 0..4_usize;
    prop_oneof![
        node.clone().prop_map(Action::Create),
        node.clone().prop_map(Action::Relabel),
        (node, any::<bool>()).prop_map(|(node, ready)| Action::Readiness(node, ready)),
        (1..4_usize).prop_map(Action::CloudFails),
        (1..4_usize, prop_oneof![Just(409_u16), Just(500), Just(403)]).prop_map(|(n, code)| Action::ApiFails(n, code)),
        Just(Action::WatchBreaks),
        Just(Action::Compaction),
        (0..20_u64).prop_map(Action::Time),
    ]
}

async fn perform(cluster: &Cluster, action: Action) {
    let name = |node: usize| format!("n{node}");
    match action {
        Action::Create(node) if cluster.node(&name(node)).is_none() => drop(cluster.server.create(&tainted(&name(node)))),
        Action::Relabel(node) if cluster.node(&name(node)).is_some() => {
            drop(cluster.server.update_with::<Node>("", &name(node), |node| {
                node.metadata.labels.get_or_insert_default().insert(LABEL_REGION.into(), "wrong".into());
            }));
        }
        Action::Readiness(node, is_ready) if cluster.node(&name(node)).is_some() => {
            let status = if is_ready { "True" } else { "Unknown" };
            drop(cluster.server.update_with("", &name(node), |node| ready(node, status)));
        }
        Action::Create(_) | Action::Relabel(_) | Action::Readiness(..) => {}
        Action::CloudFails(times) => {
            let error = CloudError::failed("injected");
            for call in [CallName::InstanceMetadataBatch, CallName::InstanceExists, CallName::InstanceShutdown] {
                cluster.cloud.fail_next(call, &error, times);
            }
        }
        Action::ApiFails(times, code) => {
            cluster.server.faults().fail_next(times, code, |request| request.user_agent == "controllers");
        }
        Action::WatchBreaks => cluster.server.faults().drop_watches(),
        Action::Compaction => cluster.server.faults().compact(),
        Action::Time(seconds) => pass(seconds).await,
    }
}

/// Performs the actions and checks the result: Nodes with an instance are initialized, and exactly the Nodes that are not ready and have no
/// instance are deleted. Returns the remaining Nodes. Nodes 0 to 2 have an instance, that of node 2 is shut down. Node 3 has none.
async fn converges(actions: Vec<Action>) -> Vec<String> {
    let cloud = cloud(&["n0", "n1", "n2"]);
    cloud.set_power("n2", PowerState::Stopped);
    let cluster = Cluster::start(server(), cloud).await;
    for action in actions {
        perform(&cluster, action).await;
        for node in ["n0", "n1", "n2"].iter().filter_map(|name| cluster.node(name)) {
            let is_whole = provider_id(&node).is_some() && addresses(&node).len() == 3;
            assert!(is_whole || taints::is_uninitialized(&node), "the taint is removed last: {node:?}");
        }
    }
    cluster.server.faults().clear();
    // Each pending failure may cost the longest backoff, a thousand seconds.
    for _ in 0..25 {
        pass(4000).await;
        let waits = |name: &&str| cluster.node(name).is_some_and(|node| taints::is_uninitialized(&node));
        if !["n0", "n1", "n2"].iter().any(waits) {
            break;
        }
    }
    for node in cluster.server.list::<Node>() {
        let name = node.metadata.name.clone().unwrap();
        let is_ready = cloud_controller_manager::node::is_ready(&node);
        if name == "n3" {
            assert!(is_ready, "an orphan remains only while it is ready");
            continue;
        }
        assert!(!taints::is_uninitialized(&node), "{node:?}");
        assert_eq!(provider_id(&node), Some(format!("fake://{name}").as_str()));
        assert_eq!(addresses(&node)[0], "InternalIP 10.0.0.1");
        let region = &node.metadata.labels.as_ref().unwrap()[LABEL_REGION];
        assert!(["fake-region", "wrong"].contains(&region.as_str()), "neither the cloud's nor the user's: {region}");
        let may_keep = name == "n2";
        assert!(!taints::has_shutdown(&node) || (may_keep && !is_ready), "{node:?}");
        assert!(taints::has_shutdown(&node) || !may_keep || is_ready, "{node:?}");
    }
    cluster.server.clear_requests();
    pass(4000).await;
    assert_eq!(cluster.writes(), [], "converged");
    cluster.server.list::<Node>().into_iter().filter_map(|node| node.metadata.name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn any_order_of_events_and_failures_converges(actions in proptest::collection::vec(any_action(), 1..30)) {
        let created = actions.iter().filter_map(|action| match action {
            Action::Create(node) => Some(*node),
            _ => None,
        });
        let with_instance: std::collections::BTreeSet<_> = created.filter(|node| *node < 3).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let remaining = converges(actions).await;
            prop_assert!(with_instance.iter().all(|node| remaining.contains(&format!("n{node}"))), "a Node with an instance is deleted");
            Ok(())
        })?;
    }
}
