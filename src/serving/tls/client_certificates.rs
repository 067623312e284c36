//! The handshake's rule for client certificates: any is welcome, if the client can sign with its key.
//!
//! In: the client's certificate and its signature over the handshake. Out: proof of possession, nothing about trust. A chain
//! that is too long is refused here, because it is kept as long as the connection.

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

/// Bytes of a chain. A certificate has one or two thousand, a chain two or three certificates.
const CHAIN_LIMIT: usize = 16 * 1024;

/// Accepts every client certificate whose key signed the handshake.
#[derive(Debug)]
pub(super) struct AnyClientCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyClientCertificate {
    pub(super) fn new(provider: &CryptoProvider) -> Self {
        Self { algorithms: provider.signature_verification_algorithms }
    }
}

impl ClientCertVerifier for AnyClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let length = end_entity.len() + intermediates.iter().map(|certificate| certificate.len()).sum::<usize>();
        if length > CHAIN_LIMIT {
            return Err(Error::General(format!("the chain of the client's certificate has more than {CHAIN_LIMIT} bytes")));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs;

    use super::*;

    #[test]
    fn a_chain_is_bounded() {
        let any = AnyClientCertificate::new(&aws_lc_rs::default_provider());
        let certificate = |length: usize| CertificateDer::from(vec![0; length]);
        let accepted = |leaf: usize, others: &[usize]| {
            let others: Vec<_> = others.iter().map(|length| certificate(*length)).collect();
            any.verify_client_cert(&certificate(leaf), &others, UnixTime::now()).is_ok()
        };
        let rows: [(usize, &[usize], bool); 4] =
            [(2000, &[], true), (2000, &[2000, 2000], true), (CHAIN_LIMIT + 1, &[], false), (2000, &[CHAIN_LIMIT], false)];
        for (leaf, others, expected) in rows {
            assert_eq!(accepted(leaf, others), expected, "{leaf} {others:?}");
        }
    }
}
