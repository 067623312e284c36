//! Errors of the start of a manager.

use crate::serving;

/// Reason why a manager could not start. If a flag is the cause, the message names it.
#[derive(Debug, thiserror::Error)]
pub enum ManagerStartError {
    /// Missing cluster ID, without which resources of other clusters cannot be distinguished.
    #[error("the cloud has no cluster id: tag its resources with one, or set --allow-untagged-cloud")]
    NoClusterId,
    /// Failed creation of the API client.
    #[error("cannot build the Kubernetes client: {0}")]
    Client(#[from] kube::Error),
    /// Failed start of the thread for the leader election.
    #[error("cannot run the leader election: {0}")]
    ElectionThread(std::io::Error),
    /// Failure to serve a port.
    #[error(transparent)]
    Serving(#[from] serving::ServingError),
    /// Unknown name in `--webhooks`.
    #[error("{0}")]
    Webhooks(String),
    /// Invalid configuration of a controller.
    #[error(transparent)]
    Wiring(#[from] WiringError),
}

/// Shorthand for results of the start of a manager.
pub(super) type StartResult<T> = Result<T, ManagerStartError>;

/// Invalid configuration of a controller.
#[derive(Debug, thiserror::Error)]
#[error("{controller}: {reason}")]
pub struct WiringError {
    pub(super) controller: &'static str,
    pub(super) reason: String,
}
