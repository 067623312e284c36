//! Errors that prevent the secure port from being served.

use std::net::SocketAddr;

/// Reason why the secure port cannot be served, which an operator must fix.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// Invalid value of a flag.
    #[error("--{flag}: {reason}")]
    Setting {
        /// Name of the flag, without dashes.
        flag: &'static str,
        /// Description of the error, and of the accepted values.
        reason: String,
    },
    /// Failure to listen on the address.
    #[error("--bind-address, --secure-port: cannot listen on {address}: {source}")]
    Bind {
        /// Requested address and port.
        address: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Error of the webhook port, whose flags have a prefix.
    #[error("{}", webhook_text(.0))]
    Webhooks(Box<ServingError>),
}

fn webhook_text(error: &ServingError) -> String {
    match error {
        ServingError::Setting { flag, reason } => format!("--webhook-{flag}: {reason}"),
        ServingError::Bind { address, source } => {
            format!("--webhook-bind-address, --webhook-secure-port: cannot listen on {address}: {source}")
        }
        ServingError::Webhooks(inner) => inner.to_string(),
    }
}

impl ServingError {
    pub(super) fn setting(flag: &'static str, reason: impl Into<String>) -> Self {
        Self::Setting { flag, reason: reason.into() }
    }
}
