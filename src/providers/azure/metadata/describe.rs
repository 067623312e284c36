//! Description of the Node of this machine. Pure.
//!
//! In: the [`ImdsDocuments`] of the metadata service. Out: the same metadata that the central mode returns from ARM, because both
//! use [`instances::describe`](crate::providers::azure::instances::describe), and labels for facts that only the service
//! reports. Upstream: `pkg/node/node.go`, `azure_instances_v1.go` (`addressGetter`), `azure_zones.go` (`GetZone`).

use std::{collections::BTreeMap, net::IpAddr};

use crate::{
    cloud_provider::InstanceMetadata,
    providers::azure::{
        config::VmType,
        instances::describe::{self, DescribedNode, TopologyRules},
        model::{InvalidResourceId, Machine, MachineInterface, MachineIpConfiguration, MachineKind, ResourceId},
    },
};

use super::document::{ImdsAddress, ImdsCompute, ImdsDocuments};

/// Label with the part of a fault domain.
pub const LABEL_SUB_FAULT_DOMAIN: &str = "topology.kubernetes.azure.com/sub-fault-domain";
/// Label with the group of machines that share a fast interconnect.
pub const LABEL_INTERCONNECT_GROUP: &str = "topology.kubernetes.azure.com/interconnect-group";
/// Tag of the machine with its interconnect group.
const TAG_INTERCONNECT_GROUP: &str = "Platform_Interconnect_Group";

/// Reason why the documents describe no machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataDescriptionError {
    /// Missing part, which may appear later.
    #[error("the instance metadata service returned no {0} for this machine")]
    Missing(&'static str),
    /// Invalid ID of the machine.
    #[error("the instance metadata service returned an invalid resourceId: {0}")]
    Id(#[from] InvalidResourceId),
    /// Private address that no machine can have.
    #[error("the instance metadata service returned an invalid address for this machine: {0:?}")]
    Address(String),
    /// Node of another machine.
    #[error(
        "this machine is called {reported:?}, and not {node:?}: set --node-name, or the environment variable NODE_NAME, to the name \
         of the Node of this machine"
    )]
    OtherMachine {
        /// Name that the service reports.
        reported: String,
        /// Name of the Node.
        node: String,
    },
    /// Unexpected ID, zone or addresses.
    #[error(transparent)]
    Machine(#[from] describe::MachineDescriptionError),
}

/// Checks that the Node called `node` belongs to this machine.
///
/// `own_name` is the name from the environment or the host name, the only name that upstream accepts (`azure_instances_v1.go`,
/// `isCurrentInstance`). If the service reports no host name, every name is accepted.
pub fn check_name(documents: &ImdsDocuments, node: &str, own_name: Option<&str>) -> Result<(), MetadataDescriptionError> {
    let compute = documents.instance.compute.as_ref().ok_or(MetadataDescriptionError::Missing("compute"))?;
    let reported = &compute.os_profile.computer_name;
    let is_same = |name: &str| name.eq_ignore_ascii_case(node);
    match reported.is_empty() || is_same(reported) || is_same(&compute.name) || own_name.is_some_and(is_same) {
        true => Ok(()),
        false => Err(MetadataDescriptionError::OtherMachine { reported: reported.clone(), node: node.to_owned() }),
    }
}

/// Returns the metadata of the Node. `fault_domain_label`: whether fault domains have their own label.
pub fn metadata(
    documents: &ImdsDocuments,
    subject: DescribedNode<'_>,
    fault_domain_label: bool,
) -> Result<InstanceMetadata, MetadataDescriptionError> {
    let compute = documents.instance.compute.as_ref().ok_or(MetadataDescriptionError::Missing("compute"))?;
    let machine = machine(documents, compute)?;
    let rules = TopologyRules { vm_type: VmType::Vmss, fault_domain_label };
    let mut metadata = describe::metadata(&machine, rules, subject)?;
    // Like upstream, set no label without a zone and a fault domain.
    if machine.zone.is_none() && !fault_domain_label {
        metadata.zone = machine.fault_domain.map(|fault_domain| fault_domain.to_string()).unwrap_or_default();
    }
    metadata.additional_labels.extend(labels(compute));
    Ok(metadata)
}

