//! The port on which probes arrive, for IPv4 and IPv6.
//!
//! In: a port. Out: connections with the addresses that they come from.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
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
    local: SocketAddr,
}

impl ProbeListener {
    /// Listens on all addresses of the machine; on those of IPv4 alone where the kernel has no IPv6.
    pub(super) fn bind(port: u16) -> Result<Self, ListenError> {
        let both = listen((Ipv6Addr::UNSPECIFIED, port).into());
        let bound = match both {
            Err(error) if has_no_ipv6(&error) => listen((Ipv4Addr::UNSPECIFIED, port).into()),
            bound => bound,
        };
        bound.map_err(|source| ListenError { port, source })
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) async fn accept(&self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, client) = self.listener.accept().await?;
        Ok((stream, client.ip().to_canonical()))
    }
}

fn listen(address: SocketAddr) -> io::Result<ProbeListener> {
    let options = ListenOptions { only_v6: false, share_port: false, buffer: SOCKET_BUFFER, backlog: BACKLOG };
    let listener = listen_socket::listen(address, options)?;
    Ok(ProbeListener { local: listener.local_addr()?, listener })
}

/// Returns `true` for the errors of a kernel that was built or started without IPv6.
fn has_no_ipv6(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable) || error.raw_os_error() == Some(EAFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_families_are_served_and_a_taken_port_is_named() {
        let listener = ProbeListener::bind(0).unwrap();
        let port = listener.local().port();
        for client in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            // A machine without IPv6 has one family to serve.
            if client.is_ipv6() && listener.local().is_ipv4() {
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
