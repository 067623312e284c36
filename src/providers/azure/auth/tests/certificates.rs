//! Certificates of applications for tests, and the verification of their signatures.

use aws_lc_rs::signature::{RsaParameters, UnparsedPublicKey};
use azure_core::base64;
use p12_keystore::{Certificate, EncryptionAlgorithm, KeyStore, KeyStoreEntry, MacAlgorithm, PrivateKey, PrivateKeyChain};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_RSA_SHA256};
use serde_json::Value as Json;
use x509_parser::parse_x509_certificate;

/// Certificate of an application in all formats.
pub(in crate::providers::azure::auth) struct TestCertificate {
    /// CA certificate, key, and the application's own certificate, which is not the order in which they are sent.
    pub(in crate::providers::azure::auth) pem: String,
    /// PFX file with the content of `pem`.
    pub(in crate::providers::azure::auth) pfx: Vec<u8>,
    /// PFX file with the algorithms of Windows and old OpenSSL.
    pub(in crate::providers::azure::auth) old_pfx: Vec<u8>,
    /// Application's own certificate as DER.
    pub(in crate::providers::azure::auth) leaf: Vec<u8>,
    /// Key of the application without certificates.
    pub(in crate::providers::azure::auth) key_pem: String,
    /// CA certificate without others.
    pub(in crate::providers::azure::auth) other_pem: String,
}

pub(in crate::providers::azure::auth) fn make(password: &str) -> TestCertificate {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::CommonName, "applications");
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let mut own = CertificateParams::default();
    own.distinguished_name.push(DnType::CommonName, "application");
    let certificate = own.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();

    let chain = [certificate.der(), ca_certificate.der()].map(|der| Certificate::from_der(der).unwrap());
    let private = PrivateKey::from_der(&key.serialize_der()).unwrap();
    let mut store = KeyStore::new();
    let entry = KeyStoreEntry::PrivateKeyChain(PrivateKeyChain::new("id", private, chain));
    store.add_entry("application", entry);
    let write = |algorithm, mac| {
        let writer = store.writer(password).encryption_iterations(10).mac_iterations(10);
        writer.encryption_algorithm(algorithm).mac_algorithm(mac).write().unwrap()
    };
    let pfx = write(EncryptionAlgorithm::PbeWithHmacSha256AndAes256, MacAlgorithm::HmacSha256);
    let old_pfx = write(EncryptionAlgorithm::PbeWithShaAnd3KeyTripleDesCbc, MacAlgorithm::HmacSha1);
    TestCertificate {
        pem: ca_certificate.pem() + &key.serialize_pem() + &certificate.pem(),
        pfx,
        old_pfx,
        leaf: certificate.der().to_vec(),
        key_pem: key.serialize_pem(),
        other_pem: ca_certificate.pem(),
    }
}

/// Verifies a JWT with the first certificate of its `x5c`. Returns the header, the claims and that certificate.
pub(in crate::providers::azure::auth) fn verified(jwt: &str, algorithm: &'static RsaParameters) -> (Json, Json, Vec<u8>) {
    let (message, signature) = jwt.rsplit_once('.').unwrap();
    let (header, claims) = message.split_once('.').unwrap();
    let [header, claims] = [header, claims].map(|part| serde_json::from_slice::<Json>(&decode(part)).unwrap());
    let certificate = base64::decode(header["x5c"][0].as_str().unwrap()).unwrap();
    let (_, parsed) = parse_x509_certificate(&certificate).unwrap();
    let key = UnparsedPublicKey::new(algorithm, parsed.public_key().subject_public_key.data.to_vec());
    key.verify(message.as_bytes(), &decode(signature)).unwrap();
    (header, claims, certificate)
}

fn decode(part: &str) -> Vec<u8> {
    let padding = "=".repeat((4 - part.len() % 4) % 4);
    base64::decode_url_safe(format!("{part}{padding}")).unwrap()
}
