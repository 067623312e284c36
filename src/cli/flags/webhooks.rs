//! Flags of upstream's webhook server (KEP-2699), which no provider here fills.

use super::declare_flags;
use crate::cli::value::BindIp;
use crate::serving::config::SniCertKey;

const NONE: &str = "this program hosts no webhooks";

declare_flags! {
    WEBHOOKS: Vec<String> = "webhooks" "" "Webhooks to serve." [ignored(NONE)];
    BIND_ADDRESS: BindIp = "webhook-bind-address" "0.0.0.0" "Address to listen on." [ignored(NONE)];
    SECURE_PORT: i32 = "webhook-secure-port" "10260" "Port for HTTPS." [ignored(NONE)];
    CERT_DIR: String = "webhook-cert-dir" "" "Directory of certificate and key." [ignored(NONE)];
    TLS_CERT_FILE: String = "webhook-tls-cert-file" "" "PEM file of the certificate chain." [ignored(NONE)];
    TLS_PRIVATE_KEY_FILE: String = "webhook-tls-private-key-file" "" "PEM file of the private key." [ignored(NONE)];
    TLS_CIPHER_SUITES: Vec<String> = "webhook-tls-cipher-suites" "" "Cipher suites." [ignored(NONE)];
    TLS_CURVE_PREFERENCES: Vec<i32> = "webhook-tls-curve-preferences" "" "Key exchange groups." [ignored(NONE)];
    TLS_MIN_VERSION: String = "webhook-tls-min-version" "" "Lowest TLS version." [ignored(NONE)];
    TLS_SNI_CERT_KEY: Vec<SniCertKey> = "webhook-tls-sni-cert-key" "" "Certificates by server name." [ignored(NONE)];
    DISABLE_HTTP2: bool = "webhook-disable-http2-serving" "false" "Whether only HTTP/1.1 is served." [ignored(NONE)];
}
