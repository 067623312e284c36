//! Errors of the command line, reported together: unknown arguments, invalid values and violated constraints.
//!
//! In: the arguments, and later the errors of values and constraints. Out: the matches of clap, or one line for each error, in that order.
//! Constraints on a flag with an invalid value are not reported, because they would compare its default.

use std::ffi::OsString;

use clap::{
    ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

use super::{arguments::FlagArguments, flags::FlagTable, value::FlagValue};
use crate::flags::{excerpt, quoted};

/// Maximum number of reported unknown arguments. The parser runs once for each.
const MAX_UNKNOWN_WORDS: usize = 20;

/// Errors found so far.
#[derive(Debug, Default)]
pub(super) struct UsageErrors {
    lines: Vec<String>,
    invalid_flags: Vec<&'static str>,
}

/// Result of parsing a command line.
pub(super) enum ParsedCommandLine {
    /// Flags and subcommand, without unknown arguments, which are among the errors.
    Matches(ArgMatches, UsageErrors),
    /// Help text that was requested.
    Help(String),
}

/// Parses `words`, and repeats this without each argument that the parser does not know.
pub(super) fn parse_words(command: &Command, mut words: Vec<OsString>) -> Result<ParsedCommandLine, UsageError> {
    let mut mistakes = UsageErrors::default();
    loop {
        let error = match command.clone().try_get_matches_from(&words) {
            Ok(matches) => return Ok(ParsedCommandLine::Matches(matches, mistakes)),
            Err(error) if error.kind() == ErrorKind::DisplayHelp => {
                return mistakes.finish(Ok(ParsedCommandLine::Help(error.render().to_string())));
            }
            Err(error) => error,
        };
        // clap prints the arguments of a command only after it is built.
        let mut built = command.clone();
        built.build();
        mistakes.add(describe(&error, &built, &words));
        if mistakes.lines.len() >= MAX_UNKNOWN_WORDS || !drop_word(command, &mut words, &error) {
            return Err(UsageError { lines: mistakes.lines });
        }
    }
}

/// Fails if there are any errors in `lines`.
pub(super) fn refuse(lines: Vec<String>) -> Result<(), UsageError> {
    if lines.is_empty() { Ok(()) } else { Err(UsageError { lines }) }
}

impl UsageErrors {
    /// Returns `true` if no error has been added.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Adds an error, unless the same line exists.
    pub(super) fn add(&mut self, line: String) {
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    /// Adds the flags with invalid values.
    pub(super) fn add_invalid_values(&mut self, arguments: &FlagArguments) {
        for (flag, line) in &arguments.invalid {
            self.invalid_flags.push(flag);
            self.add(line.clone());
        }
    }

    /// Adds an error for each flag of the manager before a subcommand, which would not read it.
    #[must_use]
    pub(super) fn with_flags_in_front(mut self, matches: &ArgMatches, table: &FlagTable, subcommand: &str) -> Self {
        let is_given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        for spec in table.all().filter(|spec| is_given(spec.name)) {
            self.add(format!("--{} before {subcommand} has no effect: write it after {subcommand}", spec.name));
        }
        self
    }

    /// Returns the value of `result` if there is no error, or else all errors, these and those in `result`.
    pub(super) fn finish<T>(mut self, result: Result<T, Vec<String>>) -> Result<T, UsageError> {
        let invalid_flags = std::mem::take(&mut self.invalid_flags);
        let is_new = |line: &String| !invalid_flags.iter().any(|flag| mentions(line, flag));
        let result = result.map_err(|errors| errors.into_iter().filter(is_new).for_each(|line| self.add(line)));
        match result {
            Ok(value) if self.is_empty() => Ok(value),
            _ => Err(UsageError { lines: self.lines }),
        }
    }
}

/// Returns `true` if `line` contains `--flag`, not only as the beginning of a longer name.
fn mentions(line: &str, flag: &str) -> bool {
    let continues = |rest: &str| rest.starts_with(|next: char| next == '-' || next.is_ascii_alphanumeric());
    line.split("--").skip(1).any(|rest| rest.strip_prefix(flag).is_some_and(|rest| !continues(rest)))
}

/// Removes the unknown argument that `error` is about. Returns `false` if there is none.
fn drop_word(command: &Command, words: &mut Vec<OsString>, error: &clap::Error) -> bool {
    let Some(unknown_word) = unknown_word(error) else { return false };
    let name = unknown_word.split(' ').next().unwrap_or_default().to_owned();
    let is_match = |word: &OsString| {
        word.to_str().is_some_and(|word| word == name || word.split_once('=').is_some_and(|(flag, _)| flag == name))
    };
    let Some(at) = words.iter().skip(1).position(is_match).map(|at| at + 1) else { return false };
    let is_whole = words[at].to_str().is_some_and(|word| word.contains('='));
    words.remove(at);
    // The next argument is most likely the value of the flag.
    let is_value = |word: &str| !word.starts_with('-') && command.find_subcommand(word).is_none();
    if name.starts_with('-') && !is_whole && words.get(at).and_then(|word| word.to_str()).is_some_and(is_value) {
        words.remove(at);
    }
    true
}

/// Returns the argument without which the parser can continue with the others.
fn unknown_word(error: &clap::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => word(error),
        ErrorKind::InvalidValue if text(error, ContextKind::InvalidValue).is_none_or(|value| value.is_empty()) => {
            word(error)
        }
        _ => None,
    }
}

fn word(error: &clap::Error) -> Option<String> {
    text(error, ContextKind::InvalidArg).or_else(|| text(error, ContextKind::InvalidSubcommand))
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

/// Describes an error of clap in one line.
fn describe(error: &clap::Error, command: &Command, words: &[OsString]) -> String {
    let chosen = words.iter().skip(1).filter_map(|word| word.to_str()).find_map(|word| command.find_subcommand(word));
    let word = word(error).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand if !word.starts_with('-') => {
            unexpected_argument(&word, text(error, ContextKind::SuggestedSubcommand), chosen.unwrap_or(command))
        }
        ErrorKind::UnknownArgument => unknown_flag(&word, text(error, ContextKind::SuggestedArg), command, chosen),
        ErrorKind::InvalidValue => match text(error, ContextKind::InvalidValue).filter(|value| !value.is_empty()) {
            Some(value) => format!("invalid value {} for {word}: expected {}", quoted(&value), accepted(&word, chosen)),
            None => format!("{word} needs a value"),
        },
        ErrorKind::MissingRequiredArgument => {
            let subcommand = chosen.map_or("", Command::get_name);
            format!("{subcommand} needs {word}: {}", accepted(&word, chosen))
        }
        ErrorKind::InvalidUtf8 => "an argument is not UTF-8 text".to_owned(),
        _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    }
}

/// Describes the error for a flag that `chosen`, or else the program, does not have.
fn unknown_flag(word: &str, suggestion: Option<String>, program: &Command, chosen: Option<&Command>) -> String {
    let name = word.split('=').next().unwrap_or_default();
    let is_of_manager = program.get_arguments().any(|argument| names_of(argument).any(|flag| flag == name));
    match (chosen.filter(|_| is_of_manager), suggestion) {
        (Some(subcommand), _) => {
            let (subcommand, flags) = (subcommand.get_name(), listed_flags(subcommand));
            format!("unknown flag {name}: the manager has it, {subcommand} does not; {flags}")
        }
        (None, Some(suggestion)) => format!("unknown flag {}: did you mean {suggestion}?", excerpt(word)),
        (None, None) => format!("unknown flag {}: --help lists the flags", excerpt(word)),
    }
}

/// Returns the names of a flag, with dashes.
fn names_of(argument: &clap::Arg) -> impl Iterator<Item = String> {
    let short = argument.get_short().map(|letter| format!("-{letter}"));
    let long = argument.get_long_and_visible_aliases().unwrap_or_default().into_iter().map(|name| format!("--{name}"));
    long.chain(short).collect::<Vec<_>>().into_iter()
}

/// Lists the flags of a subcommand, or refers to its help if there are more than 20.
fn listed_flags(subcommand: &Command) -> String {
    const MAX_FLAGS: usize = 20;
    let name = subcommand.get_name();
    let shown = subcommand.get_arguments().filter(|argument| !argument.is_hide_set()).flat_map(names_of);
    let flags: Vec<String> = shown.filter(|flag| flag.starts_with("--") && flag != "--help").collect();
    match flags.len() {
        0 => format!("{name} takes no flags"),
        1..=MAX_FLAGS => format!("{name} takes {}", flags.join(", ")),
        _ => format!("{name} --help lists its flags"),
    }
}

/// Describes the error for an argument that is neither a flag nor a subcommand.
fn unexpected_argument(word: &str, suggestion: Option<String>, command: &Command) -> String {
    const SWITCH: &str = "a switch takes its value after an equals sign, as in --leader-elect=false";
    let visible = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).map(Command::get_name);
    let shown_word = quoted(word);
    let mut subcommands: Vec<_> = visible.chain(["help"]).collect();
    subcommands.sort_unstable();
    subcommands.dedup();
    let is_value = <bool as FlagValue>::parse(word).is_ok();
    match suggestion {
        Some(suggestion) => format!("unexpected argument {shown_word}: did you mean {suggestion}?"),
        None if is_value => format!("unexpected argument {shown_word}: {SWITCH}"),
        None if command.has_subcommands() => {
            format!(
                "unexpected argument {shown_word}: expected flags, or one of the subcommands {}; {SWITCH}",
                subcommands.join(", ")
            )
        }
        None => format!("unexpected argument {shown_word}: only flags are accepted, and {SWITCH}"),
    }
}

