//! Every mistake on the command line at once: words that nobody knows, values that are none, and rules that are broken.
//!
//! In: the words, and later what reading values and applying rules complained about. Out: what was understood, or one line for each
//! mistake, in that order. A rule that compares a flag whose value could not be read says nothing about it: the value that it would
//! judge is not the one that was meant.

use std::ffi::OsString;

use clap::{
    ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

use super::{arguments::FlagArguments, flags::FlagTable, value::FlagValue};
use crate::flags::{excerpt, quoted};

/// Unknown words that are told; the parser runs once for each.
const MAX_UNKNOWN_WORDS: usize = 20;

/// The complaints so far.
#[derive(Debug, Default)]
pub(super) struct UsageErrors {
    lines: Vec<String>,
    invalid_flags: Vec<&'static str>,
}

/// What the words mean as far as they are known.
pub(super) enum ParsedCommandLine {
    /// Flags and subcommand, without the words that are mistakes.
    Matches(ArgMatches, UsageErrors),
    /// The help that was asked for.
    Help(String),
}

/// Parses `words`, and again without each word that the parser does not know.
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
        // Only arguments of a built command can be printed.
        let mut built = command.clone();
        built.build();
        mistakes.add(complaint(&error, &built, &words));
        if mistakes.lines.len() >= MAX_UNKNOWN_WORDS || !drop_word(command, &mut words, &error) {
            return Err(UsageError { lines: mistakes.lines });
        }
    }
}

/// The complaints, if there are any.
pub(super) fn refuse(lines: Vec<String>) -> Result<(), UsageError> {
    if lines.is_empty() { Ok(()) } else { Err(UsageError { lines }) }
}

impl UsageErrors {
    /// Whether there is none so far.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// One more, unless it has been told.
    pub(super) fn add(&mut self, line: String) {
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    /// The flags whose values could not be read.
    pub(super) fn add_invalid_values(&mut self, arguments: &FlagArguments) {
        for (flag, line) in &arguments.invalid {
            self.invalid_flags.push(flag);
            self.add(line.clone());
        }
    }

    /// Adds the manager's flags in front of a subcommand that does not read them.
    #[must_use]
    pub(super) fn with_flags_in_front(mut self, matches: &ArgMatches, table: &FlagTable, subcommand: &str) -> Self {
        let is_given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        for spec in table.all().filter(|spec| is_given(spec.name)) {
            self.add(format!("--{} in front of {subcommand} has no effect: write it after {subcommand}", spec.name));
        }
        self
    }

    /// What was made of the words, or all mistakes: these, and those of the rules.
    pub(super) fn finish<T>(mut self, made: Result<T, Vec<String>>) -> Result<T, UsageError> {
        let unreadable = std::mem::take(&mut self.invalid_flags);
        let is_new = |line: &String| !unreadable.iter().any(|flag| names(line, flag));
        let made = made.map_err(|broken| broken.into_iter().filter(is_new).for_each(|line| self.add(line)));
        match made {
            Ok(made) if self.is_empty() => Ok(made),
            _ => Err(UsageError { lines: self.lines }),
        }
    }
}

/// Whether `line` is about `--flag`.
fn names(line: &str, flag: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|next: char| next == '-' || next.is_ascii_alphanumeric());
    line.split("--").skip(1).any(|rest| rest.strip_prefix(flag).is_some_and(|rest| !goes_on(rest)))
}

/// Takes out the word that `error` is about; answers whether it was there.
fn drop_word(command: &Command, words: &mut Vec<OsString>, error: &clap::Error) -> bool {
    let Some(wrong) = wrong_word(error) else { return false };
    let name = wrong.split(' ').next().unwrap_or_default().to_owned();
    let is_it = |word: &OsString| {
        word.to_str().is_some_and(|word| word == name || word.split_once('=').is_some_and(|(flag, _)| flag == name))
    };
    let Some(at) = words.iter().skip(1).position(is_it).map(|at| at + 1) else { return false };
    let is_whole = words[at].to_str().is_some_and(|word| word.contains('='));
    words.remove(at);
    // The next word is most likely the value of the flag.
    let is_value = |word: &str| !word.starts_with('-') && command.find_subcommand(word).is_none();
    if name.starts_with('-') && !is_whole && words.get(at).and_then(|word| word.to_str()).is_some_and(is_value) {
        words.remove(at);
    }
    true
}

