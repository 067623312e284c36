//! What the bodies of writes weigh. That none has a read-only field is asserted wherever a [`Cluster`] ends.

use cloud_controller_manager::{
    providers::azure::arm::{ApiType, api, body},
    sandbox::azure::Class,
};
use serde_json::Value;

use crate::azure_services::{cluster::Cluster, services::external};

const SERVICES: usize = 200;

/// Bytes of these documents as ARM shows them, and as they are sent.
fn weigh(kind: &ApiType, documents: &[Value]) -> (usize, usize) {
    let shown = documents.iter().map(|document| document.to_string().len()).sum();
    let sent = documents.iter().map(|document| body::of(kind, document).unwrap().len()).sum();
    println!("{}: {} documents, {shown} bytes shown, {sent} sent", kind.resource_type, documents.len());
    (shown, sent)
}

#[tokio::test(start_paused = true)]
async fn a_third_of_what_arm_shows_is_not_sent_back() {
    let cluster = Cluster::with_ten_nodes();
    (0..SERVICES).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
    let _life = cluster.serve_and_settle(&[]).await;
    let requests = cluster.azure().requests();
    let sent: usize = requests.iter().filter(|request| request.class == Class::Write).map(|request| request.sent).sum();
    println!("{SERVICES} Services: {sent} bytes sent");
    let kinds = [&api::LOAD_BALANCERS, &api::SECURITY_GROUPS, &api::PUBLIC_IPS];
    let weighed = kinds.map(|kind| weigh(kind, &cluster.azure().documents_of(kind.resource_type)));
    let (shown, sent) = weighed.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert!(3 * sent <= 2 * shown, "{sent} of {shown} bytes are sent back");

    // One more Service writes the load balancer once, with little more than what ARM reads of it.
    cluster.azure().clear_requests();
    cluster.add(&external("one-more")).await;
    cluster.settle().await;
    let of = |request: &&cloud_controller_manager::sandbox::azure::RequestRecord| {
        request.class == Class::Write && request.resource_type == "microsoft.network/loadbalancers"
    };
    let bodies: Vec<usize> = cluster.azure().requests().iter().filter(of).map(|request| request.sent).collect();
    assert_eq!(bodies.len(), 1);
    assert!(bodies[0] < weighed[0].1 * 102 / 100, "{bodies:?} bytes for one that weighs {}", weighed[0].1);
}
