//! DNS labels of public IPs, including those that users create.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, MINUTE},
    services::{annotate, external, pinned, with},
};

const KIND: &str = "Microsoft.Network/publicIPAddresses";
const LABEL: &str = "azure-dns-label-name";

fn public_ip(cluster: &Cluster, name: &str) -> Value {
    let mut documents = cluster.azure().documents_of(KIND).into_iter();
    documents.find(|document| document["name"] == name).unwrap_or_default()
}

fn domain_name(cluster: &Cluster, name: &str) -> Value {
    public_ip(cluster, name)["properties"]["dnsSettings"]["fqdn"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_public_ip_of_a_user_gets_the_label_of_its_service() {
    let cluster = Cluster::with_two_nodes();
    cluster.put_public_ip("mine", "203.0.113.9");
    let manager = cluster.serve(&[with(with(external("named"), "azure-pip-name", "mine"), LABEL, "shop")]).await;
    assert_eq!(domain_name(&cluster, "mine"), "shop.eastus.cloudapp.azure.com");
    cluster.remove("named").await;
    cluster.settle().await;
    let remaining = public_ip(&cluster, "mine");
    assert_eq!(
        (&remaining["tags"], &remaining["properties"]["dnsSettings"]["domainNameLabel"]),
        (&json!({"owner": "me"}), &json!("shop"))
    );
    // Another Service takes over the address with its label, then changes it. Nothing proves that the label is not the user's.
    cluster.add(&with(pinned("web", "203.0.113.9", 80), LABEL, "shop")).await;
    let expected = json!("new.eastus.cloudapp.azure.com");
    cluster.change("web", |web| annotate(web, LABEL, Some("new")));
    cluster.until("the label follows", 5 * MINUTE, |cluster| domain_name(cluster, "mine") == expected).await;
    cluster.change("web", |web| annotate(web, LABEL, Some("")));
    cluster.until_warned("web", "remove the label in Azure").await;
    cluster.settle().await;
    assert_eq!((&public_ip(&cluster, "mine")["tags"], domain_name(&cluster, "mine")), (&json!({"owner": "me"}), expected));
    manager.stop().await;
    cluster.assert_plans_nothing("with a label that a user may have set").await;
}

#[tokio::test(start_paused = true)]
async fn a_label_conflict_costs_the_label_and_not_the_service() {
    let (cluster, _manager) = Cluster::with_two_nodes().serving(&[external("owner")]).await;
    let shared = cluster.addresses("owner").remove(0);
    cluster.add(&with(pinned("guest", &shared, 8080), LABEL, "theirs")).await;
    cluster.change("owner", |owner| annotate(owner, LABEL, Some("own")));
    let name = public_ip_name(&cluster);
    let expected = json!("own.eastus.cloudapp.azure.com");
    cluster.until("the owner has its label", 5 * MINUTE, |cluster| domain_name(cluster, &name) == expected).await;
    cluster.change("guest", |guest| annotate(guest, LABEL, Some("theirs-again")));
    cluster.settle().await;
    cluster.until_ready(5 * MINUTE).await;
    let warnings = cluster.warnings("guest");
    let is_reported = |(reason, message): &(String, String)| {
        reason == "KeptPublicIPAddress" && message.contains("default/owner has set the DNS label `own`")
    };
    assert!(warnings.iter().any(is_reported), "{warnings:?}");
    assert_eq!(domain_name(&cluster, &name), expected);
}

/// In Azure, labels are unique in a region.
#[tokio::test(start_paused = true)]
async fn a_label_of_another_public_ip_costs_only_the_label() {
    let (cluster, _) = with_a_taken_label();
    let _manager = cluster.serve(&[with(external("web"), LABEL, "taken")]).await;
    cluster.until_warned("web", "does not get the DNS label `taken`: another public IP").await;
    assert!(
        cluster.warnings("web").iter().all(|(reason, _)| reason == "KeptPublicIPAddress"),
        "{:?}",
        cluster.warnings("web")
    );
    let documents = cluster.azure().documents_of(KIND);
    let own = documents.iter().find(|document| document["name"] != "theirs").unwrap()["name"].as_str().unwrap();
    cluster.change("web", |web| annotate(web, LABEL, Some("mine")));
    let has = |label: &str| json!(format!("{label}.eastus.cloudapp.azure.com"));
    cluster.until("it has a label", 5 * MINUTE, |cluster| domain_name(cluster, own) == has("mine")).await;
    cluster.change("web", |web| annotate(web, LABEL, Some("taken")));
    cluster.settle().await;
    cluster.until_ready(MINUTE).await;
    assert_eq!(domain_name(&cluster, own), has("mine"), "the former label is kept");
}

/// Returns a cluster and the id of a foreign public IP that has the DNS label `taken`.
fn with_a_taken_label() -> (Cluster, String) {
    let cluster = Cluster::with_two_nodes();
    let theirs = cluster.put_public_ip("theirs", "203.0.113.9");
    assert!(cluster.azure().change_document(&theirs, |document| {
        document["properties"]["dnsSettings"] =
            json!({"domainNameLabel": "taken", "fqdn": "taken.eastus.cloudapp.azure.com"});
    }));
    (cluster, theirs)
}

#[tokio::test(start_paused = true)]
async fn a_refused_label_is_sent_again_at_a_comparison() {
    let (cluster, theirs) = with_a_taken_label();
    cluster.create(&with(external("web"), LABEL, "taken"));
    let manager = cluster.start_with(&["--min-resync-period=10m"]);
    cluster.until_ready(5 * MINUTE).await;
    let refusals = |cluster: &Cluster| cluster.writes().iter().filter(|write| write.ends_with("(400)")).count();
    assert_eq!(refusals(&cluster), 1);
    cluster.change("web", |web| annotate(web, "azure-load-balancer-tcp-idle-timeout", Some("5")));
    let has_timeout = |cluster: &Cluster| cluster.balancers()[0].to_string().contains("\"idleTimeoutInMinutes\":5");
    cluster.until("the change is written", MINUTE, has_timeout).await;
    cluster.quiet_for(MINUTE).await;
    assert_eq!(refusals(&cluster), 1);
    let nodes: Vec<_> = cluster.cloud.nodes().into_iter().map(Arc::new).collect();
    assert_eq!(manager.plan(&cluster.service("web").unwrap(), &nodes).await, "");
    assert!(cluster.azure().delete_document(&theirs));
    let expected = json!("taken.eastus.cloudapp.azure.com");
    let is_set = |cluster: &Cluster| domain_name(cluster, &public_ip_name(cluster)) == expected;
    cluster.until("it has its label", 25 * MINUTE, is_set).await;
}

fn public_ip_name(cluster: &Cluster) -> String {
    cluster.azure().documents_of(KIND)[0]["name"].as_str().unwrap().to_owned()
}
