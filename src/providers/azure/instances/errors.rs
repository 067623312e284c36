//! What a controller is told when a machine could not be looked up: pure.
//!
//! In: why not. Out: a [`CloudError`] whose class is the controller's next move and whose message says what an operator can do.
//! Never `InstanceNotFound`: where a machine was not listed proves nothing, and controllers delete Nodes over that class.

use crate::{
    cloud_provider::CloudError,
    providers::azure::{
        arm::{ArmError, ErrorClass},
        inventory::LookupError,
    },
};

/// The error of a look-up.
pub fn of_look_up(error: &LookupError) -> CloudError {
    match error {
        LookupError::NotListed(_) => CloudError::failed(format!(
            "{error}; if the machine is in another resource group, label its node kubernetes.azure.com/resource-group=<group>; if \
             it is none of Azure's, kubernetes.azure.com/managed=false; otherwise check resourceGroup, subscriptionId and vmType \
             in azure.json"
        )),
        LookupError::Arm(error) => of_arm(error),
    }
}

/// The error of an ARM read.
pub fn of_arm(error: &ArmError) -> CloudError {
    match (error.class, error.retry_after) {
        (ErrorClass::Throttled | ErrorClass::Busy, Some(after)) => {
            CloudError::RetryAfter { after, message: error.to_string() }
        }
        (ErrorClass::NotLeader, _) => CloudError::NotLeader(error.to_string()),
        (class, _) => CloudError::Failed(match advice(class) {
            Some(advice) => format!("{error}; {advice}"),
            None => error.to_string(),
        }),
    }
}

fn advice(class: ErrorClass) -> Option<&'static str> {
    match class {
        ErrorClass::Unauthorized => Some("check the credentials in azure.json, for instance with `check-config --online`"),
        ErrorClass::Forbidden => Some(
            "grant the identity of azure.json read on virtualMachines, virtualMachineScaleSets, networkInterfaces and \
             publicIPAddresses in the node's resource group",
        ),
        ErrorClass::ParentNotFound => {
            Some("check resourceGroup and subscriptionId in azure.json, and the labels of the node")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn arm(class: ErrorClass, retry_after: Option<Duration>) -> LookupError {
        let (code, message, request) = ("Code".to_owned(), "what happened".to_owned(), "GET /subscriptions/s".to_owned());
        LookupError::Arm(ArmError { class, status: Some(400), code, message, request, correlation_id: None, retry_after })
    }

    #[test]
    fn not_listed_is_never_instance_not_found() {
        let error = of_look_up(&LookupError::NotListed("n is in no scale set of my-rg".into()));
        assert_eq!(error.class(), "failed");
        assert!(error.to_string().contains("n is in no scale set of my-rg"), "{error}");
        assert!(error.to_string().contains("resourceGroup, subscriptionId and vmType"), "{error}");
    }

    #[test]
    fn classes_become_next_moves() {
        let seconds = Some(Duration::from_secs(7));
        for (class, after, expected, said) in [
            (ErrorClass::Throttled, seconds, "retry_after", "what happened"),
            (ErrorClass::Throttled, None, "failed", "what happened"),
            (ErrorClass::Busy, seconds, "retry_after", "what happened"),
            (ErrorClass::Transient, seconds, "failed", "what happened"),
            (ErrorClass::NotFound, None, "failed", "what happened"),
            (ErrorClass::NotLeader, None, "not_leader", "what happened"),
            (ErrorClass::Unauthorized, None, "failed", "credentials in azure.json"),
            (ErrorClass::Forbidden, None, "failed", "grant the identity"),
            (ErrorClass::ParentNotFound, None, "failed", "resourceGroup"),
            (ErrorClass::Garbage, None, "failed", "what happened"),
        ] {
            let error = of_look_up(&arm(class, after));
            assert_eq!(error.class(), expected, "{class:?}");
            assert!(error.to_string().contains(said) && error.to_string().contains("GET /subscriptions/s"), "{error}");
        }
    }
}
