//! Errors of a cloud, classified by the caller's next step.

use std::time::Duration;

use k8s_openapi::api::core::v1::LoadBalancerStatus;

/// Shorthand for results of provider calls.
pub type CloudResult<T> = Result<T, CloudError>;

/// An error of a provider call. Each variant is one next move; the message is for the operator.
///
/// Upstream: `cloud.go` (`NotImplemented`, `InstanceNotFound`, `ImplementedElsewhere`) and `api/retry_error.go`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CloudError {
    /// The provider does not offer this call: go on without it.
    #[error("not implemented by this cloud provider")]
    NotImplemented,
    /// The cloud says, freshly and directly, that the instance is gone.
    #[error("instance not found")]
    InstanceNotFound,
    /// Another component does this work: treat as done, write no status.
    #[error("implemented by an alternate to the cloud provider")]
    ImplementedElsewhere,
    /// Retry after this delay. It is not a failure, so it does not count towards backoff.
    #[error("{message} (retrying after {after:?})")]
    RetryAfter {
        /// Time to wait before a retry.
        after: Duration,
        /// Reason for the delay.
        message: String,
    },
    /// A resource that a user or the configuration names does not exist.
    ///
    /// It may be created at any moment: retried after this delay, and reported like [`CloudError::Invalid`] until then.
    #[error("{message}")]
    MissingReference {
        /// Time to wait before a retry.
        after: Duration,
        /// Name of the missing resource.
        message: String,
    },
    /// The cloud reports that the request cannot succeed until a person changes something, such as a lock or a quota.
    ///
    /// Retried after pauses of 15 s that grow to 5 minutes, longer if the cloud rejects many requests.
    #[error("{0}")]
    Invalid(String),
    /// A request or configuration that is invalid without a request to the cloud. Retried with backoff, which costs the
    /// cloud nothing.
    #[error("{0}")]
    Refused(String),
    /// The process does not lead, or is shutting down, so it may not write. Drop the work; the leader will do it.
    #[error("not the leader: {0}")]
    NotLeader(String),
    /// The call took longer than its deadline; whether it had an effect is unknown. Retried with backoff.
    #[error("{call} did not return within {limit:?}")]
    Deadline {
        /// Name of the call.
        call: &'static str,
        /// The limit that passed.
        limit: Duration,
    },
    /// The load balancer serves the Service with these addresses, but lacks something else.
    ///
    /// Only for calls that return a status: the caller publishes it, then treats `error` like any other.
    #[error("{error}")]
    Incomplete {
        /// Addresses that serve the Service.
        status: LoadBalancerStatus,
        /// Error about what is missing.
        error: Box<CloudError>,
    },
    /// Any other error: retry with backoff.
    #[error("{0}")]
    Failed(String),
}

// `LoadBalancerStatus` does not implement `Eq`, although all its fields do.
impl Eq for CloudError {}

impl CloudError {
    /// Returns the short name of the class, for metrics and logs.
    pub fn class(&self) -> &'static str {
        match self {
            CloudError::NotImplemented => "not_implemented",
            CloudError::InstanceNotFound => "instance_not_found",
            CloudError::ImplementedElsewhere => "implemented_elsewhere",
            CloudError::RetryAfter { .. } => "retry_after",
            CloudError::MissingReference { .. } => "missing_reference",
            CloudError::Invalid(_) => "invalid",
            CloudError::Refused(_) => "refused",
            CloudError::NotLeader(_) => "not_leader",
            CloudError::Deadline { .. } => "deadline",
            CloudError::Incomplete { error, .. } => error.class(),
            CloudError::Failed(_) => "failed",
        }
    }
    /// Returns the error without the status of [`CloudError::Incomplete`].
    #[must_use]
    pub fn without_status(self) -> Self {
        match self {
            CloudError::Incomplete { error, .. } => *error,
            error => error,
        }
    }
    /// Creates an error that is retried with backoff.
    pub fn failed(message: impl Into<String>) -> Self {
        CloudError::Failed(message.into())
    }
    /// Creates an error about a request that the user must change first.
    pub fn invalid(message: impl Into<String>) -> Self {
        CloudError::Invalid(message.into())
    }
    /// Creates an error about a request that the user must change first, without asking the cloud.
    pub fn refused(message: impl Into<String>) -> Self {
        CloudError::Refused(message.into())
    }
}
