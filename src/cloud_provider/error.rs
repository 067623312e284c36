//! What went wrong in a cloud, classed by what the caller should do next.

use std::time::Duration;

/// Shorthand for results of provider calls.
pub type CloudResult<T> = Result<T, CloudError>;

/// An error of a provider call. Each variant is one next move; the message is for the operator.
///
/// Upstream: `cloud.go` (`NotImplemented`, `InstanceNotFound`, `ImplementedElsewhere`) and `api/retry_error.go`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    /// Try again after this long; this is waiting, not failing, so it does not count towards back-off.
    #[error("{message} (retrying after {after:?})")]
    RetryAfter {
        /// How long to wait.
        after: Duration,
        /// Why.
        message: String,
    },
    /// Something that is named, by a user or the configuration, does not exist. It may be created at any moment: retried after this long,
    /// and reported like [`CloudError::Invalid`] until then.
    #[error("{message}")]
    MissingReference {
        /// How long to wait.
        after: Duration,
        /// What is missing.
        message: String,
    },
    /// The cloud says that the request can never succeed as it stands: somebody has to change something. Retried only with long back-off.
    #[error("{0}")]
    Invalid(String),
    /// The same, said without asking the cloud: what is asked for or configured is wrong by itself. Retried with back-off, which costs
    /// the cloud nothing.
    #[error("{0}")]
    Refused(String),
    /// This process may not write: it does not lead, or is shutting down. Drop the work; the leader will do it.
    #[error("not the leader: {0}")]
    NotLeader(String),
    /// The call took longer than its deadline; whether it had an effect is unknown. Retried with back-off.
    #[error("{call} did not return within {limit:?}")]
    Deadline {
        /// Which provider call.
        call: &'static str,
        /// The limit that passed.
        limit: Duration,
    },
    /// Anything else: retry with back-off.
    #[error("{0}")]
    Failed(String),
}

impl CloudError {
    /// Short name of the class, for metrics and logs.
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
            CloudError::Failed(_) => "failed",
        }
    }
    /// A failure that is worth retrying with back-off.
    pub fn failed(message: impl Into<String>) -> Self {
        CloudError::Failed(message.into())
    }
    /// A request that the user has to change first.
    pub fn invalid(message: impl Into<String>) -> Self {
        CloudError::Invalid(message.into())
    }
    /// A request that the cloud need not be asked about: the user has to change it first.
    pub fn refused(message: impl Into<String>) -> Self {
        CloudError::Refused(message.into())
    }
}
