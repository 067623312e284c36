//! `explain`: the name to explain. In: the words after `explain`. Out: an [`ExplainOptions`].

use clap::{Arg, ArgMatches, Command};

use super::plan::{output, wants_json};

/// Name of the subcommand.
pub(super) const NAME: &str = "explain";

const SUBJECT: &str = "name";

/// What to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainOptions {
    pub name: String,
    /// `-o json`.
    pub json: bool,
}

pub(super) fn command() -> Command {
    let about =
        "Explains an error code, an event, an alert, a flag, a field of azure.json, a metric and more, and says what to do";
    let help =
        "Error code, event, alert, flag, field, metric, annotation, label, taint, condition, reason or check to explain";
    // Names of flags begin with dashes.
    let subject = Arg::new(SUBJECT).value_name("NAME").required(true).allow_hyphen_values(true).help(help);
    Command::new(NAME).about(about).arg(subject).arg(output())
}

pub(super) fn parse(matches: &ArgMatches) -> ExplainOptions {
    let name = matches.get_one::<String>(SUBJECT).cloned().unwrap_or_default();
    ExplainOptions { name, json: wants_json(matches) }
}
