//! The port on which probes arrive, for IPv4 and IPv6.
//!
//! In: a port. Out: connections with the addresses that they come from.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use tokio::net::{TcpListener, TcpStream};

use crate::runtime::listen_socket::{self, ListenOptions};

const BACKLOG: i32 = 128;
/// Bytes that the kernel holds of one connection in each direction: a probe has a few hundred.
const SOCKET_BUFFER: usize = 16 * 1024;

/// The port is unavailable, so no probe would be received.
#[derive(Debug, thiserror::Error)]
#[error("--health-check-port: cannot listen on port {port}: {source}")]
pub struct ListenError {
    port: u16,
    source: io::Error,
}

pub(super) struct ProbeListener {
    listener: TcpListener,
    pub(super) local: SocketAddr,
}

impl ProbeListener {
    /// Listens on all addresses of the machine; on those of IPv4 alone where the kernel has no IPv6.
    pub(super) fn bind(port: u16) -> Result<Self, ListenError> {
        let options = ListenOptions { only_v6: false, share_port: false, buffer: SOCKET_BUFFER, backlog: BACKLOG };
        let bound = listen_socket::listen_everywhere(port, options)
            .and_then(|listener| Ok(Self { local: listener.local_addr()?, listener }));
        bound.map_err(|source| ListenError { port, source })
    }

    pub(super) async fn accept(&self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, client) = self.listener.accept().await?;
        Ok((stream, client.ip().to_canonical()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[tokio::test]
    async fn both_families_are_served_and_a_taken_port_is_named() {
        let listener = ProbeListener::bind(0).unwrap();
        let port = listener.local.port();
        for client in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            // A machine without IPv6 has one family to serve.
            if client.is_ipv6() && listener.local.is_ipv4() {
                continue;
            }
            let (connected, accepted) = tokio::join!(TcpStream::connect((client, port)), listener.accept());
            connected.unwrap();
            assert_eq!(accepted.unwrap().1, client);
        }
        let refused = ProbeListener::bind(port).err().unwrap().to_string();
        assert!(refused.starts_with(&format!("--health-check-port: cannot listen on port {port}: ")), "{refused}");
    }
}
