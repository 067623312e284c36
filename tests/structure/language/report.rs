//! Sources, findings, and the bars that their counts may not exceed: one for each check and area (product, tests, pages).

#![allow(clippy::print_stdout, reason = "findings are listed on demand")]

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    fs,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use crate::{guides::blocks::files_with_extension, structure::source::is_sandbox};

/// File of the bars: one `check area count` a line; a pair without a line has the bar 0.
const BARS: &str = "tests/structure/language/bars.txt";

/// One source file.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// Line from which on the file has inline tests only.
    tests_from: usize,
}

impl Source {
    /// Reads every Rust file of the product, the sandbox and the tests.
    pub(crate) fn read_all() -> Vec<Self> {
        let folders = ["src", "tests", "benches", "fuzz"].map(Path::new);
        let folders = folders.into_iter().filter(|folder| folder.is_dir());
        let paths = folders.flat_map(|folder| files_with_extension(folder, "rs"));
        paths
            .filter(|path| !path.starts_with("tests/structure/language/words.rs") && !path.starts_with("fuzz/target"))
            .map(Self::read)
            .collect()
    }

    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).expect("a readable file");
        let inline_tests = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
        let tests_from = text[..inline_tests].lines().count() + 1;
        Self { path, text, tests_from }
    }

    /// Parses the file.
    pub(crate) fn tree(&self) -> syn::File {
        syn::parse_file(&self.text).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    /// Returns the area of the line: `tests` or `product`.
    pub(crate) fn area_at(&self, line: usize) -> &'static str {
        let is_test = |part: &str| part == "tests" || part.ends_with("tests.rs") || part == "samples.rs";
        let path = self.path.to_string_lossy();
        let is_product = path.starts_with("src/") && !path.split('/').any(is_test) && line < self.tests_from;
        if is_product { "product" } else { "tests" }
    }

    /// Returns `true` if the file belongs to the simulators.
    pub(crate) fn is_sandbox(&self) -> bool {
        is_sandbox(&self.path)
    }

    pub(crate) fn finding(
        &self,
        check: &'static str,
        line: usize,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Finding {
        let (area, path) = (self.area_at(line), self.path.clone());
        Finding { check, area, path, line, text: text.into(), hint: hint.into() }
    }
}

/// Violation of one check.
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) area: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) line: usize,
    /// Offending text.
    pub(crate) text: String,
    /// What to write instead.
    pub(crate) hint: String,
}

impl Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {:?}: {}", self.path.display(), self.line, self.text, self.hint)
    }
}

type Counts = BTreeMap<(String, String), usize>;

/// Serializes the checks, which run in parallel and share the file of the bars.
static BARS_LOCK: Mutex<()> = Mutex::new(());

fn read_bars() -> Counts {
    let text = fs::read_to_string(BARS).unwrap_or_default();
    let row = |line: &str| {
        let (rest, count) = line.rsplit_once(' ')?;
        let (check, area) = rest.rsplit_once(' ')?;
        Some(((check.to_owned(), area.to_owned()), count.parse().ok()?))
    };
    text.lines().map(|line| row(line).unwrap_or_else(|| panic!("{BARS}: not `check area count`: {line}"))).collect()
}

/// Writes each bar down to its count, and never up.
fn lower_bars(bars: &Counts, counts: &Counts) {
    let lowered = bars.iter().filter_map(|(key, bar)| Some((key, *counts.get(key)?.min(bar))));
    let lines: Vec<String> = lowered.map(|((check, area), bar)| format!("{check} {area} {bar}\n")).collect();
    fs::write(BARS, lines.concat()).expect("a writable file of bars");
}

/// Compares the findings of `checks` with their bars.
///
/// `LOWER_BARS=1` lowers the bars to the counts. `LIST_LANGUAGE=1` prints every finding.
pub(crate) fn assert_bars(checks: &[&str], findings: &[Finding]) {
    let mut counts = Counts::new();
    for finding in findings {
        *counts.entry((finding.check.to_owned(), finding.area.to_owned())).or_default() += 1;
        if std::env::var_os("LIST_LANGUAGE").is_some() {
            println!("{}\t{}\t{finding}", finding.check, finding.area);
        }
    }
    let lock = BARS_LOCK.lock();
    let mut bars = read_bars();
    if std::env::var_os("LOWER_BARS").is_some() {
        let others = bars.iter().filter(|((check, _), _)| !checks.contains(&check.as_str()));
        let mut all_counts = counts.clone();
        all_counts.extend(others.map(|(key, bar)| (key.clone(), *bar)));
        lower_bars(&bars, &all_counts);
        bars = read_bars();
    }
    drop(lock);
    bars.retain(|(check, _), _| checks.contains(&check.as_str()));
    let mut failures = Vec::new();
    for (key, count) in &counts {
        let bar = bars.get(key).copied().unwrap_or_default();
        if *count > bar {
            let rows = findings.iter().filter(|it| it.check == key.0 && it.area == key.1);
            let rows: Vec<String> = rows.map(|it| format!("  {it}")).collect();
            failures.push(format!("{} in {}: {count}, at most {bar} are allowed:\n{}", key.0, key.1, rows.join("\n")));
        }
    }
    let lower = bars.iter().map(|(key, bar)| (key, bar, counts.get(key).copied().unwrap_or_default()));
    for ((check, area), bar, count) in lower.filter(|(_, bar, count)| count < bar) {
        failures.push(format!("{check} in {area}: {count} are fewer than the bar of {bar}: lower it with LOWER_BARS=1"));
    }
    assert!(failures.is_empty(), "see docs/guides/contributing.md for the language of the sources\n{}", failures.join("\n"));
}
