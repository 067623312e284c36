//! Load balancers that serve their Service but are incomplete.

use cloud_controller_manager::cloud_provider::{LoadBalancerIngress, LoadBalancerStatus};

use super::*;

/// Address in the range of the fake cloud that the cloud does not allocate.
const ADDRESS: &str = "198.18.0.99";

fn incomplete(error: CloudError) -> CloudError {
    let entry = LoadBalancerIngress { ip: Some(ADDRESS.to_owned()), ..LoadBalancerIngress::default() };
    CloudError::Incomplete { status: LoadBalancerStatus { ingress: Some(vec![entry]) }, error: Box::new(error) }
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_load_balancer_is_published_once_and_retried() {
    let cluster = Cluster::new();
    cluster.cloud.fail_next(CallName::EnsureLoadBalancer, &incomplete(CloudError::failed("no link")), 3);
    let mut replica = cluster.start();
    cluster.create("web");
    pass(1).await;
    assert_eq!(cluster.ips("web"), [ADDRESS]);
    assert_eq!(cluster.reason("web").as_deref(), Some("Failed"));
    let message = conditions::current(&cluster.service("web").unwrap()).unwrap().message.clone();
    assert_eq!(message, "failed to ensure load balancer: no link");
    assert_eq!(replica.controller.status().unsettled[0].failures, 1);
    // 5 s, 10 s, 20 s: attempts at 0, 5, 15 and 35 s.
    pass(33).await;
    assert_eq!(cluster.cloud.call_count(CallName::EnsureLoadBalancer), 3);
    assert_eq!(cluster.patches().len(), 2, "finalizer, failure with the address");
    pass(3).await;
    // The controller owns the address, so the new address replaces it.
    cluster.assert_converged();
    assert_eq!(cluster.patches().len(), 3);
    assert_eq!(replica.reasons().iter().filter(|reason| **reason == "SyncLoadBalancerFailed").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_load_balancer_has_the_class_of_its_error() {
    let wait = CloudError::RetryAfter { after: Duration::from_secs(42), message: "throttled".into() };
    for (error, reason) in [(wait, "Waiting"), (CloudError::invalid("locked"), "Invalid")] {
        let cluster = Cluster::new();
        let error = incomplete(error);
        cluster.cloud.fail_next(CallName::EnsureLoadBalancer, &error, 1);
        let replica = cluster.start();
        cluster.create("web");
        pass(10).await;
        assert_eq!((cluster.reason("web").as_deref(), cluster.ips("web")), (Some(reason), vec![ADDRESS.to_owned()]));
        pass(60).await;
        cluster.assert_converged();
        replica.kill().await;
    }
}
