//! Errors that keep a manager from starting.

use crate::serving;

/// Reason why a manager could not start. The message names the flag to change.
#[derive(Debug, thiserror::Error)]
pub enum ManagerStartError {
    /// The provider cannot distinguish its resources from those of other clusters.
    #[error("the cloud has no cluster id: tag its resources with one, or give --allow-untagged-cloud")]
    NoClusterId,
    /// The API client cannot be built.
    #[error("cannot build the Kubernetes client: {0}")]
    Client(#[from] kube::Error),
    /// There is no thread for the leader election.
    #[error("cannot run the leader election: {0}")]
    ElectionThread(std::io::Error),
    /// The secure port cannot be served.
    #[error(transparent)]
    Serving(#[from] serving::ServingError),
    /// `--webhooks` names what is not there.
    #[error("{0}")]
    Webhooks(String),
    /// A controller is configured wrongly.
    #[error(transparent)]
    Wiring(#[from] WiringError),
}

/// Shorthand for results of the start of a manager.
pub(super) type StartResult<T> = Result<T, ManagerStartError>;

/// A controller is configured wrongly.
#[derive(Debug, thiserror::Error)]
#[error("{controller}: {reason}")]
pub struct WiringError {
    pub(super) controller: &'static str,
    pub(super) reason: String,
}
