//! Command line: parses the arguments of the program into a command.
//!
//! In: the arguments. Out: a [`CliCommand`], for example a validated [`config::ManagerConfig`] to run with, or a text to print. Parser,
//! help, completions, `/flagz`, `/configz` and the reference pages are generated from the tables in [`flags`], [`feature_gates`] and
//! [`controllers`].

mod acr_credential_provider;
pub mod arguments;
mod check_config;
mod command;
#[cfg(feature = "completions")]
mod completion;
pub mod config;
pub mod controllers;
mod diagnose;
pub mod docs;
mod explain;
pub mod feature_gates;
pub mod flags;
mod health_probe_proxy;
pub mod label_selector;
mod leader_migration;
pub mod logging;
#[cfg(feature = "completions")]
mod manual;
mod node_manager;
mod plan;
mod plugin;
mod status;
mod support_bundle;
pub mod tls;
mod usage_errors;
pub mod value;
mod version;

use std::{ffi::OsString, fs, path::Path};

use clap::ArgMatches;

pub use self::acr_credential_provider::NAME as ACR_CREDENTIAL_PROVIDER;
pub use self::check_config::{CheckConfigOptions, NAME as CHECK_CONFIG};
pub use self::command::{CliCommand, HealthProbeProxyConfig, ImageCredentialOptions};
pub use self::config::NodeManagerConfig;
pub use self::diagnose::DiagnoseOptions;
pub use self::explain::ExplainOptions;
pub use self::plan::PlanOptions;
pub use self::status::{StatusOptions, StatusSubject, StatusUrl};
pub use self::support_bundle::SupportBundleOptions;
pub use self::usage_errors::UsageError;
pub use self::version::{NAME, NODE_MANAGER, VERSION, platform};
use self::{
    arguments::FlagArguments,
    flags::{FlagSection, FlagTable, generic, leader_election},
    plugin::PluginWords,
    usage_errors::{ParsedCommandLine, UsageErrors},
    value::VersionRequest,
    version::{VERSION_WORD, raw_version, short_version},
};
use crate::controllers::leader_migration::LeaderMigration;
use crate::flags::quoted;

/// Names of the registered providers by capability, and their flags.
#[derive(Debug, Clone, Copy, Default)]
pub struct RegisteredProviders<'a> {
    /// Providers that `--cloud-provider` accepts.
    pub all: &'a [&'a str],
    /// Providers whose configuration `check-config` can check.
    pub checkable: &'a [&'a str],
    /// Providers that can serve `cloud-node-manager`.
    pub local: &'a [&'a str],
    /// Flags of the manager that only providers read.
    pub flags: &'a [FlagSection],
}

/// Parses the command line of a binary whose providers have no flags of their own.
///
/// `args` begins with the name of the program, which selects a subcommand if it has the name of one. `providers` are the names for
/// `--cloud-provider`, `checkable` those for `check-config`.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    providers: &[&str],
    checkable: &[&str],
) -> Result<CliCommand, UsageError> {
    parse_for(args, RegisteredProviders { all: providers, checkable, local: providers, flags: &[] })
}

/// Parses the command line of a binary with these providers.
pub fn parse_for(
    args: impl IntoIterator<Item = OsString>,
    providers: RegisteredProviders<'_>,
) -> Result<CliCommand, UsageError> {
    let table = FlagTable::new(providers.flags);
    usage_errors::refuse(table.clashes())?;
    let mut parser = command(&table);
    let words = match plugin::words(args.into_iter().collect(), plugin::default_kubeconfig) {
        PluginWords::Overview => return Ok(CliCommand::Print(plugin::overview(&parser))),
        PluginWords::Refused(line) => return usage_errors::refuse(vec![line]).map(|()| CliCommand::Print(String::new())),
        PluginWords::NotPlugin(words) => words,
        PluginWords::Parse(words) => {
            parser = parser.bin_name(plugin::TYPED);
            words
        }
    };
    let words = arguments::normalize(health_probe_proxy::with_two_dashes(by_program_name(words)), &table);
    let (matches, mistakes) = match usage_errors::parse_words(&parser, words)? {
        ParsedCommandLine::Help(text) => return Ok(CliCommand::Print(text)),
        ParsedCommandLine::Matches(matches, mistakes) => (matches, mistakes),
    };
    match matches.subcommand() {
        #[cfg(feature = "completions")]
        Some((completion::COMPLETION, chosen)) => {
            mistakes.finish(Ok(CliCommand::Print(completion::script(chosen, command(&table)))))
        }
        #[cfg(feature = "completions")]
        Some((manual::NAME, chosen)) => mistakes.finish(manual::page(chosen, &command(&table)).map(CliCommand::Print)),
        Some((VERSION_WORD, _)) => mistakes.finish(Ok(CliCommand::Print(short_version()))),
        Some((check_config::NAME, chosen)) => {
            let mistakes = mistakes.with_flags_in_front(&matches, &table, check_config::NAME);
            check_config::parse(chosen, providers.checkable, mistakes).map(|check| CliCommand::Check(Box::new(check)))
        }
        Some((plan::NAME, chosen)) => {
            plan::parse(chosen, &table, providers.all, mistakes).map(|options| CliCommand::Plan(Box::new(options)))
        }
        Some((diagnose::DOCTOR, chosen)) => {
            diagnose::parse(chosen, &table, providers.all, mistakes).map(|options| CliCommand::Examine(Box::new(options)))
        }
        Some((diagnose::ORPHANS, chosen)) => diagnose::parse(chosen, &table, providers.all, mistakes)
            .map(|options| CliCommand::FindOrphans(Box::new(options))),
        Some((support_bundle::NAME, chosen)) => support_bundle::parse(chosen, &table, providers.all, mistakes)
            .map(|options| CliCommand::GatherSupport(Box::new(options))),
        Some((explain::NAME, chosen)) => mistakes.finish(Ok(CliCommand::Explain(explain::parse(chosen)))),
        Some((status::NAME, chosen)) => status::parse(chosen, mistakes).map(|options| CliCommand::Status(Box::new(options))),
        Some(("generate-docs", chosen)) => mistakes.finish(Ok(CliCommand::Print(page(chosen, &table)))),
        Some((NODE_MANAGER, chosen)) => node_manager::parse(chosen, providers.local, mistakes),
        Some((health_probe_proxy::NAME, chosen)) => health_probe_proxy::parse(chosen, mistakes),
        Some((acr_credential_provider::NAME, chosen)) => acr_credential_provider::parse(chosen, mistakes),
        _ => run(FlagArguments::new(&matches, table.all()), &table, providers.all, mistakes),
    }
}

