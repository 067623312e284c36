//! The server on a socket, for kubectl and for programs in other processes: plain HTTP, or TLS with a certificate of its own.

use std::{io, net::IpAddr, path::Path, sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::api_server::ApiServer;
use crate::runtime::{shutdown::Shutdown, yaml};

/// Largest body. Upstream: `MaxRequestBodyBytes` of apiserver.
const MAX_BODY: usize = 3 * 1024 * 1024;
/// Time limit of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A private CA, and the certificate that it signed for the server.
pub struct Certificates {
    /// Certificate of the CA, PEM; clients trust it.
    pub ca: String,
    config: Arc<rustls::ServerConfig>,
}

impl Certificates {
    /// Returns a fresh CA and a certificate for `localhost` and the loopback addresses.
    pub fn generate() -> io::Result<Self> {
        Self::for_names(&[])
    }

    /// Creates certificates for further host names.
    pub fn for_names(names: &[&str]) -> io::Result<Self> {
        Self::signed(names).map_err(|error| io::Error::other(format!("cannot make the sandbox's certificate: {error}")))
    }

    fn signed(names: &[&str]) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "sandbox-ca");
        let ca_certificate = ca.self_signed(&ca_key)?;
        let issuer = Issuer::new(ca, ca_key);
        let key = KeyPair::generate()?;
        let mut server = CertificateParams::new(
            ["localhost", "kubernetes"].iter().chain(names).map(|name| (*name).to_owned()).collect::<Vec<_>>(),
        )?;
        for address in ["127.0.0.1", "::1"] {
            server.subject_alt_names.push(SanType::IpAddress(address.parse::<IpAddr>()?));
        }
        let certificate = server.signed_by(&key, &issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { ca: ca_certificate.pem(), config: Arc::new(config) })
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

/// Performs the TLS handshake; `None` if the client does not complete it in time.
pub(super) async fn handshake(acceptor: &TlsAcceptor, socket: TcpStream) -> Option<TlsStream<TcpStream>> {
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(socket)).await {
        Ok(Ok(socket)) => return Some(socket),
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
    None
}

impl ApiServer {
    /// Serves plain HTTP until `shutdown` begins; then open connections are cut.
    pub async fn serve(&self, listener: TcpListener, shutdown: Shutdown) -> io::Result<()> {
        self.accept(listener, None, shutdown).await
    }

    /// Serves HTTPS until `shutdown` begins.
    pub async fn serve_tls(&self, listener: TcpListener, certificates: &Certificates, shutdown: Shutdown) -> io::Result<()> {
        self.accept(listener, Some(certificates.acceptor()), shutdown).await
    }

    async fn accept(&self, listener: TcpListener, tls: Option<TlsAcceptor>, shutdown: Shutdown) -> io::Result<()> {
        loop {
            let (socket, _) = tokio::select! {
                biased;
                () = shutdown.begun() => return Ok(()),
                accepted = listener.accept() => accepted?,
            };
            socket.set_nodelay(true)?;
            let (server, tls, token) = (self.clone(), tls.clone(), shutdown.clone());
            shutdown.spawn(async move {
                let connection = async {
                    match tls {
                        None => server.connection(socket).await,
                        Some(tls) => {
                            if let Some(socket) = handshake(&tls, socket).await {
                                server.connection(socket).await;
                            }
                        }
                    }
                };
                tokio::select! {
                    biased;
                    () = token.begun() => {}
                    () = connection => {}
                }
            });
        }
    }

    async fn connection(self, socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = hyper::service::service_fn(move |request| {
            let server = self.clone();
            async move { server.serve_request(request).await }
        });
        let builder = Builder::new(TokioExecutor::new());
        if let Err(error) = builder.serve_connection(TokioIo::new(socket), service).await {
            tracing::debug!(error, "connection ended");
        }
    }

    async fn serve_request(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(io::Error::other)?.to_bytes();
        self.respond(Request::from_parts(parts, body)).await
    }

    /// Writes a kubeconfig for this server at `url`. Any token is accepted.
    pub fn write_kubeconfig(path: &Path, url: &str, certificates: Option<&Certificates>) -> io::Result<()> {
        std::fs::write(path, yaml::print(&kubeconfig(url, certificates)).map_err(io::Error::other)?)
    }
}

fn kubeconfig(url: &str, certificates: Option<&Certificates>) -> Value {
    let mut cluster = json!({"server": url});
    if let Some(certificates) = certificates {
        let ca = k8s_openapi::ByteString(certificates.ca.clone().into_bytes());
        cluster["certificate-authority-data"] = serde_json::to_value(ca).unwrap_or_default();
    }
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": "sandbox", "user": {"token": "sandbox"}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox", "namespace": "default"}}],
    })
}
