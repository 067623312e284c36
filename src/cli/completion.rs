//! The subcommand `completion`: a script that completes the program's words in a shell.
//!
//! In: the shell's name and the whole parser. Out: the script. Only in builds with the feature `completions`.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::NAME;

/// The subcommand's name.
pub(super) const COMPLETION: &str = "completion";

/// The subcommand, to hang on a parser.
pub(super) fn subcommand() -> Command {
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(Shell));
    Command::new(COMPLETION).about("Prints a completion script for a shell").arg(shell)
}

/// The script for the shell that was typed.
pub(super) fn script(chosen: &ArgMatches, mut parser: Command) -> String {
    let shell = chosen.get_one::<Shell>("shell").copied().unwrap_or(Shell::Bash);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut parser, NAME, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
