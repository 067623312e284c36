//! Imports point one way and pure modules stay pure: the cheap substitute for a workspace of crates.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    guides::blocks::files_with_extension,
    structure::{
        parts::assert_arrows,
        source::{ModulePath, Sources, is_product, is_test},
    },
};

/// Top-level modules, and those that each may name. Nothing names the sandbox. Its simulators name data and the wire of the azure
/// provider; only its programs, which run on them, name more.
const MODULES: &[(&str, &str)] = &[
    ("sandbox_demo", "app cli cloud_provider metrics node providers runtime sandbox"),
    ("sandbox::verify", "metrics providers providers::azure::model providers::azure::transport runtime sandbox"),
    ("sandbox", "metrics providers::azure::model providers::azure::transport runtime"),
    ("app", "cli cloud_provider controllers flags health_probe_proxy metrics node node_manager runtime serving status"),
    ("cli", "flags runtime"),
    ("serving", "runtime metrics status"),
    ("providers", "cloud_provider flags runtime metrics providers::azure::model providers::azure::transport status"),
    ("providers::azure::transport", "cloud_provider"),
    ("providers::azure::model", "cloud_provider"),
    ("node_manager", "cloud_provider controllers metrics node runtime"),
    ("health_probe_proxy", "runtime"),
    ("controllers", "cloud_provider runtime node metrics status"),
    ("node", "cloud_provider runtime"),
    ("cloud_provider", "flags runtime metrics status"),
    ("runtime", "metrics status"),
    ("status", ""),
    ("metrics", ""),
    ("flags", ""),
];

/// Plain data of other parts that the command line may name although it may not name the part around it: tables, and the
/// configuration types that it builds.
const PLAIN_DATA: &[&str] = &[
    "cloud_provider::config",
    "cloud_provider::load_balancer_class",
    "controllers::leader_migration",
    "controllers::names",
    "controllers::node::config",
    "controllers::node_ipam::config",
    "controllers::node_lifecycle::config",
    "controllers::route::config",
    "controllers::service::config",
    "node_manager::config",
    "serving::config",
];

/// Folders and files that are pure (no I/O, no clock, no `async`) in addition to the files whose first comment claims it.
const PURE: &[&str] = &[
    "src/node",
    "src/providers/azure/config",
    "src/providers/azure/model",
    "src/providers/azure/planner",
    "src/sandbox/azure/topology",
    "src/sandbox/patch",
];

/// Words that a pure module must not contain.
const IMPURE: &[&str] = &["async ", ".await", "kube::Client", "Api<", "tracing::", "::now", "Mutex<", "shutdown::", "fs::"];

fn rust_files(folder: &str) -> Vec<PathBuf> {
    files_with_extension(Path::new(folder), "rs")
}

/// Returns the code of a file without its inline tests and comments.
fn product_code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_plain_data(module: &ModulePath) -> bool {
    PLAIN_DATA.iter().any(|part| module.join("::").starts_with(part))
}

#[test]
fn imports_point_one_way() {
    assert_arrows("", MODULES, |from, to| from[0] == "cli" && is_plain_data(to));
}

fn impure_words(code: &str) -> Vec<&'static str> {
    IMPURE.iter().copied().filter(|word| code.contains(word)).collect()
}

#[test]
fn plain_data_imports_no_part_and_does_no_io() {
    let sources = Sources::read();
    let edges = sources.edges();
    for part in PLAIN_DATA {
        let module: ModulePath = part.split("::").map(str::to_owned).collect();
        let is_plain = |to: &ModulePath| is_plain_data(to) || to[0] == module[0] || ["flags", "runtime"].contains(&&*to[0]);
        let imports: Vec<_> = edges[&module].iter().filter(|to| !is_plain(to)).collect();
        assert!(imports.is_empty(), "{part} imports {imports:?}");
        assert_eq!(impure_words(&product_code(&sources.files[&module].path)), [""; 0], "{part}");
    }
}

