//! Flags of the webhook server (KEP-2699). All have an effect together with the feature gate `CloudControllerManagerWebhook`.

use super::declare_flags;
use crate::cli::value::BindIp;
use crate::serving::config::SniCertKey;

declare_flags! {
    WEBHOOKS: Vec<String> = "webhooks" ""
        "Admission webhooks of the provider to serve: names, * for all, -name for all but that. None without the feature gate \
         CloudControllerManagerWebhook.";
    BIND_ADDRESS: BindIp = "webhook-bind-address" "0.0.0.0" "Address on which webhooks are served.";
    SECURE_PORT: i32 = "webhook-secure-port" "10260" "Port on which webhooks are served, with HTTPS; 0: none are.";
    CERT_DIR: String = "webhook-cert-dir" ""
        "Directory of the webhooks' certificate and key, cloud-controller-manager-webhook.crt and .key, made if they are not there; \
         empty: a pair in memory.";
    TLS_CERT_FILE: String = "webhook-tls-cert-file" "" "PEM file of the webhooks' certificate chain, read again when it changes.";
    TLS_PRIVATE_KEY_FILE: String = "webhook-tls-private-key-file" "" "PEM file of its private key.";
    TLS_CIPHER_SUITES: Vec<String> = "webhook-tls-cipher-suites" "" "Cipher suites of TLS 1.2 for webhooks; empty: all that are offered.";
    TLS_CURVE_PREFERENCES: Vec<i32> = "webhook-tls-curve-preferences" "" "Key exchange groups for webhooks, by number; empty: all.";
    TLS_MIN_VERSION: String = "webhook-tls-min-version" "" "Lowest TLS version for webhooks: VersionTLS12 or VersionTLS13.";
    TLS_SNI_CERT_KEY: Vec<SniCertKey> = "webhook-tls-sni-cert-key" "" "Further certificates for webhooks, by server name.";
    DISABLE_HTTP2: bool = "webhook-disable-http2-serving" "false" "Whether webhooks are served over HTTP/1.1 only.";
    SERVICE: String = "webhook-service" "kube-system/cloud-controller-manager-webhook"
        "Service behind which API servers reach the webhooks, as namespace/name: a name in a certificate that this program makes.";
    CONFIGURATIONS: Vec<String> = "webhook-configurations" ""
        "ValidatingWebhookConfigurations into which the authority of a certificate that this program makes is written, by name; \
         mutating/name for MutatingWebhookConfigurations.";
}
