//! Configuration of a fake cloud: YAML from `--cloud-config`.
//!
//! In: text. Out: a [`FakeConfig`], or an error that names the field and what it accepts. The guide `fake-provider.md`
//! explains every field.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::calls::{CallBehavior, CallName};
use crate::{
    cloud_provider::{CloudError, CloudResult, NodeAddress, PodCidrMaskSizes},
    runtime::yaml::{self, YamlError},
};

/// Configuration of a fake cloud. The default has no instances; see [`FakeConfig::any_node`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FakeConfig {
    /// ID that distinguishes the resources of this cluster from those of others. Empty: the cloud has no cluster IDs.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Whether the cloud offers `InstancesV2`; otherwise it offers the older `Instances` and `Zones`.
    #[serde(rename = "instancesV2")]
    pub instances_v2: bool,
    /// Instances by Node name.
    pub instances: BTreeMap<String, InstanceSpec>,
    /// Groups of instances with numbered names.
    pub generated_instances: Vec<GeneratedInstances>,
    /// Instance of every other Node name; `None`: other Nodes have no instance.
    pub any_instance: Option<InstanceSpec>,
    pub load_balancers: FakeLoadBalancerConfig,
    pub routes: FakeRouteConfig,
    /// Latencies and faults by call.
    pub calls: BTreeMap<CallName, CallBehavior>,
    /// Whether the provider leads a cluster whose Nodes have provider IDs of another cloud.
    pub allow_foreign_nodes: bool,
    /// File that stores load balancers and routes, relative to the file of the configuration. `None`: they are lost with the
    /// process.
    pub state_file: Option<PathBuf>,
}

impl Default for FakeConfig {
    fn default() -> Self {
        Self {
            cluster_id: "fake".into(),
            instances_v2: true,
            instances: BTreeMap::new(),
            generated_instances: Vec::new(),
            any_instance: None,
            load_balancers: FakeLoadBalancerConfig::default(),
            routes: FakeRouteConfig::default(),
            calls: BTreeMap::new(),
            allow_foreign_nodes: false,
            state_file: None,
        }
    }
}

/// Power state of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PowerState {
    #[default]
    Running,
    Stopped,
}

/// Existence of an instance, as the cloud reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InstancePresence {
    #[default]
    Exists,
    Gone,
    /// Undetermined existence: calls for the instance fail.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InstanceSpec {
    /// Provider ID; `None`: `fake://<Node name>`.
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
    /// Instance type. Empty: unknown.
    pub instance_type: String,
    /// Zone of the Node. Empty: unknown.
    pub zone: String,
    /// Region of the Node. Empty: unknown.
    pub region: String,
    /// Addresses. Empty: the name as host name, and one internal address, which the kubelet provides or the name determines.
    pub addresses: Vec<NodeAddress>,
    pub power_state: PowerState,
    pub existence: InstancePresence,
    /// Whether the cloud manages the instance. An unmanaged instance exists, but has no metadata.
    pub managed: bool,
    /// Additional labels of its Node.
    pub labels: BTreeMap<String, String>,
    /// Prefix lengths of the pod CIDRs of its Node.
    #[serde(rename = "podCIDRMasks")]
    pub pod_cidr_masks: PodCidrMaskSizes,
}

impl Default for InstanceSpec {
    fn default() -> Self {
        Self {
            provider_id: None,
            instance_type: "fake.standard".into(),
            zone: "fake-zone-1".into(),
            region: "fake-region".into(),
            addresses: Vec::new(),
            power_state: PowerState::Running,
            existence: InstancePresence::Exists,
            managed: true,
            labels: BTreeMap::new(),
            pod_cidr_masks: PodCidrMaskSizes::default(),
        }
    }
}

/// Instances `<namePrefix>0` to `<namePrefix><count - 1>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GeneratedInstances {
    pub name_prefix: String,
    pub count: u32,
    /// Zones, assigned in rotation. Empty: the zone of the template.
    #[serde(default)]
    pub zones: Vec<String>,
    /// Range of the internal addresses, which are assigned in order.
    #[serde(default = "default_address_range")]
    pub address_range: IpNet,
    #[serde(default)]
    pub template: InstanceSpec,
}

