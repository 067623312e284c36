//! Where the parts of a manager get their clients from.

use crate::runtime::leader_election::Leadership;

/// Clients by who asks, so that audit logs and priority levels can tell controllers apart.
pub trait ClientSource: Send + Sync {
    /// A client whose user agent names `component`.
    fn component(&self, component: &str) -> Result<kube::Client, kube::Error>;
    /// A client for a controller or the provider, which writes only while `leadership` holds; under
    /// `--use-service-account-credentials` it acts as ServiceAccount `account`.
    fn controller(&self, account: &str, leadership: &Leadership) -> Result<kube::Client, kube::Error>;
    /// A client for watches, which may stay silent for long.
    fn watches(&self) -> Result<kube::Client, kube::Error>;
    /// A client for the reviews of the secure port, which limits them itself.
    fn reviews(&self) -> Result<kube::Client, kube::Error> {
        self.component("secure-port")
    }
    /// A client for the leader election, which shares nothing with others. Called on the runtime that the election runs on.
    fn election(&self) -> Result<kube::Client, kube::Error> {
        self.component("leader-election")
    }
}
