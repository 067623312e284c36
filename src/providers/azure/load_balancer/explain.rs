//! Explanations of ARM's errors for operators, and the caller's reaction to each error. Pure.
//!
//! In: an [`ArmError`], the failed operation, the Services in it. Out: a short reason and a message that says what to fix
//! ([`explain`]); a [`CloudError`] for the service controller ([`cloud_error`]); the Services whose parts the message names
//! ([`named_services`]). [`CODES`] is the table of codes.

mod blame;
mod reference;

use crate::{
    cloud_provider::CloudError,
    providers::azure::{
        arm::{CODES, ErrorRecovery, RequestDelay},
        model::{ArmError, ArmErrorClass},
    },
    runtime::clock::Clock,
};

pub use blame::{is_interface_limit, named_services, suspected_services, unprovisioned_public_ip};
pub use reference::reference_page;

/// Explanation of an error for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorExplanation {
    /// CamelCase word: the reason in a row of [`CODES`], or the name of the error's class.
    pub reason: &'static str,
    /// The request, ARM's message, the remedy, and the correlation id.
    pub message: String,
}

/// Returns the reason why Services in `namespace` wait, with a time; `None` if that time cannot be represented.
pub fn delay(delay: &RequestDelay, namespace: &str, clock: Clock) -> Option<String> {
    const FORMAT: &str = "%Y-%m-%dT%H:%M:%SZ";
    let RequestDelay { quota, subscription, until, share_since } = delay;
    if let Some(since) = share_since {
        let since = clock.wall().checked_sub(clock.now().saturating_duration_since(*since)).ok()?.strftime(FORMAT);
        return Some(format!(
            "Namespace {namespace} has used its share of the request quota {quota} of subscription {subscription}; since {since} its \
             Services wait until enough of the quota is free, and then continue by themselves"
        ));
    }
    let remaining = until.saturating_duration_since(clock.now());
    let until = clock.wall().checked_add(remaining).ok()?.strftime(FORMAT);
    Some(format!(
        "Requests to Azure wait for the request quota {quota} of subscription {subscription} until {until} or later; they continue by themselves"
    ))
}

/// Explains an error. The message begins with the request.
pub fn explain(error: &ArmError) -> ErrorExplanation {
    let (reason, fix) = error.entry().map_or_else(|| of_class(error.class), |row| (row.reason, Some(row.fix)));
    let mut message = format!("{}: ", error.request);
    if !error.code.is_empty() {
        message += &format!("{}: ", error.code);
    }
    message += error.message.trim_end();
    if !message.ends_with(['.', '!', '?', ')']) {
        message.push('.');
    }
    if let Some(missing) = error.missing_permission() {
        message += &format!(" Grant the action {} on {} to the identity of this program.", missing.action, missing.scope);
    } else if let Some(fix) = fix {
        message += &format!(" {fix}");
    }
    if let Some(id) = &error.correlation_id {
        message += &format!(" (correlation id {id})");
    }
    ErrorExplanation { reason, message }
}

/// Returns reason and remedy of an error whose code is not in [`CODES`].
fn of_class(class: ArmErrorClass) -> (&'static str, Option<&'static str>) {
    match class {
        ArmErrorClass::NotFound => ("ResourceNotFound", None),
        ArmErrorClass::ParentNotFound => ("ParentNotFound", remedy("ParentNotFound")),
        ArmErrorClass::Unauthorized => {
            ("Unauthorized", Some("Renew or correct the credentials in the provider's configuration."))
        }
        ArmErrorClass::Forbidden => {
            ("Forbidden", Some("Grant the identity of this program the role that the action needs."))
        }
        ArmErrorClass::Throttled => ("Throttled", None),
        ArmErrorClass::Busy => ("ResourceBusy", None),
        ArmErrorClass::Conflict => ("ConcurrentChange", None),
        ArmErrorClass::QuotaExceeded => ("QuotaExceeded", remedy("QuotaExceeded")),
        ArmErrorClass::Invalid => ("InvalidRequest", None),
        ArmErrorClass::Transient => ("AzureUnavailable", None),
        ArmErrorClass::OutcomeUnknown => ("OutcomeUnknown", None),
        ArmErrorClass::MalformedAnswer => {
            ("UnexpectedAnswer", Some("Look for a proxy between this program and Azure Resource Manager."))
        }
        ArmErrorClass::NotLeader => ("NotLeader", None),
    }
}

/// Returns the error for the service controller, whose event and condition show the message. `doing` is the operation, such
/// as "create public IP x".
///
/// The row of the code in [`CODES`] determines the retry, else the error's class does. An error that a user or operator must
/// fix is retried slowly; an error that is expected to pass is retried soon. A public IP may remain unprovisioned, so it is
/// retried with increasing delays.
pub fn cloud_error(doing: &str, error: ArmError) -> CloudError {
    let ErrorExplanation { reason, message } = explain(&error);
    let message = format!("{reason}: {doing}: {message}");
    let next = error.entry().map(|row| row.recovery);
    let is_brief = unprovisioned_public_ip(&error).is_none();
    match (CloudError::from(error), next) {
        (CloudError::NotLeader(_), _) => CloudError::NotLeader(message),
        (CloudError::RetryAfter { after, .. }, _) if is_brief => CloudError::RetryAfter { after, message },
        (_, Some(ErrorRecovery::Fix)) => CloudError::Invalid(message),
        (_, Some(ErrorRecovery::Retry)) => CloudError::Failed(message),
        (CloudError::Invalid(_), None) => CloudError::Invalid(message),
        _ => CloudError::Failed(message),
    }
}

/// Returns the remedy for an error of [`cloud_error`] whose code is in the table. The message of such an error begins with
/// the reason of the row.
pub fn advice(error: &CloudError) -> Option<&'static str> {
    let message = error.to_string();
    let (reason, _) = message.split_once(": ")?;
    remedy(reason)
}

/// Returns the remedy in the table's row of `reason`.
fn remedy(reason: &str) -> Option<&'static str> {
    CODES.iter().find(|row| row.reason == reason).map(|row| row.fix)
}

#[cfg(test)]
mod tests;
