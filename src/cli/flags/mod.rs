//! Every flag once: name, kind of value, default, section, help and effect. The parser, `--help`, completions, `/flagz`
//! and the reference page derive from [`SECTIONS`].
//!
//! Names, kinds and defaults are upstream's (`k8s.io/cloud-provider/options`, `k8s.io/apiserver/pkg/server/options`,
//! `k8s.io/component-base`), so that the arguments of a Go deployment mean the same here.

pub mod azure;
pub mod cloud;
pub mod controllers;
mod flag;
pub mod generic;
pub mod health_probe_proxy;
pub mod leader_election;
pub mod logging;
pub mod node_manager;
pub mod serving;
pub mod webhooks;

pub(crate) use self::flag::flags;
pub use self::flag::{FlagEffect, FlagSection, FlagSpec, FlagVisibility, TypedFlag};

pub const SECTIONS: &[FlagSection] = &[
    FlagSection { title: "Cloud and cluster", flags: cloud::FLAGS },
    FlagSection { title: "Controllers", flags: controllers::FLAGS },
    FlagSection { title: "Generic", flags: generic::FLAGS },
    FlagSection { title: "Leader election", flags: leader_election::FLAGS },
    FlagSection { title: "Secure serving", flags: serving::SERVING },
    FlagSection { title: "Authentication", flags: serving::AUTHENTICATION },
    FlagSection { title: "Authorization", flags: serving::AUTHORIZATION },
    FlagSection { title: "Logging", flags: logging::FLAGS },
    FlagSection { title: "Webhooks", flags: webhooks::FLAGS },
    FlagSection { title: "Azure", flags: azure::FLAGS },
];

/// All rows in order.
pub fn all() -> impl Iterator<Item = &'static FlagSpec> {
    SECTIONS.iter().flat_map(|section| section.flags)
}

#[cfg(test)]
mod tests;
