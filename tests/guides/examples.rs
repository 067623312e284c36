//! Checks of commands that do not run here.
//!
//! In: a block. Out: errors in its syntax, and targets, flags and manifests that do not exist.

use std::{collections::BTreeSet, fs, process::Command};

use crate::guides::blocks::{Block, root};

/// Page that names the flags of the program and of its subcommands.
const FLAGS: &str = "docs/reference/flags.md";
/// Flags of subcommands that no page lists, and of the demo.
const OTHER_FLAGS: &str = "--online --strict --help --version --exit-when-ready --all --diff --report \
    --output --url --token-file --service-account --file --insecure-skip-tls-verify";
const PROGRAM: &str = "cloud-controller-manager";

pub(crate) fn problems(block: &Block) -> Vec<String> {
    let commands = block.commands();
    let mut problems: Vec<String> = syntax(&commands).into_iter().collect();
    let (targets, flags) = (targets(), flags());
    for line in commands.replace("\\\n", " ").lines() {
        let code = line.split(" # ").next().unwrap_or_default();
        let words: Vec<&str> = code.split_whitespace().map(|word| word.trim_matches(['"', '\''])).collect();
        problems.extend(target(&words).filter(|name| !targets.contains(*name)).map(|name| format!("no target {name}")));
        problems.extend(arguments(&words).filter(|name| !flags.contains(*name)).map(|name| format!("no flag {name}")));
        let files = words.iter().filter(|word| word.starts_with("manifests/") && !root().join(word).exists());
        problems.extend(files.map(|file| format!("no file {file}")));
    }
    problems.into_iter().map(|problem| format!("{}: {problem}", block.location())).collect()
}

fn syntax(commands: &str) -> Option<String> {
    let output = Command::new("bash").args(["-n", "-c", commands]).output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

fn target<'a>(words: &[&'a str]) -> impl Iterator<Item = &'a str> + use<'a> {
    let target = (words.first() == Some(&"make")).then(|| words.get(1).copied()).flatten();
    target.into_iter()
}

/// Returns the names of the flags that the program is called with.
fn arguments<'a>(words: &[&'a str]) -> impl Iterator<Item = &'a str> + use<'a> {
    let at = words.iter().position(|word| *word == PROGRAM || word.ends_with("/cloud-controller-manager"));
    let is_called = at.is_some_and(|at| at == 0 || words[at - 1] == "--");
    let after = if is_called { words[at.unwrap_or_default() + 1..].to_vec() } else { Vec::new() };
    let name = |word: &'a str| word.split('=').next().unwrap_or_default();
    after.into_iter().filter(|word| word.starts_with("--")).map(name)
}

/// Returns the documented targets of the Makefile.
pub(crate) fn targets() -> BTreeSet<String> {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let documented = makefile.lines().filter(|line| line.contains("## "));
    documented.filter_map(|line| line.split_once(':').map(|(name, _)| name.to_owned())).collect()
}

fn flags() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join(FLAGS)).unwrap();
    let quoted = page.split('`').filter(|text| text.starts_with("--"));
    let name = |text: &str| text.split(['=', ' ', '[']).next().unwrap_or_default().to_owned();
    quoted.map(name).chain(OTHER_FLAGS.split_whitespace().map(str::to_owned)).collect()
}
