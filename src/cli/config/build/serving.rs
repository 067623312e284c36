//! What the flags say of the secure port.

use super::{OptionsBuilder, path};
use crate::cli::{
    config::{
        DelegatingAuthenticationOptions, DelegatingAuthorizationOptions, RequestHeaderOptions, SecureServingOptions,
        TlsFiles,
    },
    flags::{
        generic,
        serving::{authentication, authorization, secure},
    },
    tls,
    value::FlagValue,
};

impl OptionsBuilder {
    /// Upstream judges the server's flags only when there is a server; so do we, the port apart.
    pub(super) fn serving_if_any(&mut self) -> SecureServingOptions {
        let secure_port = self.number(&secure::SECURE_PORT, 0, i32::from(u16::MAX));
        let (errors, notices) = (self.errors.len(), self.notices.len());
        let config = self.serving(secure_port);
        if self.read(&secure::SECURE_PORT) == 0 {
            self.errors.truncate(errors);
            self.notices.truncate(notices);
        }
        config
    }

    fn serving(&mut self, secure_port: u16) -> SecureServingOptions {
        SecureServingOptions {
            bind_address: self.read(&secure::BIND_ADDRESS).0,
            secure_port,
            cert_dir: path(self.read(&secure::CERT_DIR)),
            tls_files: self.tls_files(),
            cipher_suites: self.cipher_suites(),
            min_version: self.min_version(),
            curve_preferences: self.curves(),
            sni_certificates: self.read(&secure::TLS_SNI_CERT_KEY),
            http2_max_streams: match self.number(&secure::HTTP2_MAX_STREAMS, 0, i32::MAX) {
                0 => 100,
                streams => streams,
            },
            http2: !self.read(&secure::DISABLE_HTTP2),
            permit_port_sharing: self.read(&secure::PERMIT_PORT_SHARING),
            permit_address_sharing: self.read(&secure::PERMIT_ADDRESS_SHARING),
            profiling: self.read(&generic::PROFILING),
            authentication: self.authentication(),
            authorization: self.authorization(),
        }
    }

    fn tls_files(&mut self) -> Option<TlsFiles> {
        match (path(self.read(&secure::TLS_CERT_FILE)), path(self.read(&secure::TLS_PRIVATE_KEY_FILE))) {
            (Some(cert), Some(key)) => Some(TlsFiles { cert, key }),
            (None, None) => None,
            _ => {
                self.errors.push("--tls-cert-file and --tls-private-key-file must be given together".to_owned());
                None
            }
        }
    }

    fn cipher_suites(&mut self) -> Vec<&'static str> {
        let given = self.read(&secure::TLS_CIPHER_SUITES);
        let mut offered = Vec::new();
        for name in &given {
            match tls::suite(name.trim()) {
                Some(tls::CipherSuiteSupport::Offered(name)) => offered.push(name),
                Some(tls::CipherSuiteSupport::Weak(name)) => {
                    self.notices.push(format!("cipher suite {name} is too weak and left out"))
                }
                None => {
                    self.refuse(&secure::TLS_CIPHER_SUITES, name, &format!("want names out of {}", tls::OFFERED.join(", ")))
                }
            }
        }
        if offered.is_empty() && !given.is_empty() {
            self.refuse(&secure::TLS_CIPHER_SUITES, &given.print(), "no suite is left that this server offers");
        }
        offered
    }

    fn min_version(&mut self) -> tls::OfferedTlsVersion {
        let name = self.read(&secure::TLS_MIN_VERSION);
        tls::min_version(&name).unwrap_or_else(|| {
            let accepted = "want VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13";
            self.refuse(&secure::TLS_MIN_VERSION, &name, accepted);
            tls::OfferedTlsVersion::V1_2
        })
    }

    fn curves(&mut self) -> Vec<u16> {
        let given = self.read(&secure::TLS_CURVE_PREFERENCES);
        for id in given.iter().filter(|id| !tls::CURVES.iter().any(|(known, _)| known == *id)) {
            let known: Vec<_> = tls::CURVES.iter().map(|(id, name)| format!("{id} ({name})")).collect();
            self.refuse(
                &secure::TLS_CURVE_PREFERENCES,
                &id.to_string(),
                &format!("want numbers out of {}", known.join(", ")),
            );
        }
        given.iter().filter_map(|id| u16::try_from(*id).ok()).collect()
    }

    fn authentication(&mut self) -> DelegatingAuthenticationOptions {
        DelegatingAuthenticationOptions {
            kubeconfig: path(self.read(&authentication::KUBECONFIG)),
            skip_lookup: self.read(&authentication::SKIP_LOOKUP),
            tolerate_lookup_failure: self.read(&authentication::TOLERATE_LOOKUP_FAILURE),
            token_cache_ttl: self.read(&authentication::TOKEN_CACHE_TTL),
            client_ca_file: path(self.read(&authentication::CLIENT_CA_FILE)),
            request_header: path(self.read(&authentication::REQUESTHEADER_CLIENT_CA_FILE)).map(|client_ca_file| {
                RequestHeaderOptions {
                    client_ca_file,
                    allowed_names: self.read(&authentication::REQUESTHEADER_ALLOWED_NAMES),
                    username_headers: self.read(&authentication::REQUESTHEADER_USERNAME_HEADERS),
                    uid_headers: self.read(&authentication::REQUESTHEADER_UID_HEADERS),
                    group_headers: self.read(&authentication::REQUESTHEADER_GROUP_HEADERS),
                    extra_header_prefixes: self.read(&authentication::REQUESTHEADER_EXTRA_HEADERS_PREFIX),
                }
            }),
        }
    }

    fn authorization(&mut self) -> DelegatingAuthorizationOptions {
        DelegatingAuthorizationOptions {
            kubeconfig: path(self.read(&authorization::KUBECONFIG)),
            always_allow_paths: self.read(&authorization::ALWAYS_ALLOW_PATHS),
            authorized_ttl: self.read(&authorization::AUTHORIZED_TTL),
            unauthorized_ttl: self.read(&authorization::UNAUTHORIZED_TTL),
        }
    }
}
