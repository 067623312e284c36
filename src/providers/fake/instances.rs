//! Instances of a fake cloud: lookup in the configuration, and the traits that report them.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use async_trait::async_trait;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

use super::{
    FakeCloud, PROVIDER_NAME,
    calls::CallName,
    config::{FakeConfig, GeneratedInstances, InstancePresence, InstanceSpec, PowerState, provider_id_of},
};
use crate::cloud_provider::{
    AddressType, CloudError, CloudResult, InstanceMetadata, Instances, InstancesV2, NodeAddress, PodCidrMaskSizes,
    PodCidrMasks, Zone, Zones,
    node_fields::{name, provider_id},
};

/// Annotation with the addresses of `kubelet --node-ip`. Upstream: `cloud-provider/api/well_known_annotations.go`.
const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Instance found in the configuration, with all defaults applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FakeInstance {
    pub(super) name: String,
    pub(super) spec: InstanceSpec,
    /// Internal address, for specifications without addresses.
    own_address: IpAddr,
}

/// Result of the lookup of an instance; `None`: it belongs to another cloud.
pub(super) type FakeInstanceLookup = CloudResult<Option<FakeInstance>>;

impl FakeConfig {
    /// Returns the configured instance of the Node `name`, whatever its existence.
    pub(super) fn spec_of(&self, name: &str) -> Option<InstanceSpec> {
        let generated = || self.generated_instances.iter().find_map(|group| Some(group.member(name)?.0));
        self.instances.get(name).cloned().or_else(generated).or_else(|| self.any_instance.clone())
    }

    /// Looks up the instance of the Node `name`.
    pub(super) fn by_name(&self, name: &str) -> FakeInstanceLookup {
        let spec = self.spec_of(name).ok_or(CloudError::InstanceNotFound)?;
        // A generated instance that is also listed, to change a field, keeps its generated address.
        let generated = self.generated_instances.iter().find_map(|group| Some(group.member(name)?.1));
        let own_address = generated.unwrap_or_else(|| address_from_name(name));
        match spec.existence {
            InstancePresence::Gone => Err(CloudError::InstanceNotFound),
            InstancePresence::Unknown => {
                Err(CloudError::Failed(format!("instance {name:?} is configured as `existence: unknown`")))
            }
            InstancePresence::Exists if !spec.managed => Ok(None),
            InstancePresence::Exists => Ok(Some(FakeInstance { name: name.to_owned(), spec, own_address })),
        }
    }

    /// Looks up the instance with the provider ID `id`.
    pub(super) fn by_provider_id(&self, id: &str) -> FakeInstanceLookup {
        let listed =
            self.instances.iter().find(|(name, spec)| provider_id_of(name, spec) == id).map(|(name, _)| name.as_str());
        let own = id.strip_prefix(PROVIDER_NAME).and_then(|rest| rest.strip_prefix("://"));
        match (listed, own) {
            (Some(name), _) => self.by_name(name),
            // An instance with a configured ID is not found by its default ID.
            (None, Some(name)) if self.instances.contains_key(name) => Err(CloudError::InstanceNotFound),
            (None, Some(name)) => self.by_name(name),
            (None, None) => Ok(None),
        }
    }

    /// Returns why the cloud must not lead a cluster with these Nodes: the first Node that has a provider ID of another
    /// cloud.
    pub(super) fn foreign_node(&self, nodes: &[Arc<Node>]) -> Option<String> {
        let is_own = |id: &str| {
            id.split_once("://").is_some_and(|(scheme, _)| scheme == PROVIDER_NAME)
                || self.instances.iter().any(|(name, spec)| provider_id_of(name, spec) == id)
        };
        let foreign = |node: &Arc<Node>| provider_id(node).filter(|id| !is_own(id)).map(str::to_owned);
        let (node, id) = nodes.iter().filter(|_| !self.allow_foreign_nodes).find_map(|node| Some((node, foreign(node)?)))?;
        let (name, id) = (name(node), id.chars().take(64).collect::<String>());
        Some(format!(
            "Node {name} has the provider ID {id:?} of another cloud, and --cloud-provider=fake would rewrite the addresses of real \
             Services: set --cloud-provider to the cloud of this cluster, or allowForeignNodes: true in the file of --cloud-config"
        ))
    }

