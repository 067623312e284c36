//! Description of a Node's machine. Pure.
//!
//! In: a [`Machine`]. Out: addresses, zone, region and type as upstream's ARM path returns them. Upstream:
//! `GetZoneByNodeName`, `GetIPByNodeName`, `GetInstanceTypeByNodeName` in `pkg/provider/azure_standard.go`, `azure_vmss.go`,
//! `azure_vmssflex.go`, and `addressGetter` in `azure_instances_v1.go`.

use std::collections::BTreeMap;

use crate::{
    cloud_provider::{AddressType, InstanceMetadata, NodeAddress, Zone},
    providers::azure::{
        config::VmType,
        model::{
            Machine, MachineInterface, MachineIpConfiguration, MachineKind,
            provider_id::{self, ProviderIdError},
        },
        node::LABEL_FAULT_DOMAIN,
    },
};

/// Reason why a machine cannot be described. Kubelet waits for what is missing, so ARM is read again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineDescriptionError {
    /// The ID is malformed.
    #[error(transparent)]
    ProviderId(#[from] ProviderIdError),
    /// The zone is not a number.
    #[error("the zone `{zone}` of {machine} is not a number")]
    Zone { machine: String, zone: String },
    /// The machine has neither zone nor fault domain.
    #[error(
        "{0} has no availability zone, and ARM returned no fault domain; is listVmssVirtualMachinesWithoutInstanceView set in \
         azure.json?"
    )]
    NoFaultDomain(String),
    /// The machine has no address yet, and what is missing.
    #[error("{machine} has no address: {missing}")]
    NoAddress { machine: String, missing: &'static str },
}

/// Node that is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescribedNode<'a> {
    pub name: &'a str,
    /// Provider ID of the Node, if it has one.
    pub provider_id: Option<&'a str>,
    /// Whether it has, or should have, an IPv6 address.
    pub ipv6: bool,
}

/// Settings for zones and fault domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopologyRules {
    pub vm_type: VmType,
    /// `faultDomainLabel`: a fault domain has a label of its own, and is never a zone.
    pub fault_domain_label: bool,
}

/// Returns all fields of upstream's `InstanceMetadata` for `machine`.
pub fn metadata(
    machine: &Machine,
    rules: TopologyRules,
    subject: DescribedNode<'_>,
) -> Result<InstanceMetadata, MachineDescriptionError> {
    let provider_id = match subject.provider_id {
        Some(own) => own.to_owned(),
        None => provider_id::of_machine(&machine.id)?,
    };
    let zone = zone(machine, rules)?;
    Ok(InstanceMetadata {
        provider_id,
        instance_type: machine.vm_size.clone(),
        node_addresses: addresses(machine, subject)?,
        zone: zone.failure_domain,
        region: zone.region,
        additional_labels: fault_domain_label(machine, rules),
        ..InstanceMetadata::default()
    })
}

/// Returns the label of the fault domain, if it has one and the machine has a fault domain.
pub fn fault_domain_label(machine: &Machine, rules: TopologyRules) -> BTreeMap<String, String> {
    let shown = machine.fault_domain.filter(|_| rules.fault_domain_label);
    shown.map(|fault_domain| (LABEL_FAULT_DOMAIN.to_owned(), fault_domain.to_string())).into_iter().collect()
}

/// Returns the availability zone as `<region>-<number>`, else the fault domain; empty for a machine without a zone if fault
/// domains have a label of their own.
pub fn zone(machine: &Machine, rules: TopologyRules) -> Result<Zone, MachineDescriptionError> {
    let region = machine.location.to_lowercase();
    let failure_domain = match (&machine.zone, machine.fault_domain) {
        (Some(zone), _) => format!("{region}-{}", zone_number(machine, zone)?),
        (None, _) if rules.fault_domain_label => String::new(),
        // Upstream reads these machines without their instance view, so that the label is always this one.
        (None, _) if is_standard(machine, rules.vm_type) => "0".to_owned(),
        (None, Some(fault_domain)) => fault_domain.to_string(),
        (None, None) => return Err(MachineDescriptionError::NoFaultDomain(machine.id.to_string())),
    };
    Ok(Zone { failure_domain, region })
}

fn zone_number(machine: &Machine, zone: &str) -> Result<i64, MachineDescriptionError> {
    zone.parse().map_err(|_| MachineDescriptionError::Zone { machine: machine.id.to_string(), zone: zone.to_owned() })
}

/// Returns `true` if upstream treats `machine` as a member of an availability set: with vmType standard all are.
fn is_standard(machine: &Machine, vm_type: VmType) -> bool {
    match machine.kind {
        MachineKind::AvailabilitySet { .. } | MachineKind::Standalone => true,
        MachineKind::FlexInstance { .. } => vm_type == VmType::Standard,
        MachineKind::ScaleSetInstance { .. } => false,
    }
}