/// Returns the machine in the form in which the inventory reads it from ARM.
fn machine(documents: &ImdsDocuments, compute: &ImdsCompute) -> Result<Machine, MetadataDescriptionError> {
    // These fields must be present: they are not added to a Node after its initialization.
    for (name, value) in
        [("resourceId", &compute.resource_id), ("vmSize", &compute.vm_size), ("location", &compute.location)]
    {
        if value.is_empty() {
            return Err(MetadataDescriptionError::Missing(name));
        }
    }
    let id = ResourceId::parse(&lower_subscription(compute))?;
    Ok(Machine {
        id: id.clone(),
        // The kind has no effect here, because the service reports the fault domain of every machine.
        kind: MachineKind::Standalone,
        name: id.name().to_owned(),
        computer_name: String::new(),
        vm_id: String::new(),
        vm_size: compute.vm_size.clone(),
        location: compute.location.clone(),
        zone: Some(compute.zone.clone()).filter(|zone| !zone.is_empty()),
        fault_domain: compute.platform_fault_domain.parse().ok(),
        provisioning_state: String::new(),
        power_state: None,
        interfaces: vec![MachineInterface { id, primary: true, ip_configurations: ip_configurations(documents)? }],
    })
}

/// Returns the ID with its subscription in lower case, as in ARM. The service preserves the spelling of the machine's creator.
fn lower_subscription(compute: &ImdsCompute) -> String {
    if compute.subscription_id.is_empty() {
        return compute.resource_id.clone();
    }
    compute.resource_id.replacen(&compute.subscription_id, &compute.subscription_id.to_lowercase(), 1)
}

/// Returns the first address of each family with its public address, like upstream. An IPv4 address is the primary one.
fn ip_configurations(documents: &ImdsDocuments) -> Result<Vec<MachineIpConfiguration>, MetadataDescriptionError> {
    let interface = documents.instance.interface().ok_or(MetadataDescriptionError::Missing("network interface"))?;
    let of = |address: &ImdsAddress, ipv6| {
        let private = address.private_ip_address.clone();
        if !can_be_private(&private, ipv6) {
            return Err(MetadataDescriptionError::Address(private));
        }
        let public_address = public_address(documents, address);
        Ok(MachineIpConfiguration { primary: false, ipv6, private_address: Some(private), public_address })
    };
    let (ipv4, ipv6) = (interface.ipv4.first(), interface.ipv6.first());
    let both = ipv4.map(|address| of(address, false)).into_iter().chain(ipv6.map(|address| of(address, true)));
    let mut configurations: Vec<_> = both.collect::<Result<_, _>>()?;
    configurations.first_mut().ok_or(MetadataDescriptionError::Missing("address"))?.primary = true;
    Ok(configurations)
}

/// Returns `true` for an address of the family that a machine can use.
fn can_be_private(text: &str, ipv6: bool) -> bool {
    let address: Result<IpAddr, _> = text.parse();
    address.is_ok_and(|address| address.is_ipv6() == ipv6 && !address.is_unspecified() && !address.is_loopback())
}

fn public_address(documents: &ImdsDocuments, address: &ImdsAddress) -> Option<String> {
    let own = Some(address.public_ip_address.as_str()).filter(|public| !public.is_empty());
    own.or_else(|| documents.load_balancer.in_front_of(&address.private_ip_address)).map(str::to_owned)
}

