//! Resource groups and subnets that are forbidden or missing: only the Services that name them fail.

use std::time::Duration;

use cloud_controller_manager::{controllers::service::conditions, sandbox::azure::Fault};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, MINUTE, is_ready, run_paused},
    services::{external, internal, with},
};

const NAMING: usize = 20;

fn cluster() -> Cluster {
    let cluster = Cluster::with_two_nodes();
    for index in 0..NAMING {
        let group = format!("forbidden-{}", index % 4);
        cluster.create(&with(external(&format!("bad-{index}")), "azure-load-balancer-resource-group", &group));
    }
    cluster
}

fn forbid(cluster: &Cluster) {
    cluster.azure().add_fault(Fault::refuse(403, "AuthorizationFailed").path("*/resourceGroups/forbidden-*"));
}

fn reads(cluster: &Cluster) -> usize {
    cluster.azure().count(|request| request.path.contains("/forbidden-"))
}

/// Regression test: a forbidden group was read 500 times in a minute.
#[tokio::test(start_paused = true)]
async fn a_forbidden_group_is_not_read_again_and_again() {
    let cluster = cluster();
    forbid(&cluster);
    let _manager = cluster.start();
    tokio::time::sleep(MINUTE).await;
    // At once, after 15 s and after 30 s more.
    assert!(reads(&cluster) <= 16, "{} reads in the first minute", reads(&cluster));
    cluster.azure().clear_requests();
    tokio::time::sleep(60 * MINUTE).await;
    let hourly = reads(&cluster);
    assert!(hourly > 0 && hourly <= 4 * 16, "{hourly} reads in an hour");
    cluster.azure().clear_requests();
    cluster.create(&external("good"));
    cluster.until_served("good", Duration::from_secs(20)).await;
    assert!(reads(&cluster) <= 4, "another Service causes no read of a forbidden group");
}

