//! The simulated Azure on a socket, over TLS with a certificate of its own: ARM, and whatever endpoints were added, on one address.

use std::{io, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::Azure;
use crate::{
    providers::azure::arm::TransportError,
    runtime::shutdown::Shutdown,
    sandbox::serve::{Certificates, handshake},
};

/// Largest body. Upstream: ARM's limit of 4 MiB.
const MAX_BODY: usize = 4 * 1024 * 1024;

/// A simulated Azure that listens.
pub struct Served {
    /// `https://127.0.0.1:port`.
    pub url: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Certificate that clients have to trust, PEM.
    pub ca_pem: String,
}

impl Azure {
    /// Serves HTTPS (HTTP/1.1 and 2) on `address` until `shutdown` begins; then open connections are cut.
    pub async fn serve(&self, address: SocketAddr, shutdown: &Shutdown) -> io::Result<Served> {
        self.serve_with(address, &Certificates::generate()?, shutdown).await
    }

    /// The same with certificates that others may share.
    pub async fn serve_with(
        &self,
        address: SocketAddr,
        certificates: &Certificates,
        shutdown: &Shutdown,
    ) -> io::Result<Served> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (azure, acceptor, token) = (self.clone(), certificates.acceptor(), shutdown.clone());
        shutdown.spawn(async move {
            tokio::select! {
                () = token.begun() => {}
                () = azure.accept(listener, acceptor, &token) => {}
            }
        });
        Ok(Served { url: format!("https://{address}"), address, ca_pem: certificates.ca.clone() })
    }

    async fn accept(&self, listener: TcpListener, acceptor: TlsAcceptor, shutdown: &Shutdown) {
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
                    () = token.begun() => {}
                    () = azure.connection(socket, acceptor) => {}
                }
            });
        }
    }

    async fn connection(self, socket: TcpStream, acceptor: TlsAcceptor) {
        // A socket that cannot be set up is closed already.
        let _ = socket.set_nodelay(true);
        let Some(socket) = handshake(&acceptor, socket).await else { return };
        let service = hyper::service::service_fn(move |request| {
            let azure = self.clone();
            async move { azure.answer(request).await }
        });
        if let Err(error) = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await {
            tracing::debug!(error, "connection ended");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(io::Error::other)?.to_bytes();
        let answer = self.respond(Request::from_parts(parts, body)).await;
        let broken = |error: TransportError| io::Error::new(io::ErrorKind::ConnectionReset, error);
        answer.map(|response| response.map(Full::new)).map_err(broken)
    }
}
