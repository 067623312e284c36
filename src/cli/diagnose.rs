//! `doctor` and `orphans`: which manager's configuration to examine, and how to print what is found.
//!
//! In: the words after the command: the daemon's own flags and a few more. Out: a [`DiagnoseOptions`]. A manager made of it only reads.

use clap::{Arg, ArgMatches, Command};

use super::{
    arguments,
    config::ManagerConfig,
    flags::FlagTable,
    plan::{is_key, output, read_only_manager, wants_json},
    usage_errors::{UsageError, UsageErrors},
};
use crate::flags::quoted;

/// Names of the subcommands.
pub(super) const DOCTOR: &str = "doctor";
pub(super) const ORPHANS: &str = "orphans";

const ACCOUNT: &str = "service-account";

/// What to examine, and how to print it.
#[derive(Debug, Clone, PartialEq)]
pub struct DiagnoseOptions {
    /// The manager whose surroundings are examined.
    pub manager: ManagerConfig,
    /// Whose rights in the cluster are examined, namespace and name; `None`: the caller's.
    pub account: Option<(String, String)>,
    /// `-o json`.
    pub json: bool,
}

pub(super) fn doctor(table: &FlagTable) -> Command {
    let about =
        "Examines cluster and cloud with a manager's flags and says what to do: 0 no problem, 2 problems, 1 could not look";
    let account = Arg::new(ACCOUNT).long(ACCOUNT).value_name("NAMESPACE/NAME");
    let account = account.help("Examine the rights of this ServiceAccount instead of your own");
    command(DOCTOR, about, table).arg(account).arg(output())
}

pub(super) fn orphans(table: &FlagTable) -> Command {
    let about = "Lists what carries the cluster's marks in the cloud and belongs to no Service: 0 nothing, 2 something, 1 could not look";
    command(ORPHANS, about, table).arg(output())
}

/// A command that takes the manager's flags.
pub(super) fn command(name: &'static str, about: &'static str, table: &FlagTable) -> Command {
    arguments::add_flags(arguments::subcommand(name, about), table.sections())
}

/// Reads the subcommand's words.
pub(super) fn parse(
    matches: &ArgMatches,
    table: &FlagTable,
    providers: &[&str],
    mut mistakes: UsageErrors,
) -> Result<DiagnoseOptions, UsageError> {
    let account = matches.try_get_one::<String>(ACCOUNT).ok().flatten();
    if let Some(wrong) = account.filter(|account| !is_key(account)) {
        mistakes.add(format!("invalid value {} for --{ACCOUNT}: want NAMESPACE/NAME", quoted(wrong)));
    }
    let account = account.and_then(|key| key.split_once('/')).map(|(space, name)| (space.to_owned(), name.to_owned()));
    let built = read_only_manager(matches, table, providers, &mut mistakes);
    let json = matches.try_contains_id("output").unwrap_or(false) && wants_json(matches);
    mistakes.finish(built.map(|manager| DiagnoseOptions { manager, account, json }))
}
