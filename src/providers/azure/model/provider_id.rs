//! Provider IDs: conversion between a machine's ARM ID and `spec.providerID`. Pure.
//!
//! In: an ARM ID, or any text. Out: the provider ID, or the machine that the text names. Letter case is as in upstream,
//! because other components compare the text: only the resource group is in lower case, and fixed words are matched exactly. Upstream: `pkg/provider/azure_wrap.go`, `azure_vmss.go` (`GetNodeNameByProviderID`) and `azure_standard.go`.

use super::{ResourceId, spelling};

/// Scheme of a provider ID, which precedes the ARM ID.
pub const SCHEME: &str = "azure://";

const VIRTUAL_MACHINES: &str = "Microsoft.Compute/virtualMachines";
const SCALE_SET_INSTANCES: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines";

/// Error of a machine's ID without a resource group in the spelling that provider IDs require.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot make a provider id from `{0}`: it lacks /resourceGroups/<name>/providers/ in exactly this spelling")]
pub struct ProviderIdError(String);

/// Result of parsing a provider ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedProviderId {
    /// Text that is not in the form of Azure's machines. This program makes no statement about such a machine.
    Foreign,
    /// ID of Azure that names no machine, with the reason.
    Invalid(String),
    /// Machine with this ARM ID, which ends in the instance's number for a uniform scale set.
    Machine(ResourceId),
}

/// Returns the provider ID of the machine `id`. The first occurrence of the resource group's name is changed to lower case, even
/// inside the subscription ID.
pub fn of_machine(id: &ResourceId) -> Result<String, ProviderIdError> {
    let refuse = || ProviderIdError(id.to_string());
    let group = id.resource_group().ok_or_else(refuse)?;
    let segment = format!("/resourceGroups/{group}/providers/");
    if !id.as_str().contains(&segment) {
        return Err(refuse());
    }
    let lower = group.to_lowercase();
    let replaced = format!("{SCHEME}{}", id.as_str().replacen(group, &lower, 1));
    // A group called `Group` would change `/resourceGroups/` itself, so that the Node would no longer be recognized as
    // Azure's.
    if is_managed(&replaced) {
        return Ok(replaced);
    }
    let path = id.as_str().replacen(&segment, &format!("/resourceGroups/{lower}/providers/"), 1);
    Ok(format!("{SCHEME}{path}"))
}

/// Returns `true` if `provider_id` has the form of Azure's machines. Other Nodes are not managed.
pub fn is_managed(provider_id: &str) -> bool {
    let after = |text: &'_ str, word: &str| text.find(word).map(|at| at + word.len());
    let Some(rest) = provider_id.strip_prefix("azure:///subscriptions/") else { return false };
    let Some(group) = after(rest, "/resourceGroups/") else { return false };
    after(rest.get(group..).unwrap_or_default(), "/providers/Microsoft.Compute/").is_some()
}

/// Parses `provider_id`, which may be any text.
pub fn parse(provider_id: &str) -> ParsedProviderId {
    if !is_managed(provider_id) {
        return ParsedProviderId::Foreign;
    }
    let path = provider_id.strip_prefix(SCHEME).unwrap_or_default();
    let id = match ResourceId::parse(path) {
        Ok(id) => id,
        Err(error) => return ParsedProviderId::Invalid(format!("spec.providerID names no machine: {error}")),
    };
    match id.resource_type().as_str() {
        VIRTUAL_MACHINES => ParsedProviderId::Machine(id),
        SCALE_SET_INSTANCES => scale_set_instance(&id),
        other => ParsedProviderId::Invalid(format!(
            "spec.providerID names no machine but a `{other}`; expected {VIRTUAL_MACHINES} or {SCALE_SET_INSTANCES}"
        )),
    }
}

