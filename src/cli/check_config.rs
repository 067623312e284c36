//! `check-config`: the provider configuration to check, and the extent of the check.
//!
//! In: the arguments after `check-config`. Out: a [`CheckConfigOptions`]. The flags are rows of the table in [`flags`](super::flags), so
//! they have the same meaning as for the manager.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{
    arguments::{self, FlagArguments},
    config::{self, KubeCloudSharedOptions},
    flags::{FlagSpec, cloud, controllers, generic, provider_config},
    plan::{is_json, output},
    usage_errors::{UsageError, UsageErrors},
};
use crate::runtime::client::KubeClientConfig;

/// Name of the subcommand.
pub const NAME: &str = "check-config";

#[derive(Debug, Clone, PartialEq)]
pub struct CheckConfigOptions {
    /// Cloud, and source of its configuration.
    pub cloud: KubeCloudSharedOptions,
    /// Client of the API server, used if the configuration is in a Secret.
    pub kube_api: KubeClientConfig,
    /// Whether the credentials and the permissions are checked, too.
    pub online: bool,
    /// Whether warnings count as errors.
    pub strict: bool,
    /// `-o json`.
    pub json: bool,
}

/// Flags of the manager that the subcommand accepts.
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
        .about("Check the configuration of the provider")
        .after_help("Exit codes:\n  0  the configuration can be used\n  1  the configuration cannot be used")
        .args_override_self(true)
        .args(FLAGS.iter().map(|spec| arguments::argument(spec)))
        .arg(switch(ONLINE, "Check the credentials, and each permission that the manager needs."))
        .arg(switch(STRICT, "Count warnings, such as unknown keys, as errors."))
        .arg(output())
}

/// Reads the arguments of the subcommand. `checkable` are the providers that can check their configuration.
pub(super) fn parse(
    matches: &ArgMatches,
    checkable: &[&str],
    mut mistakes: UsageErrors,
) -> Result<CheckConfigOptions, UsageError> {
    let mut arguments = FlagArguments::new(matches, FLAGS);
    mistakes.add_invalid_values(&arguments);
    arguments.apply_default_provider(checkable);
    let (online, strict, json) = (matches.get_flag(ONLINE), matches.get_flag(STRICT), is_json(matches));
    let built = config::build_for_check(arguments, checkable);
    mistakes.finish(built.map(|(cloud, kube_api)| CheckConfigOptions { cloud, kube_api, online, strict, json }))
}
