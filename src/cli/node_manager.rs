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
