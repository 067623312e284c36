//! `cloud-node-manager`: runs on every node and manages only the Node of its machine.
//!
//! In: the arguments after the name of the program or the subcommand. Out: a [`config::NodeManagerConfig`]. The flags are rows of the
//! tables in [`flags`](super::flags), so they have the same meaning as for the manager.

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

/// Name before the version, as upstream prints it.
const TITLE: &str = "Cloud Node Manager";

pub(super) fn command() -> Command {
    let about = "Initialize the Node of this machine, and keep its addresses up to date";
    let version = Command::new(VERSION_WORD).about("Print the name and the version, as --version does");
    arguments::add_flags(arguments::subcommand(NAME, about).subcommand(version), &sections())
}

/// Reads the arguments of the subcommand. `providers` are those that can describe the machine on which they run.
pub(super) fn parse(matches: &ArgMatches, providers: &[&str], mut mistakes: UsageErrors) -> Result<Parsed, UsageError> {
    let specs: Vec<FlagSpec> = sections().iter().flat_map(|section| section.flags.to_vec()).collect();
    let mut arguments = FlagArguments::new(matches, &specs);
    mistakes.add_invalid_values(&arguments);
    let is_subcommand = matches.subcommand_name() == Some(VERSION_WORD);
    if is_subcommand || matches!(arguments.read(&generic::VERSION), VersionRequest::Short | VersionRequest::Raw) {
        return mistakes.finish(Ok(Parsed::Print(format!("{TITLE} {VERSION}\n"))));
    }
    arguments.apply_default_provider(providers);
    let config = config::build_for_node_manager(arguments, &specs, providers);
    mistakes.finish(config.map(|config| Parsed::ManageNode(Box::new(config))))
}
