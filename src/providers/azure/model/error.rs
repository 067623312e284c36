//! Errors of ARM requests, classified by the caller's next step.

use std::{fmt, time::Duration};

use super::spelling;
use crate::cloud_provider::CloudError;

pub type ArmResult<T> = Result<T, ArmError>;

/// Class of an error by the caller's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArmErrorClass {
    /// Requested resource that does not exist according to ARM (404, code `ResourceNotFound`, `NotFound` or `InstanceNotFound`).
    NotFound,
    /// Missing parent of the resource: its group, subscription or enclosing resource. Inconclusive about the resource itself.
    ParentNotFound,
    /// 401, or no token: the credentials must be fixed.
    Unauthorized,
    /// 403, usually a missing role assignment.
    Forbidden,
    /// Exhausted request quota: wait as requested. The budget has paused the quota already.
    Throttled,
    /// Resource that another operation has locked (`RetryableErrorDueToAnotherOperation`, `AnotherOperationInProgress`, …): retry soon.
    Busy,
    /// 412, or a write that another one superseded: read and plan again.
    Conflict,
    /// Reached limit of the subscription or the resource: the user must raise it or delete something.
    QuotaExceeded,
    /// Document that ARM can never accept unchanged.
    Invalid,
    /// 5xx, no connection, a timeout before anything was sent: retry with backoff.
    Transient,
    /// Sent write without a response: read before writing again.
    OutcomeUnknown,
    /// Response that is not from ARM: retry with backoff, and report it.
    MalformedAnswer,
    /// Write without leadership, or refused by a write check; nothing was sent.
    NotLeader,
}

/// Error of an ARM request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmError {
    pub class: ArmErrorClass,
    /// HTTP status, if there was a response.
    pub status: Option<u16>,
    /// Error code in ARM's spelling; of nested codes, the one that determined the class; empty if there is none.
    pub code: String,
    /// Message of ARM with those of nested errors, or the reason why there was no response.
    pub message: String,
    /// Request line: `GET /subscriptions/…`.
    pub request: String,
    /// `x-ms-correlation-request-id`, for a support case.
    pub correlation_id: Option<String>,
    /// Delay that ARM requested.
    pub retry_after: Option<Duration>,
}

/// Permission that a 403 names as missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingPermission<'a> {
    /// Action, such as `Microsoft.Network/loadBalancers/write`.
    pub action: &'a str,
    /// Resource ID on which the permission is missing.
    pub scope: &'a str,
}

/// Delay after [`ArmErrorClass::Throttled`] if ARM requested none.
const THROTTLED_DELAY: Duration = Duration::from_secs(30);
/// Delay after [`ArmErrorClass::Busy`] if ARM requested none.
const BUSY_DELAY: Duration = Duration::from_secs(5);

impl ArmError {
    /// Creates an error without a response of ARM.
    pub fn without_response(class: ArmErrorClass, request: impl Into<String>, message: impl Into<String>) -> Self {
        let (request, message, code) = (request.into(), message.into(), String::new());
        Self { class, status: None, code, message, request, correlation_id: None, retry_after: None }
    }

    /// Returns `true` if `code` occurs as a word in the code or message of the error, ignoring case.
    pub fn mentions(&self, code: &str) -> bool {
        let word = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| spelling::same_word(word, code));
        word(&self.code) || word(&self.message)
    }

    /// Returns `true` if the message names a missing parent of the resource.
    pub fn names_a_parent(&self) -> bool {
        self.request.split_once(' ').is_some_and(|(_, path)| names_a_parent(path, &self.message))
    }

    /// Returns the action and scope in the message of a 403; `None` if it does not name them.
    pub fn missing_permission(&self) -> Option<MissingPermission<'_>> {
        if self.class != ArmErrorClass::Forbidden {
            return None;
        }
        let quoted = |before: &str| self.message.split_once(before)?.1.split('\'').next().filter(|text| !text.is_empty());
        Some(MissingPermission { action: quoted("perform action '")?, scope: quoted("over scope '")? })
    }
}

