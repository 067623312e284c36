//! Edits of a Service that come faster than they are carried out.

use super::*;

#[tokio::test(start_paused = true)]
async fn frequent_edits_are_paced_and_the_last_one_is_carried_out() {
    let world = World::new();
    let _life = world.start();
    world.create("web");
    pass(1).await;
    for edit in 0..240 {
        world.set_port("web", 1000 + edit);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let calls = world.cloud.call_count(CallName::EnsureLoadBalancer);
    assert!((10..=1 + 5 + 8).contains(&calls), "{calls} calls for 240 edits in 120 s");
    assert_eq!(world.reason("web").as_deref(), Some("Waiting"));
    pass(16).await;
    world.assert_converged();
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), calls + 1);
}

#[tokio::test(start_paused = true)]
async fn rejected_edits_do_not_cut_the_pause_short() {
    let world = World::new();
    world.cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::failed("label is taken"), 1000);
    let mut life = world.start();
    world.create("web");
    pass(1).await;
    for edit in 0..240 {
        // There and back, so that the Service often is what was rejected last.
        world.set_port("web", 1000 + edit % 2);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let calls = world.cloud.call_count(CallName::EnsureLoadBalancer);
    // Retries after 5, 10, 20 and 40 s are not paced.
    assert!((5..=1 + 5 + 4 + 4).contains(&calls), "{calls} calls for 240 edits in 60 s");
    let rejections = life.reasons().into_iter().filter(|reason| *reason == "SyncLoadBalancerFailed").count();
    assert_eq!(rejections as u64, calls);
}
