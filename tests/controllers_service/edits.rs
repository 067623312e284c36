//! Edits of a Service that come faster than they are carried out.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_controller_carries_out_every_edit() {
    let (world, mut life) = settled().await;
    for edit in 0..120 {
        world.set_port("web", 1000 + edit);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(world.reason("web").as_deref(), Some("Ready"), "edit {edit}");
    }
    world.assert_converged();
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), 1 + 120);
    assert!(!life.reasons().contains(&"SyncLoadBalancerFailed"));
}