    /// Looks up the instance of `node` by its provider ID, or by its name if it has no ID yet.
    pub(super) fn by_node(&self, node: &Node) -> FakeInstanceLookup {
        match provider_id(node) {
            Some(id) => self.by_provider_id(id),
            None => self.by_name(name(node)),
        }
    }
}

impl GeneratedInstances {
    fn member(&self, name: &str) -> Option<(InstanceSpec, IpAddr)> {
        let digits = name.strip_prefix(&self.name_prefix)?;
        let index = digits.parse::<u32>().ok().filter(|index| *index < self.count && index.to_string() == digits)?;
        let mut spec = self.template.clone();
        let zone_index = usize::try_from(index).ok()?.checked_rem(self.zones.len());
        spec.zone = zone_index.and_then(|index| self.zones.get(index)).cloned().unwrap_or(spec.zone);
        let address = match self.address_range {
            IpNet::V4(net) => IpAddr::V4(Ipv4Addr::from_bits(net.network().to_bits().wrapping_add(index).wrapping_add(1))),
            IpNet::V6(net) => IpAddr::V6(Ipv6Addr::from_bits(net.network().to_bits().wrapping_add(u128::from(index) + 1))),
        };
        Some((spec, address))
    }
}

/// Returns an address in 10.128.0.0/9 that depends on the name only (FNV-1a).
fn address_from_name(name: &str) -> IpAddr {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    IpAddr::V4(Ipv4Addr::from_bits(0x0a80_0000 | (hash ^ (hash >> 23)) & 0x007f_ffff))
}

impl FakeInstance {
    fn metadata(&self, node: Option<&Node>) -> InstanceMetadata {
        InstanceMetadata {
            provider_id: provider_id_of(&self.name, &self.spec),
            instance_type: self.spec.instance_type.clone(),
            node_addresses: self.addresses(node),
            zone: self.spec.zone.clone(),
            region: self.spec.region.clone(),
            additional_labels: self.spec.labels.clone(),
            is_unmanaged: false,
            has_no_id: false,
        }
    }

    fn addresses(&self, node: Option<&Node>) -> Vec<NodeAddress> {
        if !self.spec.addresses.is_empty() {
            return self.spec.addresses.clone();
        }
        let provided_ips = node.and_then(|node| node.metadata.annotations.as_ref()?.get(PROVIDED_NODE_IP));
        let mut addresses: Vec<NodeAddress> = provided_ips
            .into_iter()
            .flat_map(|list| list.split(','))
            .filter_map(|address| address.trim().parse::<IpAddr>().ok())
            .map(|address| NodeAddress { type_: AddressType::InternalIP, address: address.to_string() })
            .collect();
        if addresses.is_empty() {
            addresses.push(NodeAddress { type_: AddressType::InternalIP, address: self.own_address.to_string() });
        }
        addresses.push(NodeAddress { type_: AddressType::Hostname, address: self.name.clone() });
        addresses
    }

    fn zone(&self) -> Zone {
        Zone { failure_domain: self.spec.zone.clone(), region: self.spec.region.clone() }
    }
}

/// Returns `true` unless the instance is confirmed to be missing. An instance of another cloud exists, so its Node is kept.
fn exists(found: FakeInstanceLookup) -> CloudResult<bool> {
    match found {
        Err(CloudError::InstanceNotFound) => Ok(false),
        found => found.map(|_| true),
    }
}

fn is_shut_down(found: FakeInstanceLookup) -> CloudResult<bool> {
    Ok(found?.is_some_and(|instance| instance.spec.power_state == PowerState::Stopped))
}

fn metadata(found: FakeInstanceLookup, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
    Ok(found?.map(|instance| instance.metadata(Some(node))))
}

