//! The configuration of a fake cloud: YAML from `--cloud-config`.
//!
//! In: text. Out: a [`FakeConfig`], or an error that names the field and what it accepts. The guide `fake-provider.md` explains
//! every field.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::calls::{CallBehaviour, CallName};
use crate::{
    cloud_provider::{CloudError, CloudResult, NodeAddress, PodCidrMaskSizes},
    runtime::yaml::{self, YamlError},
};

/// A whole fake cloud as configured. The default has no instance at all; see [`FakeConfig::any_node`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FakeConfig {
    /// Id that tells this cluster's resources from others'. Empty: the cloud has none.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Offer `InstancesV2`; `false`: the older `Instances` and `Zones`.
    #[serde(rename = "instancesV2")]
    pub instances_v2: bool,
    /// Instances by node name.
    pub instances: BTreeMap<String, InstanceSpec>,
    /// Families of instances with numbered names.
    pub generated_instances: Vec<GeneratedInstances>,
    /// Answer for every other node name as well, with this.
    pub any_instance: Option<InstanceSpec>,
    pub load_balancers: FakeLoadBalancerConfig,
    pub routes: FakeRouteConfig,
    /// What to do with which call.
    pub calls: BTreeMap<CallName, CallBehaviour>,
    /// Lead in a cluster whose Nodes carry ids of another cloud, too.
    pub allow_foreign_nodes: bool,
    /// Where the cloud remembers what was made in it. Without it, it forgets with the process. Relative to the configuration.
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

/// Whether an instance is switched on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PowerState {
    /// Switched on.
    #[default]
    Running,
    /// Shut down.
    Stopped,
}

/// What the cloud says about whether an instance is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InstancePresence {
    /// It is there.
    #[default]
    Exists,
    /// It is gone.
    Gone,
    /// The cloud cannot tell: calls for it fail.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InstanceSpec {
    /// Provider id; `fake://<node name>` when not given.
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
    /// Machine type. Empty: not known.
    pub instance_type: String,
    /// Zone. Empty: not known.
    pub zone: String,
    /// Region. Empty: not known.
    pub region: String,
    /// Addresses. None: the name as host name and one internal address: what the kubelet asked for, else made from the name.
    pub addresses: Vec<NodeAddress>,
    /// Whether it is switched on.
    pub power_state: PowerState,
    /// Whether it is there.
    pub existence: InstancePresence,
    /// `false`: it belongs to somebody else; the cloud says so and leaves it alone.
    pub managed: bool,
    /// Further node labels.
    pub labels: BTreeMap<String, String>,
    /// Prefix lengths that its node's pod CIDRs should have.
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
    /// What the names begin with.
    pub name_prefix: String,
    pub count: u32,
    /// Zones, dealt in turn; the template's when empty.
    #[serde(default)]
    pub zones: Vec<String>,
    /// Where their internal addresses come from, in order.
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
    /// Where their addresses come from. The lowest free one is taken; the first of each range (and the last of IPv4) is not used.
    pub address_pool: Vec<IpNet>,
    /// What the provider answers when asked how many Services it can work on at once.
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
    /// Routes also carry the addresses of their node.
    pub enable_node_addresses: bool,
}

impl Default for FakeRouteConfig {
    fn default() -> Self {
        Self { enabled: true, enable_node_addresses: false }
    }
}

impl FakeConfig {
    /// The cloud one gets without `--cloud-config`: it knows every node name.
    pub fn any_node() -> Self {
        Self { any_instance: Some(InstanceSpec::default()), ..Self::default() }
    }

    /// Reads and checks YAML.
    pub fn parse(text: &str) -> CloudResult<Self> {
        // A file with nothing but comments is a cloud with nothing in it.
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
                    "instances.{name}.providerID: {id:?} is the id of {other:?} already; ids must be unique"
                ));
            }
        }
        for (index, group) in self.generated_instances.iter().enumerate() {
            group.check().map_err(|problem| format!("generatedInstances[{index}].{problem}"))?;
        }
        if self.any_instance.as_ref().is_some_and(|spec| spec.provider_id.is_some()) {
            return Err("anyInstance.providerID: every instance needs an id of its own; leave it out".into());
        }
        for (call, behaviour) in &self.calls {
            behaviour.problem().map_or(Ok(()), |problem| Err(format!("calls.{}: {problem}", call.name())))?;
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
            return Err("template: `providerID` and `addresses` would be the same for all instances; leave them out".into());
        }
        let room = self.address_range.max_prefix_len() - self.address_range.prefix_len();
        if room < 32 && 1_u64 << room <= u64::from(self.count) {
            return Err(format!("addressRange: {} has no room for {} instances", self.address_range, self.count));
        }
        Ok(())
    }
}

/// Name in `--cloud-provider`, and scheme of its provider ids.
pub const PROVIDER_NAME: &str = "fake";

pub(super) fn provider_id_of(name: &str, spec: &InstanceSpec) -> String {
    spec.provider_id.clone().unwrap_or_else(|| format!("{PROVIDER_NAME}://{name}"))
}