fn default_address_range() -> IpNet {
    IpNet::V4(ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 64, 0, 0), 10))
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FakeLoadBalancerConfig {
    pub enabled: bool,
    /// Ranges of the addresses, of which the lowest free address is allocated. The first of each range (and the last of
    /// IPv4) is not used.
    pub address_pool: Vec<IpNet>,
    /// Result of [`LoadBalancer::max_in_flight`](crate::cloud_provider::LoadBalancer::max_in_flight); `None`: no limit.
    pub max_in_flight: Option<usize>,
}

impl Default for FakeLoadBalancerConfig {
    fn default() -> Self {
        let v4 = ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(198, 18, 0, 0), 15);
        let v6 = ipnet::Ipv6Net::new_assert(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0xfa, 0xce, 0, 0, 0, 0), 64);
        Self { enabled: true, address_pool: vec![v4.into(), v6.into()], max_in_flight: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FakeRouteConfig {
    pub enabled: bool,
    /// Whether routes have the addresses of their Node.
    pub enable_node_addresses: bool,
}

impl Default for FakeRouteConfig {
    fn default() -> Self {
        Self { enabled: true, enable_node_addresses: false }
    }
}

impl FakeConfig {
    /// Returns the configuration without `--cloud-config`: every Node name has an instance.
    pub fn any_node() -> Self {
        Self { any_instance: Some(InstanceSpec::default()), ..Self::default() }
    }

    /// Reads and checks YAML.
    pub fn parse(text: &str) -> CloudResult<Self> {
        // A file of comments only is a cloud without instances.
        let invalid = |error: YamlError| CloudError::invalid(error.to_string());
        if yaml::is_empty(text).map_err(invalid)? {
            return Ok(Self::default());
        }
        let config: Self = yaml::parse(text).map_err(invalid)?;
        config.check().map_err(CloudError::Invalid)?;
        Ok(config)
    }

    /// Reads and checks a file.
    pub fn read(path: &Path) -> CloudResult<Self> {
        let about =
            |error: &dyn std::fmt::Display| CloudError::invalid(format!("--cloud-config {}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| about(&error))?;
        let mut config = Self::parse(&text).map_err(|error| about(&error))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        config.state_file = config.state_file.map(|file| folder.join(file));
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let mut ids = BTreeMap::new();
        for (name, spec) in &self.instances {
            let id = provider_id_of(name, spec);
            if let Some(other) = ids.insert(id.clone(), name) {
                return Err(format!(
                    "instances.{name}.providerID: {id:?} is already the ID of {other:?}; IDs must be unique"
                ));
            }
        }
        for (index, group) in self.generated_instances.iter().enumerate() {
            group.check().map_err(|problem| format!("generatedInstances[{index}].{problem}"))?;
        }
        if self.any_instance.as_ref().is_some_and(|spec| spec.provider_id.is_some()) {
            return Err("anyInstance.providerID: each instance must have its own ID; remove this field".into());
        }
        for (call, behavior) in &self.calls {
            behavior.problem().map_or(Ok(()), |problem| Err(format!("calls.{}: {problem}", call.name())))?;
        }
        Ok(())
    }
}

impl GeneratedInstances {
    fn check(&self) -> Result<(), String> {
        if self.name_prefix.is_empty() {
            return Err("namePrefix: must not be empty, e.g. node-".into());
        }
        if self.template.provider_id.is_some() || !self.template.addresses.is_empty() {
            return Err("template: `providerID` and `addresses` would be the same for all instances; remove them".into());
        }
        let host_bits = self.address_range.max_prefix_len() - self.address_range.prefix_len();
        if host_bits < 32 && 1_u64 << host_bits <= u64::from(self.count) {
            return Err(format!("addressRange: {} has too few addresses for {} instances", self.address_range, self.count));
        }
        Ok(())
    }
}

/// Name in `--cloud-provider`, and scheme of its provider IDs.
pub const PROVIDER_NAME: &str = "fake";

pub(super) fn provider_id_of(name: &str, spec: &InstanceSpec) -> String {
    spec.provider_id.clone().unwrap_or_else(|| format!("{PROVIDER_NAME}://{name}"))
}
