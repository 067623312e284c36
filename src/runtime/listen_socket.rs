//! Listening sockets. In: an address and the limits of kernel buffers. Out: a listener whose address a restart can bind at
//! once.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

/// Options of a listening socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListenOptions {
    /// Whether an IPv6 address serves IPv6 alone.
    pub(crate) only_v6: bool,
    /// Whether other processes may listen on the same port (`SO_REUSEPORT`).
    pub(crate) share_port: bool,
    /// Size of the kernel buffers of one connection, in bytes per direction.
    pub(crate) buffer: usize,
    /// Maximum number of connections that wait to be accepted.
    pub(crate) backlog: i32,
}

/// Opens a listening socket on `address`.
pub(crate) fn listen(address: SocketAddr, options: ListenOptions) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(options.only_v6)?;
    }
    // On Linux Go sets this always, so that a restart does not wait for old connections to time out; a second listener on
    // the same port remains impossible without SO_REUSEPORT. --permit-address-sharing therefore adds nothing.
    #[cfg(not(unix))]
    if options.share_port {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "several processes cannot share a port on this system"));
    }
    // On Windows SO_REUSEADDR would let another process take over the port, and a restart does not wait without it.
    #[cfg(unix)]
    {
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(options.share_port)?;
    }
    socket.set_send_buffer_size(options.buffer)?;
    socket.set_recv_buffer_size(options.buffer)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    TcpListener::from_std(socket.into())
}

/// Opens a listening socket on all addresses of the machine; on those of IPv4 alone where IPv6 cannot be used.
pub(crate) fn listen_everywhere(port: u16, options: ListenOptions) -> io::Result<TcpListener> {
    match listen((Ipv6Addr::UNSPECIFIED, port).into(), ListenOptions { only_v6: false, ..options }) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => listen((Ipv4Addr::UNSPECIFIED, port).into(), options),
        bound => bound,
    }
}

/// Configures a connection to end with a reset, after which the kernel keeps no state.
pub(crate) fn reset_when_dropped(stream: &TcpStream) {
    // A closed connection cannot be configured, which is harmless.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
