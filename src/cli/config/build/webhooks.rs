//! Flags of the webhook port.

use super::{OptionsBuilder, path};
use crate::cli::{
    feature_gates::{self, FeatureGates},
    flags::{serving::secure, webhooks},
};
use crate::serving::config::{SecureServingConfig, WebhookServiceName, WebhookServingConfig};

/// Base name of the files in `--webhook-cert-dir`.
const PAIR: &str = "cloud-controller-manager-webhook";

impl OptionsBuilder {
    /// Builds the configuration of the webhook port; `None` if no webhook is served.
    ///
    /// As for the secure port, flags other than the port are checked only if the server runs.
    pub(super) fn webhooks_if_any(&mut self, gates: &FeatureGates) -> Option<WebhookServingConfig> {
        let names = self.read(&webhooks::WEBHOOKS);
        let port: u16 = self.number(&webhooks::SECURE_PORT, 0, i32::from(u16::MAX));
        let is_requested = names.iter().any(|name| !name.trim().is_empty());
        if is_requested && !gates.enabled(feature_gates::WEBHOOKS) {
            let gate = feature_gates::WEBHOOKS;
            self.notices.push(format!("--webhooks has no effect: it needs --feature-gates={gate}=true"));
        }
        if !is_requested || port == 0 || !gates.enabled(feature_gates::WEBHOOKS) {
            return None;
        }
        if self.read(&webhooks::SECURE_PORT) == self.read(&secure::SECURE_PORT) {
            self.errors.push("--webhook-secure-port, --secure-port: the ports are the same; give two ports".to_owned());
        }
        let service = self.webhook_service();
        let secure = self.webhook_port(port, &service);
        Some(WebhookServingConfig { names, configurations: self.webhook_configurations(&secure), secure, service })
    }

    fn webhook_port(&mut self, port: u16, service: &WebhookServiceName) -> SecureServingConfig {
        let (tls_cert_file, tls_private_key_file) =
            self.tls_files(&webhooks::TLS_CERT_FILE, &webhooks::TLS_PRIVATE_KEY_FILE);
        SecureServingConfig {
            bind_address: self.read(&webhooks::BIND_ADDRESS).0,
            port,
            cert_dir: path(self.read(&webhooks::CERT_DIR)),
            pair_name: PAIR,
            own_names: vec![service.host()],
            tls_cert_file,
            tls_private_key_file,
            tls_cipher_suites: self.cipher_suites(&webhooks::TLS_CIPHER_SUITES),
            tls_min_version: self.min_version(&webhooks::TLS_MIN_VERSION),
            tls_curve_preferences: self.curves(&webhooks::TLS_CURVE_PREFERENCES),
            tls_sni_cert_key: self.read(&webhooks::TLS_SNI_CERT_KEY),
            disable_http2: self.read(&webhooks::DISABLE_HTTP2),
            ..SecureServingConfig::default()
        }
    }

    fn webhook_service(&mut self) -> WebhookServiceName {
        let text = self.read(&webhooks::SERVICE);
        WebhookServiceName::parse(&text).unwrap_or_else(|| {
            self.refuse(&webhooks::SERVICE, &text, "expected namespace/name");
            WebhookServiceName { namespace: String::new(), name: String::new() }
        })
    }

    fn webhook_configurations(&mut self, port: &SecureServingConfig) -> Vec<String> {
        let names: Vec<String> = self.read(&webhooks::CONFIGURATIONS);
        let names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        if !names.is_empty() && port.tls_cert_file.is_some() {
            self.errors.push(
                "--webhook-configurations, --webhook-tls-cert-file: only the authority of a generated certificate is written; \
                 write the authority of your own certificate yourself"
                    .to_owned(),
            );
        }
        let is_valid =
            |name: &&String| !matches!(name.split_once('/'), Some((kind, _)) if !["mutating", "validating"].contains(&kind));
        if let Some(invalid) = names.iter().find(|name| !is_valid(name)) {
            self.refuse(&webhooks::CONFIGURATIONS, invalid, "expected name, validating/name or mutating/name");
        }
        names
    }
}
