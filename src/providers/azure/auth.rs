//! Clouds and credentials: endpoints, and tokens for them.
//!
//! In: the configuration and the environment. Out: an [`ArmConnection`]: the [`CloudEndpoints`] and its [`ArmCredentials`],
//! sources of tokens that are cached, refreshed before they expire, and fetched once for all waiting callers.
//!
//! ```text
//! config + environment ─ cloud (+ /metadata/endpoints) ─► CloudEndpoints
//!                      └ credential_config ─► entra | managed_identity | data_plane | key_vault ─ token::CachedTokens ─► TokenSource
//!                                        └ all through one transport::ArmTransport (reqwest_transport over TCP and TLS)
//! ```

mod assertion;
mod certificate;
mod cloud;
mod connect;
mod credential_config;
mod data_plane;
mod entra;
mod error;
mod identity_answer;
mod identity_http;
mod key_vault;
mod managed_identity;
mod reqwest_transport;
mod roots;
mod single_token;
#[cfg(test)]
mod tests;
mod token;
mod token_schedule;

pub use cloud::CloudEndpoints;
pub use connect::{ArmConnection, ArmCredentials, cloud_endpoints, connect};
pub use credential_config::{CredentialConfig, EntraApplication, ManagedIdentityId, choose_credential};
pub use error::{AuthError, safe_line};
pub use reqwest_transport::{PinnedHost, ReqwestTransport};
pub use single_token::{federated_token, managed_identity_token};
pub use token::{BearerToken, CredentialExpiry, TokenSource};
