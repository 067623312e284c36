//! Flags of acr-credential-provider: its own, and the logging flags.
//!
//! Upstream: `cmd/acr-credential-provider` of cloud-provider-azure.

use super::{FlagSection, declare_flags, generic, logging};

declare_flags! {
    REGISTRY_MIRROR: Vec<String> = "registry-mirror" ""
        "Registries that replace others, as source:target: images of the source are pulled from the target, with the identity of the \
         machine. A malformed entry is logged and skipped." [short('r')];
    IB_SNI_NAME: String = "ib-sni-name" ""
        "Name of the server that exchanges service account tokens by identity bindings, without https://. Needs --ib-apiserver-ip.";
    IB_APISERVER_IP: String = "ib-apiserver-ip" ""
        "IP address of that server, or a name that must resolve within 10 s.";
    IB_DEFAULT_CLIENT_ID: String = "ib-default-client-id" ""
        "Client id for service accounts without the annotation kubernetes.azure.com/acr-client-id.";
    IB_DEFAULT_TENANT_ID: String = "ib-default-tenant-id" ""
        "Tenant for service accounts without the annotation kubernetes.azure.com/acr-tenant-id.";
    IB_CA_FILE: String = "ib-ca-file" "/etc/kubernetes/certs/ca.crt"
        "PEM file with the certificate authorities of that server. In the Go program, this path is fixed.";
}

pub const SECTIONS: &[FlagSection] = &[
    FlagSection::of("Credentials", FLAGS),
    FlagSection::of("Logging", logging::FLAGS),
    FlagSection::of("Generic", &[generic::VERSION.spec]),
];
