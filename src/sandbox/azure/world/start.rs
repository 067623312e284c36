//! Starting a world: in process, or served with TLS on loopback for programs in other processes.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use super::{World, locked};
use crate::{
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::azure::{
        AzureOptions,
        topology::{Endpoints, Topology},
    },
};

/// Reason why a world cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Azure would not have such a cluster.
    #[error("the topology: {0}")]
    Topology(String),
    /// The socket or the file of the CA.
    #[error("serving the simulated cloud: {0}")]
    Serving(#[from] io::Error),
}

/// Settings of a world.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Behavior of ARM; subscription, region and zones are taken from the topology.
    pub azure: AzureOptions,
    /// Clock for the expiry of tokens.
    pub clock: Clock,
    /// Serve it on a socket.
    pub serving: Option<Serving>,
}

/// A socket on loopback.
#[derive(Debug, Clone, Default)]
pub struct Serving {
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Path that the certificate of the CA is written to, PEM: for `SSL_CERT_FILE`.
    pub ca_file: Option<PathBuf>,
    pub shutdown: Shutdown,
}

/// Returns the settings with those that a topology determines.
pub(super) fn options_for(topology: &Topology, options: AzureOptions) -> AzureOptions {
    AzureOptions {
        subscriptions: vec![topology.subscription.clone()],
        location: topology.location.clone(),
        zones: topology.region_zones.clone(),
        ..options
    }
}

/// Starts a world with the documents of `topology`; with [`Start::serving`] everything is behind one https URL, which
/// [`World::endpoints`] and [`World::config`] name.
pub async fn start_world(topology: Topology, start: Start) -> Result<World, StartError> {
    let started = World::new(topology, start.azure, start.clock)?;
    if let Some(serving) = start.serving {
        started.serve(serving).await?;
    }
    Ok(started)
}

impl World {
    /// Serves everything with TLS on loopback. Returns the URL, which the cloud names as its address from now on.
    pub async fn serve(&self, serving: Serving) -> Result<String, StartError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, serving.port));
        let served = self.azure().serve(address, &serving.shutdown).await?;
        if let Some(file) = &serving.ca_file {
            std::fs::write(file, &served.ca_pem)?;
        }
        *locked(&self.shared.endpoints) = Endpoints::behind(&served.url);
        Ok(served.url)
    }
}
