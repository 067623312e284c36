//! Flags of the HTTPS server and of who may talk to it.

pub use authentication::FLAGS as AUTHENTICATION;
pub use authorization::FLAGS as AUTHORIZATION;
pub use secure::FLAGS as SERVING;

/// Listener and TLS.
pub mod secure {
    use crate::serving::config::SniCertKey;
    use crate::{cli::value::BindIp, flags::declare_flags};

    declare_flags! {
        BIND_ADDRESS: BindIp = "bind-address" "0.0.0.0" "Address to listen on.";
        SECURE_PORT: i32 = "secure-port" "10258" "Port for HTTPS; 0: no server.";
        CERT_DIR: String = "cert-dir" ""
            "Directory for cloud-controller-manager.crt and .key, made when missing; empty: a pair in memory. \
             Not used with --tls-cert-file.";
        TLS_CERT_FILE: String = "tls-cert-file" "" "PEM file of the certificate chain, read again when it changes.";
        TLS_PRIVATE_KEY_FILE: String = "tls-private-key-file" "" "PEM file of the private key for --tls-cert-file.";
        TLS_CIPHER_SUITES: Vec<String> = "tls-cipher-suites" ""
            "Cipher suites by their IANA names; empty: the library's choice.";
        TLS_MIN_VERSION: String = "tls-min-version" ""
            "Lowest TLS version: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13. Never below 1.2 in effect.";
        TLS_CURVE_PREFERENCES: Vec<i32> = "tls-curve-preferences" "" "Key exchange groups by number, best first.";
        TLS_SNI_CERT_KEY: Vec<SniCertKey> = "tls-sni-cert-key" ""
            "Certificate and key for particular server names. May be repeated.";
        HTTP2_MAX_STREAMS: i32 = "http2-max-streams-per-connection" "0" "Streams per HTTP/2 connection; 0: 16.";
        DISABLE_HTTP2: bool = "disable-http2-serving" "false" "Whether only HTTP/1.1 is served.";
        PERMIT_PORT_SHARING: bool = "permit-port-sharing" "false" "Whether several processes may listen (SO_REUSEPORT).";
        PERMIT_ADDRESS_SHARING: bool = "permit-address-sharing" "false"
            "Whether the port may be taken while old connections linger (SO_REUSEADDR).";
    }
}

pub mod authentication {
    use std::time::Duration;

    use crate::flags::declare_flags;

    declare_flags! {
        KUBECONFIG: String = "authentication-kubeconfig" "" "kubeconfig of the API server that reviews tokens; empty: that of --kubeconfig.";
        SKIP_LOOKUP: bool = "authentication-skip-lookup" "false"
            "Whether the cluster's authentication ConfigMap is left unread.";
        TOLERATE_LOOKUP_FAILURE: bool = "authentication-tolerate-lookup-failure" "false"
            "Whether to go on when that ConfigMap cannot be read.";
        TOKEN_CACHE_TTL: Duration = "authentication-token-webhook-cache-ttl" "10s"
            "How long a reviewed token is remembered.";
        CLIENT_CA_FILE: String = "client-ca-file" "" "PEM file of the authorities that sign client certificates.";
        REQUESTHEADER_CLIENT_CA_FILE: String = "requestheader-client-ca-file" ""
            "PEM file of the authorities that sign certificates of front proxies.";
        REQUESTHEADER_ALLOWED_NAMES: Vec<String> = "requestheader-allowed-names" ""
            "Common names that a front proxy may have; empty: any.";
        REQUESTHEADER_USERNAME_HEADERS: Vec<String> = "requestheader-username-headers" "x-remote-user"
            "Headers with the user's name.";
        REQUESTHEADER_UID_HEADERS: Vec<String> = "requestheader-uid-headers" "" "Headers with the user's UID.";
        REQUESTHEADER_GROUP_HEADERS: Vec<String> = "requestheader-group-headers" "x-remote-group"
            "Headers with the user's groups.";
        REQUESTHEADER_EXTRA_HEADERS_PREFIX: Vec<String> = "requestheader-extra-headers-prefix" "x-remote-extra-"
            "Prefixes of headers with more about the user.";
    }
}

pub mod authorization {
    use std::time::Duration;

    use crate::flags::declare_flags;

    declare_flags! {
        KUBECONFIG: String = "authorization-kubeconfig" "" "kubeconfig of the API server that reviews access; empty: that of --kubeconfig.";
        ALWAYS_ALLOW_PATHS: Vec<String> = "authorization-always-allow-paths" "/healthz,/readyz,/livez"
            "Paths open to everybody; a trailing * stands for anything.";
        AUTHORIZED_TTL: Duration = "authorization-webhook-cache-authorized-ttl" "10s"
            "How long a granted access is remembered.";
        UNAUTHORIZED_TTL: Duration = "authorization-webhook-cache-unauthorized-ttl" "10s"
            "How long a refused access is remembered.";
    }
}
