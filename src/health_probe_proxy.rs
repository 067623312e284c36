//! `health-probe-proxy`: serves health probes that begin with a header of the PROXY protocol, which kube-proxy does not support.
//!
//! In: [`ProbeProxySettings`], and connections from Azure's load balancer. Out: kube-proxy's responses, unchanged, which decide
//! whether the Node gets traffic. Azure sends the header before its probes if a private link service enables it. Upstream:
//! `health-probe-proxy` of kubernetes-sigs/cloud-provider-azure.
//!
//! ```text
//! probe ─► listener ─► slots ─► connection: proxy_header, then HTTP/1.1 ─► reverse_proxy ─► kube-proxy on the loopback
//! ```

mod connection;
mod forwarded;
mod listener;
pub mod proxy_header;
mod reverse_proxy;
mod slots;

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

pub use listener::ListenError;

use crate::runtime::{listen_socket::reset_when_dropped, shutdown::Shutdown};
use reverse_proxy::ProbeTarget;
use slots::ProbeSlots;

/// Time that open connections may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// Delay after a failed accept, because an immediate retry would loop if the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Address of the proxy and its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeProxySettings {
    /// `--health-check-port`.
    pub health_check_port: u16,
    /// `--target-port`.
    pub target_port: u16,
}

/// Serves probes until the shutdown begins, then completes those in flight.
///
/// # Errors
///
/// The port is not available.
pub async fn run(settings: ProbeProxySettings, stop: &Shutdown) -> Result<(), ListenError> {
    let (listener, address) = listener::bind(settings.health_check_port)?;
    tracing::info!(
        %address,
        target_port = settings.target_port,
        "serving health probes with or without a PROXY header"
    );
    let connections = Shutdown::new();
    let slots = ProbeSlots::default();
    let target = ProbeTarget::new(loopback(settings.target_port));
    while let Some(accepted) = stop.run_until_begun(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                let client = peer.ip().to_canonical();
                let Some(slot) = slots.acquire(client) else {
                    tracing::debug!(%client, "too many connections");
                    reset_when_dropped(&stream);
                    continue;
                };
                let (target, until) = (target.clone(), connections.clone());
                connections.spawn(async move {
                    if let Err(error) = connection::serve(stream, client, target, &until).await {
                        tracing::debug!(%client, %error, "connection ended");
                    }
                    drop(slot);
                });
            }
            Err(error) => wait_after(&error).await,
        }
    }
    drop(listener);
    connections.begin();
    connections.drain(GRACE).await;
    Ok(())
}

async fn wait_after(error: &io::Error) {
    tracing::warn!(%error, "cannot accept connections; retrying");
    tokio::time::sleep(ACCEPT_RETRY).await;
}

/// Returns the addresses of localhost without a name lookup.
fn loopback(port: u16) -> [SocketAddr; 2] {
    [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
}
