//! `plan`: the manager whose writes are planned, and the format of the plan.
//!
//! In: the arguments after `plan`: the flags of the manager and a few more. Out: a [`PlanOptions`], with which a manager only reads.

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

/// Options of the subcommand `plan`.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanOptions {
    /// Configuration of the manager whose writes are planned.
    pub manager: ManagerConfig,
    /// Only Service to plan, `namespace/name`; `None` plans the cluster.
    pub service: Option<String>,
    /// `-o json`.
    pub json: bool,
    /// Whether the changes in each document are printed (`--diff`).
    pub diff: bool,
    /// Whether to report the readiness of a takeover instead of the plan (`--report`).
    pub report: bool,
}

pub(super) fn command(table: &FlagTable) -> Command {
    let switch = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let about = "Print what a manager with these flags would write, and write nothing";
    let codes = "Exit codes:\n  0  nothing would be written; with --report: ready to switch\n  1  the plan is incomplete\n  \
                 2  something would be written, or a Service is refused; with --report: not ready to switch";
    let command = arguments::subcommand(NAME, about)
        .after_help(codes)
        .arg(Arg::new(SERVICE).value_name("NAMESPACE/NAME|svc/NAME").conflicts_with(ALL).help("Plan only this Service."))
        .arg(namespace())
        .arg(switch(ALL, "Plan the whole cluster, as without the name of a Service."))
        .arg(switch(DIFF, "Show what changes in each document."))
        .arg(switch(REPORT, "Report whether a manager could take over without writing."))
        .arg(output());
    arguments::add_flags(command, table.sections())
}

/// Returns the argument `-o text|json`.
pub(super) fn output() -> Arg {
    let formats = ["text", "json"];
    Arg::new(OUTPUT)
        .short('o')
        .long(OUTPUT)
        .value_name("FORMAT")
        .value_parser(formats)
        .default_value("text")
        .help("Output format.")
}

/// Returns `true` if the output format is JSON.
pub(super) fn is_json(matches: &ArgMatches) -> bool {
    matches.get_one::<String>(OUTPUT).is_some_and(|format| format == "json")
}

/// Reads the arguments of the subcommand.
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
            mistakes.add(format!("invalid Service {service}: expected NAMESPACE/NAME, or svc/NAME with -n NAMESPACE"));
        }
        key
    });
    let built = read_only_manager(matches, table, providers, &mut mistakes);
    let (json, diff, report) = (is_json(matches), matches.get_flag(DIFF), matches.get_flag(REPORT));
    mistakes.finish(built.map(|manager| PlanOptions { manager, service, json, diff, report }))
}

/// Builds the configuration of a manager that only reads, or returns the errors in its flags.
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

/// Returns `true` if `key` has the form `namespace/name`.
pub(super) fn is_key(key: &str) -> bool {
    let parts: Vec<&str> = key.split('/').collect();
    parts.len() == 2 && parts.iter().all(|part| !part.is_empty())
}

/// Returns the argument `-n NAMESPACE`.
pub(super) fn namespace() -> Arg {
    let help = "Namespace of svc/NAME or NAME. Without it, svc/NAME is in the namespace default.";
    Arg::new(NAMESPACE).short('n').long(NAMESPACE).value_name("NAMESPACE").help(help)
}

/// Parses the namespace and name of a Service in the notations of kubectl: `NAMESPACE/NAME`, `svc/NAME` or, with a namespace, `NAME`.
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
