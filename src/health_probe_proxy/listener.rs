//! Port for probes, on IPv4 and IPv6.
//!
//! In: a port. Out: a listening socket, and its address.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

use crate::runtime::listen_socket::{self, ListenOptions};

const BACKLOG: i32 = 128;
/// Bytes that the kernel buffers per connection and direction; a probe has a few hundred.
const SOCKET_BUFFER: usize = 16 * 1024;

/// Error of a port that is not available.
#[derive(Debug, thiserror::Error)]
#[error("--health-check-port: cannot listen on port {port}: {source}")]
pub struct ListenError {
    port: u16,
    source: io::Error,
}

/// Listens on all addresses of the machine, or only on IPv4 if the kernel has no IPv6. Also returns the listener's address.
pub(super) fn bind(port: u16) -> Result<(TcpListener, SocketAddr), ListenError> {
    let options = ListenOptions { only_v6: false, share_port: false, buffer: SOCKET_BUFFER, backlog: BACKLOG };
    let bound = listen_socket::listen_everywhere(port, options).and_then(|listener| {
        let local = listener.local_addr()?;
        Ok((listener, local))
    });
    bound.map_err(|source| ListenError { port, source })
}
