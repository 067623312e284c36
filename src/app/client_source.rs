//! Source of the Kubernetes clients of a manager's components.

use std::sync::Arc;

use crate::{
    runtime::{client::read_only, leader_election::Leadership},
    serving::ReviewClients,
};

/// Source of a client per component, so that audit logs and priority levels can distinguish controllers.
pub trait ClientSource: Send + Sync {
    /// Returns a client whose user agent names `component`.
    fn component(&self, component: &str) -> Result<kube::Client, kube::Error>;
    /// Returns a client for a controller or the provider, which writes only while `leadership` holds.
    ///
    /// With `--use-service-account-credentials`, it acts as ServiceAccount `account`.
    fn controller(&self, account: &str, leadership: &Leadership) -> Result<kube::Client, kube::Error>;
    /// Returns a client for watches, which may be silent for long.
    fn watches(&self) -> Result<kube::Client, kube::Error>;
    /// Returns clients without a rate limit for the access reviews of the secure port, which has its own limits.
    fn reviews(&self) -> Result<ReviewClients, kube::Error> {
        self.component("secure-port").map(ReviewClients::from)
    }
    /// Returns a client for the leader election, which shares no connections with others. Called on the runtime that the
    /// election runs on.
    fn election(&self) -> Result<kube::Client, kube::Error> {
        self.component("leader-election")
    }
}

/// Clients that only read, for a plan or a dry run.
pub(super) struct ReadOnlyClients(pub(super) Arc<dyn ClientSource>);

impl ClientSource for ReadOnlyClients {
    fn component(&self, component: &str) -> Result<kube::Client, kube::Error> {
        self.0.component(component).map(read_only)
    }

    fn controller(&self, account: &str, leadership: &Leadership) -> Result<kube::Client, kube::Error> {
        self.0.controller(account, leadership).map(read_only)
    }

    fn watches(&self) -> Result<kube::Client, kube::Error> {
        self.0.watches().map(read_only)
    }

    fn reviews(&self) -> Result<ReviewClients, kube::Error> {
        let ReviewClients { authentication, authorization } = self.0.reviews()?;
        Ok(ReviewClients { authentication: read_only(authentication), authorization: read_only(authorization) })
    }

    fn election(&self) -> Result<kube::Client, kube::Error> {
        self.0.election().map(read_only)
    }
}
