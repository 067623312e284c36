//! Another writer removes finalizer and status of a settled Service.

use super::*;

fn strip(world: &World) {
    world.server.update_with("default", "web", |service: &mut Service| {
        service.metadata.finalizers = None;
        service.status = None;
    });
}

#[tokio::test(start_paused = true)]
async fn what_another_writer_removes_is_restored_at_once() {
    let (world, mut life) = settled().await;
    life.reasons();
    world.server.clear_requests();

    strip(&world);
    pass(1).await;
    world.assert_converged();
    assert_eq!(world.patches().len(), 1, "{:?}", world.patches());
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), 1, "the cloud is not involved");
    assert_eq!(life.reasons(), ["LoadBalancerStatusRestored"]);
    let text = life.metrics.render().unwrap();
    assert!(text.contains("cloud_controller_manager_service_drift_total{field=\"finalizer\"} 1"), "{text}");
    assert_eq!(life.controller.status().drift.len(), 1);

    world.server.clear_requests();
    pass(600).await;
    assert_eq!(world.patches(), []);
}

#[tokio::test(start_paused = true)]
async fn two_writers_do_not_fight_without_pauses() {
    let (world, _life) = settled().await;
    world.server.clear_requests();
    for _ in 0..600 {
        strip(&world);
        pass(1).await;
    }
    assert!((5..=9).contains(&world.patches().len()), "{}", world.patches().len());
    pass(301).await;
    world.assert_converged();
}