/// Returns `true` if a sentence of the first comment claims that the file is pure.
fn claims_purity(text: &str) -> bool {
    let lines = text.lines().take_while(|line| line.starts_with("//!")).map(|line| line.trim_start_matches("//!").trim());
    let comment = lines.collect::<Vec<_>>().join(" ");
    let mut sentences = comment.split(". ").map(|sentence| sentence.trim().trim_end_matches('.'));
    sentences.any(|sentence| sentence.starts_with("Pure") || sentence.ends_with(": pure"))
}

#[test]
fn pure_files_do_no_io() {
    let is_listed = |path: &Path| PURE.iter().any(|row| path.starts_with(row));
    let mut pure = rust_files("src");
    pure.retain(|path| !is_test(path) && (is_listed(path) || claims_purity(&fs::read_to_string(path).unwrap())));
    let found = pure.iter().map(|path| (path, impure_words(&product_code(path))));
    let impure: Vec<_> = found.filter(|(_, words)| !words.is_empty()).collect();
    assert!(impure.is_empty() && pure.len() > 300, "{} files, of which are not pure: {impure:?}", pure.len());
    let is_unused = |row: &&&str| !pure.iter().any(|path| path.starts_with(row));
    let unused: Vec<_> = PURE.iter().filter(is_unused).collect();
    assert!(unused.is_empty(), "rows without a file, moved or renamed: {unused:?}");
}

/// Files that compare letter case themselves, with reasons. `model::spelling` compares all names of ARM.
const OWN_COMPARISONS: &[(&str, &str)] = &[
    ("src/providers/azure/auth", "names of clouds and identity systems in azure.json, read before ARM is known"),
    ("src/providers/azure/config", "words of azure.json"),
    ("src/providers/azure/load_balancer/lease/plan.rs", "the holder of a Lease"),
    ("src/providers/azure/metadata/describe.rs", "names that the machine's metadata service reports"),
    ("src/providers/azure/model/resource_id.rs", "fixed words of ids"),
    ("src/providers/azure/model/spelling.rs", "the home of such comparisons"),
    ("src/providers/azure/node.rs", "the value of a Node's label"),
    ("src/providers/azure/planner/load_balancer/annotations", "words that users write into annotations"),
    ("src/providers/azure/planner/load_balancer/spec/probes.rs", "words that users write into annotations"),
    ("src/providers/azure/planner/load_balancer/tag_list.rs", "a word that users write into annotations"),
    ("src/serving/authentication/token.rs", "a scheme of HTTP authentication"),
];

#[test]
fn letter_case_is_compared_in_few_files() {
    let compares = |path: &PathBuf| product_code(path).contains("eq_ignore_ascii_case");
    let found: Vec<PathBuf> = rust_files("src").into_iter().filter(|path| is_product(path)).filter(compares).collect();
    let is_home = |path: &&PathBuf| !OWN_COMPARISONS.iter().any(|(home, _)| path.starts_with(home));
    let strays: Vec<_> = found.iter().filter(is_home).collect();
    assert!(strays.is_empty(), "use `azure::model` (`is`, `name_is`, `same_as`, `spelling`): {strays:?}");
    let is_unused = |row: &&(&str, &str)| !found.iter().any(|path| path.starts_with(row.0));
    let unused: Vec<_> = OWN_COMPARISONS.iter().filter(is_unused).collect();
    assert!(unused.is_empty(), "rows whose files compare nothing: {unused:?}");
}

/// Libraries that only one file may name, so that a replacement changes only that file.
const ONE_HOME: &[(&str, &str)] =
    &[("serde_yaml", "src/runtime/yaml.rs"), ("serde_saphyr", "src/providers/azure/config/document.rs")];

#[test]
fn libraries_with_one_home_stay_there() {
    let folders = ["src", "tests", "benches", "fuzz/src"];
    let files: Vec<_> = folders.iter().flat_map(|folder| rust_files(folder)).collect();
    for (library, home) in ONE_HOME {
        let names = |path: &&PathBuf| product_code(path).contains(library) && !path.ends_with("tests/layering.rs");
        let found: Vec<_> = files.iter().filter(names).map(|path| path.display().to_string()).collect();
        assert_eq!(found, [*home], "{library}");
    }
}
