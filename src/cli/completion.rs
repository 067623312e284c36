//! Subcommand `completion`: a script that completes commands and flags in a shell.
//!
//! In: the name of the shell and the whole parser. Out: the script. Only in builds with the feature `completions`.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::NAME;

pub(super) const COMPLETION: &str = "completion";

pub(super) fn subcommand() -> Command {
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(Shell));
    Command::new(COMPLETION).about("Print a completion script for a shell").arg(shell)
}

/// Returns the script for the shell that is named in `chosen`.
pub(super) fn script(chosen: &ArgMatches, mut parser: Command) -> String {
    let shell = chosen.get_one::<Shell>("shell").copied().unwrap_or(Shell::Bash);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut parser, NAME, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
