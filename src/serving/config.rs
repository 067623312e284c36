//! Settings of the secure port as plain data, with upstream's defaults, and the pure checks on them.
//!
//! In: values of flags, from which `cli` builds a [`SecureServingConfig`]. Out: a [`ServingError::Setting`] that names the
//! flag, or nothing. Defaults are those of `SecureServingOptions`, `DelegatingAuthenticationOptions` and
//! `DelegatingAuthorizationOptions` in `k8s.io/apiserver/pkg/server/options`.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

use super::error::ServingError;

/// Default of `--http2-max-streams-per-connection`, which the value 0 selects.
pub(crate) const DEFAULT_HTTP2_STREAMS: u32 = 100;

/// Settings of the secure port.
#[derive(Debug, Clone, PartialEq)]
pub struct SecureServingConfig {
    /// `--bind-address`.
    pub bind_address: IpAddr,
    /// `--secure-port`; 0 binds any free port (a caller with `--secure-port=0` does not serve at all).
    pub port: u16,
    /// `--cert-dir`; `None` keeps a self-signed pair in memory.
    pub cert_dir: Option<PathBuf>,
    /// Base name of the files in `cert_dir`.
    pub pair_name: &'static str,
    /// Additional names in a certificate that this program generates.
    pub own_names: Vec<String>,
    /// `--tls-cert-file`.
    pub tls_cert_file: Option<PathBuf>,
    /// `--tls-private-key-file`.
    pub tls_private_key_file: Option<PathBuf>,
    /// `--tls-sni-cert-key`.
    pub tls_sni_cert_key: Vec<SniCertKey>,
    /// `--tls-min-version`.
    pub tls_min_version: TlsMinVersion,
    /// `--tls-cipher-suites` by Go's names; empty selects all supported suites.
    pub tls_cipher_suites: Vec<String>,
    /// `--tls-curve-preferences` as Go's CurveID numbers; empty selects all supported curves.
    pub tls_curve_preferences: Vec<i32>,
    /// `--disable-http2-serving`.
    pub disable_http2: bool,
    /// `--http2-max-streams-per-connection`, resolved: never 0.
    pub http2_max_streams: u32,
    /// Value of `--permit-port-sharing` (SO_REUSEPORT).
    pub permit_port_sharing: bool,
    /// `--profiling`: whether `/debug/*` is served.
    pub profiling: bool,
    /// Feature gate `ComponentFlagz`: whether `/flagz` is served.
    pub flagz: bool,
    /// Feature gate `ComponentStatusz`: whether `/statusz` is served.
    pub statusz: bool,
    pub authentication: DelegatedAuthenticationConfig,
    pub authorization: DelegatedAuthorizationConfig,
    /// Interval at which certificate files, CA files and the authentication ConfigMap are read again.
    pub reload_interval: Duration,
}

impl Default for SecureServingConfig {
    fn default() -> Self {
        Self {
            bind_address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: 10258,
            cert_dir: None,
            pair_name: "cloud-controller-manager",
            own_names: Vec::new(),
            tls_cert_file: None,
            tls_private_key_file: None,
            tls_sni_cert_key: Vec::new(),
            tls_min_version: TlsMinVersion::Tls12,
            tls_cipher_suites: Vec::new(),
            tls_curve_preferences: Vec::new(),
            disable_http2: false,
            http2_max_streams: DEFAULT_HTTP2_STREAMS,
            permit_port_sharing: false,
            profiling: true,
            flagz: true,
            statusz: true,
            authentication: DelegatedAuthenticationConfig::default(),
            authorization: DelegatedAuthorizationConfig::default(),
            reload_interval: Duration::from_secs(60),
        }
    }
}

/// Settings of the webhook port.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookServingConfig {
    /// `--webhooks`: names of webhooks, `-` before a disabled one, `*` for all.
    pub names: Vec<String>,
    /// Address and TLS. The settings of authentication, authorization and pages have no effect.
    pub secure: SecureServingConfig,
    /// `--webhook-service`: Service through which API servers reach the port.
    pub service: WebhookServiceName,
    /// `--webhook-configurations`: objects to which the authority of a generated certificate is written.
    pub configurations: Vec<String>,
}

/// Name of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookServiceName {
    pub namespace: String,
    pub name: String,
}

impl WebhookServiceName {
    /// Parses `namespace/name` of a Service.
    pub fn parse(text: &str) -> Option<Self> {
        let is_label = |text: &str| {
            let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            !text.is_empty()
                && text.len() <= 63
                && text.bytes().all(is_inner)
                && !text.starts_with('-')
                && !text.ends_with('-')
        };
        let (namespace, name) = text.split_once('/').filter(|(namespace, name)| is_label(namespace) && is_label(name))?;
        Some(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Returns the server name that API servers use in the handshake.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// Value of `--tls-sni-cert-key`: `cert,key[:pattern,...]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SniCertKey {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    /// Server names, such as `*.example.com`; empty selects the names of the certificate.
    pub patterns: Vec<String>,
}

/// Lowest version of TLS that the server supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMinVersion {
    /// TLS 1.2 and later.
    Tls12,
    Tls13,
}

impl TlsMinVersion {
    /// Parses a value of `--tls-min-version`. Versions before 1.2 are not supported and mean 1.2.
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => Some(Self::Tls12),
            "VersionTLS13" => Some(Self::Tls13),
            _ => None,
        }
    }
}

