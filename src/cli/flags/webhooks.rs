//! Flags of the webhook server (KEP-2699). They have an effect only with the feature gate `CloudControllerManagerWebhook`.

use super::declare_flags;
use crate::cli::value::BindIp;
use crate::serving::config::SniCertKey;

declare_flags! {
    WEBHOOKS: Vec<String> = "webhooks" ""
        "Admission webhooks of the provider to serve: names, * for all, or -name to exclude one. They need the feature gate \
         CloudControllerManagerWebhook.";
    BIND_ADDRESS: BindIp = "webhook-bind-address" "0.0.0.0" "Address on which webhooks are served.";
    SECURE_PORT: i32 = "webhook-secure-port" "10260" "HTTPS port of the webhooks. 0 disables them.";
    CERT_DIR: String = "webhook-cert-dir" ""
        "Directory of the webhooks' certificate and key, cloud-controller-manager-webhook.crt and .key, created if they \
         are missing. Empty keeps a pair in memory.";
    TLS_CERT_FILE: String = "webhook-tls-cert-file" "" "PEM file of the webhooks' certificate chain, read again when it changes.";
    TLS_PRIVATE_KEY_FILE: String = "webhook-tls-private-key-file" "" "PEM file of the private key for --webhook-tls-cert-file.";
    TLS_CIPHER_SUITES: Vec<String> = "webhook-tls-cipher-suites" "" "Cipher suites of TLS 1.2 for webhooks. Empty selects all that are offered.";
    TLS_CURVE_PREFERENCES: Vec<i32> = "webhook-tls-curve-preferences" "" "Key exchange groups for webhooks, by number. Empty selects all.";
    TLS_MIN_VERSION: String = "webhook-tls-min-version" "" "Lowest TLS version for webhooks: VersionTLS12 or VersionTLS13.";
    TLS_SNI_CERT_KEY: Vec<SniCertKey> = "webhook-tls-sni-cert-key" "" "Further certificates for webhooks, by server name.";
    DISABLE_HTTP2: bool = "webhook-disable-http2-serving" "false" "Serve webhooks over HTTP/1.1 only.";
    SERVICE: String = "webhook-service" "kube-system/cloud-controller-manager-webhook"
        "Service through which API servers reach the webhooks, as namespace/name. Certificates that this program generates have its name.";
    CONFIGURATIONS: Vec<String> = "webhook-configurations" ""
        "Names of ValidatingWebhookConfigurations into which the certificate authority of a certificate that this program generates is \
         written. Use mutating/name for MutatingWebhookConfigurations.";
}
