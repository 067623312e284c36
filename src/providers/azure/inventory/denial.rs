//! Decides whether an error is ARM's own statement that an instance of a scale set does not exist. Pure.
//!
//! In: a read and its error. Out: yes or no. Compute responds for a deleted instance with more codes than are documented,
//! and sometimes with 400; so every 404 of ARM counts that is not about a parent of the instance. `existence` checks whether
//! the scale set and its group exist.

use super::read::{ArmRead, uniform_set_of};
use crate::providers::azure::model::{ArmError, ArmErrorClass};

/// Words in codes about the surroundings of an instance, or about the request.
const SURROUNDINGS: &[&str] = &[
    "parent",
    "group",
    "subscription",
    "tenant",
    "provider",
    "namespace",
    "resourcetype",
    "apiversion",
    "endpoint",
    "route",
];
/// Codes about the surroundings at any position in the error, in addition to those of class `ParentNotFound`.
const MISSING_SCALE_SET: &[&str] = &["VirtualMachineScaleSetNotFound", "VMScaleSetNotFound"];

/// Names of a scale set in codes, and of an instance of one.
const SCALE_SET: &[&str] = &["scaleset", "vmss"];
const INSTANCE: &[&str] = &["scalesetvm", "vmssvm", "scalesetinstance", "vmssinstance"];

/// Returns `true` if the error of `read` says that the requested instance does not exist.
pub(super) fn denies_instance(read: &ArmRead, error: &ArmError) -> bool {
    let ArmRead::Machine(id) = read else { return false };
    if uniform_set_of(id).is_none() {
        return false;
    }
    match (error.status, error.class) {
        (Some(404), ArmErrorClass::NotFound) => true,
        // An unknown code counts only if ARM itself sent it, not a gateway that imitates ARM's format.
        (Some(404), ArmErrorClass::ParentNotFound) => error.correlation_id.is_some() && !speaks_of_surroundings(error),
        (Some(400), ArmErrorClass::Invalid) => error.mentions("InvalidParameter") && is_inactive(id.name(), &error.message),
        _ => false,
    }
}

fn speaks_of_surroundings(error: &ArmError) -> bool {
    let code = error.code.to_ascii_lowercase();
    let speaks_of = |words: &[&str]| words.iter().any(|word| code.contains(word));
    speaks_of(SURROUNDINGS)
        || (speaks_of(SCALE_SET) && !speaks_of(INSTANCE))
        || error.mentions_class(ArmErrorClass::ParentNotFound)
        || MISSING_SCALE_SET.iter().any(|code| error.mentions(code))
        || error.names_a_parent()
}

/// Returns `true` for `The provided instanceId 7 is not an active Virtual Machine Scale Set VM instanceId.`
fn is_inactive(number: &str, message: &str) -> bool {
    message.to_ascii_lowercase().contains(&format!("instanceid {} is not an active ", number.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::arm_fixture::{error, instance, set, vm},
        *,
    };

    fn response_error(status: u16, class: ArmErrorClass, code: &str, message: &str) -> ArmError {
        let request = format!("GET {}", instance("pool0", 7));
        let correlation_id = Some("c1".to_owned());
        ArmError {
            status: Some(status),
            code: code.into(),
            message: message.into(),
            request,
            correlation_id,
            ..error(class)
        }
    }

    #[test]
    fn an_unknown_code_counts_if_arm_itself_sent_it() {
        let sent = |code, class| ArmError { correlation_id: None, ..response_error(404, class, code, "No such entity.") };
        let read = ArmRead::Machine(instance("pool0", 7));
        assert!(!denies_instance(&read, &sent("Gone42", ArmErrorClass::ParentNotFound)), "a gateway's page in ARM's shape");
        assert!(denies_instance(&read, &sent("ResourceNotFound", ArmErrorClass::NotFound)));
    }

    #[test]
    fn a_404_of_an_instance_counts_unless_its_code_names_a_parent() {
        use ArmErrorClass::{Forbidden, Invalid, MalformedAnswer, NotFound, ParentNotFound, Transient};
        let parent =
            "The Resource 'Microsoft.Compute/virtualMachineScaleSets/pool0' under resource group 'rg' was not found.";
        let own = "The Resource 'Microsoft.Compute/virtualMachineScaleSets/pool0/virtualMachines/7' under resource group 'rg' was not found.";
        let inactive = "The provided instanceId 7 is not an active Virtual Machine Scale Set VM instanceId.";
        let inactive_other = "The provided instanceId 77 is not an active Virtual Machine Scale Set VM instanceId.";
        let surroundings =
            ["ResourceGroupNotFound", "SubscriptionNotFound", "InvalidResourceType", "InvalidResourceNamespace"];
        let of_sets = ["VMScaleSetNotFound", "ScaleSetNotFound", "VmssNotFound", "VirtualMachineScaleSetDoesNotExist"];
        let codes = [&surroundings[..], &of_sets, &["InvalidApiVersionParameter"]].concat();
        let of_others = codes.into_iter().map(|code| (404, ParentNotFound, code, "", false));
        let rows = [
            (404, NotFound, "ResourceNotFound", own, true),
            (404, ParentNotFound, "VMScaleSetVMNotFound", "The VM was not found.", true),
            (404, ParentNotFound, "VirtualMachineNotFound", "", true),
            (404, ParentNotFound, "VmssVmNotFound", "", true),
            (404, ParentNotFound, "ScaleSetInstanceNotFound", "", true),
            (404, ParentNotFound, "NotFoundError", own, true),
            (404, ParentNotFound, "Gone42", "No such entity.", true),
            (404, ParentNotFound, "ParentResourceNotFound", "Parent resource 'pool0' not found.", false),
            (404, ParentNotFound, "Whatever", "see; ParentResourceNotFound: no set", false),
            (404, ParentNotFound, "ResourceNotFound", parent, false),
            (404, ParentNotFound, "Whatever", parent, false),
            (400, Invalid, "InvalidParameter", inactive, true),
            (400, Invalid, "BadRequest", inactive, false),
            (400, Invalid, "InvalidParameter", inactive_other, false),
            (400, Invalid, "InvalidParameter", "The value of parameter instanceId 7 is invalid.", false),
            (404, MalformedAnswer, "", "the response contains no ARM error document", false),
            (403, Forbidden, "AuthorizationFailed", "", false),
            (500, Transient, "ResourceNotFound", own, false),
        ];
        for (status, class, code, message, expected) in rows.into_iter().chain(of_others) {
            let error = response_error(status, class, code, message);
            assert_eq!(denies_instance(&ArmRead::Machine(instance("pool0", 7)), &error), expected, "{error}");
            for other in [ArmRead::Machine(vm("n")), ArmRead::ScaleSet(set("pool0")), ArmRead::ScaleSets(set("pool0"))] {
                assert!(!denies_instance(&other, &error), "{other} {error}");
            }
        }
    }
}
