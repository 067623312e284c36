//! `status`: the object to show, and the connection to the leader.
//!
//! In: the arguments after `status`. Out: a [`StatusOptions`].

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{
    arguments::{self, FlagArguments},
    config,
    flags::{FlagSpec, generic, leader_election, serving::secure},
    plan::{NAMESPACE, is_json, namespace, output, service_key},
    usage_errors::{UsageError, UsageErrors},
};
use crate::flags::quoted;
use crate::runtime::client::KubeClientConfig;

/// Name of the subcommand.
pub(super) const NAME: &str = "status";

const SUBJECT: &str = "subject";
const URL: &str = "url";
const TOKEN_FILE: &str = "token-file";
const AUTHORITY: &str = "certificate-authority";
const INSECURE: &str = "insecure-skip-tls-verify";

/// Object whose status is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusSubject {
    /// The manager, with all keys that wait.
    Manager,
    Service {
        namespace: String,
        name: String,
    },
    /// A Node, by its name.
    Node(String),
}

/// Secure port of a manager, with the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusUrl {
    /// `https://HOST:PORT`.
    pub url: http::Uri,
    /// File with a bearer token.
    pub token_file: Option<PathBuf>,
    /// File of the certificate authorities of the manager's certificate.
    pub authority: Option<PathBuf>,
    /// Whether any certificate is accepted.
    pub insecure: bool,
}

/// Options of the subcommand `status`.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusOptions {
    pub kube_api: KubeClientConfig,
    /// Namespace and name of the Lease that names the leader.
    pub lease: (String, String),
    /// Port of the leader if its pod does not declare one.
    pub port: u16,
    pub subject: StatusSubject,
    /// Address to read; `None` reads the pod of the leader through the API server.
    pub url: Option<StatusUrl>,
    /// `-o json`.
    pub json: bool,
}

/// Flags of the manager that the subcommand accepts.
const FLAGS: [&FlagSpec; 5] = [
    &generic::KUBECONFIG.spec,
    &generic::MASTER.spec,
    &leader_election::RESOURCE_NAME.spec,
    &leader_election::RESOURCE_NAMESPACE.spec,
    &secure::SECURE_PORT.spec,
];

pub(super) fn command() -> Command {
    Command::new(NAME)
        .about("Show the leader, and what waits for which reason; or one Service or Node")
        .after_help(
            "Exit codes:\n  0  nothing waits\n  1  something could not be read\n  2  something waits or fails, or no manager leads",
        )
        .args_override_self(true)
        .args(FLAGS.iter().map(|spec| arguments::argument(spec)))
        .arg(Arg::new(SUBJECT).value_name("NAMESPACE/NAME|svc/NAME|node/NAME").help("Show only this Service or this Node."))
        .arg(namespace())
        .args(url_arguments())
        .arg(output())
}

/// Returns the arguments for reading the pages of a manager directly instead of through the API server.
pub(super) fn url_arguments() -> [Arg; 4] {
    let value =
        |name: &'static str, kind: &'static str, help: &'static str| Arg::new(name).long(name).value_name(kind).help(help);
    [
        value(URL, "URL", "Secure port of a manager, instead of the leader's pod through the API server."),
        value(TOKEN_FILE, "FILE", "File with a bearer token for --url."),
        value(AUTHORITY, "FILE", "File with the certificate authorities for --url."),
        Arg::new(INSECURE).long(INSECURE).action(ArgAction::SetTrue).help("Accept any certificate from --url."),
    ]
}

/// Reads the arguments of the subcommand.
pub(super) fn parse(matches: &ArgMatches, mut mistakes: UsageErrors) -> Result<StatusOptions, UsageError> {
    let arguments = FlagArguments::new(matches, FLAGS);
    mistakes.add_invalid_values(&arguments);
    let lease = (arguments.read(&leader_election::RESOURCE_NAMESPACE), arguments.read(&leader_election::RESOURCE_NAME));
    let port = u16::try_from(arguments.read(&secure::SECURE_PORT)).unwrap_or_default();
    let word = |name: &str| matches.get_one::<String>(name).cloned();
    let subject = subject(word(SUBJECT).as_deref(), word(NAMESPACE).as_deref()).unwrap_or_else(|line| {
        mistakes.add(line);
        StatusSubject::Manager
    });
    let url = read_url(matches, &mut mistakes);
    let json = is_json(matches);
    let built = config::build_for_status(arguments);
    mistakes.finish(built.map(|kube_api| StatusOptions { kube_api, lease, port, subject, url, json }))
}

/// Reads the values of [`url_arguments`]; `None` without `--url`.
pub(super) fn read_url(matches: &ArgMatches, mistakes: &mut UsageErrors) -> Option<StatusUrl> {
    let word = |name: &str| matches.get_one::<String>(name).cloned();
    let file = |name: &str| word(name).map(PathBuf::from);
    let (token_file, authority, insecure) = (file(TOKEN_FILE), file(AUTHORITY), matches.get_flag(INSECURE));
    let url = url(word(URL).as_deref()).unwrap_or_else(|line| {
        mistakes.add(line);
        None
    });
    if url.is_none() && (token_file.is_some() || authority.is_some() || insecure) {
        mistakes.add(format!("--{TOKEN_FILE}, --{AUTHORITY} and --{INSECURE} have an effect only with --{URL}"));
    }
    url.map(|url| StatusUrl { url, token_file, authority, insecure })
}

fn subject(word: Option<&str>, namespace: Option<&str>) -> Result<StatusSubject, String> {
    let Some(word) = word else { return Ok(StatusSubject::Manager) };
    if let Some(("node" | "nodes" | "no", name)) =
        word.split_once('/').filter(|(_, name)| !name.is_empty() && !name.contains('/'))
    {
        return Ok(StatusSubject::Node(name.to_owned()));
    }
    let (namespace, name) = service_key(word, namespace).ok_or_else(|| {
        let word = quoted(word);
        format!("invalid subject {word}: expected NAMESPACE/NAME of a Service, svc/NAME with -n NAMESPACE, or node/NAME")
    })?;
    Ok(StatusSubject::Service { namespace, name })
}

fn url(word: Option<&str>) -> Result<Option<http::Uri>, String> {
    let Some(word) = word else { return Ok(None) };
    let invalid = || format!("invalid value {} for --{URL}: expected https://HOST:PORT", quoted(word));
    let url: http::Uri = word.parse().map_err(|_| invalid())?;
    if url.scheme_str() == Some("https") && url.host().is_some() { Ok(Some(url)) } else { Err(invalid()) }
}
