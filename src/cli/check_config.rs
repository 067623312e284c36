//! `check-config`: which provider configuration to look at, and how closely.
//!
//! In: the words after `check-config`. Out: a [`CheckConfigOptions`]. The flags are rows of the table in [`flags`](super::flags), so they
//! mean what they mean when the program runs.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{
    arguments::{self, FlagArguments},
    config::{self, KubeCloudSharedOptions},
    flags::{FlagSpec, cloud, controllers, generic, provider_config},
    plan::{output, wants_json},
    usage_errors::{UsageError, UsageErrors},
};
use crate::runtime::client::KubeClientConfig;

/// Name of the subcommand.
pub const NAME: &str = "check-config";

#[derive(Debug, Clone, PartialEq)]
pub struct CheckConfigOptions {
    /// The cloud and where its configuration is.
    pub cloud: KubeCloudSharedOptions,
    /// The way to the API server, when the configuration is in a Secret.
    pub kube_api: KubeClientConfig,
    /// Try the credentials and the permissions too.
    pub online: bool,
    /// Warnings count as errors.
    pub strict: bool,
    /// `-o json`.
    pub json: bool,
}

/// The flags of the program that mean something here.
const FLAGS: [&FlagSpec; 11] = [
    &cloud::CLOUD_PROVIDER.spec,
    &cloud::CLOUD_CONFIG.spec,
    &cloud::CLUSTER_NAME.spec,
    &cloud::CONFIGURE_CLOUD_ROUTES.spec,
    &controllers::LOAD_BALANCER_CLASS.spec,
    &controllers::SERVE_SERVICES_WITHOUT_CLASS.spec,
    &provider_config::CLOUD_CONFIG_SECRET_NAME.spec,
    &provider_config::CLOUD_CONFIG_SECRET_NAMESPACE.spec,
    &provider_config::CLOUD_CONFIG_KEY.spec,
    &generic::KUBECONFIG.spec,
    &generic::MASTER.spec,
];

const ONLINE: &str = "online";
const STRICT: &str = "strict";

pub(super) fn command() -> Command {
    let switch = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new(NAME)
        .about("Checks the provider's configuration and ends: 0 when it can be used, 1 when not")
        .args_override_self(true)
        .args(FLAGS.iter().map(|spec| arguments::argument(spec)))
        .arg(switch(ONLINE, "Try the credentials, and each permission that will be needed"))
        .arg(switch(STRICT, "Count warnings, such as unknown keys, as errors"))
        .arg(output())
}

/// Reads the subcommand's words. `checkable` are the providers that can check their configuration.
pub(super) fn parse(
    matches: &ArgMatches,
    checkable: &[&str],
    mut mistakes: UsageErrors,
) -> Result<CheckConfigOptions, UsageError> {
    let mut arguments = FlagArguments::new(matches, FLAGS);
    mistakes.add_invalid_values(&arguments);
    arguments.apply_default_provider(checkable);
    let (online, strict, json) = (matches.get_flag(ONLINE), matches.get_flag(STRICT), wants_json(matches));
    let built = config::build_for_check(arguments, checkable);
    mistakes.finish(built.map(|(cloud, kube_api)| CheckConfigOptions { cloud, kube_api, online, strict, json }))
}
