//! Writes of private link services with the real client on the simulated cloud.
#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

use serde_json::json;

use super::super::tests::{Cloud, URGENCY, cloud};
use super::*;
use crate::providers::azure::load_balancer::observe::NetworkQuery;

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
