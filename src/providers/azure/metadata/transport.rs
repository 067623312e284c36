//! Transport to the metadata service: HTTP/1.1 without TLS, a connection for each request, and never through a proxy.
//!
//! The transport to ARM keeps certificates and connections in memory, which is too much for a process on each node that sends two
//! requests in five minutes.

use std::{io, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{Either, select};
use http::{HeaderValue, Request, Response, header::HOST};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::providers::azure::transport::{ArmTransport, ArmTransportError, MaxBodySize};

/// Timeout from the connection to the last byte of the body, for callers without a timeout.
const TIMEOUT: Duration = Duration::from_secs(60);

/// [`ArmTransport`] over a separate TCP connection for each request.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainHttpTransport;

#[async_trait]
impl ArmTransport for PlainHttpTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        let late = |_| Err(ArmTransportError::NoAnswer("time limit reached".to_owned()));
        tokio::time::timeout(TIMEOUT, exchange(request)).await.unwrap_or_else(late)
    }
}

async fn exchange(request: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
    let max_size = MaxBodySize::of(&request);
    let not_sent = |error: &dyn std::fmt::Display| ArmTransportError::NotSent(error.to_string());
    let (request, address) = in_origin_form(request).map_err(|error| not_sent(&error))?;
    let stream = TcpStream::connect(address).await.map_err(|error| not_sent(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| not_sent(&error))?;
    let exchange = Box::pin(async move {
        let response = sender.send_request(request.map(Full::new)).await.map_err(|error| lost(&error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, max_size.0).collect().await.map_err(|error| unread(error.as_ref(), max_size))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    });
    // The connection must be polled while the exchange waits. After its end, received bytes can still be read.
    match select(exchange, Box::pin(connection)).await {
        Either::Left((response, _)) => response,
        Either::Right((_, exchange)) => exchange.await,
    }
}

fn unread(error: &(dyn std::error::Error + 'static), max_size: MaxBodySize) -> ArmTransportError {
    if error.is::<LengthLimitError>() { ArmTransportError::TooLarge(max_size) } else { lost(error) }
}

fn lost(error: &dyn std::error::Error) -> ArmTransportError {
    ArmTransportError::NoAnswer(error.to_string())
}

/// Returns the request in origin form, with the path alone and the server in `Host`, and the address to connect to.
fn in_origin_form(request: Request<Bytes>) -> io::Result<(Request<Bytes>, String)> {
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {reason}", request.uri()));
    if request.uri().scheme_str() != Some("http") {
        return Err(invalid("the metadata service uses plain HTTP; expected http://host[:port]"));
    }
    let host = request.uri().host().ok_or_else(|| invalid("the host is missing"))?;
    let port = request.uri().port_u16();
    let address = format!("{host}:{}", port.unwrap_or(80));
    let host = port.map_or_else(|| host.to_owned(), |_| address.clone());
    let host = HeaderValue::try_from(host).map_err(|error| invalid(&error.to_string()))?;
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse().map_err(|_| invalid("the path is missing"))?;
    let (mut parts, body) = request.into_parts();
    parts.uri = path;
    parts.headers.insert(HOST, host);
    Ok((Request::from_parts(parts, body), address))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// Serves `head`, then zeros for as long as the client reads. Returns the URL.
    async fn endless(head: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(head.as_bytes()).await;
            while socket.write_all(&[b'0'; 1 << 16]).await.is_ok() {}
        });
        format!("http://{address}/metadata/instance")
    }

    #[tokio::test]
    async fn an_endless_body_is_read_up_to_the_limit() {
        let url = endless("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await;
        let error = PlainHttpTransport.send(Request::get(url).body(Bytes::new()).unwrap()).await.unwrap_err();
        assert_eq!(error, ArmTransportError::TooLarge(MaxBodySize::default()));
    }

    /// Returns `Host`, the path, and the address to connect to.
    fn form(url: &str) -> Result<[String; 3], String> {
        let request = Request::get(url).body(Bytes::new()).map_err(|error| error.to_string())?;
        let (request, address) = in_origin_form(request).map_err(|error| error.to_string())?;
        Ok([request.headers()[HOST].to_str().unwrap().to_owned(), request.uri().to_string(), address])
    }

    #[test]
    fn requests_are_in_origin_form() {
        assert_eq!(
            form("http://169.254.169.254/metadata/instance?a=b"),
            Ok(["169.254.169.254", "/metadata/instance?a=b", "169.254.169.254:80"].map(str::to_owned))
        );
        assert_eq!(form("http://[::1]:81/x"), Ok(["[::1]:81", "/x", "[::1]:81"].map(str::to_owned)));
        assert!(form("https://localhost/x").unwrap_err().contains("plain HTTP"));
        assert!(form("/x").unwrap_err().contains("plain HTTP"));
    }
}
