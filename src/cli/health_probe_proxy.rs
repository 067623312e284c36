//! `health-probe-proxy`: serves health probes that begin with a PROXY header.
//!
//! In: the arguments after the name of the program or the subcommand. Out: a [`HealthProbeProxyConfig`]. The flags are rows of a table in
//! [`flags`](super::flags). The logging flags are those of the manager.

use std::ffi::OsString;

use clap::{ArgMatches, Command};

use super::{
    arguments::{self, FlagArguments},
    command::{CliCommand as Parsed, HealthProbeProxyConfig},
    flags::{
        TypedFlag,
        health_probe_proxy::{FLAGS, HEALTH_CHECK_PORT, SECTIONS, TARGET_PORT},
    },
    usage_errors::{UsageError, UsageErrors},
    version::{VERSION, VERSION_WORD},
};

/// Name of the subcommand, and of the program that runs only this subcommand.
pub(super) const NAME: &str = "health-probe-proxy";

pub(super) fn command() -> Command {
    let about = "Serve health probes of load balancers that begin with a PROXY header, for kube-proxy";
    let version = Command::new(VERSION_WORD).about("Print the name and the version");
    arguments::add_flags(arguments::subcommand(NAME, about).subcommand(version), SECTIONS)
}

/// Writes the proxy's own flags with two dashes. The Go program accepts one dash, too.
pub(super) fn with_two_dashes(words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_none_or(|word| word != NAME) {
        return words;
    }
    let is_own = |name: &str| FLAGS.iter().any(|spec| spec.name == name.split('=').next().unwrap_or_default());
    let dashed = |word: OsString| match word.to_str().and_then(|text| text.strip_prefix('-')) {
        Some(name) if is_own(name) => format!("--{name}").into(),
        _ => word,
    };
    words.into_iter().map(dashed).collect()
}

/// Reads the arguments of the subcommand.
pub(super) fn parse(matches: &ArgMatches, mut mistakes: UsageErrors) -> Result<Parsed, UsageError> {
    let arguments = FlagArguments::new(matches, SECTIONS.iter().flat_map(|section| section.flags.iter()));
    mistakes.add_invalid_values(&arguments);
    if matches.subcommand_name() == Some(VERSION_WORD) {
        return mistakes.finish(Ok(Parsed::Print(format!("{NAME} {VERSION}\n"))));
    }
    let mut errors = Vec::new();
    let config = HealthProbeProxyConfig {
        health_check_port: port(&arguments, &HEALTH_CHECK_PORT, &mut errors),
        target_port: port(&arguments, &TARGET_PORT, &mut errors),
        logging: arguments.logging(),
    };
    if errors.is_empty() && config.health_check_port == config.target_port {
        errors.push("--health-check-port, --target-port: the proxy would probe itself; give two ports".to_owned());
    }
    let config = if errors.is_empty() { Ok(config) } else { Err(errors) };
    mistakes.finish(config.map(Parsed::ProxyProbes))
}

fn port(arguments: &FlagArguments, flag: &TypedFlag<i32>, errors: &mut Vec<String>) -> u16 {
    let value = arguments.read(flag);
    u16::try_from(value).ok().filter(|port| *port > 0).unwrap_or_else(|| {
        errors.push(format!("--{}: {value} is not a valid port; expected 1 to {}", flag.spec.name, u16::MAX));
        0
    })
}
