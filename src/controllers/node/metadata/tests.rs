//! Upstream: `TestGetInstanceMetadata` and `Test_GetProviderID`.

use super::*;
use crate::{
    cloud_provider::AddressType,
    node::fixtures::{With, node, spec},
    providers::fake::{CallName, FakeCloud, FakeConfig, InstanceSpec},
};

fn cloud(instances_v2: bool) -> FakeCloud {
    let cloud = FakeCloud::new(FakeConfig { instances_v2, ..FakeConfig::default() });
    let spec = InstanceSpec { provider_id: Some("fake://id-of-n".into()), ..InstanceSpec::default() };
    cloud.add_instance("n", spec);
    cloud
}

async fn everything(cloud: &FakeCloud, node: &Node) -> MetadataResult {
    InstanceInterface::of(cloud, "node").unwrap().fetch(MetadataScope::All, node).await
}

#[tokio::test]
async fn both_interfaces_tell_the_same() {
    for v2 in [true, false] {
        let (metadata, rule) = everything(&cloud(v2), &node("n")).await.unwrap().unwrap();
        assert_eq!(rule, ProviderIdRequirement::Required);
        assert_eq!(metadata.provider_id, "fake://id-of-n");
        assert_eq!(metadata.instance_type, "fake.standard");
        assert_eq!((metadata.zone.as_str(), metadata.region.as_str()), ("fake-zone-1", "fake-region"));
        assert!(metadata.node_addresses.iter().any(|address| address.type_ == AddressType::InternalIP));
    }
}

#[tokio::test]
async fn a_cloud_without_ids_goes_by_name() {
    let cloud = cloud(false);
    cloud.fail_next(CallName::InstanceId, &CloudError::NotImplemented, 1);
    let (metadata, rule) = everything(&cloud, &node("n")).await.unwrap().unwrap();
    assert_eq!((metadata.provider_id.as_str(), rule), ("", ProviderIdRequirement::Unsupported));
    assert_eq!(metadata.instance_type, "fake.standard");
    assert_eq!(cloud.objects_of(CallName::NodeAddresses), ["n"]);
}

#[tokio::test]
async fn the_nodes_own_id_goes_first() {
    let cloud = cloud(false);
    cloud.fail_next(CallName::InstanceId, &CloudError::NotImplemented, 1);
    let own = node("n").with(|n| spec(n).provider_id = Some("fake://id-of-n".into()));
    let (metadata, rule) = everything(&cloud, &own).await.unwrap().unwrap();
    assert_eq!((metadata.provider_id.as_str(), rule), ("fake://id-of-n", ProviderIdRequirement::Required));
    assert_eq!(cloud.call_count(CallName::InstanceId), 0);
    assert_eq!(cloud.objects_of(CallName::NodeAddresses), ["fake://id-of-n"]);
}

#[tokio::test]
async fn what_is_not_found_by_id_is_looked_up_by_name() {
    let cloud = cloud(false);
    let other = node("n").with(|n| spec(n).provider_id = Some("fake://elsewhere".into()));
    let (metadata, _) = everything(&cloud, &other).await.unwrap().unwrap();
    assert_eq!(metadata.zone, "fake-zone-1");
    assert_eq!(cloud.objects_of(CallName::GetZone), ["fake://elsewhere", "n"]);
}

#[tokio::test]
async fn errors_are_passed_on() {
    let error = CloudError::failed("broken");
    for call in [CallName::InstanceId, CallName::NodeAddresses, CallName::InstanceType, CallName::GetZone] {
        let cloud = cloud(false);
        cloud.fail_next(call, &error, 2);
        assert_eq!(everything(&cloud, &node("n")).await, Err(error.clone()), "{call:?}");
    }
    assert_eq!(everything(&cloud(false), &node("unknown")).await, Err(CloudError::InstanceNotFound));
    assert!(everything(&cloud(true), &node("unknown")).await.is_err());
}

#[tokio::test]
async fn the_address_loop_asks_the_older_interface_for_addresses_only() {
    let cloud = cloud(false);
    let answers =
        InstanceInterface::of(&cloud, "node").unwrap().fetch_all(MetadataScope::Addresses, &[Arc::new(node("n"))]).await;
    let (metadata, _) = answers.into_iter().next().unwrap().unwrap().unwrap();
    assert!(!metadata.node_addresses.is_empty());
    assert_eq!(cloud.calls().len(), 1);
}
