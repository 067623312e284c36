//! Checks of hand-written pages, the reference of flags, and help.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    lexer::{PieceKind, pieces},
    report::{Finding, Source},
    texts::british,
    words::{SECOND_SPELLINGS, find_phrases},
};

use crate::guides::blocks::files_with_extension;

/// Words that a sentence of a page has at most, and should have at most.
const LONGEST_SENTENCE: usize = 40;
const LONG_SENTENCE: usize = 25;
/// Words of a quoted log text at least; shorter quotes may be anything.
const LOG_WORDS: usize = 4;
/// First words of quoted commands.
const COMMANDS: &[&str] = &["az", "cargo", "curl", "docker", "git", "helm", "kubectl", "make", "sum", "systemctl"];

fn finding(check: &'static str, path: &Path, line: usize, text: &str, hint: impl Into<String>) -> Finding {
    let text = text.chars().take(90).collect();
    Finding { check, area: "docs", path: path.to_owned(), line, text, hint: hint.into() }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a readable page")
}

/// Returns the findings of W1, S1 and S2 in pages. Generated pages follow their tables.
pub(crate) fn check_pages() -> Vec<Finding> {
    let mut findings = Vec::new();
    let pages = files_with_extension(Path::new("docs"), "md").into_iter().chain([PathBuf::from("README.md")]);
    for (path, text) in pages.map(|path| (path.clone(), read(&path))) {
        for (index, line) in text.lines().enumerate() {
            let british = british(line).into_iter().map(|(_, word)| (word, "American spelling"));
            findings.extend(british.map(|(word, hint)| finding("S1", &path, index + 1, word, hint)));
            let second = find_phrases(line, SECOND_SPELLINGS).into_iter();
            findings.extend(second.map(|(_, (word, instead))| finding("S2", &path, index + 1, word, *instead)));
        }
        for (line, sentence) in sentences(&text).into_iter().filter(|_| !text.contains("<!-- Generated")) {
            let words = sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
            let check = if words > LONGEST_SENTENCE { "W1 over 40" } else { "W1 over 25" };
            if words > LONG_SENTENCE {
                findings.push(finding(check, &path, line, &sentence, format!("{words} words: one idea per sentence")));
            }
        }
    }
    findings
}

/// Returns the sentences of a page with their first lines, without code blocks, tables and headings.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        is_code ^= line.starts_with("```");
        let is_text = !is_code && !line.is_empty() && !line.starts_with(['|', '#', '`', '<']);
        let is_item = line.starts_with("- ")
            || line.starts_with("* ")
            || line.split_once(". ").is_some_and(|(first, _)| first.parse::<u8>().is_ok());
        if !is_text || is_item {
            found.extend(open.take());
        }
        if is_text {
            let words = line.trim_start_matches(['-', '*', '>', ' ']);
            let (_, text) = open.get_or_insert_with(|| (index + 1, String::new()));
            text.push_str(words);
            text.push(' ');
        }
    }
    found.extend(open);
    let split = |(line, text): (usize, String)| {
        let parts = text.replace("? ", ". ").replace("! ", ". ").replace(".** ", ". ").replace(".) ", ". ");
        parts.split(". ").map(|sentence| (line, sentence.trim().to_owned())).collect::<Vec<_>>()
    };
    found.into_iter().flat_map(split).collect()
}

/// Returns the findings of W2: quoted log texts that no string literal has.
pub(crate) fn check_log_quotes(sources: &[Source]) -> Vec<Finding> {
    let all = sources.iter().flat_map(|source| pieces(&source.text)).filter(|piece| piece.kind == PieceKind::Literal);
    let literals: Vec<String> = all.map(|piece| joined(piece.text.trim_matches('"'))).collect();
    let is_written = |quoted: &str| {
        let has = |fragment: &String| literals.iter().any(|literal| literal.contains(fragment));
        fragments(quoted).iter().all(has) || literals.iter().any(|literal| fills(quoted, literal))
    };
    let mut findings = Vec::new();
    let pages = files_with_extension(Path::new("docs/runbooks"), "md")
        .into_iter()
        .chain([PathBuf::from("docs/guides/operating.md")]);
    for (path, text) in pages.map(|path| (path.clone(), read(&path))) {
        for (index, line) in text.lines().enumerate() {
            for quoted in line.split('`').skip(1).step_by(2).filter(|quoted| is_log_text(quoted)) {
                if !is_written(quoted) {
                    findings.push(finding("W2", &path, index + 1, quoted, "no string literal has this text"));
                }
            }
        }
    }
    findings
}

