//! Files and tests that the page of load balancer cases names exist.

use std::fs;

use crate::guides::blocks::root;

const PAGE: &str = "docs/design/load-balancer-cases.md";
/// Letters of the page, with the folders that they abbreviate.
const FOLDERS: [(&str, &str); 4] = [
    ("A/", "src/providers/azure/"),
    ("L/", "src/providers/azure/load_balancer/"),
    ("P/", "src/providers/azure/planner/load_balancer/"),
    ("T/", "tests/azure_services/"),
];

/// Returns the path from the root of the repository.
fn expand(path: &str) -> String {
    let inside = |(letter, folder): &(&str, &str)| Some(format!("{folder}{}", path.strip_prefix(letter)?));
    FOLDERS.iter().find_map(inside).unwrap_or_else(|| path.to_owned())
}

/// Returns `true` if a file has a test of this name: a function right after an attribute that makes it a test.
fn has_test(text: &str, name: &str) -> bool {
    let is_test = |line: &str| ["#[test]", "#[tokio::test"].iter().any(|start| line.trim_start().starts_with(start));
    let before = text.split_once(&format!("fn {name}(")).and_then(|(before, _)| before.rsplit_once('\n'));
    before.is_some_and(|(lines, _)| lines.lines().rev().take_while(|line| line.contains("#[")).any(is_test))
}

/// Returns `true` if `file.rs` or `file.rs::test` exists.
fn exists(reference: &str) -> bool {
    let (path, test) = reference.split_once("::").map_or((reference, None), |(path, test)| (path, Some(test)));
    let text = fs::read_to_string(root().join(expand(path)));
    text.is_ok_and(|text| test.is_none_or(|test| has_test(&text, test)))
}

#[test]
fn load_balancer_cases_name_existing_files_and_tests() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page of load balancer cases");
    let references: Vec<&str> = page.split('`').skip(1).step_by(2).filter(|quoted| quoted.contains(".rs")).collect();
    assert!(references.len() > 100, "only {} references found: does the check still parse the page?", references.len());
    let missing: Vec<_> = references.into_iter().filter(|reference| !exists(reference)).collect();
    assert!(missing.is_empty(), "{PAGE} names files or tests that do not exist: {missing:#?}");
}