/// Returns the addresses in upstream's order: private, name, public.
///
/// IPv6 follows only for a Node that has or should have it, since upstream's ARM path knows one family alone and would leave
/// such a Node uninitialized.
pub fn addresses(machine: &Machine, subject: DescribedNode<'_>) -> Result<Vec<NodeAddress>, MachineDescriptionError> {
    let missing = |missing| MachineDescriptionError::NoAddress { machine: machine.id.to_string(), missing };
    let interface = machine.primary_interface().map_err(missing)?;
    let primary = primary_configuration(interface).map_err(missing)?;
    let private = primary
        .private_address
        .as_deref()
        .ok_or_else(|| missing("the primary IP configuration of its primary network interface has no private address"))?;
    let mut addresses = vec![address(AddressType::InternalIP, private), address(AddressType::Hostname, subject.name)];
    addresses.extend(primary.public_address.as_deref().map(|public| address(AddressType::ExternalIP, public)));
    if subject.ipv6 && !primary.ipv6 {
        addresses.extend(ipv6(interface));
    }
    Ok(addresses)
}

/// Returns the first IPv6 address with its public one, as the instance metadata service has them.
fn ipv6(interface: &MachineInterface) -> Vec<NodeAddress> {
    let mut configurations = interface.ip_configurations.iter();
    let found = configurations.find(|found| found.ipv6 && found.private_address.is_some());
    let texts =
        found.map(|it| [(AddressType::InternalIP, &it.private_address), (AddressType::ExternalIP, &it.public_address)]);
    texts.into_iter().flatten().filter_map(|(type_, text)| Some(address(type_, text.as_deref()?))).collect()
}

fn address(type_: AddressType, address: &str) -> NodeAddress {
    NodeAddress { type_, address: address.to_owned() }
}

