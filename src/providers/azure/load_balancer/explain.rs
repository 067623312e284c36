//! What ARM refused, in words that an operator can act on, and what the caller does next. Pure.
//!
//! In: an [`ArmError`], what was being done, the Services that took part. Out: a short reason and a message that says what to fix
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

/// An error for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorExplanation {
    /// One CamelCase word: the name of a row of [`CODES`], or of the error's class.
    pub reason: &'static str,
    /// What was asked, ARM's words, what to fix, and the correlation id.
    pub message: String,
}

/// What a Service in `namespace` waits for, with the time.
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

/// What the error means. The message begins with the resource that was asked for.
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

/// Reason and advice where the code says nothing special.
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

/// The error for the service controller, in whose event and condition the message appears. `doing`: "create public IP x". The next
/// move is that of the class, but for codes that the table knows better: what a user or operator has to mend is retried slowly,
/// what mends itself soon. A public IP that is not provisioned may stay so: it is waited for with growing pauses.
pub fn cloud_error(doing: &str, error: ArmError) -> CloudError {
    let ErrorExplanation { reason, message } = explain(&error);
    let message = format!("{reason}: {doing}: {message}");
    let next = error.entry().map(|row| row.recovery);
    let is_brief = unprovisioned_public_ip(&error).is_none();
    match (CloudError::from(error), next) {
        (CloudError::NotLeader(_), _) => CloudError::NotLeader(message),
        (CloudError::RetryAfter { after, .. }, _) if is_brief => CloudError::RetryAfter { after, message },
        (_, Some(ErrorRecovery::Mend)) => CloudError::Invalid(message),
        (_, Some(ErrorRecovery::Retry)) => CloudError::Failed(message),
        (CloudError::Invalid(_), None) => CloudError::Invalid(message),
        _ => CloudError::Failed(message),
    }
}

/// Returns what to do about an error of [`cloud_error`] whose code the table explains: its message begins with the reason of the row.
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
