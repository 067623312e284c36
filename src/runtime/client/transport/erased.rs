//! Connections of any kind as one type.
//!
//! In: what connects to a server, directly or through a proxy. Out: the same as a boxed service. The stack of HTTP above is
//! compiled for each type of connection; with one type it is in the program once.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower::{BoxError, Service, ServiceExt, util::BoxCloneSyncService};

/// Connector with its type erased.
pub(super) type Connector = BoxCloneSyncService<Uri, ErasedConnection, BoxError>;

/// Returns `inner` with its connections wrapped in [`ErasedConnection`]s.
pub(super) fn erased<H>(inner: H) -> Connector
where
    H: Service<Uri> + Clone + Send + Sync + 'static,
    H::Response: Connection + Read + Write + Send + Unpin + 'static,
    H::Future: Send + 'static,
    H::Error: Into<BoxError>,
{
    let boxed = inner.map_response(|connection| ErasedConnection(Box::new(connection)));
    BoxCloneSyncService::new(boxed.map_err(Into::into))
}

trait AnyConnection: Connection + Read + Write + Send + Unpin {}
impl<T: Connection + Read + Write + Send + Unpin> AnyConnection for T {}

/// A connection of any kind.
pub(super) struct ErasedConnection(Box<dyn AnyConnection>);

impl Connection for ErasedConnection {
    fn connected(&self) -> Connected {
        self.0.connected()
    }
}

impl Read for ErasedConnection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for ErasedConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, parts)
    }
}
