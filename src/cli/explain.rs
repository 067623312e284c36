//! `explain`: the name to explain. In: the arguments after `explain`. Out: an [`ExplainOptions`].

use clap::{Arg, ArgMatches, Command};

use super::plan::{is_json, output};

/// Name of the subcommand.
pub(super) const NAME: &str = "explain";

const SUBJECT: &str = "name";

/// Options of the subcommand `explain`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainOptions {
    pub name: String,
    /// `-o json`.
    pub json: bool,
}

pub(super) fn command() -> Command {
    let about =
        "Explain an error code, an event, an alert, a flag, a field of azure.json, a metric and more, and print what to do";
    let help =
        "Error code, event, alert, flag, field, metric, annotation, label, taint, condition, reason or check to explain.";
    // Names of flags begin with dashes.
    let subject = Arg::new(SUBJECT).value_name("NAME").required(true).allow_hyphen_values(true).help(help);
    let codes = "Exit codes:\n  0  the name is known\n  1  the name is unknown";
    Command::new(NAME).about(about).after_help(codes).arg(subject).arg(output())
}

pub(super) fn parse(matches: &ArgMatches) -> ExplainOptions {
    let name = matches.get_one::<String>(SUBJECT).cloned().unwrap_or_default();
    ExplainOptions { name, json: is_json(matches) }
}