/// Settings of delegated authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegatedAuthenticationConfig {
    /// `--authentication-kubeconfig`; none uses `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--authentication-skip-lookup`: whether the cluster's authentication ConfigMap is not read.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`: whether the process is ready although the ConfigMap could not be read.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`.
    pub token_cache_ttl: Duration,
    /// `--client-ca-file`; replaces the ConfigMap's client CA.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-client-ca-file`; replaces the ConfigMap's front-proxy settings.
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Other `--requestheader-*` flags, which have an effect only with `requestheader_client_ca_file`.
    pub requestheader: RequestHeaderNames,
}

impl Default for DelegatedAuthenticationConfig {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            skip_lookup: false,
            tolerate_lookup_failure: false,
            token_cache_ttl: Duration::from_secs(10),
            client_ca_file: None,
            requestheader_client_ca_file: None,
            requestheader: RequestHeaderNames::default(),
        }
    }
}

/// Headers that a front proxy sets, and the accepted proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeaderNames {
    /// `--requestheader-allowed-names`: accepted common names of the proxy's certificate; empty accepts any.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`.
    pub username_headers: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid_headers: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_headers_prefix: Vec<String>,
}

impl Default for RequestHeaderNames {
    fn default() -> Self {
        Self {
            allowed_names: Vec::new(),
            username_headers: vec!["x-remote-user".to_owned()],
            uid_headers: Vec::new(),
            group_headers: vec!["x-remote-group".to_owned()],
            extra_headers_prefix: vec!["x-remote-extra-".to_owned()],
        }
    }
}

/// Settings of delegated authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegatedAuthorizationConfig {
    /// `--authorization-kubeconfig`; none uses `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--authorization-always-allow-paths`.
    pub always_allow_paths: Vec<String>,
    /// `--authorization-webhook-cache-authorized-ttl`.
    pub authorized_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`.
    pub unauthorized_ttl: Duration,
}

impl Default for DelegatedAuthorizationConfig {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_owned).to_vec(),
            authorized_ttl: Duration::from_secs(10),
            unauthorized_ttl: Duration::from_secs(10),
        }
    }
}

/// Checks settings without files and sockets.
pub(super) fn validate(config: &SecureServingConfig) -> Result<(), ServingError> {
    if config.tls_cert_file.is_some() != config.tls_private_key_file.is_some() {
        let missing = if config.tls_cert_file.is_some() { "tls-private-key-file" } else { "tls-cert-file" };
        return Err(ServingError::setting(
            missing,
            "missing; --tls-cert-file and --tls-private-key-file must be given together",
        ));
    }
    validate_paths(&config.authorization.always_allow_paths)?;
    let names = &config.authentication.requestheader;
    if config.authentication.requestheader_client_ca_file.is_some() && names.username_headers.is_empty() {
        return Err(ServingError::setting(
            "requestheader-username-headers",
            "empty; name at least one header, for example x-remote-user",
        ));
    }
    Ok(())
}

/// Checks that `*` occurs only at the end.
pub(super) fn validate_paths(paths: &[String]) -> Result<(), ServingError> {
    let is_invalid = |path: &&String| path.strip_suffix('*').unwrap_or(path).contains('*');
    let Some(path) = paths.iter().find(is_invalid) else { return Ok(()) };
    let reason = format!(
        "{path:?} has a '*' that is not at the end; accepted: a path such as /healthz, or a prefix such as /debug/*"
    );
    Err(ServingError::setting("authorization-always-allow-paths", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse_and_a_bad_one_is_none() {
        let rows = [
            ("", TlsMinVersion::Tls12),
            ("VersionTLS10", TlsMinVersion::Tls12),
            ("VersionTLS11", TlsMinVersion::Tls12),
            ("VersionTLS12", TlsMinVersion::Tls12),
            ("VersionTLS13", TlsMinVersion::Tls13),
        ];
        for (value, expected) in rows {
            assert_eq!(TlsMinVersion::parse(value), Some(expected), "{value}");
        }
        assert_eq!(TlsMinVersion::parse("TLS1.2"), None);
    }

    #[test]
    fn bad_settings_name_the_flag() {
        let cert_only = SecureServingConfig { tls_cert_file: Some("a.crt".into()), ..Default::default() };
        let key_only = SecureServingConfig { tls_private_key_file: Some("a.key".into()), ..Default::default() };
        let mut wildcard = SecureServingConfig::default();
        wildcard.authorization.always_allow_paths = vec!["/a*b".to_owned()];
        let mut headers = SecureServingConfig::default();
        headers.authentication.requestheader_client_ca_file = Some("ca.crt".into());
        headers.authentication.requestheader.username_headers.clear();
        let rows = [
            (cert_only, "--tls-private-key-file"),
            (key_only, "--tls-cert-file"),
            (wildcard, "--authorization-always-allow-paths"),
            (headers, "--requestheader-username-headers"),
        ];
        for (config, flag) in rows {
            let error = validate(&config).unwrap_err().to_string();
            assert!(error.starts_with(flag), "{error}");
        }
        assert!(validate(&SecureServingConfig::default()).is_ok());
    }
}