/// The word that can be left out, for the parser to go on with the others.
fn wrong_word(error: &clap::Error) -> Option<String> {
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

/// What clap complains about, in one line.
fn complaint(error: &clap::Error, command: &Command, words: &[OsString]) -> String {
    let chosen = words.iter().skip(1).filter_map(|word| word.to_str()).find_map(|word| command.find_subcommand(word));
    let word = word(error).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand if !word.starts_with('-') => {
            unexpected_argument(&word, text(error, ContextKind::SuggestedSubcommand), chosen.unwrap_or(command))
        }
        ErrorKind::UnknownArgument => unknown_flag(&word, text(error, ContextKind::SuggestedArg), command, chosen),
        ErrorKind::InvalidValue => match text(error, ContextKind::InvalidValue).filter(|value| !value.is_empty()) {
            Some(value) => format!("invalid value {} for {word}: want {}", quoted(&value), accepted(&word, chosen)),
            None => format!("{word} needs a value"),
        },
        ErrorKind::MissingRequiredArgument => {
            let whose = chosen.map_or("", Command::get_name);
            format!("{whose} needs {word}: {}", accepted(&word, chosen))
        }
        ErrorKind::InvalidUtf8 => "an argument is not UTF-8 text".to_owned(),
        _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    }
}

/// Returns the complaint about a flag that `chosen`, or else the program, does not have.
fn unknown_flag(word: &str, meant: Option<String>, program: &Command, chosen: Option<&Command>) -> String {
    let name = word.split('=').next().unwrap_or_default();
    let is_of_manager = program.get_arguments().any(|argument| names_of(argument).any(|flag| flag == name));
    match (chosen.filter(|_| is_of_manager), meant) {
        (Some(subcommand), _) => {
            let (subcommand, flags) = (subcommand.get_name(), listed_flags(subcommand));
            format!("unknown flag {name}: the manager has it, {subcommand} does not; {flags}")
        }
        (None, Some(meant)) => format!("unknown flag {}: did you mean {meant}?", excerpt(word)),
        (None, None) => format!("unknown flag {}: --help lists the flags", excerpt(word)),
    }
}

/// Returns the names of a flag, with dashes.
fn names_of(argument: &clap::Arg) -> impl Iterator<Item = String> {
    let short = argument.get_short().map(|letter| format!("-{letter}"));
    let long = argument.get_long_and_visible_aliases().unwrap_or_default().into_iter().map(|name| format!("--{name}"));
    long.chain(short).collect::<Vec<_>>().into_iter()
}

/// Names the flags of a subcommand, or its help where they are many.
fn listed_flags(subcommand: &Command) -> String {
    const MOST: usize = 20;
    let name = subcommand.get_name();
    let shown = subcommand.get_arguments().filter(|argument| !argument.is_hide_set()).flat_map(names_of);
    let flags: Vec<String> = shown.filter(|flag| flag.starts_with("--") && flag != "--help").collect();
    match flags.len() {
        0 => format!("{name} takes no flags"),
        1..=MOST => format!("{name} takes {}", flags.join(", ")),
        _ => format!("{name} --help lists its flags"),
    }
}

/// About a word that stands where none is expected.
fn unexpected_argument(word: &str, meant: Option<String>, command: &Command) -> String {
    const SWITCH: &str = "a switch takes its value after an equals sign, as in --leader-elect=false";
    let shown = command.get_subcommands().filter(|known| !known.is_hide_set()).map(Command::get_name);
    let shown_word = quoted(word);
    let mut known: Vec<_> = shown.chain(["help"]).collect();
    known.sort_unstable();
    known.dedup();
    let is_value = <bool as FlagValue>::parse(word).is_ok();
    match meant {
        Some(meant) => format!("unexpected argument {shown_word}: did you mean {meant}?"),
        None if is_value => format!("unexpected argument {shown_word}: {SWITCH}"),
        None if command.has_subcommands() => {
            format!("unexpected argument {shown_word}: want flags, or one of the subcommands {}; {SWITCH}", known.join(", "))
        }
        None => format!("unexpected argument {shown_word}: only flags are accepted, and {SWITCH}"),
    }
}

/// The values that an argument of a subcommand takes, or what it is for; `name` is `<shell>`, `--output <FORMAT>` or the like.
fn accepted(name: &str, command: Option<&Command>) -> String {
    let is_it = |argument: &&clap::Arg| argument.to_string() == name;
    let argument = command.and_then(|command| command.get_arguments().find(is_it));
    let values = argument.map(clap::Arg::get_possible_values).unwrap_or_default();
    let values: Vec<_> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
    match argument.and_then(clap::Arg::get_help) {
        Some(help) if values.is_empty() => help.to_string(),
        _ => format!("one of {}", values.join(", ")),
    }
}

/// The command line is wrong: one line per complaint; the program ends with exit code 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .lines.join("\n"))]
pub struct UsageError {
    lines: Vec<String>,
}

impl UsageError {
    /// The complaints.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_named_only_as_a_whole() {
        let line =
            "invalid value \"20s\" for --leader-elect-renew-deadline: want less than --leader-elect-lease-duration (15s)";
        assert!(names(line, "leader-elect-renew-deadline") && names(line, "leader-elect-lease-duration"));
        assert!(!names(line, "leader-elect") && !names(line, "lease-duration"));
        assert!(names("--leader-elect", "leader-elect"));
    }
}
