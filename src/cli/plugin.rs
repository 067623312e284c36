//! `kubectl ccm`: the program as a plugin of kubectl, which runs it under the name `kubectl-ccm`.
//!
//! In: the words, the first of which is the program's name. Out: the words that the parser reads, or a text. Only commands for people work
//! under this name: a slip of the keyboard must not start a manager. As with kubectl, the usual kubeconfig is taken when none is named.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::Command;

use crate::flags::quoted;

/// Name of the program as a plugin.
pub(super) const NAME: &str = "kubectl-ccm";

/// What help texts call it.
pub(super) const TYPED: &str = "kubectl ccm";

/// Commands that work, and whether each takes `--kubeconfig`.
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

/// What to do with the words.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PluginWords {
    /// The program has another name.
    NotPlugin(Vec<OsString>),
    /// The parser reads these.
    Parse(Vec<OsString>),
    /// The commands are shown.
    Overview,
    /// Why these words mean nothing here.
    Refused(String),
}

/// Looks at the program's name and the first word after it. `kubeconfig` is the file that kubectl would read.
pub(super) fn words(mut words: Vec<OsString>, kubeconfig: impl FnOnce() -> Option<PathBuf>) -> PluginWords {
    let stem = words.first().and_then(|program| Path::new(program).file_stem());
    // kubectl asks for kubectl-ccm; file names with underscores stand for dashes there.
    if stem.is_none_or(|stem| stem != NAME && stem != "kubectl_ccm") {
        return PluginWords::NotPlugin(words);
    }
    let first = words.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if matches!(first.as_str(), "" | "-h" | "--help") || (first == "help" && words.len() == 2) {
        return PluginWords::Overview;
    }
    match COMMANDS.iter().find(|(name, _)| *name == first) {
        Some((_, true)) => {
            // In front of all others: a file that is named later counts.
            let flag = |path: PathBuf| [OsString::from("--kubeconfig="), path.into_os_string()].into_iter().collect();
            words.splice(2..2, kubeconfig().map(flag));
            PluginWords::Parse(words)
        }
        Some((_, false)) => PluginWords::Parse(words),
        None if first == "help" => PluginWords::Parse(words),
        None => PluginWords::Refused(format!("unexpected argument {}: {TYPED} wants one of {}", quoted(&first), names())),
    }
}

/// The file that kubectl reads when none is named: the only one of `$KUBECONFIG`, else `~/.kube/config`, if it is there.
pub(super) fn usual_kubeconfig() -> Option<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let file = match named {
        Some(value) => std::env::split_paths(&value).next()?,
        None => PathBuf::from(std::env::var_os("HOME")?).join(".kube/config"),
    };
    file.is_file().then_some(file)
}

/// The commands, one line each.
pub(super) fn overview(command: &Command) -> String {
    let mut text = format!("Looks at a cloud-controller-manager and its cluster.\n\nUsage: {TYPED} COMMAND\n\n");
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
    fn commands_for_people_work_and_nothing_starts_a_manager() {
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
                matches!(read(line, None), PluginWords::Refused(told) if told.contains("wants one of plan, ")),
                "{line}"
            );
        }
    }

    #[test]
    fn the_parser_takes_the_plugins_words() {
        let parsed = |line: &str| parse(split(line), &["azure"], &[]);
        let Ok(CliCommand::Print(text)) = parsed("kubectl-ccm") else { panic!("no overview") };
        for (name, _) in COMMANDS.iter().filter(|(name, _)| cfg!(feature = "completions") || *name != "completion") {
            assert!(text.contains(&format!("\n  {name} ")), "{name} is missing or has no text: {text}");
        }
        let Ok(CliCommand::Plan(options)) = parsed("kubectl-ccm plan --kubeconfig=/other") else { panic!("no plan") };
        assert_eq!(options.manager.kube_api.kubeconfig, Some(PathBuf::from("/other")));
        let Ok(CliCommand::Print(help)) = parsed("kubectl-ccm plan --help") else { panic!("no help") };
        assert!(help.contains("kubectl ccm plan"), "{help}");
        assert!(parsed("kubectl-ccm --v=2").unwrap_err().to_string().contains("kubectl ccm wants one of"));
    }
}
