//! `doctor` and `orphans`: the configuration of the manager to examine, and the format of the findings.
//!
//! In: the arguments after the subcommand: the flags of the manager and a few more. Out: a [`DiagnoseOptions`], with which a manager only
//! reads.

use clap::{Arg, ArgMatches, Command};

use super::{
    arguments,
    config::ManagerConfig,
    flags::FlagTable,
    plan::{is_json, is_key, output, read_only_manager},
    usage_errors::{UsageError, UsageErrors},
};
use crate::flags::quoted;

pub(super) const DOCTOR: &str = "doctor";
pub(super) const ORPHANS: &str = "orphans";

const ACCOUNT: &str = "service-account";

/// Options of `doctor` and `orphans`.
#[derive(Debug, Clone, PartialEq)]
pub struct DiagnoseOptions {
    /// Configuration of the manager whose cluster and cloud are examined.
    pub manager: ManagerConfig,
    /// ServiceAccount whose rights in the cluster are examined, namespace and name; `None` selects the caller.
    pub account: Option<(String, String)>,
    /// `-o json`.
    pub json: bool,
}

pub(super) fn doctor(table: &FlagTable) -> Command {
    let about = "Examine cluster and cloud with the flags of a manager, and print problems with their remedies";
    let account = Arg::new(ACCOUNT).long(ACCOUNT).value_name("NAMESPACE/NAME");
    let account = account.help("Examine the rights of this ServiceAccount instead of your own.");
    let codes = "Exit codes:\n  0  no problem was found\n  1  no problem was found, but a check could not be made\n  \
                 2  at least one problem was found";
    command(DOCTOR, about, table).after_help(codes).arg(account).arg(output())
}

pub(super) fn orphans(table: &FlagTable) -> Command {
    let about = "List cloud resources that are tagged or named for the cluster and belong to no Service";
    let codes =
        "Exit codes:\n  0  no orphan was found\n  1  cluster or cloud could not be read\n  2  at least one orphan was found";
    command(ORPHANS, about, table).after_help(codes).arg(output())
}

/// Returns a subcommand that accepts the flags of the manager.
pub(super) fn command(name: &'static str, about: &'static str, table: &FlagTable) -> Command {
    arguments::add_flags(arguments::subcommand(name, about), table.sections())
}

/// Reads the arguments of the subcommand.
pub(super) fn parse(
    matches: &ArgMatches,
    table: &FlagTable,
    providers: &[&str],
    mut mistakes: UsageErrors,
) -> Result<DiagnoseOptions, UsageError> {
    let account = matches.try_get_one::<String>(ACCOUNT).ok().flatten();
    if let Some(invalid) = account.filter(|account| !is_key(account)) {
        mistakes.add(format!("invalid value {} for --{ACCOUNT}: expected NAMESPACE/NAME", quoted(invalid)));
    }
    let account =
        account.and_then(|key| key.split_once('/')).map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let built = read_only_manager(matches, table, providers, &mut mistakes);
    let json = matches.try_contains_id("output").unwrap_or(false) && is_json(matches);
    mistakes.finish(built.map(|manager| DiagnoseOptions { manager, account, json }))
}
