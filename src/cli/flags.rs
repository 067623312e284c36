//! Declarations of all flags: name, type of value, default, section, help and effect.
//!
//! The parser, `--help`, completions, `/flagz` and the reference page are generated from a [`FlagTable`], which has the flags of the
//! program and those that providers have registered. Names, types and defaults are upstream's (`k8s.io/cloud-provider/options`,
//! `k8s.io/apiserver/pkg/server/options`, `k8s.io/component-base`), so the arguments of a Go deployment have the same meaning.

pub mod acr_credential_provider;
pub mod cloud;
pub mod controllers;
pub mod generic;
pub mod health_probe_proxy;
pub mod leader_election;
pub mod logging;
pub mod node_manager;
pub mod provider_config;
pub mod serving;
mod table;
pub mod webhooks;

pub use self::table::FlagTable;
pub(crate) use crate::flags::declare_flags;
pub use crate::flags::{FlagSection, FlagSpec, TypedFlag};

/// Sections of the program's own flags, without [`provider_config`].
const SECTIONS: &[FlagSection] = &[
    FlagSection::of("Cloud and cluster", cloud::FLAGS),
    FlagSection::of("Controllers", controllers::FLAGS),
    FlagSection::of("Generic", generic::FLAGS),
    FlagSection::of("Leader election", leader_election::FLAGS),
    FlagSection::of("Secure serving", serving::SERVING),
    FlagSection::of("Authentication", serving::AUTHENTICATION),
    FlagSection::of("Authorization", serving::AUTHORIZATION),
    FlagSection::of("Logging", logging::FLAGS),
    FlagSection::of("Webhooks", webhooks::FLAGS),
];

#[cfg(test)]
mod tests;