/// Inserts the name of a subcommand as the first argument if the program has this name.
fn by_program_name(mut words: Vec<OsString>) -> Vec<OsString> {
    let stem = words.first().and_then(|program| Path::new(program).file_stem());
    let programs = [NODE_MANAGER, health_probe_proxy::NAME, acr_credential_provider::NAME];
    if let Some(name) = programs.into_iter().find(|name| stem == Some(name.as_ref())) {
        words.insert(1, name.into());
    }
    words
}

fn run(
    mut arguments: FlagArguments,
    table: &FlagTable,
    providers: &[&str],
    mut mistakes: UsageErrors,
) -> Result<CliCommand, UsageError> {
    mistakes.add_invalid_values(&arguments);
    match arguments.read(&generic::VERSION) {
        VersionRequest::Short if mistakes.is_empty() => return Ok(CliCommand::Print(short_version())),
        VersionRequest::Raw if mistakes.is_empty() => return Ok(CliCommand::Print(raw_version())),
        _ => {}
    }
    let migration = leader_migration(&arguments).unwrap_or_else(|line| {
        mistakes.add(line);
        None
    });
    arguments.apply_default_provider(providers);
    let config = config::build(arguments, table, providers).map(|mut config| {
        config.leader_migration = migration;
        CliCommand::Run(Box::new(config))
    });
    mistakes.finish(config)
}

/// Returns the parser of the flags in `table` and of all subcommands.
fn command(table: &FlagTable) -> clap::Command {
    let page = clap::Arg::new("page").required(true).value_parser(PAGES.map(|(name, _)| name));
    let generate = clap::Command::new("generate-docs").about("Print a reference page").hide(true).arg(page);
    let version = clap::Command::new(VERSION_WORD).about("Print the name and the version, as --version does");
    let command = clap::Command::new(NAME)
        .bin_name(NAME)
        .about("Connect a Kubernetes cluster to its cloud: nodes, routes and load balancers")
        .args_override_self(true)
        .disable_version_flag(true)
        .max_term_width(125);
    #[cfg(feature = "completions")]
    let command = command.subcommand(completion::subcommand()).subcommand(manual::subcommand());
    let command = command
        .subcommand(version)
        .subcommand(check_config::command())
        .subcommand(plan::command(table))
        .subcommand(explain::command())
        .subcommand(status::command())
        .subcommand(diagnose::doctor(table))
        .subcommand(diagnose::orphans(table))
        .subcommand(support_bundle::command(table))
        .subcommand(node_manager::command())
        .subcommand(health_probe_proxy::command())
        .subcommand(acr_credential_provider::command())
        .subcommand(generate);
    arguments::add_flags(command, table.sections())
}

/// Function that prints a reference page.
type PrintPage = fn(&FlagTable) -> String;

/// Reference pages by name.
const PAGES: [(&str, PrintPage); 3] =
    [("flags", docs::flags), ("feature-gates", |_| docs::feature_gates()), ("controllers", |_| docs::controllers())];

fn page(chosen: &ArgMatches, table: &FlagTable) -> String {
    let name = chosen.get_one::<String>("page");
    PAGES.iter().find(|(page, _)| name.is_some_and(|name| name == page)).map_or_else(String::new, |(_, print)| print(table))
}

/// Reads the configuration of leader migration; `None` if it is not enabled.
///
/// As upstream, the file is read only with `--enable-leader-migration`, and has an effect only with leader election.
fn leader_migration(arguments: &FlagArguments) -> Result<Option<LeaderMigration>, String> {
    if !arguments.read(&leader_election::ENABLE_LEADER_MIGRATION) {
        return Ok(None);
    }
    let file = arguments.read(&leader_election::LEADER_MIGRATION_CONFIG);
    if file.is_empty() {
        return Ok(Some(LeaderMigration::default()));
    }
    let text = fs::read_to_string(&file).map_err(|error| error.to_string());
    text.and_then(|text| leader_migration::parse(&text))
        .map(Some)
        .map_err(|error| format!("invalid value {} for --leader-migration-config: {error}", quoted(&file)))
}

#[cfg(test)]
mod tests;
