//! `support-bundle`: the manager about which data is collected, and the file to write.
//!
//! In: the arguments after `support-bundle`: the flags of the manager and a few more. Out: a [`SupportBundleOptions`].

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};

use super::{
    diagnose::{self, DiagnoseOptions},
    flags::FlagTable,
    status::{self, StatusOptions, StatusSubject},
    usage_errors::{UsageError, UsageErrors},
};

/// Name of the subcommand.
pub(super) const NAME: &str = "support-bundle";

const FILE: &str = "file";
const DEFAULT_FILE: &str = "ccm-support.tar.gz";

/// Options of the subcommand `support-bundle`.
#[derive(Debug, Clone, PartialEq)]
pub struct SupportBundleOptions {
    /// Configuration of the manager whose cluster and cloud are examined.
    pub diagnose: DiagnoseOptions,
    /// Connection to the pages of the manager.
    pub status: StatusOptions,
    /// Archive to write; it must not exist.
    pub file: PathBuf,
}

pub(super) fn command(table: &FlagTable) -> Command {
    let about = "Collect status, plans, metrics, events, configuration and findings of doctor in an archive without secrets";
    let file = Arg::new(FILE).long(FILE).value_name("FILE.tar.gz").default_value(DEFAULT_FILE);
    let codes = "Exit codes:\n  0  the archive is complete\n  1  the archive is incomplete, or could not be written";
    let file = file.help("Archive to write. It must not exist.");
    diagnose::command(NAME, about, table).after_help(codes).arg(file).args(status::url_arguments())
}

/// Reads the arguments of the subcommand.
pub(super) fn parse(
    matches: &ArgMatches,
    table: &FlagTable,
    providers: &[&str],
    mut mistakes: UsageErrors,
) -> Result<SupportBundleOptions, UsageError> {
    let url = status::read_url(matches, &mut mistakes);
    let file = PathBuf::from(matches.get_one::<String>(FILE).map_or(DEFAULT_FILE, String::as_str));
    let diagnose = diagnose::parse(matches, table, providers, mistakes)?;
    let manager = &diagnose.manager;
    let status = StatusOptions {
        kube_api: manager.kube_api.clone(),
        lease: (manager.leader_election.resource_namespace.clone(), manager.leader_election.resource_name.clone()),
        port: manager.serving.port,
        subject: StatusSubject::Manager,
        url,
        json: false,
    };
    Ok(SupportBundleOptions { status, file, diagnose })
}
