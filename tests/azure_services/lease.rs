//! The lease that other components respect, lost while changes are in flight.

use std::time::Duration;

use cloud_controller_manager::{
    providers::azure::load_balancer::lease::plan::{NAME, NAMESPACE},
    sandbox::azure::{AzureOptions, Class, Latencies, Latency},
};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};

use crate::azure_services::{
    cluster::{Cluster, HOUR, two_nodes},
    services::external,
};

/// Time after which a failed renewal has detected the loss. The operations of public IPs last longer than the period of renewals.
const NOTICED: Duration = Duration::from_secs(310);
const OPERATION: Duration = Duration::from_secs(400);

fn hold_as(cluster: &Cluster, holder: &str) {
    cluster.server.update_with::<Lease>(NAMESPACE, NAME, |lease| {
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(holder.to_owned());
        spec.renew_time = Some(MicroTime(cluster.now()));
        spec.lease_duration_seconds = Some(900);
    });
}

#[tokio::test(start_paused = true)]
async fn lease_lost_with_steps_in_flight_sends_nothing_more() {
    let slow = Latency { respond: Duration::from_millis(50), operation: OPERATION };
    let latencies = Latencies::default().with(Class::Write, "microsoft.network/publicipaddresses", slow);
    let cluster = Cluster::new(two_nodes(), AzureOptions { latencies, ..AzureOptions::default() });
    let manager = cluster.start();
    ["a", "b"].iter().for_each(|name| drop(cluster.create(&external(name))));
    let is_sent = |cluster: &Cluster| cluster.writes().iter().filter(|write| write.contains("publicIPAddresses")).count();
    cluster.until("both public IPs are sent", HOUR, |cluster| is_sent(cluster) == 2).await;
    hold_as(&cluster, "aks-rp");
    tokio::time::sleep(NOTICED).await;
    cluster.azure().clear_requests();

    tokio::time::sleep(OPERATION).await;
    assert_eq!(cluster.writes(), Vec::<String>::new(), "another component holds the lease");
    assert!(!cluster.azure().requests().is_empty(), "operations in flight are followed to their end");
    assert!(manager.unsettled("a")["problem"].as_str().is_some_and(|problem| problem.contains("lease")));

    hold_as(&cluster, "");
    cluster.until_ready(HOUR).await;
}
