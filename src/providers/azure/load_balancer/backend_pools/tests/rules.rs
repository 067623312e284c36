//! Tests of pool membership: other load balancers, SKUs, preconfigured pools.

use super::*;
use crate::{
    providers::azure::config::{AzureConfig, LoadBalancerSku},
    sandbox::azure::topology::PoolKind::Uniform,
};

/// Makes the model and the instances of a scale set list a pool of another load balancer.
fn attach(cloud: &Cloud, set: &str) {
    cloud.put_load_balancer("others");
    let pool = cloud.load_balancer_id("others").child("backendAddressPools", "kubernetes");
    let azure = cloud.world.azure();
    let of_set = |document: &serde_json::Value| {
        document["id"].as_str().is_some_and(|id| id.contains(&format!("/virtualMachineScaleSets/{set}")))
    };
    let kinds = ["", "/virtualMachines", "/virtualMachines/networkInterfaces"];
    let documents =
        kinds.iter().flat_map(|kind| azure.documents_of(&format!("Microsoft.Compute/virtualMachineScaleSets{kind}")));
    for document in documents.filter(of_set).collect::<Vec<_>>() {
        azure.change_document(document["id"].as_str().unwrap(), |body| {
            for pointer in [
                "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/0/properties/ipConfigurations/0",
                "/properties/networkProfileConfiguration/networkInterfaceConfigurations/0/properties/ipConfigurations/0",
                "/properties/ipConfigurations/0",
            ] {
                if let Some(configuration) = body.pointer_mut(pointer) {
                    configuration["properties"]["loadBalancerBackendAddressPools"] = serde_json::json!([{"id": pool}]);
                }
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_set_behind_another_load_balancer_is_left_and_stops_no_other() {
    let cloud = Cloud::new(vec![Pool::new(Uniform, "pool0", 2), Pool::new(Uniform, "pool1", 2)], config(Uniform));
    attach(&cloud, "pool0");
    cloud.warm().await;
    let synced = cloud.sync().await.unwrap();
    assert_eq!((synced.models, synced.machines), (1, 2));
    assert_eq!(cloud.in_pool("kubernetes"), names(&cloud.nodes()[2..]));
    cloud.requests();
    assert_eq!(cloud.sync().await, Ok(PoolSyncSummary::default()));
    assert_eq!(cloud.requests(), (0, 0), "it is not read again and again");
}

#[tokio::test(start_paused = true)]
async fn basic_load_balancers_have_the_machines_of_one_set() {
    let config = AzureConfig {
        load_balancer_sku: LoadBalancerSku::Basic,
        primary_scale_set_name: "pool0".to_owned(),
        ..config(Uniform)
    };
    let pools =
        vec![Pool::new(Uniform, "pool0", 2), Pool::new(Uniform, "pool1", 2), Pool::new(PoolKind::Flexible, "pool2", 1)];
    let cloud = Cloud::new(pools, config);
    cloud.put_load_balancer("pool1");
    cloud.put_load_balancer("pool2");
    cloud.warm().await;
    cloud.sync().await.unwrap();
    let nodes = cloud.nodes();
    assert_eq!(cloud.in_pool("kubernetes"), names(&nodes[..2]));
    assert_eq!(cloud.in_pool("pool1"), names(&nodes[2..4]));
    assert_eq!(cloud.in_pool("pool2").len(), 0, "flexible scale sets need the standard SKU");
    assert_eq!(cloud.sync().await, Ok(PoolSyncSummary::default()));
}

#[tokio::test(start_paused = true)]
async fn preconfigured_pools_are_filled_only_when_they_were_just_created() {
    let setting =
        |value: &str| AzureConfig { pre_configured_backend_pool_load_balancer_types: value.to_owned(), ..config(Uniform) };
    let cloud = Cloud::new(vec![Pool::new(Uniform, "pool0", 2)], setting("internal"));
    cloud.warm().await;
    cloud.sync().await.unwrap();
    assert_eq!((cloud.in_pool("kubernetes").len(), cloud.in_pool("kubernetes-internal").len()), (2, 0));
    let created = cloud.load_balancer_id("kubernetes-internal").child("backendAddressPools", "kubernetes");
    cloud.sync_observed(&cloud.observed(), &cloud.nodes(), &cloud.nodes(), &[created]).await.unwrap();
    assert_eq!(cloud.in_pool("kubernetes-internal").len(), 2);
    let cloud = Cloud::new(vec![Pool::new(Uniform, "pool0", 2)], setting("all"));
    assert_eq!(cloud.sync().await, Ok(PoolSyncSummary::default()));
    assert_eq!(cloud.requests(), (0, 0));
}
