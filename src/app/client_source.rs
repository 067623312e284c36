//! Where the parts of a manager get their clients from.

use std::sync::Arc;

use crate::{
    runtime::{client::read_only, leader_election::Leadership},
    serving::ReviewClients,
};

/// Clients by who asks, so that audit logs and priority levels can tell controllers apart.
pub trait ClientSource: Send + Sync {
    /// A client whose user agent names `component`.
    fn component(&self, component: &str) -> Result<kube::Client, kube::Error>;
    /// A client for a controller or the provider, which writes only while `leadership` holds; under
    /// `--use-service-account-credentials` it acts as ServiceAccount `account`.
    fn controller(&self, account: &str, leadership: &Leadership) -> Result<kube::Client, kube::Error>;
    /// A client for watches, which may stay silent for long.
    fn watches(&self) -> Result<kube::Client, kube::Error>;
    /// Clients for the reviews of the secure port, which limits them itself.
    fn reviews(&self) -> Result<ReviewClients, kube::Error> {
        self.component("secure-port").map(ReviewClients::from)
    }
    /// A client for the leader election, which shares nothing with others. Called on the runtime that the election runs on.
    fn election(&self) -> Result<kube::Client, kube::Error> {
        self.component("leader-election")
    }
}

/// The same clients, which only read: for a preview or a shadow manager. There are no other accounts, since a token for one is asked for
/// with a write.
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
