//! Certificate of a service principal: from PEM or PFX to a signing key and its chain. Pure.
//!
//! In: the bytes of a file and a password. Out: a [`CertificateSigner`], or an error about the file (never its content).
//! Upstream: `azidentity.ParseCertificates`.

use std::fmt;

use aws_lc_rs::{
    digest,
    rand::SystemRandom,
    rsa::KeyPair,
    signature::{KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding},
};
#[cfg(feature = "pfx")]
use p12_keystore::Pkcs12Archive;
#[cfg(feature = "pfx")]
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::parse_x509_certificate;

/// Algorithm that signs an assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureAlgorithm {
    /// RSA-PSS with SHA-256: Entra.
    Ps256,
    /// RSA PKCS#1 v1.5 with SHA-256, the only algorithm of AD FS.
    Rs256,
}

impl SignatureAlgorithm {
    fn encoding(self) -> &'static dyn RsaEncoding {
        match self {
            Self::Ps256 => &RSA_PSS_SHA256,
            Self::Rs256 => &RSA_PKCS1_SHA256,
        }
    }
}

/// RSA key and its certificates, with the certificate of the key first.
pub(super) struct CertificateSigner {
    key: KeyPair,
    chain: Vec<Vec<u8>>,
}

impl fmt::Debug for CertificateSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

impl CertificateSigner {
    /// Reads a PEM file (an unencrypted key, and certificates) or a PFX file.
    pub(super) fn read(file: &[u8], password: &str) -> Result<Self, String> {
        let (key, certificates) = if is_pem(file) { from_pem(file)? } else { from_pfx(file, password)? };
        let key = rsa(&key)?;
        let public = key.public_key().as_ref().to_vec();
        let (mut chain, others): (Vec<_>, Vec<_>) =
            certificates.into_iter().partition(|certificate| public_key(certificate).is_some_and(|found| found == public));
        if chain.is_empty() {
            return Err(format!("none of its {} certificates belongs to its private key", others.len()));
        }
        chain.truncate(1);
        chain.extend(others);
        Ok(Self { key, chain })
    }

    /// Returns the Unix time at which the certificate of the key expires.
    pub(super) fn expires(&self) -> Option<i64> {
        self.chain().first().and_then(|leaf| not_after(leaf))
    }

    /// Returns the certificates as DER, the certificate of the key first.
    pub(super) fn chain(&self) -> &[Vec<u8>] {
        &self.chain
    }

    /// Returns the digest of the certificate of the key.
    pub(super) fn thumbprint(&self, algorithm: &'static digest::Algorithm) -> Vec<u8> {
        let own = self.chain.first().map(Vec::as_slice).unwrap_or_default();
        digest::digest(algorithm, own).as_ref().to_vec()
    }

    pub(super) fn sign(&self, signature: SignatureAlgorithm, message: &[u8]) -> Result<Vec<u8>, String> {
        let mut signed = vec![0; self.key.public_modulus_len()];
        let outcome = self.key.sign(signature.encoding(), &SystemRandom::new(), message, &mut signed);
        outcome.map_err(|_| "its private key cannot sign".to_owned())?;
        Ok(signed)
    }
}

