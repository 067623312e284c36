//! `plan`: what a manager with these flags would write, and how to print it.
//!
//! In: the words after `plan`: the daemon's own flags and a few more. Out: a [`PlanOptions`]. A manager made of it only reads.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{
    arguments::{self, FlagArguments},
    config::{self, ManagerConfig},
    flags::{FlagTable, generic},
    usage_errors::{UsageError, UsageErrors},
};
use crate::flags::quoted;

/// Name of the subcommand.
pub(super) const NAME: &str = "plan";

const SERVICE: &str = "service";
pub(super) const NAMESPACE: &str = "namespace";
const ALL: &str = "all";
const OUTPUT: &str = "output";
const DIFF: &str = "diff";
const REPORT: &str = "report";

/// What to plan, and how to print it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanOptions {
    /// The manager whose writes are planned.
    pub manager: ManagerConfig,
    /// Only this Service, `namespace/name`; `None`: the cluster.
    pub service: Option<String>,
    /// `-o json`.
    pub json: bool,
    /// Documents before and after.
    pub diff: bool,
    /// Whether a manager could take over, instead of the plan.
    pub report: bool,
}

pub(super) fn command(table: &FlagTable) -> Command {
    let switch = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let about = "Print what a manager with these flags would write, and write nothing. Exit code: 0 nothing to write, 2 writes or refused Services, 1 incomplete; with --report 0 ready, 2 not ready, 1 incomplete";
    let command = arguments::subcommand(NAME, about)
        .arg(Arg::new(SERVICE).value_name("NAMESPACE/NAME|svc/NAME").conflicts_with(ALL).help("Only this Service"))
        .arg(namespace())
        .arg(switch(ALL, "The whole cluster, as without the name of a Service"))
        .arg(switch(DIFF, "Show what changes in each document"))
        .arg(switch(REPORT, "Say whether a manager could take over without writing"))
        .arg(output());
    arguments::add_flags(command, table.sections())
}

/// `-o text|json`.
pub(super) fn output() -> Arg {
    let formats = ["text", "json"];
    Arg::new(OUTPUT).short('o').long(OUTPUT).value_name("FORMAT").value_parser(formats).default_value("text").help("Format")
}

/// Whether `-o json` was given.
pub(super) fn wants_json(matches: &ArgMatches) -> bool {
    matches.get_one::<String>(OUTPUT).is_some_and(|format| format == "json")
}

/// Reads the subcommand's words.
pub(super) fn parse(
    matches: &ArgMatches,
    table: &FlagTable,
    providers: &[&str],
    mut mistakes: UsageErrors,
) -> Result<PlanOptions, UsageError> {
    let word = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let service = word(SERVICE).and_then(|service| {
        let key = service_key(service, word(NAMESPACE)).map(|(namespace, name)| format!("{namespace}/{name}"));
        if key.is_none() {
            let service = quoted(service);
            mistakes.add(format!("invalid Service {service}: want NAMESPACE/NAME, or svc/NAME with -n NAMESPACE"));
        }
        key
    });
    let built = read_only_manager(matches, table, providers, &mut mistakes);
    let (json, diff, report) = (wants_json(matches), matches.get_flag(DIFF), matches.get_flag(REPORT));
    mistakes.finish(built.map(|manager| PlanOptions { manager, service, json, diff, report }))
}

/// Returns the configuration of a manager that only reads, or the mistakes in its flags.
pub(super) fn read_only_manager(
    matches: &ArgMatches,
    table: &FlagTable,
    providers: &[&str],
    mistakes: &mut UsageErrors,
) -> Result<ManagerConfig, Vec<String>> {
    let mut arguments = FlagArguments::new(matches, table.all());
    arguments.apply_default_provider(providers);
    arguments.set(&generic::DRY_RUN.spec, "true");
    mistakes.add_invalid_values(&arguments);
    config::build(arguments, table, providers)
}

/// Whether this is `namespace/name`.
pub(super) fn is_key(key: &str) -> bool {
    let parts: Vec<&str> = key.split('/').collect();
    parts.len() == 2 && parts.iter().all(|part| !part.is_empty())
}

/// `-n NAMESPACE`.
pub(super) fn namespace() -> Arg {
    let help = "Namespace of svc/NAME or NAME; svc/NAME alone is in the namespace default";
    Arg::new(NAMESPACE).short('n').long(NAMESPACE).value_name("NAMESPACE").help(help)
}

/// Returns namespace and name of a Service that is written as kubectl does: `NAMESPACE/NAME`, `svc/NAME` or, with a namespace, `NAME`.
pub(super) fn service_key(word: &str, namespace: Option<&str>) -> Option<(String, String)> {
    let parts: Vec<&str> = word.split('/').collect();
    let (namespace, name) = match (parts.as_slice(), namespace) {
        (["svc" | "service" | "services", name], _) => (namespace.unwrap_or("default"), *name),
        ([name], Some(namespace)) => (namespace, *name),
        ([namespace, name], None) => (*namespace, *name),
        _ => return None,
    };
    (!namespace.is_empty() && !name.is_empty()).then(|| (namespace.to_owned(), name.to_owned()))
}
