//! Bundle of CA certificates, which verifies chains.
//!
//! In: PEM. Out: the verification of the certificates of a connection.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use rustls::{
    RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

/// Bundle of CA certificates.
#[derive(Clone)]
pub(super) struct CaBundle {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for CaBundle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Bundle")
    }
}

impl CaBundle {
    /// Reads a PEM bundle.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| format!("not PEM: {error}"))?;
            roots.add(certificate).map_err(|error| format!("not a CA certificate: {error}"))?;
        }
        if roots.is_empty() {
            return Err("no CERTIFICATE block".to_owned());
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self { verifier: verifier.map_err(|error| error.to_string())? })
    }

    /// Checks that a chain, leaf first, leads to one of the CAs and is for clients and valid `now`.
    pub(super) fn verify(&self, chain: &[CertificateDer<'static>], now: Timestamp) -> Result<(), String> {
        let (leaf, intermediates) = chain.split_first().ok_or("no certificate")?;
        let now = std::time::Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
        let verified = self.verifier.verify_client_cert(leaf, intermediates, UnixTime::since_unix_epoch(now));
        verified.map(|_| ()).map_err(|error| error.to_string())
    }
}
