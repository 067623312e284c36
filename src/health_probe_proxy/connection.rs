//! Connection of a client: its PROXY header, if it has one, and then its requests.
//!
//! In: an accepted socket. Out: the target's responses. Every wait ends and all input is bounded: the header by
//! [`proxy_header::LONGEST`] and [`HEAD`], heads of requests by [`HEAD_LIMIT`] and [`HEAD`], which bounds the pause before
//! the next request too.

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

/// For the PROXY header, and for each head of a request from the end of the last answer on.
const HEAD: Duration = Duration::from_secs(10);
/// Bytes of a request's head: the least that hyper works with, and many times a probe's.
const HEAD_LIMIT: usize = 8 * 1024;

/// A connection's life. A client that takes no answers gives its place back then.
const LIFETIME: Duration = Duration::from_secs(300);
/// Time for requests in flight at its end.
const LAST: Duration = Duration::from_secs(10);

type ServeError = Box<dyn std::error::Error + Send + Sync>;

/// Serves a connection until its client leaves, one of the limits is reached, or the shutdown begins.
pub(super) async fn serve(
    mut stream: TcpStream,
    peer: IpAddr,
    target: ProbeTarget,
    stop: &Shutdown,
) -> Result<(), ServeError> {
    let Some(header) = stop.run_until_begun(timeout(HEAD, read_header(&mut stream))).await else { return Ok(()) };
    let (source, rest) = header.map_err(|_| "no header in time")??;
    let client = source.unwrap_or(peer);
    let service = service_fn(move |request: Request<Incoming>| {
        let target = target.clone();
        async move { Ok::<_, Infallible>(target.respond(request, client).await) }
    });
    let (read, mut write) = stream.into_split();
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_LIMIT);
    let ends = stop.run_until_begun(sleep(LIFETIME));
    let served = {
        let stream = join(AsyncReadExt::chain(io::Cursor::new(rest), read), &mut write);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            biased;
            ended = connection.as_mut() => Ok(ended),
            _ = ends => {
                connection.as_mut().graceful_shutdown();
                timeout(LAST, connection).await
            }
        }
    };
    // A client that is gone needs no end.
    let _ = write.shutdown().await;
    Ok(served.map_err(|_| "the last answer was not taken in time")??)
}

/// Reads a PROXY header. Returns the address that it names, and the bytes that were read behind it.
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
