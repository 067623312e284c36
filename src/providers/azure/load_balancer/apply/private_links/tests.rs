//! Writes of private link services with the real client on the simulated cloud.
#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use super::super::tests::{Cloud, URGENCY, cloud};
use super::*;
use crate::{
    providers::azure::load_balancer::observe::NetworkQuery,
    sandbox::azure::{Class, ConnectionStatus, Latencies, Latency},
};

/// One operation.
const OPERATION: Duration = Duration::from_secs(30);

impl Cloud {
    fn subnet(&self) -> SubnetPolicyChange {
        let id = self.settings.virtual_network.child("subnets", "subnet-nodes");
        SubnetPolicyChange { id, reasons: Vec::new(), services: Vec::new() }
    }

    /// A load balancer with front ends `0` to `7`, which somebody made.
    fn with_balancer(&self, name: &str) -> ResourceId {
        let id = self.id("loadBalancers", name);
        let frontend = |place: usize| {
            json!({"name": place.to_string(), "id": id.child("frontendIPConfigurations", &place.to_string()),
                "properties": {"subnet": {"id": self.subnet().id}, "privateIPAllocationMethod": "Dynamic"}})
        };
        let frontends: Vec<_> = (0..8).map(frontend).collect();
        let document = json!({"id": id, "name": name, "type": "Microsoft.Network/loadBalancers", "location": "eastus",
            "sku": {"name": "Standard"}, "properties": {"frontendIPConfigurations": frontends}});
        self.world.azure().put_document(document).unwrap();
        id
    }

    /// A new one at the front end of this place.
    fn link(&self, balancer: &ResourceId, place: usize) -> PrivateLinkChange {
        let frontend = balancer.child("frontendIPConfigurations", &place.to_string());
        let name = format!("{}-{place}", balancer.name());
        let addresses = json!([{"name": "a", "properties": {"primary": true, "subnet": {"id": self.subnet().id}}}]);
        let document = json!({"name": name, "location": "eastus", "properties": {
            "loadBalancerFrontendIpConfigurations": [{"id": frontend}], "ipConfigurations": addresses}});
        PrivateLinkChange {
            id: self.id("privateLinkServices", &name),
            document: serde_json::from_value(document).unwrap(),
            is_first: false,
            policies_of: None,
            reasons: Vec::new(),
            services: Vec::new(),
        }
    }

    async fn look_at_links(&self) -> Vec<PrivateLinkService> {
        let query = NetworkQuery {
            private_link_groups: [self.settings.private_link_group.clone()].into(),
            ..NetworkQuery::default()
        };
        self.observer.observe(&query, URGENCY).await.unwrap().0.private_links.services.clone()
    }

    /// The deletion of one as it is known now.
    async fn deletion(&self, id: &ResourceId) -> PrivateLinkDeletion {
        let document = self.look_at_links().await.into_iter().find(|link| link.is(id)).unwrap();
        PrivateLinkDeletion { id: id.clone(), document, reasons: Vec::new(), services: Vec::new() }
    }

    async fn put(&self, change: &PrivateLinkChange) -> ArmResult<()> {
        self.writer.put_private_link(change, URGENCY).await
    }
}

async fn open() -> (Cloud, ResourceId) {
    let cloud = cloud();
    let balancer = cloud.with_balancer("lb");
    cloud.writer.open_subnet(&cloud.subnet(), URGENCY).await.unwrap();
    cloud.look_at_links().await;
    cloud.requests();
    (cloud, balancer)
}

#[tokio::test(start_paused = true)]
async fn fifty_are_made_at_once() {
    let cloud = cloud();
    cloud.world.azure().with_options(|options| {
        let takes = Latency { respond: Duration::ZERO, operation: OPERATION };
        options.latencies = Latencies::default().with(Class::Write, "Microsoft.Network/privateLinkServices", takes);
    });
    let balancers: Vec<ResourceId> = (0..7).map(|place| cloud.with_balancer(&format!("lb{place}"))).collect();
    let changes: Vec<_> =
        balancers.iter().flat_map(|balancer| (0..8).map(|place| cloud.link(balancer, place))).take(50).collect();
    cloud.look_at_links().await;
    cloud.requests();
    let subnet = cloud.subnet();
    let started = Instant::now();
    let written = join_all(changes.iter().map(|change| async {
        cloud.writer.open_subnet(&subnet, URGENCY).await?;
        cloud.put(change).await
    }));
    written.await.into_iter().collect::<ArmResult<Vec<()>>>().unwrap();
    let took = started.elapsed();
    assert!(took < OPERATION * 3 / 2, "one after another they take {:?}, and took {took:?}", OPERATION * 50);
    let records = cloud.world.azure().requests();
    let puts: Vec<_> = records.iter().filter(|it| it.method == "PUT" && it.path.contains("/privateLinkServices/")).collect();
    let (first, last) = (puts.iter().map(|it| it.at).min().unwrap(), puts.iter().map(|it| it.at).max().unwrap());
    assert!(puts.len() == 50 && last - first < OPERATION, "all are under way at once");
    let subnets = records.iter().filter(|it| it.path.ends_with("/subnets/subnet-nodes")).count();
    assert_eq!(subnets, 2, "read and written once for all");
    assert_eq!(cloud.look_at_links().await.len(), 50);
}

