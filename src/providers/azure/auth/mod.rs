//! Clouds and credentials: which endpoints, and tokens for them.
//!
//! In: the configuration and the environment. Out: a [`Connection`]: the [`Cloud`] and its [`Credentials`], which are sources of
//! tokens that are cached, refreshed ahead of their end, and fetched once however many wait.
//!
//! ```text
//! config + environment ─ cloud (+ /metadata/endpoints) ─► Cloud
//!                      └ choice ─► entra | managed_identity | data_plane | key_vault ─ token::CachedTokens ─► TokenSource
//!                                        └ all through one arm::Transport (client: the real one)
//! ```

mod answer;
mod assertion;
mod certificate;
mod choice;
mod client;
mod cloud;
mod connect;
mod data_plane;
mod entra;
mod error;
mod key_vault;
mod managed_identity;
mod roots;
mod schedule;
#[cfg(test)]
mod tests;
mod token;
mod wire;

pub use choice::{Application, Choice, ManagedIdentity, choose};
pub use client::ReqwestTransport;
pub use cloud::Cloud;
pub use connect::{Connection, Credentials, connect};
pub use error::AuthError;
pub use token::{Token, TokenSource};
