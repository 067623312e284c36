//! `cloud-node-manager`: the same program on every node, for its own Node alone.
//!
//! In: the words after the program's or the subcommand's name. Out: a [`config::NodeManagerConfig`]. The flags are rows of the tables in
//! [`flags`](super::flags), so they mean what they mean for the manager.

use clap::{ArgMatches, Command};

use super::{
    arguments::{self, FlagArguments},
    command::CliCommand as Parsed,
    config,
    flags::{FlagSpec, generic, node_manager::sections},
    usage_errors::{UsageError, UsageErrors},
    value::VersionRequest,
    version::{NODE_MANAGER as NAME, VERSION, VERSION_WORD},
};

/// Name in front of the version. Upstream's.
const TITLE: &str = "Cloud Node Manager";

/// The subcommand.
pub(super) fn command() -> Command {
    let about = "Initialises the Node of the machine it runs on, and keeps its addresses up to date";
    let version = Command::new(VERSION_WORD).about("Prints the name and the version, as --version does");
    arguments::add_flags(arguments::subcommand(NAME, about).subcommand(version), &sections())
}

/// Reads the subcommand's words. `providers` are those that know the machine they run on.
pub(super) fn parse(matches: &ArgMatches, providers: &[&str], mut mistakes: UsageErrors) -> Result<Parsed, UsageError> {
    let specs: Vec<FlagSpec> = sections().iter().flat_map(|section| section.flags.to_vec()).collect();
    let mut arguments = FlagArguments::new(matches, &specs);
    mistakes.add_invalid_values(&arguments);
    let is_word = matches.subcommand_name() == Some(VERSION_WORD);
    if is_word || matches!(arguments.read(&generic::VERSION), VersionRequest::Short | VersionRequest::Raw) {
        return mistakes.finish(Ok(Parsed::Print(format!("{TITLE} {VERSION}\n"))));
    }
    arguments.apply_default_provider(providers);
    let config = config::build_for_node_manager(arguments, &specs, providers);
    mistakes.finish(config.map(|config| Parsed::ManageNode(Box::new(config))))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, time::Duration};

    use super::*;
    use crate::cli::{CliCommand as Parsed, RegisteredProviders, config::NodeManagerConfig, parse_for};

    fn read(line: &str) -> Result<Parsed, UsageError> {
        let providers = RegisteredProviders {
            all: &["azure", "fake", "other"],
            local: &["azure", "fake"],
            ..RegisteredProviders::default()
        };
        parse_for(line.split(' ').map(OsString::from), providers)
    }

    fn config(line: &str) -> NodeManagerConfig {
        match read(line) {
            Ok(Parsed::ManageNode(config)) => *config,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_subcommand_and_the_programs_name_mean_the_same() {
        let flags = "--node-name=Node-A --wait_routes --kube-api-qps 50";
        let expected = config(&format!("cloud-controller-manager cloud-node-manager {flags}"));
        for program in ["cloud-node-manager", "/usr/local/bin/cloud-node-manager", "./cloud-node-manager.exe"] {
            assert_eq!(config(&format!("{program} {flags}")), expected, "{program}");
        }
        assert_eq!((expected.node_name.as_deref(), expected.settings.wait_routes), (Some("node-a"), true));
        assert!(matches!(read("/cloud-node-manager/other --leader-elect=false --cloud-provider=fake"), Ok(Parsed::Run(_))));
    }

    #[test]
    fn defaults_are_upstreams() {
        let config = config("cloud-node-manager");
        assert_eq!((config.provider.as_str(), config.cloud_config, config.node_name), ("azure", None, None));
        assert!(config.use_instance_metadata && !config.settings.wait_routes);
        assert_eq!(config.settings.status_update_frequency, Duration::from_secs(300));
        assert_eq!((config.serving.port, config.serving.profiling), (0, false));
        assert_eq!(config.notices, Vec::<String>::new());
        assert!(config.flagz.contains(&("secure-port".to_owned(), "0".to_owned())));
        assert!(!config.flagz.iter().any(|(name, _)| name == "leader-elect"));
    }

    #[test]
    fn what_means_nothing_here_is_accepted_and_told() {
        let config =
            config("cloud-node-manager --windows-service --min-resync-period=10h --enable-deprecated-beta-topology-labels");
        assert!(config.settings.beta_labels);
        assert!(config.windows_service);
        assert_eq!(config.notices.len(), 1, "{:?}", config.notices);
        assert!(
            matches!(read("cloud-node-manager --version"), Ok(Parsed::Print(text)) if text.starts_with("Cloud Node Manager v"))
        );
    }

    #[test]
    fn bad_words_are_told() {
        for (line, told) in [
            ("cloud-node-manager --leader-elect=false", "unknown flag --leader-elect"),
            ("cloud-node-manager --node-status-update-frequency=0s", "want more than zero"),
            ("cloud-node-manager --cloud-provider=other", "want one of azure, fake"),
            ("cloud-controller-manager --wait-routes", "unknown flag --wait-routes"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(told), "{line}: {error}");
        }
    }
}
