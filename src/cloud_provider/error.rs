//! Errors of a cloud, classified by the next step of the caller.

use std::time::Duration;

use k8s_openapi::api::core::v1::LoadBalancerStatus;

/// Result of a provider call.
pub type CloudResult<T> = Result<T, CloudError>;

/// Error of a provider call. Each variant corresponds to one reaction of the caller; the message is for users and operators.
///
/// Messages appear in logs, events and conditions. This means that they must not contain secrets.
///
/// Upstream: `cloud.go` (`NotImplemented`, `InstanceNotFound`, `ImplementedElsewhere`) and `api/retry_error.go`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CloudError {
    /// The provider does not support this call. The caller continues without it.
    #[error("not implemented by this cloud provider")]
    NotImplemented,
    /// The cloud confirmed, in response to a direct request, that the instance does not exist.
    ///
    /// This means that the Node is deleted. If the cloud does not respond, or a list lacks the instance, return
    /// [`CloudError::Failed`] instead.
    #[error("instance not found")]
    InstanceNotFound,
    /// Another component does this work. The caller treats it as done and writes no status.
    #[error("implemented by an alternate to the cloud provider")]
    ImplementedElsewhere,
    /// The cloud requests a delay, such as HTTP 429. The caller retries after exactly this time.
    ///
    /// It is not a failure, so it does not increase the backoff.
    #[error("{message} (retrying after {after:?})")]
    RetryAfter {
        /// Time until the retry.
        after: Duration,
        /// Reason for the delay.
        message: String,
    },
    /// A resource that a user or the configuration names does not exist.
    ///
    /// The resource may be created at any time. The caller retries after this delay, and reports the error like
    /// [`CloudError::Invalid`].
    #[error("{message}")]
    MissingReference {
        /// Time until the retry.
        after: Duration,
        /// Text that names the missing resource.
        message: String,
    },
    /// The cloud rejected the request, which cannot succeed until a person changes something, such as a lock or a quota.
    ///
    /// The caller retries after 15 s, and then at intervals that grow to 5 minutes, or longer if the cloud rejects many
    /// requests. The message names the field or resource to change.
    #[error("{0}")]
    Invalid(String),
    /// The provider refused the request before it sent anything to the cloud, because the object or the configuration is
    /// invalid.
    ///
    /// The caller retries with backoff, which sends no requests to the cloud.
    #[error("{0}")]
    Refused(String),
    /// The process does not lead or is shutting down, so it must not write. The caller drops the work, which the leader
    /// does.
    #[error("not the leader: {0}")]
    NotLeader(String),
    /// The call exceeded its deadline, and may have had an effect. The caller retries with backoff.
    #[error("{call} did not return within {limit:?}")]
    Deadline {
        /// Name of the call.
        call: &'static str,
        /// Deadline that the call exceeded.
        limit: Duration,
    },
    /// The load balancer serves the Service with these addresses, but is not complete.
    ///
    /// Only calls that return a status return this error. The caller publishes the status, and then handles `error` as if
    /// the call had returned it.
    #[error("{error}")]
    Incomplete {
        /// Addresses that serve the Service.
        status: LoadBalancerStatus,
        /// Error of the incomplete part.
        error: Box<CloudError>,
    },
    /// Any other error. The caller retries with backoff.
    #[error("{0}")]
    Failed(String),
}

// `LoadBalancerStatus` does not implement `Eq`, although all its fields do.
impl Eq for CloudError {}

impl CloudError {
    /// Returns the name of the class in metrics and logs. For [`CloudError::Incomplete`], it is the class of the error
    /// inside.
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
    /// Returns the error inside [`CloudError::Incomplete`], and any other error unchanged.
    #[must_use]
    pub fn without_status(self) -> Self {
        match self {
            CloudError::Incomplete { error, .. } => *error,
            error => error,
        }
    }
    /// Creates a [`CloudError::Failed`], which is retried with backoff.
    pub fn failed(message: impl Into<String>) -> Self {
        CloudError::Failed(message.into())
    }
    /// Creates a [`CloudError::Invalid`] about a request that the cloud rejected.
    pub fn invalid(message: impl Into<String>) -> Self {
        CloudError::Invalid(message.into())
    }
    /// Creates a [`CloudError::Refused`] about a request that was not sent to the cloud.
    pub fn refused(message: impl Into<String>) -> Self {
        CloudError::Refused(message.into())
    }
}
