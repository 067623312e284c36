//! A TLS client that trusts every server, for raw bytes to the secure port, which signs its own certificate.

use std::sync::Arc;

use kube::{Config, client::ConfigExt};
use rustls::crypto::aws_lc_rs;
use tokio_rustls::TlsConnector;

/// Returns a connector that offers one protocol, `http/1.1` or `h2`.
pub(crate) fn connector(protocol: &str) -> TlsConnector {
    let _ = aws_lc_rs::default_provider().install_default();
    let mut config = Config::new("https://localhost".parse().unwrap());
    (config.accept_invalid_certs, config.root_cert) = (true, Some(Vec::new()));
    let mut tls = config.rustls_client_config().unwrap();
    tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(tls))
}