fn own_instance(found: FakeInstanceLookup) -> CloudResult<FakeInstance> {
    found?.ok_or(CloudError::InstanceNotFound)
}

#[async_trait]
impl InstancesV2 for FakeCloud {
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool> {
        self.read_call(CallName::InstanceExists, name(node), |config| exists(config.by_node(node))).await
    }

    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool> {
        self.read_call(CallName::InstanceShutdown, name(node), |config| is_shut_down(config.by_node(node))).await
    }

    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        self.read_call(CallName::InstanceMetadata, name(node), |config| metadata(config.by_node(node), node)).await
    }

    async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        let body = async {
            let mut results = Vec::with_capacity(nodes.len());
            for node in nodes {
                let read = || metadata(self.inner().config.by_node(node), node);
                results.push(self.batch_item(CallName::InstanceMetadata, name(node), read).await);
            }
            Ok(results)
        };
        let object = format!("{} nodes", nodes.len());
        match self.call(CallName::InstanceMetadataBatch, &object, body).await {
            Ok(results) => results,
            Err(error) => vec![Err(error); nodes.len()],
        }
    }
}

#[async_trait]
impl Instances for FakeCloud {
    async fn node_addresses(&self, name: &str) -> CloudResult<Vec<NodeAddress>> {
        self.read_call(CallName::NodeAddresses, name, |config| Ok(own_instance(config.by_name(name))?.addresses(None))).await
    }

    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> CloudResult<Vec<NodeAddress>> {
        let read = |config: &FakeConfig| Ok(own_instance(config.by_provider_id(provider_id))?.addresses(None));
        self.read_call(CallName::NodeAddresses, provider_id, read).await
    }

    async fn instance_id(&self, name: &str) -> CloudResult<String> {
        let read = |config: &FakeConfig| {
            let id = provider_id_of(name, &own_instance(config.by_name(name))?.spec);
            Ok(id.split_once("://").map_or(id.clone(), |(_, rest)| rest.to_owned()))
        };
        self.read_call(CallName::InstanceId, name, read).await
    }

    async fn instance_type(&self, name: &str) -> CloudResult<String> {
        self.read_call(CallName::InstanceType, name, |config| Ok(own_instance(config.by_name(name))?.spec.instance_type))
            .await
    }

    async fn instance_type_by_provider_id(&self, provider_id: &str) -> CloudResult<String> {
        let read = |config: &FakeConfig| Ok(own_instance(config.by_provider_id(provider_id))?.spec.instance_type);
        self.read_call(CallName::InstanceType, provider_id, read).await
    }

    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> CloudResult<bool> {
        let read = |config: &FakeConfig| exists(config.by_provider_id(provider_id));
        self.read_call(CallName::InstanceExists, provider_id, read).await
    }

    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> CloudResult<bool> {
        let read = |config: &FakeConfig| is_shut_down(config.by_provider_id(provider_id));
        self.read_call(CallName::InstanceShutdown, provider_id, read).await
    }
}

#[async_trait]
impl PodCidrMasks for FakeCloud {
    async fn mask_sizes(&self, node: &Node) -> CloudResult<PodCidrMaskSizes> {
        let read = |config: &FakeConfig| Ok(own_instance(config.by_node(node))?.spec.pod_cidr_masks);
        self.read_call(CallName::PodCidrMasks, name(node), read).await
    }
}

#[async_trait]
impl Zones for FakeCloud {
    async fn get_zone_by_provider_id(&self, provider_id: &str) -> CloudResult<Zone> {
        let read = |config: &FakeConfig| Ok(own_instance(config.by_provider_id(provider_id))?.zone());
        self.read_call(CallName::GetZone, provider_id, read).await
    }

    async fn get_zone_by_node_name(&self, name: &str) -> CloudResult<Zone> {
        self.read_call(CallName::GetZone, name, |config| Ok(own_instance(config.by_name(name))?.zone())).await
    }
}
