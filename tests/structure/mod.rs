//! The shape of the product code: unique names, small files, no import cycles between files.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

mod cases;
pub(crate) mod language;
mod locks;
pub(crate) mod parts;
pub(crate) mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use source::{ModulePath, Sources};

/// Maximum number of lines of a file, without its inline tests.
const LARGEST_FILE: usize = 450;

#[test]
fn type_names_are_unique() {
    let sources = Sources::read();
    let mut homes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in sources.files.values() {
        file.types.iter().for_each(|name| homes.entry(name).or_default().push(file.path.display().to_string()));
    }
    assert!(homes.len() > 500, "only {} types found: does the check still parse the sources?", homes.len());
    homes.retain(|_, files| files.len() > 1);
    assert!(homes.is_empty(), "types that share their name: {homes:#?}");
}

/// Log lines name their file, so the module of a folder needs a name of its own.
#[test]
fn a_folder_has_its_module_beside_it() {
    let sources = Sources::read();
    let is_inside = |path: &&std::path::PathBuf| path.file_name().is_some_and(|name| name == "mod.rs");
    let inside: Vec<_> = sources.files.values().map(|file| &file.path).filter(is_inside).collect();
    assert!(inside.is_empty(), "move `x/mod.rs` to `x.rs`: {inside:?}");
}

/// A suite that no test binary names, or a binary that `.ci/test` does not name, would never run.
#[test]
fn every_suite_is_in_a_test_binary_that_runs() {
    let read = |path: &str| fs::read_to_string(path).expect(path);
    let manifest = read("Cargo.toml");
    let binaries: Vec<&str> =
        manifest.split("[[test]]\nname = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!((2..=5).contains(&binaries.len()), "the unit tests are the sixth: {binaries:?}");
    let runner = read(".ci/test");
    let missing: Vec<_> = binaries.iter().filter(|name| !runner.contains(&format!("--test {name}"))).collect();
    assert!(missing.is_empty(), "not in .ci/test: {missing:?}");

    let (roots, folders): (Vec<_>, Vec<_>) =
        binaries.into_iter().partition(|name| Path::new("tests").join(name).with_extension("rs").exists());
    let declared: BTreeSet<String> = roots
        .iter()
        .flat_map(|name| read(&format!("tests/{name}.rs")).lines().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|line| Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned()))
        .collect();
    let suite = |path: PathBuf| {
        let is_suite = path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").exists();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        (is_suite && !roots.contains(&name.as_str()) && !folders.contains(&name.as_str())).then_some(name)
    };
    let entries = fs::read_dir("tests").expect("tests");
    let suites: BTreeSet<String> = entries.filter_map(|entry| suite(entry.expect("an entry").path())).collect();
    let unlisted: Vec<_> = suites.difference(&declared).collect();
    assert!(unlisted.is_empty() && suites.len() > 30, "suites that no test binary names: {unlisted:?}");
}

#[test]
fn files_are_small() {
    let sources = Sources::read();
    let large: Vec<_> = sources.files.values().filter(|file| file.lines > LARGEST_FILE).map(|file| &file.path).collect();
    assert!(large.is_empty(), "more than {LARGEST_FILE} lines: {large:?}");
}

#[test]
fn imports_between_files_form_no_cycles() {
    let sources = Sources::read();
    let edges = sources.edges();
    let cycles: Vec<String> =
        edges.keys().filter(|module| reachable(module, &edges).contains(*module)).map(|module| module.join("::")).collect();
    assert!(cycles.is_empty(), "files that import each other in a cycle: {cycles:#?}");
}

/// Returns the files that `start` imports, directly or through others.
fn reachable<'a>(
    start: &ModulePath,
    edges: &BTreeMap<&'a ModulePath, BTreeSet<&'a ModulePath>>,
) -> BTreeSet<&'a ModulePath> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&ModulePath> = edges[start].iter().copied().collect();
    while let Some(next) = open.pop() {
        if let Some((module, more)) = edges.get_key_value(next)
            && seen.insert(*module)
        {
            open.extend(more.iter().copied());
        }
    }
    seen
}
