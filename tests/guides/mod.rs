//! Commands in README.md and docs work: they run here, or are marked as examples.
//!
//! | fence | meaning |
//! |---|---|
//! | `sh` | the commands run, in the order of the page, and end with 0 |
//! | `console` | lines that begin with `$ ` run, and print the lines that follow; `…` matches any text |
//! | `sh example cluster` | as `sh example`; `tests/e2e/runbooks.rs` runs them on a real API server |
//! | `sh example migration` | as `sh example`; `tests/e2e/migration.rs` runs them next to a replacement of the Go program |
//! | `sh example`, `console example` | they need a cluster, an account or Docker: targets, flags and files in them exist |
//! | any language and `file=NAME` | the text is written into that file for later commands of the page |

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

pub(crate) mod blocks;
mod examples;
mod shell;

use blocks::{blocks, pages};
use shell::Shell;

/// Programs that need a cluster, an account or Docker.
const FOREIGN: [&str; 7] = ["kubectl", "helm", "az", "docker", "kind", "curl", "cargo"];

fn all_blocks() -> impl Iterator<Item = blocks::Block> {
    pages().into_iter().flat_map(|(page, text)| blocks(&page, &text))
}

#[test]
fn every_fenced_block_has_a_language_and_known_words() {
    let is_invalid = |block: &blocks::Block| {
        let other_shell = block.has_commands() && !["sh", "console"].contains(&block.language.as_str());
        let is_listed =
            |word: &String| ["example", "cluster", "migration"].contains(&word.as_str()) || word.starts_with("file=");
        let runs_elsewhere = block.words.iter().any(|word| ["cluster", "migration"].contains(&word.as_str()));
        let has_unlisted = !block.words.iter().all(is_listed) || (runs_elsewhere && !block.is_example());
        block.language.is_empty() || other_shell || has_unlisted
    };
    let invalid: Vec<_> = all_blocks().filter(is_invalid).map(|block| block.location()).collect();
    assert!(invalid.is_empty(), "fences without a language, or with words that tests/guides does not know: {invalid:?}");
}

#[test]
fn commands_that_run_here_need_no_other_program() {
    let runs = all_blocks().filter(|block| block.has_commands() && !block.is_example());
    let needs_more = |block: &blocks::Block| {
        let commands = block.commands();
        let first = commands.lines().filter_map(|line| line.split_whitespace().next());
        first
            .chain(commands.split("| ").skip(1).filter_map(|rest| rest.split(' ').next()))
            .any(|word| FOREIGN.contains(&word))
    };
    let unmarked: Vec<_> = runs.filter(needs_more).map(|block| block.location()).collect();
    assert!(unmarked.is_empty(), "mark these as examples, they need {FOREIGN:?}: {unmarked:?}");
}

#[test]
fn commands_of_every_page_run() {
    let mut run = 0;
    let mut failures = Vec::new();
    for (page, text) in pages() {
        let mut blocks = blocks(&page, &text);
        blocks.retain(|block| !block.is_example() && (block.has_commands() || block.file().is_some()));
        if !blocks.iter().any(blocks::Block::has_commands) {
            continue;
        }
        let shell = Shell::new();
        for block in blocks {
            run += usize::from(block.has_commands());
            failures.extend(shell.take(&block).err().map(|problem| format!("{}: {problem}", block.location())));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(run > 5, "only {run} blocks have run");
}

#[test]
fn examples_name_existing_targets_flags_and_files() {
    let problems: Vec<_> =
        all_blocks().filter(blocks::Block::has_commands).flat_map(|block| examples::problems(&block)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn targets_of_make_in_the_prose_exist() {
    let targets = examples::targets();
    let mut missing = Vec::new();
    for (page, text) in pages() {
        let named = text.split("`make ").skip(1).filter_map(|rest| rest.split(['`', ' ']).next().map(str::to_owned));
        missing.extend(named.filter(|target| !targets.contains(target)).map(|target| format!("{page}: make {target}")));
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn transcripts_are_compared_with_ellipses() {
    for (line, like, expected) in [
        ("a b c", "a b c", true),
        ("a b c", "a … c", true),
        ("a b c", "…c", true),
        ("a b c", "a…", true),
        ("a b c", "a", false),
        ("a b c", "b…", false),
        ("a b c", "a … d", false),
    ] {
        assert_eq!(shell::is_like(line, like), expected, "{line:?} {like:?}");
    }
}
