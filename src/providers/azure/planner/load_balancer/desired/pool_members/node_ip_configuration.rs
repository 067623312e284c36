//! Pools that network interfaces list: the model of a scale set, its instances, and interfaces of other machines. Pure.
//!
//! In: one document, and the pools that it shall list and those that it shall not. Out: the body to write, or why there is none.
//! Upstream: `pkg/provider/azure_vmss.go`, `azure_vmssflex.go`, `azure_standard.go`. Other than there, one scale set that belongs to
//! another load balancer keeps no other from joining, and a machine whose power state is unknown joins.

use crate::providers::azure::{
    model::{
        Machine, ResourceId,
        compute::{
            ArmScaleSetProperties, NetworkInterfaceConfiguration, NetworkProfileConfiguration, ScaleSetIpConfiguration,
            ScaleSetVmProfile, ScaleSetVmProperties, VirtualMachineScaleSet, VirtualMachineScaleSetVm,
        },
        document::SubResource,
        network::{BackendAddressPool, NetworkInterface, NetworkInterfaceIpConfiguration},
        spelling,
    },
    planner::load_balancer::{naming, spec::IpFamily},
};

/// The version of the network provider that a flexible scale set's profile is written for.
const FLEX_NETWORK_API: &str = "2020-11-01";
const LOAD_BALANCERS: &str = "loadBalancers";
const FAILED: &str = "Failed";

/// What one document shall list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolMembershipPatch {
    /// Pools to list.
    pub join: Vec<ResourceId>,
    /// Pools to list no more.
    pub leave: Vec<ResourceId>,
    /// Whether load balancers are of the standard SKU: then a machine can be behind one (external and internal) only.
    pub is_standard: bool,
    /// Whether our last write of the document failed: what it has failed in is written again, even when it lists the pools by now.
    pub last_write_failed: bool,
}

impl PoolMembershipPatch {
    /// Whether the document is to be written as it reads: ARM took our last write and could not carry it out.
    fn must_rewrite(&self, state: Option<&str>) -> bool {
        self.last_write_failed && spelling::is_word(state, FAILED)
    }
}

/// Why a document is left alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipSkipReason {
    /// It is as it has to be.
    #[error("it lists the pools already")]
    Unchanged,
    /// ARM is deleting it, or it has failed.
    #[error("its provisioning state is {0}")]
    State(String),
    /// It has no interface or IP configuration of the family.
    #[error("it has no IP configuration of {0}")]
    NoConfiguration(IpFamily),
    /// It is behind another load balancer.
    #[error("it is behind load balancer {0}")]
    OtherLoadBalancer(String),
}

/// The body that brings the model of a scale set to the wish. New instances follow it.
pub fn model(
    set: &VirtualMachineScaleSet,
    patch: &PoolMembershipPatch,
) -> Result<VirtualMachineScaleSet, MembershipSkipReason> {
    let properties = set.properties.clone().unwrap_or_default();
    refuse_state(properties.provisioning_state.as_deref(), &["Deleting"])?;
    let is_flex = spelling::is_word(properties.orchestration_mode.as_deref(), "Flexible");
    let profile = properties.virtual_machine_profile.unwrap_or_default();
    let patch = if is_windows_2019(&profile) { only_ipv4(patch) } else { patch.clone() };
    let interfaces = profile.network_profile.and_then(|profile| profile.network_interface_configurations);
    let interfaces = updated_interfaces(interfaces, &patch, patch.must_rewrite(properties.provisioning_state.as_deref()))?;
    let network = NetworkProfileConfiguration {
        network_api_version: is_flex.then(|| FLEX_NETWORK_API.to_owned()),
        network_interface_configurations: Some(interfaces),
        ..NetworkProfileConfiguration::default()
    };
    let profile = ScaleSetVmProfile { network_profile: Some(network), ..ScaleSetVmProfile::default() };
    Ok(VirtualMachineScaleSet {
        location: set.location.clone(),
        extended_location: set.extended_location.clone(),
        etag: set.etag.clone().filter(|_| !is_flex),
        properties: Some(ArmScaleSetProperties {
            virtual_machine_profile: Some(profile),
            ..ArmScaleSetProperties::default()
        }),
        ..VirtualMachineScaleSet::default()
    })
}

/// Windows Server 2019 does not support IPv6.
fn is_windows_2019(profile: &ScaleSetVmProfile) -> bool {
    let image = profile.extra.get("storageProfile").and_then(|storage| storage["imageReference"]["id"].as_str());
    let image = image.unwrap_or_default().to_ascii_lowercase();
    image.contains("/images/windows-2019-containerd/") && image.contains("/versions/17763.")
}