type KeyAndCertificates = (PrivateKeyDer<'static>, Vec<Vec<u8>>);

fn is_pem(file: &[u8]) -> bool {
    file.windows(11).any(|window| window == b"-----BEGIN ")
}

fn from_pem(file: &[u8]) -> Result<KeyAndCertificates, String> {
    if file.windows(21).any(|window| window == b"ENCRYPTED PRIVATE KEY") {
        return Err("its private key is encrypted: use a PFX file, or a PEM file without a password".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(file).map_err(|_| "it contains no readable private key".to_owned())?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(file).collect();
    let certificates = certificates.map_err(|_| "one of its certificates is not readable".to_owned())?;
    Ok((key, certificates.iter().map(|certificate| certificate.to_vec()).collect()))
}

#[cfg(not(feature = "pfx"))]
fn from_pfx(_file: &[u8], _password: &str) -> Result<KeyAndCertificates, String> {
    Err("not PEM, and this program was built without the feature `pfx`, which reads PFX files".to_owned())
}

#[cfg(feature = "pfx")]
fn from_pfx(file: &[u8], password: &str) -> Result<KeyAndCertificates, String> {
    let archive = Pkcs12Archive::from_pkcs12(file, password)
        .map_err(|_| "neither PEM nor a PFX file that this password (aadClientCertPassword) opens".to_owned())?;
    let key = match archive.keys.as_slice() {
        [key] => PrivatePkcs8KeyDer::from(key.key.as_der().to_vec()).into(),
        keys => return Err(format!("expected one private key, found {}", keys.len())),
    };
    Ok((key, archive.certs.iter().map(|bag| bag.cert.as_der().to_vec()).collect()))
}

fn rsa(key: &PrivateKeyDer<'_>) -> Result<KeyPair, String> {
    let parsed = match key {
        PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
        PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()),
        _ => return Err("its private key is not an RSA key".to_owned()),
    };
    parsed.map_err(|_| "its private key is not an RSA key of 2048 bits or more".to_owned())
}

fn not_after(certificate: &[u8]) -> Option<i64> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

fn public_key(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Some(parsed.public_key().subject_public_key.data.to_vec())
}

#[cfg(all(test, not(feature = "pfx")))]
mod tests_without_pfx {
    use super::*;
    use crate::providers::azure::auth::tests::certificates::make;

    #[test]
    fn pem_is_read_and_the_missing_feature_is_named() {
        let created = make("planted-password");
        assert_eq!(CertificateSigner::read(created.pem.as_bytes(), "").unwrap().chain()[0], created.leaf);
        let error = CertificateSigner::read(&created.pfx, "planted-password").unwrap_err();
        assert!(error.contains("feature `pfx`") && !error.contains("planted"), "{error}");
    }
}

#[cfg(all(test, feature = "pfx"))]
mod tests {
    use super::*;
    use crate::providers::azure::auth::tests::certificates::{TestCertificate, make};

    #[test]
    fn pem_and_pfx_yield_the_same_signer() {
        let TestCertificate { pem, pfx, old_pfx, leaf, .. } = make("planted-password");
        let password = "planted-password";
        for (file, password) in [(pem.as_bytes(), ""), (pem.as_bytes(), "unused"), (&pfx, password), (&old_pfx, password)] {
            let signer = CertificateSigner::read(file, password).unwrap();
            assert_eq!(signer.chain().len(), 2, "the whole chain is read");
            assert_eq!(signer.chain()[0], leaf, "the key's own certificate is first, though the file has it last");
            assert!(signer.expires().is_some_and(|end| end > 4_000_000_000), "rcgen's default is far ahead");
        }
        let unprotected = make("").pfx;
        assert!(CertificateSigner::read(&unprotected, "").is_ok(), "a PFX file may have an empty password");
    }

    #[test]
    fn a_truncated_file_is_refused() {
        let TestCertificate { pem, pfx, .. } = make("");
        for file in [pem.as_bytes(), &pfx] {
            let cuts = (0..file.len() - 30).step_by(61);
            assert!(cuts.map(|length| CertificateSigner::read(&file[..length], "")).all(|outcome| outcome.is_err()));
        }
    }

    #[test]
    fn errors_name_the_cause_without_content() {
        let TestCertificate { pem, pfx, key_pem, other_pem, .. } = make("planted-password");
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let elliptic = rcgen::KeyPair::generate().unwrap().serialize_pem() + &other_pem;
        let rows: [(&[u8], &str, &str); 7] = [
            (&pfx, "wrong", "aadClientCertPassword"),
            (b"garbage", "", "neither PEM"),
            (b"", "", "neither PEM"),
            (encrypted.as_bytes(), "", "encrypted"),
            (other_pem.as_bytes(), "", "no readable private key"),
            (key_pem.as_bytes(), "", "none of its 0 certificates"),
            (elliptic.as_bytes(), "", "not an RSA key"),
        ];
        for (file, password, expected) in rows {
            let error = CertificateSigner::read(file, password).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("planted") && !error.contains("MII"), "{error}");
        }
        let foreign = key_pem + &other_pem;
        assert!(CertificateSigner::read(foreign.as_bytes(), "").unwrap_err().contains("none of its 1 certificates"));
        let shown = format!("{:?}", CertificateSigner::read(pem.as_bytes(), "").unwrap());
        assert_eq!(shown, "Signer { certificates: 2, .. }");
    }
}