/// Parses the ID of an instance. Disks name it `<scale set>_<number>`, ARM's own ID only by the number.
fn scale_set_instance(id: &ResourceId) -> ParsedProviderId {
    let (instance, set) = (id.name(), id.name_of("virtualMachineScaleSets").unwrap_or_default());
    let prefixed = spelling::starts_with(instance, set);
    let number = if prefixed { instance.rsplit('_').next().unwrap_or_default() } else { instance };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        let reason = format!("spec.providerID names no instance of the scale set `{set}`: `{instance}` has no number");
        return ParsedProviderId::Invalid(reason);
    }
    match id.parent() {
        Some(set) if number != instance => ParsedProviderId::Machine(set.child("virtualMachines", number)),
        _ => ParsedProviderId::Machine(id.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "/subscriptions/S1/resourceGroups/My-RG/providers/Microsoft.Compute";

    fn id(text: &str) -> ResourceId {
        ResourceId::parse(text).unwrap()
    }

    fn machine(text: &str) -> ParsedProviderId {
        ParsedProviderId::Machine(id(text))
    }

    #[test]
    fn only_the_first_occurrence_of_the_group_is_lower_cased() {
        for (subscription, group, machine, expected) in [
            ("S1", "My-RG", "virtualMachines/VM-1", "S1/resourceGroups/my-rg"),
            ("S1", "My-RG", "virtualMachineScaleSets/My-RG-vmss/virtualMachines/3", "S1/resourceGroups/my-rg"),
            // A group whose name occurs earlier: that occurrence is the first.
            ("ABC", "AB", "virtualMachines/v", "abC/resourceGroups/AB"),
            ("s", "Group", "virtualMachines/Group", "s/resourceGroups/group"),
        ] {
            let machine = format!("providers/Microsoft.Compute/{machine}");
            let arm = format!("/subscriptions/{subscription}/resourceGroups/{group}/{machine}");
            assert_eq!(of_machine(&id(&arm)).unwrap(), format!("azure:///subscriptions/{expected}/{machine}"));
        }
    }

    #[test]
    fn an_id_without_a_group_in_the_usual_spelling_is_refused() {
        for arm in [
            "/subscriptions/s/providers/Microsoft.Compute/virtualMachines/v",
            "/subscriptions/s/resourcegroups/g/providers/Microsoft.Compute/virtualMachines/v",
            "/subscriptions/s/resourceGroups/g",
        ] {
            assert!(of_machine(&id(arm)).unwrap_err().to_string().contains(arm), "{arm}");
        }
    }

    #[test]
    fn machines_are_read_back() {
        let set = format!("{GROUP}/virtualMachineScaleSets/k8s-vmss/virtualMachines");
        for (text, expected) in [
            (format!("{GROUP}/virtualMachines/vm-1"), format!("{GROUP}/virtualMachines/vm-1")),
            (format!("{set}/3"), format!("{set}/3")),
            (format!("{set}/k8s-vmss_3"), format!("{set}/3")),
            (format!("{set}/K8S-VMSS_12"), format!("{set}/12")),
            (format!("{set}/k8s-vmss_a_7"), format!("{set}/7")),
        ] {
            assert_eq!(parse(&format!("azure://{text}")), machine(&expected), "{text}");
        }
    }

    #[test]
    fn ids_of_other_clouds_are_foreign() {
        for text in [
            "",
            "azure://node-1",
            "azure:///subscriptions/s",
            "aws:///eu-west-1a/i-0123",
            "Azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v",
            "azure:///subscriptions/s/resourcegroups/g/providers/Microsoft.Compute/virtualMachines/v",
            "azure:///subscriptions/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v",
            "azure:///subscriptions/s/resourceGroups/g/providers/microsoft.compute/virtualMachines/v",
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/l",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v",
        ] {
            assert_eq!(parse(text), ParsedProviderId::Foreign, "{text}");
            assert!(!is_managed(text));
        }
    }

    #[test]
    fn ids_without_a_machine_are_invalid() {
        for text in [
            "/virtualMachines",
            "/virtualMachines/",
            "/virtualmachines/v",
            "/virtualMachines/v/extensions/e",
            "/disks/d",
            "/virtualMachineScaleSets/k8s-vmss",
            "/virtualMachineScaleSets/k8s-vmss/virtualMachines/a3",
            "/virtualMachineScaleSets/k8s-vmss/virtualMachines/k8s-vmss",
            "/virtualMachineScaleSets/k8s-vmss/virtualMachines/k8s-vmss_",
            "/virtualMachineScaleSets/k8s-vmss/virtualMachines/k8s-vmss_a1b2c3d4",
            "",
        ] {
            let text = format!("azure://{GROUP}{text}{}", if text.is_empty() { "/" } else { "" });
            assert!(is_managed(&text), "{text}");
            assert!(
                matches!(parse(&text), ParsedProviderId::Invalid(reason) if reason.contains("spec.providerID")),
                "{text}"
            );
        }
    }
}