/// Returns the accepted values of an argument of a subcommand, or else its help. `name` has the form `<shell>` or `--output <FORMAT>`.
fn accepted(name: &str, command: Option<&Command>) -> String {
    let is_match = |argument: &&clap::Arg| argument.to_string() == name;
    let argument = command.and_then(|command| command.get_arguments().find(is_match));
    let values = argument.map(clap::Arg::get_possible_values).unwrap_or_default();
    let values: Vec<_> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
    match argument.and_then(clap::Arg::get_help) {
        Some(help) if values.is_empty() => help.to_string().trim_end_matches('.').to_owned(),
        _ => format!("one of {}", values.join(", ")),
    }
}

/// Errors of the command line, one per line. The program exits with code 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .lines.join("\n"))]
pub struct UsageError {
    lines: Vec<String>,
}

impl UsageError {
    /// Returns the errors, one per line of the message.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_mention_only_whole_flags() {
        let line = "invalid value \"20s\" for --leader-elect-renew-deadline: expected less than --leader-elect-lease-duration (15s)";
        assert!(mentions(line, "leader-elect-renew-deadline") && mentions(line, "leader-elect-lease-duration"));
        assert!(!mentions(line, "leader-elect") && !mentions(line, "lease-duration"));
        assert!(mentions("--leader-elect", "leader-elect"));
    }
}
