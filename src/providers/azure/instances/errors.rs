//! Errors of machine lookups for controllers. Pure.
//!
//! In: the reason of the failure. Out: a [`CloudError`] whose class is the controller's next step and whose message has
//! advice for an operator. Never `InstanceNotFound`: a machine that is missing in lists proves nothing, and controllers
//! delete Nodes over that class.

use crate::{
    cloud_provider::CloudError,
    providers::azure::model::{ArmError, ArmErrorClass, LookupError},
};

/// Returns the error of a lookup.
pub fn from_lookup(error: &LookupError) -> CloudError {
    match error {
        LookupError::NotListed(_) => CloudError::failed(format!(
            "{error}; if the machine is in another resource group, label its node kubernetes.azure.com/resource-group=<group>; if \
             it is none of Azure's, kubernetes.azure.com/managed=false; otherwise check resourceGroup, subscriptionId and vmType \
             in azure.json"
        )),
        LookupError::NoAddress(_) => CloudError::failed(error.to_string()),
        // A lookup only reads: the Node itself is not invalid, and ARM may respond differently the next time.
        LookupError::Arm(error) => match from_write(error) {
            CloudError::Invalid(message) => CloudError::failed(message),
            metadata => metadata,
        },
    }
}

/// Returns the error of a write: an invalid write remains invalid.
pub fn from_write(error: &ArmError) -> CloudError {
    match advice(error) {
        Some(advice) => CloudError::failed(format!("{error}; {advice}")),
        None => error.clone().into(),
    }
}

/// Returns advice for an operator about an error, where ARM's message has none.
fn advice(error: &ArmError) -> Option<String> {
    if let (ArmErrorClass::Forbidden, Some(missing)) = (error.class, error.missing_permission()) {
        return Some(format!("grant the identity in azure.json {} on {}", missing.action, missing.scope));
    }
    let advice = match error.class {
        ArmErrorClass::Unauthorized => "check the credentials in azure.json with `check-config --online`",
        ArmErrorClass::Forbidden => "see what the identity in azure.json may not do with `check-config --online`",
        ArmErrorClass::ParentNotFound => "check resourceGroup and subscriptionId in azure.json, and the labels of the node",
        _ => return None,
    };
    Some(advice.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn arm(class: ArmErrorClass, retry_after: Option<Duration>, message: &str) -> LookupError {
        let (code, message, request) = ("Code".to_owned(), message.to_owned(), "GET /subscriptions/s".to_owned());
        LookupError::Arm(ArmError { class, status: Some(400), code, message, request, correlation_id: None, retry_after })
    }

    #[test]
    fn not_listed_is_never_instance_not_found() {
        let error = from_lookup(&LookupError::NotListed("n is in no scale set of my-rg".into()));
        assert_eq!(error.class(), "failed");
        assert!(error.to_string().contains("n is in no scale set of my-rg"), "{error}");
        assert!(error.to_string().contains("resourceGroup, subscriptionId and vmType"), "{error}");
    }

    #[test]
    fn classes_become_next_moves_with_advice() {
        let seconds = Some(Duration::from_secs(7));
        let denied = "The client 'c' does not have authorization to perform action 'Microsoft.Compute/virtualMachines/read' over \
                      scope '/subscriptions/s/resourceGroups/g'.";
        for (class, after, message, expected, said) in [
            (ArmErrorClass::Throttled, seconds, "slow down", "retry_after", "slow down"),
            (ArmErrorClass::Transient, seconds, "oops", "failed", "oops"),
            (ArmErrorClass::NotFound, None, "no such machine", "failed", "no such machine"),
            (ArmErrorClass::Invalid, None, "not like this", "failed", "not like this"),
            (ArmErrorClass::Conflict, None, "not now", "failed", "not now"),
            (ArmErrorClass::QuotaExceeded, None, "too much", "failed", "too much"),
            (ArmErrorClass::Unauthorized, None, "who?", "failed", "check the credentials in azure.json"),
            (ArmErrorClass::Forbidden, None, "no", "failed", "check-config --online"),
            (
                ArmErrorClass::Forbidden,
                None,
                denied,
                "failed",
                "grant the identity in azure.json Microsoft.Compute/virtualMachines/read on /subscriptions/s/resourceGroups/g",
            ),
            (ArmErrorClass::ParentNotFound, None, "no such group", "failed", "check resourceGroup and subscriptionId"),
        ] {
            let error = from_lookup(&arm(class, after, message));
            assert_eq!(error.class(), expected, "{class:?}");
            assert!(error.to_string().contains(said) && error.to_string().contains("GET /subscriptions/s"), "{error}");
        }
    }

    #[test]
    fn invalid_writes_are_not_retried_soon() {
        let LookupError::Arm(error) = arm(ArmErrorClass::Invalid, None, "not like this") else { unreachable!() };
        assert_eq!(from_write(&error).class(), "invalid");
    }
}
