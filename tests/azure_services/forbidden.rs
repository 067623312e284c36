//! Resource groups and subnets that may not be read, or that do not exist: the trouble of those who name them, and of nobody else.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::{AzureOptions, Fault};

use crate::{
    cluster::{Cluster, alone, is_ready, two_nodes},
    services::{external, internal, with},
};

const MINUTE: Duration = Duration::from_secs(60);
const NAMING: usize = 20;

fn cluster() -> Cluster {
    let cluster = Cluster::new(two_nodes(), AzureOptions::default());
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
    let requests = cluster.azure().requests();
    requests.iter().filter(|request| request.path.contains("/forbidden-")).count()
}

/// Defect A10: 500 reads in a minute.
#[test]
fn a_forbidden_group_is_not_read_again_and_again() {
    alone(async {
        let cluster = cluster();
        forbid(&cluster);
        let life = cluster.start();
        tokio::time::sleep(MINUTE).await;
        assert!(reads(&cluster) <= 8, "{} reads in the first minute", reads(&cluster));
        cluster.azure().clear_requests();
        tokio::time::sleep(60 * MINUTE).await;
        let hourly = reads(&cluster);
        assert!(hourly > 0 && hourly <= 4 * 12, "{hourly} reads in an hour");
        cluster.azure().clear_requests();
        cluster.create(&external("good"));
        let good = |cluster: &Cluster| is_ready(&cluster.service("good").unwrap());
        let took = cluster.until("others are served", MINUTE, good).await;
        assert!(took <= Duration::from_secs(20), "{took:?}");
        assert!(reads(&cluster) <= 4, "nobody else has a forbidden group read");
        life.stop().await;
    });
}

#[test]
fn a_role_that_arrives_late_is_noticed() {
    alone(async {
        let cluster = cluster();
        let topology = cluster.world.topology();
        for index in 0..4 {
            let name = format!("forbidden-{index}");
            let group = cloud_controller_manager::providers::azure::arm::ResourceId::group_of(&topology.subscription, &name);
            cluster.azure().put_document(topology.group_document(&group)).unwrap();
        }
        forbid(&cluster);
        let life = cluster.start();
        tokio::time::sleep(10 * MINUTE).await;
        assert!(!cluster.services().iter().any(is_ready));
        cluster.azure().faults().clear();
        cluster.until_ready(30 * MINUTE).await;
        life.stop().await;
    });
}

#[test]
fn a_service_in_a_group_that_does_not_exist_can_be_deleted() {
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default());
        let topology = cluster.world.topology();
        let group =
            cloud_controller_manager::providers::azure::arm::ResourceId::group_of(&topology.subscription, "elsewhere");
        cluster.azure().put_document(topology.group_document(&group)).unwrap();
        cluster.create(&with(external("web"), "azure-load-balancer-resource-group", "elsewhere"));
        let life = cluster.start();
        cluster.until_ready(5 * MINUTE).await;
        cluster.settle().await;
        // A list that says so proves nothing while ARM has the group.
        let lie =
            Fault::refuse(404, "ResourceGroupNotFound").path("*/resourceGroups/elsewhere/providers/*/publicIPAddresses");
        cluster.azure().add_fault(lie);
        tokio::time::sleep(5 * MINUTE).await;
        cluster.delete("web");
        tokio::time::sleep(30 * MINUTE).await;
        assert!(cluster.service("web").is_some(), "its public IP is still there");
        assert_eq!(cluster.azure().documents_of("Microsoft.Network/publicIPAddresses").len(), 1);
        cluster.azure().add_fault(Fault::refuse(404, "ResourceGroupNotFound").path("*/resourceGroups/elsewhere"));
        cluster.until_gone(30 * MINUTE).await;
        life.stop().await;
    });
}

