//! Services that ask for what is not theirs, or for what nobody can read: they fail alone, and nothing is written for them.

use std::time::Duration;

use cloud_controller_manager::{controllers::service::conditions, sandbox::azure::AzureOptions};
use k8s_openapi::api::core::v1::Service;

use crate::{
    cluster::{Cluster, addresses, alone, is_ready, two_nodes},
    services::{annotate, external, with},
};

const MINUTE: Duration = Duration::from_secs(60);

fn is_invalid(cluster: &Cluster, name: &str) -> bool {
    let service = cluster.service(name);
    service.as_ref().and_then(conditions::current).is_some_and(|condition| condition.reason == "Invalid")
}

fn message(cluster: &Cluster, name: &str) -> String {
    let service: Service = cluster.service(name).unwrap();
    conditions::current(&service).map(|condition| condition.message.clone()).unwrap_or_default()
}

/// The security group, as text.
fn rules(cluster: &Cluster) -> String {
    let groups = cluster.azure().documents_of("Microsoft.Network/networkSecurityGroups");
    groups.iter().map(|group| group["properties"]["securityRules"].to_string()).collect()
}

#[test]
fn nobody_claims_the_address_of_a_node_or_of_another_service() {
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default());
        let life = cluster.start();
        cluster.create(&external("victim"));
        cluster
            .until("the victim is served", MINUTE, |cluster| cluster.service("victim").as_ref().is_some_and(is_ready))
            .await;
        let victim = addresses(&cluster.service("victim").unwrap()).remove(0);
        let before = rules(&cluster);

        let closed = |name: &str| {
            let service = with(external(name), "azure-allowed-ip-ranges", "10.0.0.0/8");
            with(service, "azure-deny-all-except-load-balancer-source-ranges", "true")
        };
        let node = cluster.world.nodes()[0].status.clone().unwrap().addresses.unwrap()[0].address.clone();
        for (name, claimed) in [("of-a-node", format!("{node},8.8.8.8")), ("of-metadata", "169.254.169.254".to_owned())] {
            cluster.create(&with(closed(name), "azure-additional-public-ips", &claimed));
            cluster.until("it is refused", MINUTE, |cluster| is_invalid(cluster, name)).await;
            let message = message(&cluster, name);
            assert!(message.contains("azure-additional-public-ips") && message.contains("public addresses"), "{message}");
            assert!(addresses(&cluster.service(name).unwrap()).is_empty());
            assert!(cluster.warnings(name).iter().any(|(_, text)| text.contains("azure-additional-public-ips")));
        }
        assert_eq!(rules(&cluster), before);

        // What another Service has is left out, and the rest is served.
        let name = "of-a-service";
        cluster.create(&with(closed(name), "azure-additional-public-ips", &format!("{victim},20.77.0.1")));
        cluster.until("it is served", MINUTE, |cluster| cluster.service(name).as_ref().is_some_and(is_ready)).await;
        let served = addresses(&cluster.service(name).unwrap());
        assert!(!served.contains(&victim) && served.contains(&"20.77.0.1".to_owned()), "{served:?}");
        assert!(cluster.warnings(name).iter().any(|(_, text)| text.contains("Service default/victim")));
        assert_eq!(rules(&cluster).matches(&victim).count(), before.matches(&victim).count());

        // It can be deleted, and mended.
        cluster.delete("of-a-node");
        cluster.change("of-metadata", |service| annotate(service, "azure-additional-public-ips", None));
        cluster.until("it is served", MINUTE, |cluster| cluster.service("of-metadata").as_ref().is_some_and(is_ready)).await;
        cluster.until("it is gone", MINUTE, |cluster| cluster.service("of-a-node").is_none()).await;
        life.stop().await;
    });
}

/// A typo closes the Service; the nodes go on.
#[test]
fn a_typo_in_a_range_does_not_cut_nodes_off() {
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default());
        let life = cluster.start();
        let service = with(external("web"), "azure-disable-load-balancer-floating-ip", "true");
        cluster.create(&with(service, "azure-allowed-ip-ranges", "203.0.113.7/24"));
        cluster.until("it is served", MINUTE, |cluster| cluster.service("web").as_ref().is_some_and(is_ready)).await;
        let rules = rules(&cluster);
        assert!(
            rules.contains("k8s-azure-lb_deny_IPv4_") && !rules.contains("deny-all") && !rules.contains("Internet"),
            "{rules}"
        );
        life.stop().await;
    });
}

/// The empty values of a Helm chart.
#[test]
fn an_empty_restriction_lets_nobody_in() {
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default());
        let life = cluster.start();
        for key in ["azure-allowed-ip-ranges", "load-balancer-source-ranges", "azure-allowed-service-tags"] {
            cluster.create(&with(external(key), key, ""));
            cluster.until("it is served", MINUTE, |cluster| cluster.service(key).as_ref().is_some_and(is_ready)).await;
            let rules = rules(&cluster);
            assert!(rules.contains("deny-all") && !rules.contains("Internet"), "{key}: {rules}");
            cluster.delete(key);
            cluster.until("it is gone", MINUTE, |cluster| cluster.service(key).is_none()).await;
        }
        life.stop().await;
    });
}

/// Names of 240 KB get into no label, event or condition.
#[test]
fn names_that_are_too_long_get_nowhere() {
    alone(async {
        let cluster = Cluster::new(two_nodes(), AzureOptions::default());
        let life = cluster.start();
        let long = "x".repeat(240_000);
        cluster.create(&with(external("long"), "azure-load-balancer-resource-group", &long));
        cluster.until("it is refused", MINUTE, |cluster| is_invalid(cluster, "long")).await;
        assert!(message(&cluster, "long").len() <= 1024);
        assert!(cluster.warnings("long").iter().all(|(_, text)| text.len() <= 1024));
        assert!(cluster.azure().requests().iter().all(|request| request.path.len() < 1024));
        cluster.delete("long");
        cluster.until("it is gone", MINUTE, |cluster| cluster.service("long").is_none()).await;
        life.stop().await;
    });
}