/// Returns a literal's text without the line breaks that `\` ends.
fn joined(literal: &str) -> String {
    literal.split("\\\n").enumerate().map(|(index, part)| if index == 0 { part } else { part.trim_start() }).collect()
}

/// Whether `quoted` is the format string `literal` with values in its braces, for the larger part of its text.
fn fills(quoted: &str, literal: &str) -> bool {
    let parts = literal
        .split('{')
        .enumerate()
        .map(|(index, part)| if index == 0 { part } else { part.split_once('}').map_or("", |(_, text)| text) });
    let (mut rest, mut matched) = (quoted, 0);
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        matched += part.len();
    }
    matched * 2 > quoted.len()
}

fn is_log_text(quoted: &str) -> bool {
    let words: Vec<&str> = quoted.split(' ').collect();
    let is_plain = |it: char| it.is_alphanumeric() || " :,;'…-".contains(it);
    let is_command = words.first().is_some_and(|first| COMMANDS.contains(first)) || quoted.contains(" -");
    words.len() >= LOG_WORDS
        && quoted.starts_with(|it: char| it.is_ascii_lowercase())
        && quoted.chars().all(is_plain)
        && !is_command
}

/// Returns the parts of a quoted text between its values: `…`, `N` and words with digits.
fn fragments(quoted: &str) -> Vec<String> {
    let is_value = |word: &str| word == "N" || word.contains('…') || word.contains(|it: char| it.is_ascii_digit());
    let words: Vec<&str> = quoted.split(' ').collect();
    words.split(|word| is_value(word)).map(|part| part.join(" ")).filter(|part| part.contains(' ')).collect()
}

/// Returns the findings of M2 in the table of flags.
pub(crate) fn check_flags() -> Vec<Finding> {
    let path = Path::new("docs/reference/flags.md");
    let mut findings = Vec::new();
    for (index, row) in read(path).lines().enumerate().filter(|(_, line)| line.starts_with("| `--")) {
        let meaning = row.trim_end_matches(['|', ' ']).replace("\\|", "/");
        let meaning = meaning.rsplit(" | ").next().unwrap_or_default();
        let description = meaning.split(" **").next().unwrap_or_default();
        let has_shorthand = ["; 0:", "; empty:", "; none:"].iter().any(|it| description.contains(it));
        let hints = [
            (!description.ends_with('.'), "end with a period"),
            (has_shorthand, "spell special values out: `0 selects the default, 24.`"),
            (description.starts_with("Whether"), "start with an imperative: `Serve …`"),
        ];
        findings.extend(
            hints
                .iter()
                .filter(|(is_wrong, _)| *is_wrong)
                .map(|(_, hint)| finding("M2 flags", path, index + 1, description, *hint)),
        );
    }
    findings
}

/// Returns the findings of M2 in summaries of commands and help of arguments.
pub(crate) fn check_help(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = pieces(&source.text);
    for pair in all.windows(2).filter(|pair| pair[1].kind == PieceKind::Literal && source.path.starts_with("src/cli")) {
        let before: String = pair[0].text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = joined(pair[1].text.trim_matches('"'));
        let is_about = before.ends_with("about(") || before.ends_with("about =");
        let first = text.split(' ').next().unwrap_or_default();
        let hints = [
            (is_about && (first.ends_with('s') && first != "Pass"), "start a summary with an imperative: `Print …`"),
            (is_about && text.ends_with('.'), "end a summary without a period"),
            (is_about && text.split(' ').any(|word| word.parse::<u8>().is_ok()), "move exit codes to `after_help`"),
            (before.ends_with(".help(") && !text.ends_with('.'), "end help with a period"),
        ];
        let hints = hints.iter().filter(|(is_wrong, _)| *is_wrong);
        findings.extend(hints.map(|(_, hint)| source.finding("M2 help", pair[1].line, text.clone(), *hint)));
    }
    findings.retain(|it| it.area != "tests");
    findings
}