/// Returns the only IP configuration, or the one flagged as primary.
pub fn primary_configuration(interface: &MachineInterface) -> Result<&MachineIpConfiguration, &'static str> {
    match interface.ip_configurations.as_slice() {
        [] => Err("its primary network interface has no IP configuration"),
        [only] => Ok(only),
        several => {
            let mut primary = several.iter().filter(|configuration| configuration.primary);
            primary.next().ok_or("none of the IP configurations of its primary network interface is primary")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{
        instances::fixtures::{
            configuration, flex_instance, in_availability_set, interface, scale_set_instance, standalone,
        },
        model::ResourceId,
    };

    const SUBJECT: DescribedNode<'_> = DescribedNode { name: "node-1", provider_id: None, ipv6: false };
    const DEFAULT: TopologyRules = TopologyRules { vm_type: VmType::Vmss, fault_domain_label: false };

    fn with(mut machine: Machine, change: impl FnOnce(&mut Machine)) -> Machine {
        change(&mut machine);
        machine
    }

    fn lines(machine: &Machine, subject: DescribedNode<'_>) -> Vec<String> {
        let addresses = addresses(machine, subject).unwrap();
        addresses.iter().map(|address| format!("{} {}", address.type_, address.address)).collect()
    }

    #[test]
    fn the_nodes_own_provider_id_is_kept() {
        let subject = DescribedNode { provider_id: Some("azure:///as/written"), ..SUBJECT };
        let odd = with(standalone("vm"), |m| m.id = ResourceId::subscription_of("s"));
        assert_eq!(metadata(&odd, DEFAULT, subject).unwrap().provider_id, "azure:///as/written");
        assert!(matches!(metadata(&odd, DEFAULT, SUBJECT), Err(MachineDescriptionError::ProviderId(_))));
    }

    #[test]
    fn zones_by_kind() {
        let kinds = [scale_set_instance("s", 0), flex_instance("s", "f"), in_availability_set("a"), standalone("v")];
        let zone = |machine: &Machine, vm_type, zone: Option<&str>, fault_domain| {
            let machine = with(machine.clone(), |m| {
                m.zone = zone.map(str::to_owned);
                m.fault_domain = fault_domain;
                m.location = "EastUS2".into();
            });
            super::zone(&machine, TopologyRules { vm_type, ..DEFAULT })
                .map(|zone| zone.failure_domain)
                .map_err(|error| error.to_string())
        };
        for machine in &kinds {
            let zone_of = |text, fault_domain| zone(machine, VmType::Vmss, text, fault_domain);
            assert_eq!(zone_of(Some("1"), Some(4)), Ok("eastus2-1".into()), "{:?}", machine.kind);
            assert_eq!(zone_of(Some("01"), None), Ok("eastus2-1".into()));
            for odd in ["", "a", "1a", "eastus2-1", "1.0"] {
                assert!(zone_of(Some(odd), Some(4)).unwrap_err().contains("is not a number"), "{odd}");
            }
        }
        for (kind, vm_type, fault_domain, expected) in [
            (0, VmType::Vmss, Some(4), Some("4")),
            (0, VmType::Vmss, None, None),
            (0, VmType::Standard, None, None),
            (1, VmType::Vmss, Some(0), Some("0")),
            (1, VmType::VmssFlex, None, None),
            (1, VmType::Standard, Some(4), Some("0")),
            (2, VmType::Standard, Some(1), Some("0")),
            (2, VmType::Vmss, None, Some("0")),
            (3, VmType::Vmss, Some(1), Some("0")),
        ] {
            let zone = zone(&kinds[kind], vm_type, None, fault_domain);
            assert_eq!(zone.clone().ok().as_deref(), expected, "{kind} {vm_type:?} {zone:?}");
        }
    }

    #[test]
    fn fault_domain_label_replaces_the_zone_of_zoneless_machines() {
        let rules = TopologyRules { fault_domain_label: true, ..DEFAULT };
        for (zone, fault_domain, expected) in [
            (None, Some(2), ("", Some("2"))),
            (None, None, ("", None)),
            (Some("1"), Some(0), ("eastus2-1", Some("0"))),
            (Some("1"), None, ("eastus2-1", None)),
        ] {
            for machine in [scale_set_instance("s", 0), flex_instance("s", "f"), in_availability_set("a"), standalone("v")] {
                let machine = with(machine, |m| {
                    m.zone = zone.map(str::to_owned);
                    m.fault_domain = fault_domain;
                    m.location = "EastUS2".into();
                });
                let metadata = metadata(&machine, rules, SUBJECT).unwrap();
                let label = metadata.additional_labels.get(LABEL_FAULT_DOMAIN).map(String::as_str);
                assert_eq!((metadata.zone.as_str(), label), expected, "{:?}", machine.kind);
                assert_eq!(metadata.region, "eastus2", "{:?}", machine.kind);
            }
        }
    }

    #[test]
    fn the_primary_of_several_counts() {
        let second = MachineIpConfiguration { primary: false, ..configuration("10.0.0.9", "20.0.0.9") };
        let machine = with(standalone("v"), |m| {
            m.interfaces = vec![
                interface(false, vec![configuration("10.1.0.4", "")]),
                interface(true, vec![second.clone(), configuration("10.0.0.4", "20.1.2.3")]),
            ];
        });
        assert_eq!(lines(&machine, SUBJECT), ["InternalIP 10.0.0.4", "Hostname node-1", "ExternalIP 20.1.2.3"]);
        let alone = with(standalone("v"), |m| m.interfaces = vec![interface(false, vec![second.clone()])]);
        assert_eq!(lines(&alone, SUBJECT), ["InternalIP 10.0.0.9", "Hostname node-1", "ExternalIP 20.0.0.9"]);
    }

    #[test]
    fn ipv6_addresses_need_a_node_that_has_or_should_have_ipv6() {
        let six = |private: &str, public: &str| MachineIpConfiguration {
            primary: false,
            ipv6: true,
            ..configuration(private, public)
        };
        let machine = with(standalone("v"), |m| {
            let list =
                vec![configuration("10.0.0.4", "20.1.2.3"), six("", ""), six("fd00::4", "2603::4"), six("fd00::5", "")];
            m.interfaces = vec![interface(true, list)];
        });
        let four = ["InternalIP 10.0.0.4", "Hostname node-1", "ExternalIP 20.1.2.3"];
        assert_eq!(lines(&machine, SUBJECT), four);
        let both = [&four[..], &["InternalIP fd00::4", "ExternalIP 2603::4"]].concat();
        assert_eq!(lines(&machine, DescribedNode { ipv6: true, ..SUBJECT }), both);
        let only = with(standalone("v"), |m| m.interfaces = vec![interface(true, vec![configuration("10.0.0.4", "")])]);
        assert_eq!(lines(&only, DescribedNode { ipv6: true, ..SUBJECT }), ["InternalIP 10.0.0.4", "Hostname node-1"]);
    }

    #[test]
    fn a_machine_without_an_address_says_what_is_missing() {
        let secondary = MachineIpConfiguration { primary: false, ..configuration("10.0.0.4", "") };
        for (interfaces, expected) in [
            (vec![], "no network interface"),
            (vec![interface(false, vec![]), interface(false, vec![])], "none of its network interfaces"),
            (vec![interface(true, vec![])], "no IP configuration"),
            (vec![interface(true, vec![secondary.clone(), secondary])], "none of the IP configurations"),
            (vec![interface(true, vec![configuration("", "20.1.2.3")])], "no private address"),
        ] {
            let machine = with(standalone("v"), |m| m.interfaces = interfaces);
            let error = addresses(&machine, SUBJECT).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("virtualMachines/v"), "{error}");
        }
    }
}
