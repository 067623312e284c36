//! `kubectl ccm`: the program as a plugin of kubectl, which runs it under the name `kubectl-ccm`.
//!
//! In: the command line, which begins with the name of the program. Out: the arguments for the parser, or a text. Only interactive
//! commands work under this name, so that a typo cannot start a manager. As with kubectl, the default kubeconfig is used if none is given.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::Command;

use crate::flags::quoted;

/// Name of the executable as a plugin.
pub(super) const NAME: &str = "kubectl-ccm";

/// Name in help texts.
pub(super) const TYPED: &str = "kubectl ccm";

/// Commands that are available in the plugin, and whether each has `--kubeconfig`.
const COMMANDS: [(&str, bool); 9] = [
    ("plan", true),
    ("status", true),
    ("doctor", true),
    ("orphans", true),
    ("support-bundle", true),
    ("explain", false),
    ("check-config", true),
    ("version", false),
    ("completion", false),
];

/// Interpretation of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PluginWords {
    /// The program has another name.
    NotPlugin(Vec<OsString>),
    /// Arguments for the parser.
    Parse(Vec<OsString>),
    /// The list of commands is printed.
    Overview,
    /// Error for a command that the plugin does not have.
    Refused(String),
}

/// Interprets the name of the program and its first argument. `kubeconfig` returns the file that kubectl would read.
pub(super) fn words(mut words: Vec<OsString>, kubeconfig: impl FnOnce() -> Option<PathBuf>) -> PluginWords {
    let stem = words.first().and_then(|program| Path::new(program).file_stem());
    // kubectl runs `kubectl-ccm`; an underscore in the file name of a plugin is a dash in its command.
    if stem.is_none_or(|stem| stem != NAME && stem != "kubectl_ccm") {
        return PluginWords::NotPlugin(words);
    }
    let first = words.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if matches!(first.as_str(), "" | "-h" | "--help") || (first == "help" && words.len() == 2) {
        return PluginWords::Overview;
    }
    match COMMANDS.iter().find(|(name, _)| *name == first) {
        Some((_, true)) => {
            // The last value applies, so a `--kubeconfig` of the user overrides this one.
            let flag = |path: PathBuf| [OsString::from("--kubeconfig="), path.into_os_string()].into_iter().collect();
            words.splice(2..2, kubeconfig().map(flag));
            PluginWords::Parse(words)
        }
        Some((_, false)) => PluginWords::Parse(words),
        None if first == "help" => PluginWords::Parse(words),
        None => PluginWords::Refused(format!("unexpected argument {}: {TYPED} expects one of {}", quoted(&first), names())),
    }
}

/// Returns the default file of kubectl, if it exists: the first of `$KUBECONFIG`, or else `~/.kube/config`.
pub(super) fn default_kubeconfig() -> Option<PathBuf> {
    let paths = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let file = match paths {
        Some(value) => std::env::split_paths(&value).next()?,
        None => PathBuf::from(std::env::var_os("HOME")?).join(".kube/config"),
    };
    file.is_file().then_some(file)
}

/// Returns a help text with one line per command.
pub(super) fn overview(command: &Command) -> String {
    let mut text = format!("Inspect a cloud-controller-manager and its cluster.\n\nUsage: {TYPED} COMMAND\n\n");
    for (name, _) in COMMANDS {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        text += &about.map(|about| format!("  {name:<14} {about}\n")).unwrap_or_default();
    }
    text + &format!("\n{TYPED} COMMAND --help shows the flags of a command.\n")
}

fn names() -> String {
    COMMANDS.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{CliCommand, parse};

    fn split(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn read(line: &str, kubeconfig: Option<&str>) -> PluginWords {
        words(split(line), || kubeconfig.map(PathBuf::from))
    }

    #[test]
    fn only_interactive_commands_work_as_a_plugin() {
        let rows = [
            ("/bin/ccm plan", PluginWords::NotPlugin(split("/bin/ccm plan"))),
            ("/bin/kubectl-ccm version", PluginWords::Parse(split("/bin/kubectl-ccm version"))),
            ("kubectl_ccm explain x", PluginWords::Parse(split("kubectl_ccm explain x"))),
            ("kubectl-ccm plan -o json", PluginWords::Parse(split("kubectl-ccm plan --kubeconfig=/k -o json"))),
            ("kubectl-ccm", PluginWords::Overview),
            ("kubectl-ccm --help", PluginWords::Overview),
            ("kubectl-ccm help", PluginWords::Overview),
            ("kubectl-ccm help plan", PluginWords::Parse(split("kubectl-ccm help plan"))),
        ];
        for (line, expected) in rows {
            assert_eq!(read(line, Some("/k")), expected, "{line}");
        }
        assert_eq!(read("kubectl-ccm plan", None), PluginWords::Parse(split("kubectl-ccm plan")));
        for line in ["kubectl-ccm --leader-elect", "kubectl-ccm cloud-node-manager", "kubectl-ccm x"] {
            assert!(
                matches!(read(line, None), PluginWords::Refused(error) if error.contains("expects one of plan, ")),
                "{line}"
            );
        }
    }

    #[test]
    fn parser_accepts_the_commands_of_the_plugin() {
        let parsed = |line: &str| parse(split(line), &["azure"], &[]);
        let Ok(CliCommand::Print(text)) = parsed("kubectl-ccm") else { panic!("no overview") };
        for (name, _) in COMMANDS.iter().filter(|(name, _)| cfg!(feature = "completions") || *name != "completion") {
            assert!(text.contains(&format!("\n  {name} ")), "{name} is missing or has no text: {text}");
        }
        let Ok(CliCommand::Plan(options)) = parsed("kubectl-ccm plan --kubeconfig=/other") else { panic!("no plan") };
        assert_eq!(options.manager.kube_api.kubeconfig, Some(PathBuf::from("/other")));
        let Ok(CliCommand::Print(help)) = parsed("kubectl-ccm plan --help") else { panic!("no help") };
        assert!(help.contains("kubectl ccm plan"), "{help}");
        assert!(parsed("kubectl-ccm --v=2").unwrap_err().to_string().contains("kubectl ccm expects one of"));
    }
}
