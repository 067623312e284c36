//! TLS of the secure port: versions, suites and curves, the selection of the certificate, and the handshake's rules for
//! client certificates.
//!
//! In: the settings. Out: a rustls configuration. A client certificate is requested and never required; the handshake only
//! checks that the client holds its key. `authentication` verifies the chain for each request, because there are two sets
//! of CAs, and both may change while a connection is open.

mod certificates;
mod client_certificates;
mod key_pair;

use std::sync::Arc;

use rustls::{
    ServerConfig, SupportedCipherSuite,
    crypto::{CryptoProvider, aws_lc_rs},
    version::{TLS12, TLS13},
};

pub(super) use certificates::ServingCertificates;

use super::{
    ServingError,
    config::{SecureServingConfig, TlsMinVersion},
};

/// Returns Go's names of the cipher suites that `--tls-cipher-suites` accepts.
pub fn accepted_cipher_suites() -> Vec<String> {
    aws_lc_rs::ALL_CIPHER_SUITES.iter().map(go_name).collect()
}

/// Returns Go's name of a suite: rustls marks the suites of TLS 1.3 in the name, Go (like IANA) does not.
fn go_name(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
}

/// Returns the cryptography with the suites and curves of the settings. As in Go, the suites of TLS 1.3 cannot be
/// disabled.
fn provider(config: &SecureServingConfig) -> Result<CryptoProvider, ServingError> {
    let mut provider = aws_lc_rs::default_provider();
    if !config.tls_cipher_suites.is_empty() {
        provider.cipher_suites = select_suites(&config.tls_cipher_suites)?;
    }
    if !config.tls_curve_preferences.is_empty() {
        check_curves(&config.tls_curve_preferences)?;
        provider.kx_groups.retain(|group| config.tls_curve_preferences.contains(&i32::from(u16::from(group.name()))));
    }
    Ok(provider)
}

fn select_suites(names: &[String]) -> Result<Vec<SupportedCipherSuite>, ServingError> {
    // The names that Go 1.14 renamed are still accepted there.
    let requested: Vec<_> = names.iter().map(|name| with_suffix(name)).collect();
    let accepted = accepted_cipher_suites();
    if let Some(unsupported) = requested.iter().find(|name| !accepted.contains(name)) {
        return Err(ServingError::setting(
            "tls-cipher-suites",
            format!("unknown or unsupported cipher suite {unsupported:?}; accepted: {}", accepted.join(", ")),
        ));
    }
    let selected = |suite: &&SupportedCipherSuite| suite.tls13().is_some() || requested.contains(&go_name(suite));
    Ok(aws_lc_rs::ALL_CIPHER_SUITES.iter().filter(selected).copied().collect())
}

fn with_suffix(name: &str) -> String {
    if name.ends_with("_CHACHA20_POLY1305") { format!("{name}_SHA256") } else { name.to_owned() }
}

fn check_curves(ids: &[i32]) -> Result<(), ServingError> {
    let offered: Vec<_> =
        aws_lc_rs::default_provider().kx_groups.iter().map(|group| i32::from(u16::from(group.name()))).collect();
    let Some(id) = ids.iter().find(|id| !offered.contains(id)) else { return Ok(()) };
    let accepted: Vec<_> = offered.iter().map(i32::to_string).collect();
    let reason = format!("unknown or unsupported curve {id}; accepted: {}", accepted.join(", "));
    Err(ServingError::setting("tls-curve-preferences", reason))
}

fn alpn(disable_http2: bool) -> Vec<Vec<u8>> {
    if disable_http2 { vec![b"http/1.1".to_vec()] } else { vec![b"h2".to_vec(), b"http/1.1".to_vec()] }
}

/// Returns the TLS configuration of all handshakes.
pub(super) fn server_config(
    config: &SecureServingConfig,
    certificates: Arc<ServingCertificates>,
) -> Result<Arc<ServerConfig>, ServingError> {
    let provider = Arc::new(provider(config)?);
    let mut versions = vec![&TLS13];
    versions.extend((config.tls_min_version == TlsMinVersion::Tls12).then_some(&TLS12));
    let mut tls = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| ServingError::setting("tls-min-version", error.to_string()))?
        .with_client_cert_verifier(Arc::new(client_certificates::AnyClientCertificate::new(&provider)))
        .with_cert_resolver(certificates);
    tls.alpn_protocols = alpn(config.disable_http2);
    Ok(Arc::new(tls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(config: &SecureServingConfig) -> Vec<String> {
        provider(config).unwrap().cipher_suites.iter().map(go_name).collect()
    }

    #[test]
    fn suites_are_selected_by_go_names_and_tls13_is_kept() {
        let tls13 = ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];
        let rows: [(&[&str], &[&str]); 3] = [
            (&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]),
            (&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"], &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]),
            (&["TLS_AES_128_GCM_SHA256"], &[]),
        ];
        for (listed, expected) in rows {
            let listed = listed.iter().map(|name| (*name).to_owned()).collect();
            let config = SecureServingConfig { tls_cipher_suites: listed, ..Default::default() };
            let expected: Vec<_> = tls13.iter().chain(expected).map(|name| (*name).to_owned()).collect();
            assert_eq!(names(&config), expected);
        }
        assert_eq!(names(&SecureServingConfig::default()).len(), 9);
    }

    #[test]
    fn unknown_suites_and_curves_list_what_is_accepted() {
        let suites =
            SecureServingConfig { tls_cipher_suites: vec!["TLS_RSA_WITH_RC4_128_SHA".to_owned()], ..Default::default() };
        let error = provider(&suites).unwrap_err().to_string();
        assert!(error.contains("--tls-cipher-suites") && error.contains("TLS_AES_128_GCM_SHA256"), "{error}");
        let curves = SecureServingConfig { tls_curve_preferences: vec![29, 7], ..Default::default() };
        let error = provider(&curves).unwrap_err().to_string();
        assert!(error.contains("--tls-curve-preferences") && error.contains("curve 7") && error.contains("29"), "{error}");
        let x25519 = SecureServingConfig { tls_curve_preferences: vec![29], ..Default::default() };
        assert_eq!(provider(&x25519).unwrap().kx_groups.len(), 1);
    }
}