#[tokio::test(start_paused = true)]
async fn its_load_balancer_is_doubtful_afterwards() {
    let (cloud, balancer) = open().await;
    let change = cloud.link(&balancer, 0);
    cloud.put(&change).await.unwrap();
    assert_eq!(cloud.requests(), ["PUT lb-0"]);
    assert!(cloud.observer.cached_version(&NetworkCacheKey::LoadBalancer(balancer.clone())).invalidated);
    cloud.look_at_links().await;
    assert_eq!(cloud.requests(), ["GET lb"]);
    let deletion = cloud.deletion(&change.id).await;
    cloud.writer.delete_private_link(&deletion, URGENCY).await.unwrap();
    cloud.writer.delete_private_link(&deletion, URGENCY).await.unwrap();
    assert_eq!(cloud.requests(), ["DELETE lb-0"], "what is gone is gone");
    assert!(cloud.observer.cached_version(&NetworkCacheKey::LoadBalancer(balancer)).invalidated);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_over_and_the_group_is_read_again() {
    let (cloud, balancer) = open().await;
    let change = cloud.link(&balancer, 0);
    let mut document = serde_json::to_value(&change.document).unwrap();
    document["id"] = json!(change.id);
    document["type"] = json!("Microsoft.Network/privateLinkServices");
    cloud.world.azure().put_document(document).unwrap();
    assert_eq!(cloud.put(&change).await.unwrap_err().class, ArmErrorClass::Conflict);
    cloud.requests();
    assert_eq!(cloud.look_at_links().await.len(), 1);
    assert!(cloud.requests().contains(&"GET privateLinkServices".to_owned()));
    let deletion = cloud.deletion(&change.id).await;
    cloud.world.azure().change_document(change.id.as_str(), |body| body["tags"] = json!({"a": "b"}));
    let stale = cloud.writer.delete_private_link(&deletion, URGENCY).await;
    assert_eq!(stale.unwrap_err().class, ArmErrorClass::Conflict);
}

#[tokio::test(start_paused = true)]
async fn connections_go_one_after_another() {
    let (cloud, balancer) = open().await;
    let change = cloud.link(&balancer, 0);
    cloud.put(&change).await.unwrap();
    let names: Vec<String> = ["one", "two"]
        .iter()
        .map(|name| {
            let endpoint = format!("/subscriptions/x/resourceGroups/rg/providers/Microsoft.Network/privateEndpoints/{name}");
            let azure = cloud.world.azure();
            azure.connect_private_endpoint(&endpoint, change.id.as_str(), ConnectionStatus::Approved).unwrap()
        })
        .collect();
    cloud.observer.invalidate(NetworkCacheKey::PrivateLink(change.id.clone()));
    let deletion = cloud.deletion(&change.id).await;
    assert_eq!(deletion.approved_connections(), 2);
    cloud.requests();
    cloud.writer.delete_private_link(&deletion, URGENCY).await.unwrap();
    let mut expected: Vec<String> = names.iter().map(|name| format!("DELETE {name}")).collect();
    expected.extend(["GET lb-0".to_owned(), "DELETE lb-0".to_owned()]);
    assert_eq!(cloud.requests(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lacks_one_proves_nothing() {
    let (cloud, balancer) = open().await;
    let change = cloud.link(&balancer, 0);
    cloud.put(&change).await.unwrap();
    let lacking = crate::sandbox::azure::Effect::StaleList(Duration::from_secs(3_600));
    let fault = crate::sandbox::azure::Fault::new(lacking).path("*/privateLinkServices").times(1);
    cloud.world.azure().add_fault(fault);
    cloud.observer.invalidate(NetworkCacheKey::PrivateLinks(cloud.settings.private_link_group.clone()));
    cloud.requests();
    assert_eq!(cloud.look_at_links().await.len(), 1);
    assert!(cloud.requests().contains(&"GET lb-0".to_owned()), "it is read by itself");
    cloud.world.azure().delete_document(change.id.as_str());
    cloud.observer.invalidate(NetworkCacheKey::PrivateLinks(cloud.settings.private_link_group.clone()));
    assert_eq!(cloud.look_at_links().await.len(), 0, "Azure says so of itself");
    assert!(cloud.requests().contains(&"GET lb-0".to_owned()));
}