fn labels(compute: &ImdsCompute) -> BTreeMap<String, String> {
    let group = compute.tags_list.iter().find(|tag| tag.name == TAG_INTERCONNECT_GROUP).map(|tag| &tag.value);
    let facts = [(LABEL_SUB_FAULT_DOMAIN, Some(&compute.platform_sub_fault_domain)), (LABEL_INTERCONNECT_GROUP, group)];
    let existing = facts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.clone())));
    existing.filter(|(_, value)| !value.is_empty()).collect()
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "documents are written where they are used")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SUBJECT: DescribedNode<'_> = DescribedNode { name: "node-1", provider_id: None, ipv6: true };
    const VM: &str = "/subscriptions/5/resourceGroups/My-RG/providers/Microsoft.Compute/virtualMachines/vm";

    fn documents(compute: Value, interface: Value, pairs: Value) -> ImdsDocuments {
        let instance = json!({"compute": compute, "network": {"interface": [interface]}});
        let load_balancer = json!({"loadbalancer": {"publicIpAddresses": pairs}});
        ImdsDocuments {
            instance: serde_json::from_value(instance).unwrap(),
            load_balancer: serde_json::from_value(load_balancer).unwrap(),
        }
    }

    fn compute(change: Value) -> Value {
        let mut compute = json!({"resourceId": VM, "subscriptionId": "5", "vmSize": "Standard_D4s_v5", "location": "WestEurope",
            "zone": "", "platformFaultDomain": "1"});
        compute.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        compute
    }

    fn ipv4(private: &str, public: &str) -> Value {
        json!({"ipv4": {"ipAddress": [{"privateIpAddress": private, "publicIpAddress": public}]}})
    }

    fn described(change: Value) -> Result<InstanceMetadata, String> {
        let documents = documents(compute(change), ipv4("10.0.0.4", ""), json!([]));
        metadata(&documents, SUBJECT, false).map_err(|error| error.to_string())
    }

    #[test]
    fn ids_are_in_lower_case_where_arms_are() {
        let uniform = "/subscriptions/AB-5/resourceGroups/My-RG/providers/Microsoft.Compute/virtualMachineScaleSets/Set/virtualMachines/3";
        for (id, subscription, expected) in [
            (VM, "5", "azure:///subscriptions/5/resourceGroups/my-rg/providers/Microsoft.Compute/virtualMachines/vm"),
            (
                uniform,
                "AB-5",
                "azure:///subscriptions/ab-5/resourceGroups/my-rg/providers/Microsoft.Compute/virtualMachineScaleSets/Set/virtualMachines/3",
            ),
        ] {
            let metadata = described(json!({"resourceId": id, "subscriptionId": subscription})).unwrap();
            assert_eq!(metadata.provider_id, expected);
        }
        let own = DescribedNode { provider_id: Some("azure:///as/written"), ..SUBJECT };
        let documents = documents(compute(json!({})), ipv4("10.0.0.4", ""), json!([]));
        assert_eq!(metadata(&documents, own, false).unwrap().provider_id, "azure:///as/written");
    }

    #[test]
    fn zones_then_fault_domains_then_nothing() {
        for (zone, fault_domain, expected) in
            [("2", "1", Ok("westeurope-2")), ("", "1", Ok("1")), ("", "", Ok("")), ("b", "1", Err("is not a number"))]
        {
            let metadata = described(json!({"zone": zone, "platformFaultDomain": fault_domain}));
            match expected {
                Ok(zone) => assert_eq!(
                    metadata.map(|metadata| (metadata.zone, metadata.region)),
                    Ok((zone.into(), "westeurope".into()))
                ),
                Err(text) => assert!(metadata.unwrap_err().contains(text)),
            }
        }
    }

    #[test]
    fn fault_domain_label_replaces_the_zone_of_zoneless_machines() {
        for (zone, expected) in [("2", "westeurope-2"), ("", "")] {
            let documents = documents(compute(json!({"zone": zone})), ipv4("10.0.0.4", ""), json!([]));
            let described = metadata(&documents, SUBJECT, true).unwrap();
            let label = &described.additional_labels[crate::providers::azure::node::LABEL_FAULT_DOMAIN];
            assert_eq!((described.zone.as_str(), label.as_str()), (expected, "1"));
        }
    }

    #[test]
    fn facts_that_only_the_service_reports_are_labels() {
        let tags =
            json!([{"name": "platform_interconnect_group", "value": "no"}, {"name": TAG_INTERCONNECT_GROUP, "value": "g1"}]);
        let labels = described(json!({"platformSubFaultDomain": "3", "tagsList": tags})).unwrap().additional_labels;
        let pairs: Vec<_> = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [(LABEL_INTERCONNECT_GROUP, "g1"), (LABEL_SUB_FAULT_DOMAIN, "3")]);
        let empty = json!([{"name": TAG_INTERCONNECT_GROUP, "value": ""}]);
        assert!(described(json!({"platformSubFaultDomain": "", "tagsList": empty})).unwrap().additional_labels.is_empty());
    }

    fn lines(interface: Value, pairs: Value) -> Vec<String> {
        let described = metadata(&documents(compute(json!({})), interface, pairs), SUBJECT, false).unwrap();
        described.node_addresses.iter().map(|address| format!("{} {}", address.type_, address.address)).collect()
    }

    #[test]
    fn the_first_address_of_each_family_is_used() {
        let pairs = json!([
            {"frontendIpAddress": "20.0.0.1", "privateIpAddress": "10.0.0.4"},
            {"frontendIpAddress": "[2603::4]", "privateIpAddress": "[fd00::4]"},
            {"frontendIpAddress": "", "privateIpAddress": "10.0.0.5"},
        ]);
        assert_eq!(lines(ipv4("10.0.0.4", ""), json!([])), ["InternalIP 10.0.0.4", "Hostname node-1"]);
        for none in ["10.0.0.5", "10.0.0.6"] {
            let alone = [format!("InternalIP {none}"), "Hostname node-1".to_owned()];
            assert_eq!(lines(ipv4(none, ""), pairs.clone()), alone, "no public address");
        }
        let external = ["InternalIP 10.0.0.4", "Hostname node-1", "ExternalIP 20.0.0.1"];
        assert_eq!(lines(ipv4("10.0.0.4", "20.0.0.1"), json!([])), external, "a Basic SKU is in the first document");
        assert_eq!(lines(ipv4("10.0.0.4", ""), pairs.clone()), external);
        let mut dual = ipv4("10.0.0.4", "");
        dual["ipv4"]["ipAddress"].as_array_mut().unwrap().push(json!({"privateIpAddress": "10.0.0.9"}));
        dual["ipv6"] = json!({"ipAddress": [{"privateIpAddress": "fd00::4"}, {"privateIpAddress": "fd00::5"}]});
        let both = [&external[..], &["InternalIP fd00::4", "ExternalIP 2603::4"]].concat();
        assert_eq!(lines(dual.clone(), pairs.clone()), both);
        dual["ipv4"] = json!(null);
        assert_eq!(lines(dual, pairs), ["InternalIP fd00::4", "Hostname node-1", "ExternalIP 2603::4"]);
    }

    #[test]
    fn a_missing_field_is_named() {
        let without = |compute: Value, interface: Value| {
            metadata(&documents(compute, interface, json!([])), SUBJECT, false).unwrap_err().to_string()
        };
        let whole = || compute(json!({}));
        for (error, expected) in [
            (without(Value::Null, ipv4("10.0.0.4", "")), "compute"),
            (without(compute(json!({"resourceId": ""})), ipv4("10.0.0.4", "")), "resourceId"),
            (without(compute(json!({"resourceId": "vm"})), ipv4("10.0.0.4", "")), "invalid resourceId"),
            (without(compute(json!({"vmSize": ""})), ipv4("10.0.0.4", "")), "no vmSize"),
            (without(compute(json!({"location": null})), ipv4("10.0.0.4", "")), "no location"),
            (without(whole(), json!({})), "no address"),
            (without(whole(), ipv4("", "20.0.0.1")), "no address"),
            (without(whole(), ipv4("ten", "")), "an invalid address for this machine: \"ten\""),
            (without(whole(), ipv4("fd00::4", "")), "an invalid address"),
            (without(whole(), ipv4("127.0.0.1", "")), "an invalid address"),
        ] {
            assert!(error.contains(expected), "{error}");
        }
        let bare = ImdsDocuments {
            instance: serde_json::from_value(json!({"compute": whole()})).unwrap(),
            ..ImdsDocuments::default()
        };
        assert!(metadata(&bare, SUBJECT, false).unwrap_err().to_string().contains("network interface"));
    }
}
