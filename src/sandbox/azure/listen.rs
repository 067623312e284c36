//! Simulated Azure on a socket, over TLS with a certificate of its own: ARM, and the added endpoints, on one address.
//!
//! Plain HTTP is for metadata services, which have no other.

use std::{io, net::SocketAddr};

use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use super::{
    Azure,
    delivery::{Delivery, PacedBody},
    request::MOST_BYTES,
};
use crate::{
    providers::azure::transport::ArmTransportError,
    runtime::shutdown::Shutdown,
    sandbox::serve::{Certificates, handshake},
};

/// Largest body that is read. A body that is larger than ARM's limit, but not larger than this, gets a refusal.
const MAX_BODY: usize = 2 * MOST_BYTES;

/// A simulated Azure that listens.
pub struct Served {
    /// `https://127.0.0.1:port`.
    pub url: String,
    pub address: SocketAddr,
    /// Certificate that clients must trust, PEM.
    pub ca_pem: String,
}

impl Azure {
    /// Serves HTTPS (HTTP/1.1 and 2) on `address` until `shutdown` begins; then open connections are cut.
    pub async fn serve(&self, address: SocketAddr, shutdown: &Shutdown) -> io::Result<Served> {
        self.serve_with(address, &Certificates::generate()?, shutdown).await
    }

    /// Serves with certificates that others may share.
    pub async fn serve_with(
        &self,
        address: SocketAddr,
        certificates: &Certificates,
        shutdown: &Shutdown,
    ) -> io::Result<Served> {
        let address = self.listen(address, Some(certificates.acceptor()), shutdown).await?;
        Ok(Served { url: format!("https://{address}"), address, ca_pem: certificates.ca.clone() })
    }

    /// Serves plain HTTP on `address` until `shutdown` begins. Returns the address that it listens on.
    pub async fn serve_plain(&self, address: SocketAddr, shutdown: &Shutdown) -> io::Result<SocketAddr> {
        self.listen(address, None, shutdown).await
    }

    async fn listen(
        &self,
        address: SocketAddr,
        acceptor: Option<TlsAcceptor>,
        shutdown: &Shutdown,
    ) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (azure, token) = (self.clone(), shutdown.clone());
        shutdown.spawn(async move {
            tokio::select! {
                biased;
                () = token.begun() => {}
                () = azure.accept(listener, acceptor, &token) => {}
            }
        });
        Ok(address)
    }

    async fn accept(&self, listener: TcpListener, acceptor: Option<TlsAcceptor>, shutdown: &Shutdown) {
        loop {
            let (socket, _) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "the simulated Azure cannot accept a connection");
                    return;
                }
            };
            let (azure, acceptor, token) = (self.clone(), acceptor.clone(), shutdown.clone());
            shutdown.spawn(async move {
                tokio::select! {
                    biased;
                    () = token.begun() => {}
                    () = azure.opened(socket, acceptor) => {}
                }
            });
        }
    }

    async fn opened(self, socket: TcpStream, acceptor: Option<TlsAcceptor>) {
        // A socket that cannot be set up is closed already.
        let _ = socket.set_nodelay(true);
        let Some(acceptor) = acceptor else { return self.connection(socket).await };
        if let Some(socket) = handshake(&acceptor, socket).await {
            self.connection(socket).await;
        }
    }

    async fn connection(self, socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = hyper::service::service_fn(move |request| {
            let azure = self.clone();
            async move { azure.serve_request(request).await }
        });
        if let Err(error) = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await {
            tracing::debug!(error, "connection ended");
        }
    }

    async fn serve_request(&self, request: Request<Incoming>) -> io::Result<Response<PacedBody>> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(io::Error::other)?.to_bytes();
        let response = self.deliver(Request::from_parts(parts, body)).await;
        let broken = |error: ArmTransportError| io::Error::new(io::ErrorKind::ConnectionReset, error);
        response.map(Delivery::framed).map_err(broken)
    }
}