fn only_ipv4(patch: &PoolMembershipPatch) -> PoolMembershipPatch {
    let mut patch = patch.clone();
    patch.join.retain(|pool| naming::pool_family(pool.name()) == IpFamily::V4);
    patch
}

/// The body that brings one instance of a uniform scale set to the wish.
pub fn instance(
    vm: &VirtualMachineScaleSetVm,
    patch: &PoolMembershipPatch,
) -> Result<VirtualMachineScaleSetVm, MembershipSkipReason> {
    let properties = vm.properties.clone().unwrap_or_default();
    refuse_state(properties.provisioning_state.as_deref(), &["Deleting", "Unknown"])?;
    let state = properties.provisioning_state.as_deref();
    let interfaces = properties.network_profile_configuration.and_then(|profile| profile.network_interface_configurations);
    let interfaces = match updated_interfaces(interfaces.clone(), patch, patch.must_rewrite(state)) {
        Err(MembershipSkipReason::Unchanged) if is_unapplied(patch, state) => updated_interfaces(interfaces, patch, true),
        updated => updated,
    }?;
    let network = NetworkProfileConfiguration {
        network_interface_configurations: Some(interfaces),
        ..NetworkProfileConfiguration::default()
    };
    Ok(VirtualMachineScaleSetVm {
        location: vm.location.clone(),
        etag: vm.etag.clone(),
        properties: Some(ScaleSetVmProperties {
            hardware_profile: properties.hardware_profile,
            network_profile_configuration: Some(network),
            ..ScaleSetVmProperties::default()
        }),
        ..VirtualMachineScaleSetVm::default()
    })
}

/// Whether an instance that lists the pools has failed, so that the write may not have come into effect: it is asked to join what has
/// not got it. The process that wrote may have been killed. Failed alone says nothing of pools: an extension of the machine fails, too.
fn is_unapplied(patch: &PoolMembershipPatch, state: Option<&str>) -> bool {
    spelling::is_word(state, FAILED) && !patch.join.is_empty()
}

/// The interface of a machine outside uniform scale sets, brought to the wish. The whole document.
pub fn interface(nic: &NetworkInterface, patch: &PoolMembershipPatch) -> Result<NetworkInterface, MembershipSkipReason> {
    let mut changed = nic.clone();
    let properties = changed.properties.get_or_insert_default();
    let must = patch.must_rewrite(properties.provisioning_state.as_deref());
    refuse_state(properties.provisioning_state.as_deref().filter(|_| !must), &["Deleting", FAILED])?;
    let configurations = properties.ip_configurations.get_or_insert_default();
    let left = leave(configurations, &patch.leave);
    join(configurations, patch, left || must)?;
    Ok(changed)
}

fn refuse_state(state: Option<&str>, refused: &[&str]) -> Result<(), MembershipSkipReason> {
    let found = state.filter(|state| refused.iter().any(|refused| spelling::same_word(refused, state)));
    found.map_or(Ok(()), |state| Err(MembershipSkipReason::State(state.to_owned())))
}

/// Whether a machine runs, as far as that is known, so that its instance can be written.
pub fn is_active(machine: &Machine) -> bool {
    refuse_state(Some(&machine.provisioning_state), &["Deleting", "Unknown"]).is_ok()
        && !is_off(machine.power_state.as_deref().unwrap_or_default())
}

/// Whether a machine in this power state is off, or on the way there.
pub fn is_off(power_state: &str) -> bool {
    const OFF: [&str; 4] = ["stopped", "stopping", "deallocated", "deallocating"];
    OFF.iter().any(|off| spelling::same_word(off, power_state))
}

/// The interfaces: all leave, the primary one joins. `must`: also when nothing changes.
fn updated_interfaces(
    interfaces: Option<Vec<NetworkInterfaceConfiguration>>,
    patch: &PoolMembershipPatch,
    must: bool,
) -> Result<Vec<NetworkInterfaceConfiguration>, MembershipSkipReason> {
    let mut interfaces = interfaces.unwrap_or_default();
    let is_primary = |interface: &NetworkInterfaceConfiguration| {
        interface.properties.as_ref().is_some_and(|properties| properties.primary == Some(true))
    };
    let primary = interfaces.iter().position(is_primary).unwrap_or(0);
    let mut left = must;
    for interface in &mut interfaces {
        let configurations = interface.properties.as_mut().and_then(|properties| properties.ip_configurations.as_mut());
        left |= configurations.is_some_and(|configurations| leave(configurations, &patch.leave));
    }
    let properties = interfaces.get_mut(primary).map(|interface| interface.properties.get_or_insert_default());
    let configurations = properties.map(|properties| properties.ip_configurations.get_or_insert_default().as_mut_slice());
    join(configurations.unwrap_or_default(), patch, left)?;
    Ok(interfaces)
}

