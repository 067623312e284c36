//! `support-bundle`: which manager to gather facts about, and the file to write.
//!
//! In: the words after `support-bundle`: the daemon's own flags and a few more. Out: a [`SupportBundleOptions`].

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
const USUAL_FILE: &str = "ccm-support.tar.gz";

/// What to gather, and where to.
#[derive(Debug, Clone, PartialEq)]
pub struct SupportBundleOptions {
    /// The manager whose surroundings are examined.
    pub diagnose: DiagnoseOptions,
    /// How its pages are read.
    pub status: StatusOptions,
    /// The archive to write; it must not exist.
    pub file: PathBuf,
}

pub(super) fn command(table: &FlagTable) -> Command {
    let about = "Gathers status, plans, metrics, events, configuration and doctor's findings in an archive without secrets: 0 all, 1 not all";
    let file = Arg::new(FILE).long(FILE).value_name("FILE.tar.gz").default_value(USUAL_FILE);
    diagnose::command(NAME, about, table).arg(file.help("The archive to write")).args(status::url_arguments())
}

/// Reads the subcommand's words.
pub(super) fn parse(
    matches: &ArgMatches,
    table: &FlagTable,
    providers: &[&str],
    mut mistakes: UsageErrors,
) -> Result<SupportBundleOptions, UsageError> {
    let url = status::read_url(matches, &mut mistakes);
    let file = PathBuf::from(matches.get_one::<String>(FILE).map_or(USUAL_FILE, String::as_str));
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
