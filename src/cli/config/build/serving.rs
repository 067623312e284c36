//! Flags of the secure port.

use std::path::PathBuf;

use super::{OptionsBuilder, path};
use crate::cli::{
    feature_gates::{self, FeatureGates},
    flags::{
        TypedFlag, generic,
        serving::{authentication, authorization, secure},
    },
    tls,
    value::FlagValue,
};
use crate::serving::config::{
    DEFAULT_HTTP2_STREAMS, DelegatedAuthenticationConfig, DelegatedAuthorizationConfig, RequestHeaderNames,
    SecureServingConfig, TlsMinVersion,
};

impl OptionsBuilder {
    /// Builds the configuration of the secure port. As upstream, flags other than the port are checked only if there is a server.
    pub(super) fn serving_if_any(&mut self, gates: &FeatureGates) -> SecureServingConfig {
        let port = self.number(&secure::SECURE_PORT, 0, i32::from(u16::MAX));
        let (errors, notices) = (self.errors.len(), self.notices.len());
        let config = self.serving(port, gates);
        if self.read(&secure::SECURE_PORT) == 0 {
            self.errors.truncate(errors);
            self.notices.truncate(notices);
        }
        config
    }

    fn serving(&mut self, port: u16, gates: &FeatureGates) -> SecureServingConfig {
        let (tls_cert_file, tls_private_key_file) = self.tls_files(&secure::TLS_CERT_FILE, &secure::TLS_PRIVATE_KEY_FILE);
        SecureServingConfig {
            bind_address: self.read(&secure::BIND_ADDRESS).0,
            port,
            cert_dir: path(self.read(&secure::CERT_DIR)),
            tls_cert_file,
            tls_private_key_file,
            tls_cipher_suites: self.cipher_suites(&secure::TLS_CIPHER_SUITES),
            tls_min_version: self.min_version(&secure::TLS_MIN_VERSION),
            tls_curve_preferences: self.curves(&secure::TLS_CURVE_PREFERENCES),
            tls_sni_cert_key: self.read(&secure::TLS_SNI_CERT_KEY),
            http2_max_streams: match self.number(&secure::HTTP2_MAX_STREAMS, 0, i32::MAX) {
                0 => DEFAULT_HTTP2_STREAMS,
                streams => streams,
            },
            disable_http2: self.read(&secure::DISABLE_HTTP2),
            permit_port_sharing: self.read(&secure::PERMIT_PORT_SHARING),
            profiling: self.read(&generic::PROFILING),
            flagz: gates.enabled(feature_gates::FLAGZ),
            statusz: gates.enabled(feature_gates::STATUSZ),
            authentication: self.authentication(),
            authorization: self.authorization(),
            ..SecureServingConfig::default()
        }
    }

    pub(super) fn tls_files(
        &mut self,
        cert: &TypedFlag<String>,
        key: &TypedFlag<String>,
    ) -> (Option<PathBuf>, Option<PathBuf>) {
        let files = (path(self.read(cert)), path(self.read(key)));
        if files.0.is_some() != files.1.is_some() {
            self.errors.push(format!("--{} and --{} must be given together", cert.spec.name, key.spec.name));
        }
        files
    }

    pub(super) fn cipher_suites(&mut self, flag: &TypedFlag<Vec<String>>) -> Vec<String> {
        let names = self.read(flag);
        let mut offered = Vec::new();
        for name in &names {
            match tls::current_name(name.trim()) {
                name if tls::OFFERED.contains(&name) => offered.push(name.to_owned()),
                name if tls::WEAK.contains(&name) => {
                    self.notices.push(format!("cipher suite {name} is too weak and is not offered"));
                }
                _ => self.refuse(flag, name, &format!("expected names from {}", tls::OFFERED.join(", "))),
            }
        }
        if offered.is_empty() && !names.is_empty() {
            self.refuse(flag, &names.print(), "this server offers none of these suites");
        }
        offered
    }

    pub(super) fn min_version(&mut self, flag: &TypedFlag<String>) -> TlsMinVersion {
        let name = self.read(flag);
        TlsMinVersion::parse(&name).unwrap_or_else(|| {
            let accepted = "expected VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13";
            self.refuse(flag, &name, accepted);
            TlsMinVersion::Tls12
        })
    }

    pub(super) fn curves(&mut self, flag: &TypedFlag<Vec<i32>>) -> Vec<i32> {
        let ids = self.read(flag);
        for id in ids.iter().filter(|id| !tls::CURVES.iter().any(|(curve, _)| curve == *id)) {
            let supported: Vec<_> = tls::CURVES.iter().map(|(id, name)| format!("{id} ({name})")).collect();
            self.refuse(flag, &id.to_string(), &format!("expected numbers from {}", supported.join(", ")));
        }
        ids
    }

    fn authentication(&mut self) -> DelegatedAuthenticationConfig {
        let requestheader_client_ca_file = path(self.read(&authentication::REQUESTHEADER_CLIENT_CA_FILE));
        DelegatedAuthenticationConfig {
            kubeconfig: path(self.read(&authentication::KUBECONFIG)),
            skip_lookup: self.read(&authentication::SKIP_LOOKUP),
            tolerate_lookup_failure: self.read(&authentication::TOLERATE_LOOKUP_FAILURE),
            token_cache_ttl: self.read(&authentication::TOKEN_CACHE_TTL),
            client_ca_file: path(self.read(&authentication::CLIENT_CA_FILE)),
            requestheader: self.request_header(requestheader_client_ca_file.is_some()),
            requestheader_client_ca_file,
        }
    }

    /// Reads the names of headers and proxies. Without a file of certificate authorities of proxies, the ConfigMap has the names.
    fn request_header(&self, has_authorities: bool) -> RequestHeaderNames {
        if !has_authorities {
            return RequestHeaderNames::default();
        }
        RequestHeaderNames {
            allowed_names: self.read(&authentication::REQUESTHEADER_ALLOWED_NAMES),
            username_headers: self.read(&authentication::REQUESTHEADER_USERNAME_HEADERS),
            uid_headers: self.read(&authentication::REQUESTHEADER_UID_HEADERS),
            group_headers: self.read(&authentication::REQUESTHEADER_GROUP_HEADERS),
            extra_headers_prefix: self.read(&authentication::REQUESTHEADER_EXTRA_HEADERS_PREFIX),
        }
    }

    fn authorization(&mut self) -> DelegatedAuthorizationConfig {
        DelegatedAuthorizationConfig {
            kubeconfig: path(self.read(&authorization::KUBECONFIG)),
            always_allow_paths: self.read(&authorization::ALWAYS_ALLOW_PATHS),
            authorized_ttl: self.read(&authorization::AUTHORIZED_TTL),
            unauthorized_ttl: self.read(&authorization::UNAUTHORIZED_TTL),
        }
    }
}