/// One IP configuration of either kind of document.
trait PoolIpConfiguration {
    fn is_primary(&self) -> bool;
    fn version(&self) -> Option<&str>;
    fn pools(&mut self) -> &mut Option<Vec<SubResource>>;
}

macro_rules! configuration {
    ($($kind:ty),*) => {$(
        impl PoolIpConfiguration for $kind {
            fn is_primary(&self) -> bool {
                self.properties.as_ref().is_some_and(|properties| properties.primary == Some(true))
            }
            fn version(&self) -> Option<&str> {
                self.properties.as_ref()?.private_ip_address_version.as_deref()
            }
            fn pools(&mut self) -> &mut Option<Vec<SubResource>> {
                &mut self.properties.get_or_insert_default().load_balancer_backend_address_pools
            }
        }
    )*};
}
configuration!(ScaleSetIpConfiguration, NetworkInterfaceIpConfiguration);

/// Takes the pools out of all configurations. Whether there was one.
fn leave<C: PoolIpConfiguration>(configurations: &mut [C], pools: &[ResourceId]) -> bool {
    let mut left = false;
    for configuration in configurations {
        let Some(listed) = configuration.pools() else { continue };
        let before = listed.len();
        listed.retain(|known| !pools.iter().any(|pool| known.refers_to(pool)));
        left |= listed.len() != before;
    }
    left
}

/// Adds what is to be joined, as far as possible. `changed`: whether something else has changed. An error only when nothing has.
fn join<C: PoolIpConfiguration>(
    configurations: &mut [C],
    patch: &PoolMembershipPatch,
    mut changed: bool,
) -> Result<(), MembershipSkipReason> {
    let mut skip = MembershipSkipReason::Unchanged;
    for pool in &patch.join {
        match add(configurations, pool, patch.is_standard) {
            Ok(added) => changed |= added,
            Err(why) => skip = why,
        }
    }
    if changed { Ok(()) } else { Err(skip) }
}

fn add<C: PoolIpConfiguration>(
    configurations: &mut [C],
    pool: &ResourceId,
    is_standard: bool,
) -> Result<bool, MembershipSkipReason> {
    let family = naming::pool_family(pool.name());
    let listed = of_family(configurations, family).ok_or(MembershipSkipReason::NoConfiguration(family))?.pools();
    if listed.iter().flatten().any(|known| known.refers_to(pool)) {
        return Ok(false);
    }
    match other_load_balancer(listed.as_deref().unwrap_or_default(), pool).filter(|_| is_standard) {
        Some(other) => Err(MembershipSkipReason::OtherLoadBalancer(other)),
        None => {
            listed.get_or_insert_default().push(SubResource::to(pool));
            Ok(true)
        }
    }
}

/// For IPv4 the primary one, for IPv6 the first of that family.
fn of_family<C: PoolIpConfiguration>(configurations: &mut [C], family: IpFamily) -> Option<&mut C> {
    let is_v6 = |configuration: &C| spelling::is_word(configuration.version(), "IPv6");
    let position = match family {
        IpFamily::V6 => configurations.iter().position(is_v6),
        IpFamily::V4 if configurations.len() == 1 => Some(0),
        IpFamily::V4 => configurations.iter().position(PoolIpConfiguration::is_primary),
    };
    configurations.get_mut(position?)
}

/// The load balancer, other than that of `pool` and its internal or external twin, one of whose pools is listed.
fn other_load_balancer(listed: &[SubResource], pool: &ResourceId) -> Option<String> {
    let base =
        |id: &ResourceId| id.name_of(LOAD_BALANCERS).map(|name| naming::split_load_balancer(name).0.to_ascii_lowercase());
    let own = base(pool);
    let names = listed.iter().filter_map(|reference| base(&reference.resource_id()?));
    names.into_iter().find(|name| Some(name) != own.as_ref())
}

/// Returns the excluded entries of a pool. They stay when the pool had no member without them.
pub fn entries_to_remove(pool: &BackendAddressPool, is_excluded: impl Fn(&ResourceId) -> bool) -> Vec<ResourceId> {
    let listed = pool.properties.as_ref().and_then(|properties| properties.backend_ip_configurations.as_ref());
    let entries = listed.into_iter().flatten().filter_map(SubResource::resource_id);
    let (excluded, remaining): (Vec<_>, Vec<_>) = entries.partition(is_excluded);
    if remaining.is_empty() { Vec::new() } else { excluded }
}

#[cfg(test)]
mod tests;
