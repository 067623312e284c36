//! Adapter from the older interfaces, [`Instances`] and [`Zones`], to [`InstancesV2`], the only interface of the
//! controllers.
//!
//! In: a provider. Out: its instances by Node. Upstream: `controllers/node/node_controller.go` (`getInstanceMetadata`,
//! `getProviderID`).

use std::sync::Arc;

use async_trait::async_trait;
use futures::TryFutureExt;
use k8s_openapi::api::core::v1::Node;

use super::{
    CloudError, CloudProvider, CloudResult, InstanceMetadata, Instances, InstancesV2, Zone, Zones,
    node_fields::{name, provider_id},
};

/// Returns the instances of `provider`: its [`InstancesV2`], else its [`Instances`] and [`Zones`]; `None` without either.
pub fn instances_of(provider: &dyn CloudProvider) -> Option<Arc<dyn InstancesV2>> {
    provider.instances_v2().or_else(|| {
        let (instances, zones) = (provider.instances()?, provider.zones());
        Some(Arc::new(OlderInstances { instances, zones, provider_name: provider.provider_name().to_owned() }))
    })
}

struct OlderInstances {
    instances: Arc<dyn Instances>,
    zones: Option<Arc<dyn Zones>>,
    provider_name: String,
}

impl OlderInstances {
    /// Returns the provider ID of `node`: the one in its spec, or else one with the cloud's instance ID. Upstream:
    /// `GetInstanceProviderID`.
    async fn provider_id(&self, node: &Node) -> CloudResult<String> {
        match provider_id(node) {
            Some(own) => Ok(own.to_owned()),
            None => Ok(format!("{}://{}", self.provider_name, self.instances.instance_id(name(node)).await?)),
        }
    }
}

#[async_trait]
impl InstancesV2 for OlderInstances {
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool> {
        self.instances.instance_exists_by_provider_id(&self.provider_id(node).await?).await
    }

    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool> {
        self.instances.instance_shutdown_by_provider_id(&self.provider_id(node).await?).await
    }

    /// Looks up all metadata by provider ID, or by name if that fails or the cloud has no IDs.
    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        let provider_id = match self.provider_id(node).await {
            Err(CloudError::NotImplemented) => String::new(),
            found => found?,
        };
        let (id, name, instances) = (provider_id.as_str(), name(node), &self.instances);
        let by_id = instances.node_addresses_by_provider_id(id);
        let node_addresses = by_id_or_name(id, by_id, instances.node_addresses(name)).await?;
        let by_id = instances.instance_type_by_provider_id(id);
        let instance_type = by_id_or_name(id, by_id, instances.instance_type(name)).await?;
        let zone = match &self.zones {
            Some(zones) => by_id_or_name(id, zones.get_zone_by_provider_id(id), zones.get_zone_by_node_name(name)).await?,
            None => Zone::default(),
        };
        Ok(Some(InstanceMetadata {
            has_no_id: provider_id.is_empty(),
            provider_id,
            instance_type,
            node_addresses,
            zone: zone.failure_domain,
            region: zone.region,
            ..InstanceMetadata::default()
        }))
    }
}

/// Returns the result of the lookup by provider ID, or of the one by name if there is no ID or that lookup fails.
async fn by_id_or_name<T>(
    id: &str,
    by_id: impl Future<Output = CloudResult<T>>,
    by_name: impl Future<Output = CloudResult<T>>,
) -> CloudResult<T> {
    match id.is_empty() {
        true => by_name.await,
        false => by_id.or_else(|_| by_name).await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        cloud_provider::Existence,
        providers::fake::{CallName, FakeCloud, FakeConfig, InstanceSpec},
    };

    fn cloud(instances_v2: bool) -> FakeCloud {
        let cloud = FakeCloud::new(FakeConfig { instances_v2, ..FakeConfig::default() });
        let spec = InstanceSpec { provider_id: Some("fake://id-of-n".into()), ..InstanceSpec::default() };
        cloud.add_instance("n", spec);
        cloud
    }

    fn node(name: &str, provider_id: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}})).unwrap()
    }

    async fn metadata(cloud: &FakeCloud, node: &Node) -> CloudResult<InstanceMetadata> {
        instances_of(cloud).unwrap().instance_metadata(node).await.map(Option::unwrap)
    }

    #[tokio::test]
    async fn both_interfaces_return_the_same_metadata() {
        let newer = metadata(&cloud(true), &node("n", "")).await.unwrap();
        assert_eq!((newer.provider_id.as_str(), newer.zone.as_str()), ("fake://id-of-n", "fake-zone-1"));
        assert_eq!(metadata(&cloud(false), &node("n", "")).await, Ok(newer));
    }

    #[tokio::test]
    async fn lookups_are_by_own_id_then_by_name() {
        for (id, has_no_id, addresses, zones) in [
            ("", true, &["n"][..], &["n"][..]),
            ("fake://id-of-n", false, &["fake://id-of-n"], &["fake://id-of-n"]),
            ("fake://elsewhere", false, &["fake://elsewhere", "n"], &["fake://elsewhere", "n"]),
        ] {
            let cloud = cloud(false);
            cloud.fail_next(CallName::InstanceId, &CloudError::NotImplemented, 1);
            let found = metadata(&cloud, &node("n", id)).await.unwrap();
            assert_eq!((found.provider_id.as_str(), found.has_no_id), (id, has_no_id));
            assert_eq!((found.zone.as_str(), found.instance_type.as_str()), ("fake-zone-1", "fake.standard"), "{id}");
            assert_eq!(cloud.call_count(CallName::InstanceId), u64::from(id.is_empty()), "{id}");
            assert_eq!(cloud.objects_of(CallName::NodeAddresses), addresses, "{id}");
            assert_eq!(cloud.objects_of(CallName::GetZone), zones, "{id}");
        }
    }

    #[tokio::test]
    async fn errors_are_returned_and_only_not_found_means_gone() {
        let error = CloudError::failed("broken");
        for call in [CallName::InstanceId, CallName::NodeAddresses, CallName::InstanceType, CallName::GetZone] {
            let cloud = cloud(false);
            cloud.fail_next(call, &error, 2);
            assert_eq!(metadata(&cloud, &node("n", "")).await, Err(error.clone()), "{call:?}");
        }
        assert_eq!(metadata(&cloud(false), &node("unknown", "")).await, Err(CloudError::InstanceNotFound));
        let (cloud, node) = (cloud(false), node("n", ""));
        let instances = instances_of(&cloud).unwrap();
        cloud.fail_next(CallName::InstanceId, &error, 1);
        assert_eq!(instances.existence(&node).await, Existence::Unknown("broken".into()));
        cloud.fail_next(CallName::InstanceId, &CloudError::InstanceNotFound, 1);
        assert_eq!(instances.existence(&node).await, Existence::Gone);
    }
}
