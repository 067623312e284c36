//! `acr-credential-provider`: credentials with which the kubelet pulls an image from Azure Container Registry.
//!
//! In: azure.json, flags, and the kubelet's request for one image. Out: the response for the kubelet, or a remedy. Nothing is stored, and
//! only the response contains a secret. Upstream: `cmd/acr-credential-provider`, `pkg/credentialprovider` of cloud-provider-azure;
//! the protocol is `k8s.io/kubelet/pkg/apis/credentialprovider/v1`.
//!
//! ```text
//! request + image ─► identity ─► token (auth, identity_binding) ─► exchange with the registry ─► response
//! ```

mod challenge;
mod exchange;
mod identity;
mod identity_binding;
mod image;
mod provide;
mod request;
mod wires;

pub use provide::{ImageCredentialError, provide, provide_with};
pub use wires::ImageCredentialWires;

/// Name of the program, and of the subcommand.
pub const PROGRAM: &str = "acr-credential-provider";

/// Parsers of text from registries, kubelets and command lines, for the fuzzer.
pub mod parsers {
    pub use super::{
        challenge::{RegistryChallenge, exchange_url},
        image::{ImageRegistry, RegistryMirror, registry_of},
        request::ImageCredentialRequest,
    };
}
