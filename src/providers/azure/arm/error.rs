//! What can go wrong with an ARM request, classed by what the caller should do next.

use std::{fmt, time::Duration};

/// Shorthand.
pub type ArmResult<T> = Result<T, ArmError>;

/// The caller's next move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// ARM says of this very resource that it does not exist (404, code `ResourceNotFound`, `NotFound` or `InstanceNotFound`).
    NotFound,
    /// Something around the resource is missing: its group, subscription or parent. Says nothing certain about the resource.
    ParentNotFound,
    /// 401, or no token could be had: credentials have to be mended.
    Unauthorized,
    /// 403: a role assignment is missing.
    Forbidden,
    /// A request quota is used up: wait as told. The budget has paused the quota already.
    Throttled,
    /// Another operation holds the resource (`RetryableErrorDueToAnotherOperation`, `AnotherOperationInProgress`, …): try again soon.
    Busy,
    /// 412, or superseded by another write: read again and plan again.
    Conflict,
    /// A limit of the subscription or the resource is reached: the user has to raise or free it.
    QuotaExceeded,
    /// The document as it stands can never be accepted.
    Invalid,
    /// 5xx, no connection, a time limit before anything was sent: try again with back-off.
    Transient,
    /// A write was sent and no answer came: read before writing again.
    OutcomeUnknown,
    /// The answer is not what ARM sends: try again with back-off, and tell somebody.
    Garbage,
    /// This process may not write now.
    NotLeader,
}

/// An ARM request that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmError {
    /// The next move.
    pub class: ErrorClass,
    /// HTTP status, when there was an answer.
    pub status: Option<u16>,
    /// ARM's error code, as sent; empty when there is none.
    pub code: String,
    /// ARM's message, or what happened instead of an answer.
    pub message: String,
    /// What was asked: `GET /subscriptions/…`.
    pub request: String,
    /// `x-ms-correlation-request-id`, for a support case.
    pub correlation_id: Option<String>,
    /// How long ARM asks to wait.
    pub retry_after: Option<Duration>,
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