/// The first minute, and an hour: what nobody has made is asked for less and less often, whoever looks.
#[test]
fn subnets_that_do_not_exist_are_not_read_again_and_again() {
    const MANY: usize = 200;
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default());
        for index in 0..MANY {
            let service = internal(&format!("bad-{index}"));
            cluster.create(&with(service, "azure-load-balancer-internal-subnet", &format!("no-such-{index}")));
        }
        let reads = |cluster: &Cluster| {
            cluster.azure().requests().iter().filter(|request| request.path.contains("/no-such-")).count()
        };
        let life = cluster.start();
        tokio::time::sleep(MINUTE).await;
        // Each once, and once more after 15 s: somebody may just be making it.
        assert!(reads(&cluster) <= 2 * MANY, "{} reads in the first minute", reads(&cluster));
        tokio::time::sleep(30 * MINUTE).await;
        cluster.azure().clear_requests();
        cluster.create(&internal("good"));
        let good = |cluster: &Cluster| is_ready(&cluster.service("good").unwrap());
        let took = cluster.until("others are served", MINUTE, good).await;
        assert!(took <= Duration::from_secs(20), "{took:?}");
        cluster.azure().clear_requests();
        tokio::time::sleep(60 * MINUTE).await;
        let hourly = reads(&cluster);
        assert!(hourly > 0 && hourly <= MANY * 10, "{hourly} reads in an hour");
        life.stop().await;
    });
}

/// Its public IP is made and its load balancer is not, so that it has no address. Then nobody answers for the group, and it is deleted.
fn half_made(place: &str, status: u16, code: &str, restarted: bool) -> bool {
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default());
        let topology = cluster.world.topology();
        let group = cloud_controller_manager::providers::azure::arm::ResourceId::group_of(&topology.subscription, place);
        cluster.azure().put_document(topology.group_document(&group)).unwrap();
        let balancers = "Microsoft.Network/loadBalancers";
        cluster.azure().add_fault(Fault::refuse(400, "InvalidRequest").method("PUT").resource_type(balancers));
        cluster.create(&with(external("web"), "azure-load-balancer-resource-group", place));
        let mut life = cluster.start();
        let is_made = |cluster: &Cluster| !cluster.azure().documents_of("Microsoft.Network/publicIPAddresses").is_empty();
        cluster.until("its public IP is made", 5 * MINUTE, is_made).await;
        cluster.azure().faults().clear();
        cluster.azure().add_fault(Fault::refuse(400, "InvalidRequest").method("PUT").resource_type(balancers));
        let public_ips = format!("*/resourceGroups/{place}/*/publicIPAddresses*");
        cluster.azure().add_fault(Fault::refuse(status, code).path(&public_ips));
        if restarted {
            life.kill();
            life = cluster.start();
        }
        cluster.delete("web");
        tokio::time::sleep(30 * MINUTE).await;
        let stays = cluster.service("web").is_some();
        if stays {
            cluster.azure().faults().clear();
            cluster.until_gone(30 * MINUTE).await;
            assert!(!is_made(&cluster), "{status}: its public IP is left behind");
        } else {
            let told = cluster.warnings("web").into_iter().find(|(reason, _)| reason == "KeptPublicIPAddress");
            assert!(told.is_some_and(|(_, message)| message.contains(&format!("/{place}/"))), "{status}: nobody is told");
        }
        life.stop().await;
        stays
    })
}

#[test]
fn a_public_ip_that_no_status_tells_of_is_not_forgotten() {
    assert!(half_made("elsewhere", 503, "ServiceUnavailable", false));
    assert!(half_made("elsewhere", 503, "ServiceUnavailable", true), "that passes");
    assert!(half_made("elsewhere", 403, "AuthorizationFailed", false), "this process has made it");
    assert!(!half_made("elsewhere", 403, "AuthorizationFailed", true), "whoever names a forbidden group can be deleted");
    assert!(half_made("rg-test", 403, "AuthorizationFailed", true), "a killed process has made it where it may");
}
