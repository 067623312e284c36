//! Whatever happens in whatever order, Services and cloud agree in the end.

use proptest::prelude::*;

use super::*;

/// What may happen, in any order.
#[derive(Debug, Clone)]
enum Happening {
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

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (0..3u8).prop_map(Happening::Create),
        3 => (0..3u8, 1..9999).prop_map(|(service, port)| Happening::Port(service, port)),
        2 => (0..3u8).prop_map(Happening::Delete),
        1 => (0..3u8).prop_map(Happening::Force),
        2 => (2..5u8).prop_map(Happening::AddNode),
        1 => (2..5u8).prop_map(Happening::RemoveNode),
        2 => any::<bool>().prop_map(Happening::CloudFails),
        2 => prop_oneof![Just(409u16), Just(500u16)].prop_map(Happening::ServerFails),
        1 => Just(Happening::Restart),
        3 => (0..10u8).prop_map(Happening::Pass),
    ]
}

async fn happens(world: &World, life: &mut Option<Life>, happening: Happening) {
    let alive = |name: &str| world.service(name).is_some_and(|service| service.metadata.deletion_timestamp.is_none());
    let node_exists = |index: u8| world.server.get::<Node>("", &format!("n{index}")).is_some();
    match happening {
        Happening::Create(s) if world.service(&format!("s{s}")).is_none() => world.create(&format!("s{s}")),
        Happening::Port(s, port) if alive(&format!("s{s}")) => world.set_port(&format!("s{s}"), port),
        Happening::Delete(s) if alive(&format!("s{s}")) => {
            world.server.delete::<Service>("default", &format!("s{s}"));
        }
        Happening::Force(s) if alive(&format!("s{s}")) => {
            // Once it has been seen: what nobody saw cannot be missed.
            pass(1).await;
            let name = format!("s{s}");
            world.server.update_with("default", &name, |service: &mut Service| service.metadata.finalizers = None);
            world.server.delete::<Service>("default", &name);
        }
        Happening::AddNode(n) if !node_exists(n) => drop(world.server.create(&node(&format!("n{n}")))),
        Happening::RemoveNode(n) if node_exists(n) => drop(world.server.delete::<Node>("", &format!("n{n}"))),
        Happening::CloudFails(ensure) => {
            let call = if ensure { CallName::EnsureLoadBalancer } else { CallName::SetHosts };
            world.cloud.fail_next(call, &CloudError::failed("boom"), 1);
        }
        Happening::ServerFails(code) => world.server.faults().fail_next(1, code, on(Verb::Patch, "services")),
        Happening::Restart => {
            // What vanishes by force while nobody watches cannot be seen, by upstream neither: let the present settle first.
            pass(2000).await;
            life.take().unwrap().kill().await;
            *life = Some(world.start());
        }
        Happening::Pass(seconds) => pass(u64::from(seconds)).await,
        _ => {}
    }
    tokio::task::yield_now().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_services_and_cloud_agree_in_the_end(happenings in prop::collection::vec(happening(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            let mut life = Some(world.start());
            for happening in happenings {
                happens(&world, &mut life, happening).await;
            }
            // Failures that were ordered and not met yet hit the last attempts: give each its back-off.
            pass(20_000).await;
            world.assert_converged();
            assert_eq!(life.unwrap().controller.status().unsettled, []);
        });
    }
}
