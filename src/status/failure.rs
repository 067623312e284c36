//! Classes of failures on the status page. Pure.

use serde::{
    Deserialize, Serialize,
    de::{IntoDeserializer, value},
};

/// Class of a failure: the reason of a condition, the class of a provider call, or the class of a request to the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureClass {
    /// A user must change something: the reason of a condition, or a document that the cloud cannot accept.
    Invalid,
    /// The condition of a Service that is tried again.
    Failed,
    /// The condition of a Service whose cloud requested a delay.
    Waiting,
    NotFound,
    ParentNotFound,
    Unauthorized,
    Forbidden,
    Throttled,
    Busy,
    QuotaExceeded,
    Transient,
    OutcomeUnknown,
    MalformedAnswer,
    NotLeader,
    #[serde(rename = "invalid")]
    CallInvalid,
    #[serde(rename = "refused")]
    CallRefused,
    #[serde(rename = "failed")]
    CallFailed,
    #[serde(rename = "deadline")]
    CallDeadline,
    #[serde(rename = "retry_after")]
    CallRetryAfter,
    #[serde(rename = "not_leader")]
    CallNotLeader,
    /// A class that is treated like an unclassified failure.
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
