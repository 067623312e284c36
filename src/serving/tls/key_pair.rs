//! A certificate with its key: parsed from PEM, or made for this process.
//!
//! In: PEM text, or the names to certify. Out: a [`CertificateKeyPair`] ready for handshakes, or what is wrong with the PEM.

use std::{net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

const HOUR: u64 = 60 * 60;
const YEAR: u64 = 365 * 24 * HOUR;

/// A certificate and its key as PEM text.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PemKeyPair {
    pub(super) cert: Vec<u8>,
    pub(super) key: Vec<u8>,
}

/// A certificate chain with its key, and the names it is good for.
pub(super) struct CertificateKeyPair {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) names: Vec<String>,
    /// Unix time at which the leaf expires.
    pub(super) expires: i64,
    pub(super) pem: PemKeyPair,
}

/// Reads a pair. Certificate and key must belong together.
pub(super) fn parse(pem: PemKeyPair) -> Result<CertificateKeyPair, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&pem.cert)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the certificate is not PEM: {error}"))?;
    let leaf = chain.first().ok_or("the certificate file has no CERTIFICATE block")?;
    let (names, expires) = names_and_end(leaf)?;
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|error| format!("the private key is not PEM: {error}"))?;
    let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
        .map_err(|error| format!("certificate and private key cannot be used together: {error}"))?;
    Ok(CertificateKeyPair { key: Arc::new(key), names, expires, pem })
}

fn names_and_end(der: &[u8]) -> Result<(Vec<String>, i64), String> {
    let (_, cert) = X509Certificate::from_der(der).map_err(|error| format!("the certificate is malformed: {error}"))?;
    Ok((names(&cert), cert.validity().not_after.timestamp()))
}

/// Returns the last certificate of a chain, as PEM: the signer of the others.
pub(super) fn last_certificate(pem: &[u8]) -> Option<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let text = std::str::from_utf8(pem).ok()?;
    text.rfind(BEGIN).map(|at| text[at..].to_owned())
}

/// Returns the DNS names of a certificate, or its common name if it has none.
fn names(cert: &X509Certificate<'_>) -> Vec<String> {
    let alternatives = cert.subject_alternative_name().ok().flatten().map(|names| &names.value.general_names);
    let dns: Vec<_> = alternatives
        .into_iter()
        .flatten()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
        .collect();
    if !dns.is_empty() {
        return dns;
    }
    cert.subject().iter_common_name().filter_map(|name| name.as_str().ok()).map(str::to_ascii_lowercase).collect()
}

/// Generates a pair for `localhost`, 127.0.0.1, a specific bind address and `own_names`.
///
/// It is signed by a CA whose key is discarded. Subject, issuer and validity are those of `GenerateSelfSignedCertKey` in
/// `k8s.io/client-go/util/cert`.
pub(super) fn generate(bind_address: IpAddr, own_names: &[String], now: Timestamp) -> Result<PemKeyPair, rcgen::Error> {
    let now = u64::try_from(now.as_second()).unwrap_or(0);
    let ca_key = KeyPair::generate()?;
    let mut ca = params(Vec::new(), format!("localhost-ca@{now}"), now)?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca_cert = ca.self_signed(&ca_key)?;

    let key = KeyPair::generate()?;
    let mut leaf = params([&alternative_names(bind_address)[..], own_names].concat(), format!("localhost@{now}"), now)?;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let cert = leaf.signed_by(&key, &Issuer::new(ca, ca_key))?;
    Ok(PemKeyPair { cert: format!("{}{}", cert.pem(), ca_cert.pem()).into_bytes(), key: key.serialize_pem().into_bytes() })
}

fn params(names: Vec<String>, common_name: String, now: u64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    // An hour early, so that a client whose clock is behind accepts it.
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(now.saturating_sub(HOUR));
    params.not_after = params.not_before + Duration::from_secs(YEAR);
    Ok(params)
}

fn alternative_names(bind_address: IpAddr) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let address = bind_address.to_string();
    if !bind_address.is_unspecified() && !names.contains(&address) {
        names.push(address);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[test]
    fn a_generated_pair_has_upstreams_subject_names_and_validity() {
        let pair = parse(generate("10.0.0.7".parse().unwrap(), &[], now()).unwrap()).unwrap();
        assert_eq!(pair.names, ["localhost"]);
        assert_eq!(pair.key.cert.len(), 2);
        let (_, cert) = X509Certificate::from_der(&pair.key.cert[0]).unwrap();
        assert_eq!(cert.subject().to_string(), "CN=localhost@1800000000");
        assert_eq!(cert.issuer().to_string(), "CN=localhost-ca@1800000000");
        assert_eq!(cert.validity().not_before.timestamp(), 1_800_000_000 - 3600);
        assert_eq!(cert.validity().not_after.timestamp(), 1_800_000_000 - 3600 + 365 * 86400);
        let names = cert.subject_alternative_name().unwrap().unwrap().value.general_names.len();
        assert_eq!(names, 3);
    }

    #[test]
    fn only_a_specific_bind_address_is_certified() {
        let rows = [("0.0.0.0", 2), ("::", 2), ("127.0.0.1", 2), ("10.1.2.3", 3), ("fd00::1", 3)];
        for (address, count) in rows {
            assert_eq!(alternative_names(address.parse().unwrap()).len(), count, "{address}");
        }
    }

    #[test]
    fn invalid_pairs_are_refused_with_the_reason() {
        let valid = generate("0.0.0.0".parse().unwrap(), &[], now()).unwrap();
        let other = generate("0.0.0.0".parse().unwrap(), &[], now()).unwrap();
        let rows = [
            (PemKeyPair { cert: Vec::new(), key: valid.key.clone() }, "no CERTIFICATE block"),
            (PemKeyPair { cert: valid.cert.clone(), key: Vec::new() }, "private key is not PEM"),
            (PemKeyPair { cert: valid.cert.clone(), key: other.key }, "cannot be used together"),
        ];
        for (pem, expected) in rows {
            let error = parse(pem).err().unwrap();
            assert!(error.contains(expected), "{error}");
        }
        assert!(parse(valid).is_ok());
    }
}
