//! Scale sets and their instances: immutable fields, and instances that do not exist.

use super::{Candidate, same, sku};
use crate::sandbox::azure::refusal::Refusal;

pub(super) fn check(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let mode = |body: &serde_json::Value| body["properties"]["orchestrationMode"].clone();
    match candidate.old {
        Some(old) if !mode(old).is_null() && !same(&mode(old), &mode(candidate.body)) => {
            let message = "Changing property 'orchestrationMode' is not allowed.";
            Err(Refusal::new(409, "PropertyChangeNotAllowed", message))
        }
        _ => Ok(()),
    }
}

/// Checks an instance. Its scale set's capacity creates it, not a PUT.
pub(super) fn check_instance(candidate: Candidate<'_>) -> Result<(), Refusal> {
    if candidate.old.is_some() {
        return sku::check_interfaces(candidate);
    }
    let message =
        format!("The provided instanceId {} is not an active Virtual Machine Scale Set VM instanceId.", candidate.id.name());
    Err(Refusal::invalid("InvalidParameter", message))
}
