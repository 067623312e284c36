//! Edits of a Service in quick succession.

use super::*;

#[tokio::test(start_paused = true)]
async fn every_edit_is_reconciled() {
    let (cluster, mut replica) = settled().await;
    for edit in 0..120 {
        cluster.set_port("web", 1000 + edit);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(cluster.reason("web").as_deref(), Some("Ready"), "edit {edit}");
    }
    cluster.assert_converged();
    assert_eq!(cluster.cloud.call_count(CallName::EnsureLoadBalancer), 1 + 120);
    assert!(!replica.reasons().contains(&"SyncLoadBalancerFailed"));
}
