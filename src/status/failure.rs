//! Classes of failures on the status page. Pure.

use serde::{
    Deserialize, Serialize,
    de::{IntoDeserializer, value},
};

/// Class of a failure: the reason of a condition, the class of a provider call, or the class of a request to the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureClass {
    /// Failure that a user must fix: the reason of a condition, or a document that the cloud cannot accept.
    Invalid,
    /// Condition of a Service that is retried with backoff.
    Failed,
    /// Condition of a Service for which the cloud requested a delay.
    Waiting,
    /// Requested resource that does not exist, according to ARM.
    NotFound,
    /// Missing group, subscription or enclosing resource; proves nothing about the resource itself.
    ParentNotFound,
    /// Missing or rejected credentials (401, or no token).
    Unauthorized,
    /// Denied request (403), usually because of a missing role assignment.
    Forbidden,
    /// Exhausted request quota: the program waits as long as ARM requests.
    Throttled,
    /// Resource that another operation has locked: the program retries soon.
    Busy,
    /// Write that another one superseded (412): the program reads and plans again.
    Conflict,
    /// Reached limit of the subscription or the resource: a user must raise it or delete something.
    QuotaExceeded,
    /// Server error (5xx), no connection, or a timeout before anything was sent: the program retries with backoff.
    Transient,
    /// Sent write without a response: the program reads before it writes again.
    OutcomeUnknown,
    /// Response that is not from ARM, for example from a proxy: the program retries with backoff.
    MalformedAnswer,
    /// Write without leadership, or refused by a write check; nothing was sent.
    NotLeader,
    /// Class of a provider call: the cloud rejected the request until a person changes something, such as a quota.
    #[serde(rename = "invalid")]
    CallInvalid,
    /// Class of a provider call: the object or the configuration is invalid, so nothing was sent to the cloud.
    #[serde(rename = "refused")]
    CallRefused,
    /// Class of a provider call: any other error, which is retried with backoff.
    #[serde(rename = "failed")]
    CallFailed,
    /// Class of a provider call: the call exceeded its deadline, and may have had an effect.
    #[serde(rename = "deadline")]
    CallDeadline,
    /// Class of a provider call: the cloud requested a delay.
    #[serde(rename = "retry_after")]
    CallRetryAfter,
    /// Class of a provider call: the process does not lead or is shutting down.
    #[serde(rename = "not_leader")]
    CallNotLeader,
    /// Class that is handled like an unclassified failure.
    #[serde(untagged)]
    Other(String),
}

impl FailureClass {
    /// Returns the class with this name, as pages spell it.
    pub fn named(name: &str) -> Self {
        let named: Result<Self, value::Error> = Self::deserialize(name.into_deserializer());
        named.unwrap_or_else(|_| Self::Other(name.to_owned()))
    }
}
