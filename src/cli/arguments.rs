//! Values of flags from the command line.
//!
//! The parser is built from the table of flags. Its result is the text of every flag, checked against the type of the flag, and the set of
//! flags that are on the command line.

use std::{collections::BTreeSet, ffi::OsString};

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};

use super::{
    flags::{
        FlagSection, FlagSpec, FlagTable, TypedFlag, acr_credential_provider, cloud, health_probe_proxy, logging as log,
        node_manager,
    },
    logging::LoggingOptions,
    value::{FlagValue, InvalidFlagValue},
};
use crate::flags::{FlagTexts, quoted};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlagArguments {
    pub(super) texts: FlagTexts,
    /// Names of the flags that are on the command line.
    explicit: BTreeSet<&'static str>,
    /// Flags whose texts are not values of their type, each with a line for the user. They have their defaults.
    pub(super) invalid: Vec<(&'static str, String)>,
}

impl FlagArguments {
    /// Returns the value of a flag.
    pub fn read<T: FlagValue>(&self, flag: &TypedFlag<T>) -> T {
        // `new` has replaced invalid texts by the defaults.
        self.texts.read(flag)
    }

    /// Returns `true` if the flag is on the command line.
    pub fn is_given(&self, spec: &FlagSpec) -> bool {
        self.explicit.contains(spec.name)
    }

    /// Selects the only provider of this binary if `--cloud-provider` is not given and its default is not registered.
    ///
    /// With several other providers, the flag becomes empty, which is an error.
    pub(super) fn apply_default_provider(&mut self, providers: &[&str]) {
        let spec = &cloud::CLOUD_PROVIDER.spec;
        if self.is_given(spec) || providers.contains(&spec.default) {
            return;
        }
        let default = if let [only] = providers { *only } else { "" };
        self.texts.insert(spec, vec![default.to_owned()]);
    }

    /// Sets a flag to a value that is not on the command line.
    pub(super) fn set(&mut self, spec: &FlagSpec, value: &str) {
        self.texts.insert(spec, vec![value.to_owned()]);
    }

    /// Returns the flags in `specs` with their effective values, as one would type them.
    pub(super) fn effective<'a>(&self, specs: impl Iterator<Item = &'a FlagSpec>) -> Vec<(String, String)> {
        specs.map(|spec| (spec.name.to_owned(), self.texts.canonical(spec))).collect()
    }

    /// Reads the values of the flags in `specs` from the matches of clap. All other flags have their defaults.
    pub(super) fn new<'a>(matches: &ArgMatches, specs: impl IntoIterator<Item = &'a FlagSpec>) -> Self {
        let mut arguments = Self::default();
        for spec in specs {
            let mut texts: Vec<String> = matches.get_many::<String>(spec.name).into_iter().flatten().cloned().collect();
            if let Err(InvalidFlagValue { text, accepted }) = spec.canonical(&texts) {
                let line = format!("invalid value {} for --{}: {accepted}", quoted(&text), spec.name);
                arguments.invalid.push((spec.name, line));
                texts = vec![spec.default.to_owned()];
            }
            if matches.value_source(spec.name) == Some(ValueSource::CommandLine) {
                arguments.explicit.insert(spec.name);
            }
            arguments.texts.insert(spec, texts);
        }
        arguments
    }

    /// Returns the options of the log.
    pub(super) fn logging(&self) -> LoggingOptions {
        LoggingOptions {
            format: self.read(&log::LOGGING_FORMAT),
            // klog accepts any number, so a number out of range selects the nearest level.
            verbosity: u8::try_from(self.read(&log::V).clamp(0, i32::from(u8::MAX))).unwrap_or_default(),
            modules: self.read(&log::VMODULE),
            ..LoggingOptions::default()
        }
    }
}

/// Returns a subcommand in which the last value of a flag applies, without clap's `--version`.
pub(super) fn subcommand(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).args_override_self(true).disable_version_flag(true)
}

/// Adds the flags of these sections to a command.
pub(super) fn add_flags(command: Command, sections: &[FlagSection]) -> Command {
    sections.iter().fold(command, |command, section| {
        command.args(section.flags.iter().map(|spec| argument(spec).help_heading(section.title)))
    })
}

/// Creates the argument of clap for a flag.
pub(super) fn argument(spec: &FlagSpec) -> Arg {
    let ignored = spec.ignored.map(|reason| format!("{} Accepted without effect: {reason}.", spec.help));
    let help = ignored.unwrap_or_else(|| spec.help.to_owned());
    let argument = Arg::new(spec.name)
        .long(spec.name)
        .visible_aliases(spec.aliases.iter().copied())
        .value_name(spec.placeholder)
        .default_value(spec.default)
        .hide_default_value(spec.default.is_empty())
        .hide(spec.hidden || spec.deprecated.is_some())
        .help(help)
        .action(if spec.repeated { ArgAction::Append } else { ArgAction::Set });
    let argument = match spec.short {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    match spec.implied_value {
        Some(value) => argument.num_args(0..=1).require_equals(true).default_missing_value(value),
        None => argument.num_args(1).allow_hyphen_values(true),
    }
}

/// Replaces `_` by `-` in the names of flags, but not in their values or in other arguments.
pub(super) fn normalize(words: impl IntoIterator<Item = OsString>, table: &FlagTable) -> Vec<OsString> {
    let (mut is_value, mut ended) = (true, false);
    let mut normalized = Vec::new();
    for word in words {
        let name = word.to_str().filter(|_| !is_value && !ended).and_then(|word| word.strip_prefix("--")).map(dashed);
        ended |= name.as_deref() == Some("");
        is_value = name.as_deref().is_some_and(|name| wants_next(name, table)) || (!is_value && word == "-v");
        normalized.push(name.map_or(word, |name| format!("--{name}").into()));
    }
    normalized
}

fn dashed(word: &str) -> String {
    match word.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")),
        None => word.replace('_', "-"),
    }
}

/// Returns `true` if the argument after `--name` is the value of the flag.
fn wants_next(name: &str, table: &FlagTable) -> bool {
    let own = [node_manager::FLAGS, health_probe_proxy::FLAGS, acr_credential_provider::FLAGS];
    let mut all = table.all().chain(own.into_iter().flatten());
    all.any(|spec| spec.implied_value.is_none() && (spec.name == name || spec.aliases.contains(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_are_dashes_in_names_only() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (typed, expected) in [
            ("ccm --cloud_config=a_b", "ccm --cloud-config=a_b"),
            ("ccm --cloud_config a_b --leader_elect", "ccm --cloud-config a_b --leader-elect"),
            ("ccm --cluster_name --a_b", "ccm --cluster-name --a_b"),
            ("ccm --log_format --a_b", "ccm --log-format --a_b"),
            ("ccm -v --a_b --c_d", "ccm -v --a_b --c-d"),
            ("ccm -- --a_b", "ccm -- --a_b"),
            ("--a_b --leader_elect --c_d", "--a_b --leader-elect --c-d"),
        ] {
            assert_eq!(normalize(words(typed), &FlagTable::new(&[])), words(expected), "{typed}");
        }
    }

    #[test]
    fn the_parser_is_sound() {
        add_flags(Command::new("test").disable_version_flag(true), FlagTable::new(&[]).sections()).debug_assert();
    }
}