impl From<ArmError> for CloudError {
    /// Converts the error. `NotFound` becomes `Failed`: only the caller knows whether the request proves that an instance is missing.
    fn from(error: ArmError) -> Self {
        let (message, wait) = (error.to_string(), error.retry_after);
        match error.class {
            ArmErrorClass::Throttled => CloudError::RetryAfter { after: wait.unwrap_or(THROTTLED_DELAY), message },
            ArmErrorClass::Busy => CloudError::RetryAfter { after: wait.unwrap_or(BUSY_DELAY), message },
            ArmErrorClass::Invalid | ArmErrorClass::QuotaExceeded => CloudError::Invalid(message),
            ArmErrorClass::NotLeader => CloudError::NotLeader(message),
            _ => CloudError::Failed(message),
        }
    }
}

impl std::error::Error for ArmError {}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.request)?;
        if let Some(status) = self.status {
            write!(f, "HTTP {status} ")?;
        }
        if !self.code.is_empty() {
            write!(f, "{}: ", self.code)?;
        }
        write!(f, "{}", self.message)?;
        if let Some(id) = &self.correlation_id {
            write!(f, " (correlation id {id})")?;
        }
        Ok(())
    }
}

/// Returns `true` if the message names a missing parent of the resource, such as the scale set of an instance or the network
/// of a subnet.
///
/// ARM quotes the type and name of the parent (`'Microsoft.Network/virtualNetworks/vnet'`); the error code is the same.
pub(crate) fn names_a_parent(path: &str, message: &str) -> bool {
    let own = path.rsplit_once("/providers/").map(|(_, own)| own.to_ascii_lowercase());
    let quoted = message.split('\'').nth(1).filter(|quoted| quoted.contains('/')).map(str::to_ascii_lowercase);
    own.zip(quoted).is_some_and(|(own, quoted)| own.strip_prefix(&quoted).is_some_and(|rest| rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::samples::arm_error;

    fn error(class: ArmErrorClass, message: &str) -> ArmError {
        arm_error(class, "AuthorizationFailed", message)
    }

    #[test]
    fn a_missing_permission_is_named() {
        let sentence = "The client 'a' with object id 'b' does not have authorization to perform action \
                        'Microsoft.Network/loadBalancers/write' over scope '/subscriptions/s/resourceGroups/g' or the scope is \
                        invalid. If access was recently granted, please refresh your credentials.";
        let refused = error(ArmErrorClass::Forbidden, sentence);
        let missing = refused.missing_permission().unwrap();
        let expected = ("Microsoft.Network/loadBalancers/write", "/subscriptions/s/resourceGroups/g");
        assert_eq!((missing.action, missing.scope), expected);
        assert_eq!(error(ArmErrorClass::Forbidden, "perform action '").missing_permission(), None);
        assert_eq!(error(ArmErrorClass::Invalid, sentence).missing_permission(), None);
    }

    #[test]
    fn codes_are_found_as_words() {
        let found = error(ArmErrorClass::Busy, "x; ReferencedResourceNotProvisioned: y");
        assert!(found.mentions("referencedResourceNotProvisioned") && found.mentions("AuthorizationFailed"));
        assert!(!found.mentions("ResourceNotProvisioned"));
    }

    #[test]
    fn each_class_is_converted_to_the_next_step() {
        use ArmErrorClass::*;
        let class = |class| CloudError::from(error(class, "m")).class();
        assert_eq!([Throttled, Busy].map(class), ["retry_after"; 2]);
        assert_eq!([Invalid, QuotaExceeded].map(class), ["invalid"; 2]);
        assert_eq!(class(NotLeader), "not_leader");
        let rest = [NotFound, ParentNotFound, Unauthorized, Forbidden, Conflict, Transient, OutcomeUnknown, MalformedAnswer];
        assert_eq!(rest.map(class), ["failed"; 8], "NotFound too: never a deletion by conversion");
        let delayed = ArmError { retry_after: Some(Duration::from_secs(7)), ..error(Throttled, "m") };
        assert!(matches!(CloudError::from(delayed), CloudError::RetryAfter { after, .. } if after.as_secs() == 7));
    }
}
