//! Flags of the HTTPS server, and of authentication and authorization of its clients.

pub use authentication::FLAGS as AUTHENTICATION;
pub use authorization::FLAGS as AUTHORIZATION;
pub use secure::FLAGS as SERVING;

/// Flags of the listener and of TLS.
pub mod secure {
    use crate::serving::config::SniCertKey;
    use crate::{cli::value::BindIp, flags::declare_flags};

    declare_flags! {
        BIND_ADDRESS: BindIp = "bind-address" "0.0.0.0" "Address to listen on.";
        SECURE_PORT: i32 = "secure-port" "10258" "Port for HTTPS. 0 disables the server.";
        CERT_DIR: String = "cert-dir" ""
            "Directory for cloud-controller-manager.crt and .key, created if they are missing. Empty keeps a pair in \
             memory. Not used with --tls-cert-file.";
        TLS_CERT_FILE: String = "tls-cert-file" "" "PEM file of the certificate chain, read again when it changes.";
        TLS_PRIVATE_KEY_FILE: String = "tls-private-key-file" "" "PEM file of the private key for --tls-cert-file.";
        TLS_CIPHER_SUITES: Vec<String> = "tls-cipher-suites" ""
            "Cipher suites by their IANA names. Empty selects those of the library.";
        TLS_MIN_VERSION: String = "tls-min-version" ""
            "Lowest TLS version: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13. The effective minimum is 1.2.";
        TLS_CURVE_PREFERENCES: Vec<i32> = "tls-curve-preferences" "" "Key exchange groups by number, best first.";
        TLS_SNI_CERT_KEY: Vec<SniCertKey> = "tls-sni-cert-key" ""
            "Certificate and key for particular server names. The flag can be repeated.";
        HTTP2_MAX_STREAMS: i32 = "http2-max-streams-per-connection" "0" "Streams per HTTP/2 connection. 0 selects the default, 100.";
        DISABLE_HTTP2: bool = "disable-http2-serving" "false" "Serve only HTTP/1.1.";
        PERMIT_PORT_SHARING: bool = "permit-port-sharing" "false" "Allow several processes to listen on the port (SO_REUSEPORT).";
        PERMIT_ADDRESS_SHARING: bool = "permit-address-sharing" "false"
            "Allow the port to be bound while old connections still exist (SO_REUSEADDR).";
    }
}

pub mod authentication {
    use std::time::Duration;

    use crate::flags::declare_flags;

    declare_flags! {
        KUBECONFIG: String = "authentication-kubeconfig" "" "kubeconfig of the API server that reviews tokens. Empty selects that of --kubeconfig.";
        SKIP_LOOKUP: bool = "authentication-skip-lookup" "false"
            "Do not read the cluster's authentication ConfigMap.";
        TOLERATE_LOOKUP_FAILURE: bool = "authentication-tolerate-lookup-failure" "false"
            "Continue if the cluster's authentication ConfigMap cannot be read.";
        TOKEN_CACHE_TTL: Duration = "authentication-token-webhook-cache-ttl" "10s"
            "Time for which the review of a token is cached.";
        CLIENT_CA_FILE: String = "client-ca-file" "" "PEM file of the authorities that sign client certificates.";
        REQUESTHEADER_CLIENT_CA_FILE: String = "requestheader-client-ca-file" ""
            "PEM file of the authorities that sign certificates of front proxies.";
        REQUESTHEADER_ALLOWED_NAMES: Vec<String> = "requestheader-allowed-names" ""
            "Common names that a front proxy may have. Empty accepts any name.";
        REQUESTHEADER_USERNAME_HEADERS: Vec<String> = "requestheader-username-headers" "x-remote-user"
            "Headers with the user's name.";
        REQUESTHEADER_UID_HEADERS: Vec<String> = "requestheader-uid-headers" "" "Headers with the user's UID.";
        REQUESTHEADER_GROUP_HEADERS: Vec<String> = "requestheader-group-headers" "x-remote-group"
            "Headers with the user's groups.";
        REQUESTHEADER_EXTRA_HEADERS_PREFIX: Vec<String> = "requestheader-extra-headers-prefix" "x-remote-extra-"
            "Prefixes of headers with additional attributes of the user.";
    }
}

pub mod authorization {
    use std::time::Duration;

    use crate::flags::declare_flags;

    declare_flags! {
        KUBECONFIG: String = "authorization-kubeconfig" "" "kubeconfig of the API server that reviews access. Empty selects that of --kubeconfig.";
        ALWAYS_ALLOW_PATHS: Vec<String> = "authorization-always-allow-paths" "/healthz,/readyz,/livez"
            "Paths that need no authorization. A trailing * matches any text.";
        AUTHORIZED_TTL: Duration = "authorization-webhook-cache-authorized-ttl" "10s"
            "Time for which an allowed access is cached.";
        UNAUTHORIZED_TTL: Duration = "authorization-webhook-cache-unauthorized-ttl" "10s"
            "Time for which a denied access is cached.";
    }
}
