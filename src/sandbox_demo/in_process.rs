//! Clients of a manager that runs in the process of its API server. In: the server. Out: a client for each account, without sockets.

use crate::{app::manager::ClientSource, runtime::leader_election::Leadership, sandbox::api_server::ApiServer};

/// Clients that reach the API server in-process.
pub struct InProcess(pub ApiServer);

impl ClientSource for InProcess {
    fn component(&self, component: &str) -> Result<kube::Client, kube::Error> {
        Ok(self.0.client_as(&format!("cloud-controller-manager/{component}")))
    }
    fn controller(&self, account: &str, _: &Leadership) -> Result<kube::Client, kube::Error> {
        self.component(account)
    }
    fn watches(&self) -> Result<kube::Client, kube::Error> {
        self.component("shared-informers")
    }
}
