//! Backend pools that network interfaces list: in the model of a scale set, its instances, and interfaces of other virtual machines. Pure.
//!
//! In: one document, the pools that it must list and the pools that it must not list. Out: the body to write, or a
//! [`MembershipSkipReason`].
//! Upstream: `pkg/provider/azure_vmss.go`, `azure_vmssflex.go`, `azure_standard.go`. Differences: a scale set that belongs to another load
//! balancer does not prevent other scale sets from joining, and a virtual machine whose power state is unknown joins.

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

/// API version of the network provider for the profile of a flexible scale set.
const FLEX_NETWORK_API: &str = "2020-11-01";
const LOAD_BALANCERS: &str = "loadBalancers";
const FAILED: &str = "Failed";

/// Change of the pools that one document lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolMembershipPatch {
    /// Pools that the document must list.
    pub join: Vec<ResourceId>,
    /// Pools that the document must not list any more.
    pub leave: Vec<ResourceId>,
    /// Whether load balancers are of the standard SKU. A virtual machine can then be behind only one (external and internal).
    pub is_standard: bool,
    /// Whether our last write of the document failed. A document in a failed state is then written again, even if it lists the pools.
    pub last_write_failed: bool,
}

impl PoolMembershipPatch {
    /// Returns `true` if the document must be written again without a difference: ARM accepted our last write and could not complete it.
    fn must_rewrite(&self, state: Option<&str>) -> bool {
        self.last_write_failed && spelling::is_word(state, FAILED)
    }
}

/// Reason not to write a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipSkipReason {
    #[error("it lists the pools already")]
    Unchanged,
    /// Provisioning state that prevents the write, such as `Deleting`.
    #[error("its provisioning state is {0}")]
    State(String),
    /// Family for which the document has no interface or IP configuration.
    #[error("it has no IP configuration of {0}")]
    NoConfiguration(IpFamily),
    /// Name of another load balancer whose pool the document lists.
    #[error("it is behind load balancer {0}")]
    OtherLoadBalancer(String),
}

/// Returns the body that changes the pools in the model of a scale set. New instances are created from the model.
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

/// Returns `true` for images of Windows Server 2019, which does not support IPv6.
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

/// Returns the body that changes the pools of one instance of a uniform scale set.
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

/// Returns `true` if an instance lists the pools but has failed, so that the write may not be in effect.
///
/// The process that wrote the instance may have been killed. The instance is written again only if a pool that it must join does not
/// contain it. The failed state alone is not sufficient, because it can have other causes, such as an extension of the virtual machine.
fn is_unapplied(patch: &PoolMembershipPatch, state: Option<&str>) -> bool {
    spelling::is_word(state, FAILED) && !patch.join.is_empty()
}

/// Returns the complete changed document of the interface of a virtual machine outside uniform scale sets.
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

/// Returns `true` if the instance of the virtual machine can be written.
///
/// That is the case if it runs, as far as its state is known, and is not being deleted.
pub fn is_active(machine: &Machine) -> bool {
    refuse_state(Some(&machine.provisioning_state), &["Deleting", "Unknown"]).is_ok()
        && !is_off(machine.power_state.as_deref().unwrap_or_default())
}

/// Returns `true` if a virtual machine in this power state is off or shutting down.
pub fn is_off(power_state: &str) -> bool {
    const OFF: [&str; 4] = ["stopped", "stopping", "deallocated", "deallocating"];
    OFF.iter().any(|off| spelling::same_word(off, power_state))
}

/// Returns the interfaces after the change: all leave, the primary one joins. If `must` is `true`, it returns them even without a
/// difference.
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

/// IP configuration of a scale set, an instance or a network interface.
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

/// Removes the pools from all configurations. Returns `true` if a configuration listed one of them.
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

/// Adds the pools to join, as far as possible. `changed` is `true` if the document already has another change.
///
/// # Errors
///
/// Returns the reason of the last pool that could not be joined, if the document has no change at all.
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

/// Returns the primary configuration for IPv4, and the first configuration of the family for IPv6.
fn of_family<C: PoolIpConfiguration>(configurations: &mut [C], family: IpFamily) -> Option<&mut C> {
    let is_v6 = |configuration: &C| spelling::is_word(configuration.version(), "IPv6");
    let position = match family {
        IpFamily::V6 => configurations.iter().position(is_v6),
        IpFamily::V4 if configurations.len() == 1 => Some(0),
        IpFamily::V4 => configurations.iter().position(PoolIpConfiguration::is_primary),
    };
    configurations.get_mut(position?)
}

/// Returns the name of a load balancer in `listed` that is neither that of `pool` nor its internal or external twin.
fn other_load_balancer(listed: &[SubResource], pool: &ResourceId) -> Option<String> {
    let base =
        |id: &ResourceId| id.name_of(LOAD_BALANCERS).map(|name| naming::split_load_balancer(name).0.to_ascii_lowercase());
    let own = base(pool);
    let names = listed.iter().filter_map(|reference| base(&reference.resource_id()?));
    names.into_iter().find(|name| Some(name) != own.as_ref())
}

/// Returns the excluded entries of a pool; none if the pool would have no member without them.
pub fn entries_to_remove(pool: &BackendAddressPool, is_excluded: impl Fn(&ResourceId) -> bool) -> Vec<ResourceId> {
    let listed = pool.properties.as_ref().and_then(|properties| properties.backend_ip_configurations.as_ref());
    let entries = listed.into_iter().flatten().filter_map(SubResource::resource_id);
    let (excluded, remaining): (Vec<_>, Vec<_>) = entries.partition(is_excluded);
    if remaining.is_empty() { Vec::new() } else { excluded }
}

#[cfg(test)]
mod tests;
