//! Connection of a client: its PROXY header, if it has one, and then its requests.
//!
//! In: an accepted socket. Out: the target's responses. All waits and all input are bounded: the header by
//! [`proxy_header::LONGEST`] and [`HEAD_TIMEOUT`], heads of requests by [`HEAD_LIMIT`] and [`HEAD_TIMEOUT`], which also bounds the
//! pause before the next request.

use std::{convert::Infallible, io, net::IpAddr, pin::pin, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, join},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{
    proxy_header::{self, ProxyHeader},
    reverse_proxy::ProbeTarget,
};
use crate::runtime::shutdown::Shutdown;

/// Time limit of the PROXY header, and of each head of a request, counted from the end of the previous response.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes of a request's head: the minimum of hyper, and many times that of a probe.
const HEAD_LIMIT: usize = 8 * 1024;

/// Maximum lifetime of a connection, after which a client that reads no responses loses its slot.
const MAX_LIFETIME: Duration = Duration::from_secs(300);
/// Time that requests in flight get at the end of that lifetime.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

type ServeError = Box<dyn std::error::Error + Send + Sync>;

/// Serves a connection until its client leaves, one of the limits is reached, or the shutdown begins.
pub(super) async fn serve(
    mut stream: TcpStream,
    peer: IpAddr,
    target: ProbeTarget,
    stop: &Shutdown,
) -> Result<(), ServeError> {
    let Some(header) = stop.run_until_begun(timeout(HEAD_TIMEOUT, read_header(&mut stream))).await else { return Ok(()) };
    let (source, rest) = header.map_err(|_| "the PROXY header did not arrive in time")??;
    let client = source.unwrap_or(peer);
    let service = service_fn(move |request: Request<Incoming>| {
        let target = target.clone();
        async move { Ok::<_, Infallible>(target.respond(request, client).await) }
    });
    let (read, mut write) = stream.into_split();
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_LIMIT);
    let ends = stop.run_until_begun(sleep(MAX_LIFETIME));
    let served = {
        let stream = join(AsyncReadExt::chain(io::Cursor::new(rest), read), &mut write);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            biased;
            ended = connection.as_mut() => Ok(ended),
            _ = ends => {
                connection.as_mut().graceful_shutdown();
                timeout(DRAIN_TIMEOUT, connection).await
            }
        }
    };
    // The client may have closed the connection already.
    let _ = write.shutdown().await;
    Ok(served.map_err(|_| "the client did not read the last response in time")??)
}

/// Reads a PROXY header. Returns the source address in it, and the bytes that were read after it.
async fn read_header(stream: &mut TcpStream) -> io::Result<(Option<IpAddr>, Bytes)> {
    let mut read = BytesMut::with_capacity(512);
    loop {
        match proxy_header::parse(&read) {
            ProxyHeader::Absent => return Ok((None, read.freeze())),
            ProxyHeader::Present { length, source } => {
                read.advance(length);
                return Ok((source, read.freeze()));
            }
            ProxyHeader::Malformed(reason) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("malformed PROXY header: {reason}")));
            }
            ProxyHeader::Incomplete if stream.read_buf(&mut read).await? == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            ProxyHeader::Incomplete => {}
        }
    }
}