#[tokio::test(start_paused = true)]
async fn a_role_that_arrives_late_is_noticed() {
    let cluster = cluster();
    (0..4).for_each(|index| cluster.put_group(&format!("forbidden-{index}")));
    forbid(&cluster);
    let _manager = cluster.start();
    tokio::time::sleep(10 * MINUTE).await;
    assert!(!cluster.services().iter().any(is_ready));
    cluster.azure().faults().clear();
    cluster.until_ready(30 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_in_a_group_that_does_not_exist_can_be_deleted() {
    let cluster = Cluster::with_two_nodes();
    cluster.put_group("elsewhere");
    let _manager =
        cluster.serve_and_settle(&[with(external("web"), "azure-load-balancer-resource-group", "elsewhere")]).await;
    // A list with a 404 proves nothing while ARM has the group.
    let lie = Fault::refuse(404, "ResourceGroupNotFound").path("*/resourceGroups/elsewhere/providers/*/publicIPAddresses");
    cluster.azure().add_fault(lie);
    tokio::time::sleep(5 * MINUTE).await;
    cluster.delete("web");
    tokio::time::sleep(30 * MINUTE).await;
    assert!(cluster.service("web").is_some(), "its public IP is still there");
    assert_eq!(cluster.public_ips().len(), 1);
    cluster.azure().add_fault(Fault::refuse(404, "ResourceGroupNotFound").path("*/resourceGroups/elsewhere"));
    cluster.until_all_deleted(30 * MINUTE).await;
}

/// Each missing subnet is read every 30 s: counted in the first minute and over 20 minutes.
#[tokio::test(start_paused = true)]
async fn subnets_that_do_not_exist_are_not_read_again_and_again() {
    const MANY: usize = 60;
    let cluster = Cluster::with_two_nodes();
    for index in 0..MANY {
        let service = internal(&format!("bad-{index}"));
        cluster.create(&with(service, "azure-load-balancer-internal-subnet", &format!("no-such-{index}")));
    }
    let reads = |cluster: &Cluster| cluster.azure().count(|request| request.path.contains("/no-such-"));
    let _manager = cluster.start();
    tokio::time::sleep(MINUTE).await;
    // Each at once, after 5 s, and then every 30 s, because it may be created at any moment.
    assert!(reads(&cluster) <= 4 * MANY, "{} reads in the first minute", reads(&cluster));
    tokio::time::sleep(10 * MINUTE).await;
    cluster.azure().clear_requests();
    cluster.create(&internal("good"));
    cluster.until_served("good", Duration::from_secs(20)).await;
    cluster.azure().clear_requests();
    tokio::time::sleep(20 * MINUTE).await;
    let later = reads(&cluster);
    assert!(later > 0 && later <= MANY * 41, "{later} reads in 20 minutes");
}

#[tokio::test(start_paused = true)]
async fn a_subnet_or_group_is_noticed_within_30_s_of_its_creation() {
    let cluster = Cluster::with_two_nodes();
    for name in ["inside", "inside-too"] {
        cluster.create(&with(internal(name), "azure-load-balancer-internal-subnet", "apps"));
    }
    cluster.create(&with(external("outside"), "azure-load-balancer-resource-group", "elsewhere"));
    let _manager = cluster.start();
    tokio::time::sleep(10 * MINUTE).await;
    cluster.azure().clear_requests();
    tokio::time::sleep(10 * MINUTE).await;
    for part in ["/subnets/apps", "/resourceGroups/elsewhere/providers"] {
        let reads = cluster.azure().count(|request| request.path.contains(part));
        assert!(reads <= 21, "{part}: {reads}");
    }
    for name in ["inside", "outside"] {
        let service = cluster.service(name).unwrap();
        assert_eq!(conditions::current(&service).unwrap().reason, "Invalid", "{name}: {:?}", cluster.warnings(name));
    }
    let network = cluster.azure().documents_of("Microsoft.Network/virtualNetworks").remove(0);
    let id = network["id"].as_str().unwrap();
    let subnet =
        json!({"id": format!("{id}/subnets/apps"), "name": "apps", "properties": {"addressPrefix": "10.225.0.0/24"}});
    let add = |document: &mut Value| document["properties"]["subnets"].as_array_mut().unwrap().push(subnet);
    assert!(cluster.azure().change_document(id, add));
    cluster.put_group("elsewhere");
    let took = cluster.until_ready(5 * MINUTE).await;
    assert!(took <= Duration::from_secs(40), "30 s, and the writes: {took:?}");
}

/// ARM wrongly responds once that the cluster's own group is missing.
#[test]
fn a_stray_404_delays_a_service_by_seconds() {
    for path in ["*/loadBalancers", "*/publicIPAddresses", "*/networkSecurityGroups/*"] {
        run_paused(async {
            let cluster = Cluster::with_two_nodes();
            cluster.azure().add_fault(Fault::refuse(404, "ResourceGroupNotFound").path(path).times(1));
            cluster.create(&external("web"));
            let _manager = cluster.start();
            let took = cluster.until_ready(5 * MINUTE).await;
            assert!(took <= Duration::from_secs(20), "10 s, and the writes: {path}: {took:?}");
        });
    }
}

/// Deletes a Service whose public IP exists and whose load balancer could not be created, while reads of its resource group fail. Returns
/// whether the Service is kept until they succeed.
fn delete_half_created(group: &str, status: u16, code: &str, restarted: bool) -> bool {
    run_paused(async {
        let cluster = Cluster::with_two_nodes();
        cluster.put_group(group);
        let balancers = "Microsoft.Network/loadBalancers";
        cluster.azure().add_fault(Fault::refuse(400, "InvalidRequest").method("PUT").resource_type(balancers));
        cluster.create(&with(external("web"), "azure-load-balancer-resource-group", group));
        let mut manager = cluster.start();
        let has_public_ip = |cluster: &Cluster| !cluster.public_ips().is_empty();
        cluster.until("its public IP is made", 5 * MINUTE, has_public_ip).await;
        cluster.azure().faults().clear();
        cluster.azure().add_fault(Fault::refuse(400, "InvalidRequest").method("PUT").resource_type(balancers));
        let public_ips = format!("*/resourceGroups/{group}/*/publicIPAddresses*");
        cluster.azure().add_fault(Fault::refuse(status, code).path(&public_ips));
        if restarted {
            manager.kill();
            manager = cluster.start();
        }
        cluster.delete("web");
        tokio::time::sleep(30 * MINUTE).await;
        let is_kept = cluster.service("web").is_some();
        if is_kept {
            cluster.azure().faults().clear();
            cluster.until_all_deleted(30 * MINUTE).await;
            assert!(!has_public_ip(&cluster), "{status}: its public IP is left behind");
        } else {
            let warning = cluster.warnings("web").into_iter().find(|(reason, _)| reason == "KeptPublicIPAddress");
            assert!(
                warning.is_some_and(|(_, message)| message.contains(&format!("/{group}/"))),
                "{status}: nothing is reported"
            );
        }
        manager.stop().await;
        is_kept
    })
}

#[test]
fn a_public_ip_without_a_status_is_deleted_or_reported() {
    assert!(delete_half_created("elsewhere", 503, "ServiceUnavailable", false));
    assert!(delete_half_created("elsewhere", 503, "ServiceUnavailable", true), "the error is temporary");
    assert!(delete_half_created("elsewhere", 403, "AuthorizationFailed", false), "this process created it");
    assert!(
        !delete_half_created("elsewhere", 403, "AuthorizationFailed", true),
        "a Service that names a forbidden group can be deleted"
    );
    assert!(delete_half_created("rg-test", 403, "AuthorizationFailed", true), "a killed process may have created it there");
}
