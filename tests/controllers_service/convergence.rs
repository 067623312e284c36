//! Services and cloud converge after any sequence of actions.

use proptest::prelude::*;

use super::*;

/// Change or failure in a cluster.
#[derive(Debug, Clone)]
enum Action {
    Create(u8),
    Port(u8, i32),
    Delete(u8),
    Force(u8),
    AddNode(u8),
    RemoveNode(u8),
    CloudFails(bool),
    ServerFails(u16),
    Restart,
    Pass(u8),
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (0..3u8).prop_map(Action::Create),
        3 => (0..3u8, 1..9999).prop_map(|(service, port)| Action::Port(service, port)),
        2 => (0..3u8).prop_map(Action::Delete),
        1 => (0..3u8).prop_map(Action::Force),
        2 => (2..5u8).prop_map(Action::AddNode),
        1 => (2..5u8).prop_map(Action::RemoveNode),
        2 => any::<bool>().prop_map(Action::CloudFails),
        2 => prop_oneof![Just(409u16), Just(500u16)].prop_map(Action::ServerFails),
        1 => Just(Action::Restart),
        3 => (0..10u8).prop_map(Action::Pass),
    ]
}

async fn perform(cluster: &Cluster, replica: &mut Option<Replica>, action: Action) {
    let alive = |name: &str| cluster.service(name).is_some_and(|service| service.metadata.deletion_timestamp.is_none());
    let node_exists = |index: u8| cluster.server.get::<Node>("", &format!("n{index}")).is_some();
    match action {
        Action::Create(s) if cluster.service(&format!("s{s}")).is_none() => cluster.create(&format!("s{s}")),
        Action::Port(s, port) if alive(&format!("s{s}")) => cluster.set_port(&format!("s{s}"), port),
        Action::Delete(s) if alive(&format!("s{s}")) => {
            cluster.server.delete::<Service>("default", &format!("s{s}"));
        }
        Action::Force(s) if alive(&format!("s{s}")) => {
            // The controller must have seen the Service: it cannot detect the deletion of an unseen Service.
            pass(1).await;
            let name = format!("s{s}");
            cluster.server.update_with("default", &name, |service: &mut Service| service.metadata.finalizers = None);
            cluster.server.delete::<Service>("default", &name);
        }
        Action::AddNode(n) if !node_exists(n) => drop(cluster.server.create(&node(&format!("n{n}")))),
        Action::RemoveNode(n) if node_exists(n) => drop(cluster.server.delete::<Node>("", &format!("n{n}"))),
        Action::CloudFails(ensure) => {
            let call = if ensure { CallName::EnsureLoadBalancer } else { CallName::SetHosts };
            cluster.cloud.fail_next(call, &CloudError::failed("boom"), 1);
        }
        Action::ServerFails(code) => cluster.server.faults().fail_next(1, code, on(Verb::Patch, "services")),
        Action::Restart => {
            // Neither this controller nor upstream detects a forced deletion while it is down, so pending changes settle first.
            pass(2000).await;
            replica.take().unwrap().kill().await;
            *replica = Some(cluster.start());
        }
        Action::Pass(seconds) => pass(u64::from(seconds)).await,
        _ => {}
    }
    tokio::task::yield_now().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn services_and_cloud_converge_after_any_actions(actions in prop::collection::vec(any_action(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let cluster = Cluster::new();
            let mut replica = Some(cluster.start());
            for action in actions {
                perform(&cluster, &mut replica, action).await;
            }
            // Pending failures hit the last attempts. Each costs a backoff.
            pass(20_000).await;
            cluster.assert_converged();
            assert_eq!(replica.unwrap().controller.status().unsettled, []);
        });
    }
}
