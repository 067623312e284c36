//! Imports point one way and pure modules stay pure: the cheap substitute for a workspace of crates.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::guides::blocks::files_with_extension;

/// Top-level module → the top-level modules of ours that it may name, which are all above it.
const ALLOWED: &[(&str, &str)] = &[
    ("flags", ""),
    ("metrics", ""),
    ("runtime", "metrics"),
    ("cloud_provider", "flags runtime metrics"),
    ("node", "cloud_provider runtime"),
    ("controllers", "cloud_provider runtime node metrics"),
    ("health_probe_proxy", "runtime"),
    ("node_manager", "cloud_provider controllers metrics node runtime"),
    ("providers", "cloud_provider flags runtime metrics"),
    ("serving", "runtime metrics"),
    ("cli", "flags runtime"),
    ("app", "cli cloud_provider controllers health_probe_proxy metrics node node_manager runtime serving"),
    ("sandbox", "app cli cloud_provider controllers metrics node providers runtime serving"),
];

/// Plain data of other parts that the command line may name although it may not name the part around it: tables, and the
/// configuration types that it builds.
const PLAIN_DATA: &[&str] = &[
    "crate::cloud_provider::config",
    "crate::cloud_provider::load_balancer_class",
    "crate::controllers::leader_migration",
    "crate::controllers::names",
    "crate::controllers::node::config",
    "crate::controllers::node_ipam::config",
    "crate::controllers::node_lifecycle::config",
    "crate::controllers::route::config",
    "crate::controllers::service::config",
    "crate::node_manager::config",
    "crate::serving::config",
];

/// Folders and files that are pure (no I/O, no clock, no `async`) in addition to the files whose first comment claims it.
const PURE: &[&str] = &[
    "src/cli/config/build.rs",
    "src/controllers/node_lifecycle/plan.rs",
    "src/controllers/service/plan.rs",
    "src/node",
    "src/providers/azure/arm/budget/buckets.rs",
    "src/providers/azure/arm/budget/charge.rs",
    "src/providers/azure/arm/budget/limits.rs",
    "src/providers/azure/arm/budget/queue.rs",
    "src/providers/azure/arm/budget/quota_headers.rs",
    "src/providers/azure/arm/documents",
    "src/providers/azure/arm/settings.rs",
    "src/providers/azure/check/permissions.rs",
    "src/providers/azure/inventory/build.rs",
    "src/providers/azure/inventory/names.rs",
    "src/providers/azure/inventory/records.rs",
    "src/providers/azure/inventory/settings.rs",
    "src/providers/azure/planner",
    "src/runtime/work_queue.rs",
    "src/sandbox/azure/topology",
    "src/sandbox/patch",
];

/// What a pure module must not contain.
const IMPURE: &[&str] =
    &["async fn", "async move", ".await", "kube::Client", "Api<", "tracing::", "Instant::now", "Timestamp::now", "Mutex<"];

fn rust_files(folder: &str) -> Vec<PathBuf> {
    files_with_extension(Path::new(folder), "rs")
}

/// The code of a file without its inline tests and comments.
fn product_code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "samples.rs" || name.to_string_lossy().contains("tests"))
        || path.components().any(|part| part.as_os_str() == "tests")
}

fn top_module(path: &Path) -> String {
    let inside = path.strip_prefix("src").unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// Names that follow `crate::` in `code`, also in a braced list.
fn crate_imports(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (position, _) in code.match_indices("crate::") {
        let rest = &code[position + "crate::".len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0_usize;
            let mut item = String::new();
            for c in list.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => names.push(std::mem::take(&mut item)),
                    c if depth == 0 => item.push(c),
                    _ => {}
                }
            }
            names.push(item);
        } else {
            names.push(rest.to_owned());
        }
    }
    let word = |name: &String| name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    names.iter().map(word).filter(|name| !name.is_empty()).collect()
}

#[test]
fn imports_point_one_way() {
    let mut wrong = Vec::new();
    for path in rust_files("src") {
        let module = top_module(&path);
        if module == "main" || module == "lib" || is_test_file(&path) {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!("{}: module `{module}` has no row in ALLOWED", path.display()));
            continue;
        };
        let mut code = product_code(&path);
        if module == "cli" {
            code = without_plain_data(code);
        }
        for import in crate_imports(&code) {
            if import != module && !is_listed(allowed, &import) {
                wrong.push(format!("{}: `{module}` must not import `{import}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_listed(modules: &str, module: &str) -> bool {
    modules.split_whitespace().any(|listed| listed == module)
}

/// The code as if plain data were nobody's.
fn without_plain_data(code: String) -> String {
    PLAIN_DATA.iter().fold(code, |code, part| code.replace(&format!("{part}::"), "table::"))
}

fn impure_words(code: &str) -> Vec<&'static str> {
    IMPURE.iter().copied().filter(|word| code.contains(word)).collect()
}

#[test]
fn plain_data_imports_no_part_and_does_no_io() {
    for part in PLAIN_DATA {
        let file = format!("{}.rs", part.replace("crate::", "src/").replace("::", "/"));
        let code = without_plain_data(product_code(Path::new(&file)));
        let imports = crate_imports(&code);
        assert!(imports.iter().all(|import| is_listed("flags runtime", import)), "{part} imports {imports:?}");
        assert_eq!(impure_words(&code), [""; 0], "{part}");
    }
}

/// Whether a sentence of the first comment claims that the file is pure.
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
    pure.retain(|path| !is_test_file(path) && (is_listed(path) || claims_purity(&fs::read_to_string(path).unwrap())));
    let found = pure.iter().map(|path| (path, impure_words(&product_code(path))));
    let wrong: Vec<_> = found.filter(|(_, words)| !words.is_empty()).collect();
    assert!(wrong.is_empty() && pure.len() > 300, "{} files, of which are not pure: {wrong:?}", pure.len());
    let is_gone = |row: &&&str| !pure.iter().any(|path| path.starts_with(row));
    let gone: Vec<_> = PURE.iter().filter(is_gone).collect();
    assert!(gone.is_empty(), "moved or renamed? {gone:?}");
}

/// Who compares letter case for itself, and why. Everything of ARM's is compared by `arm::documents`.
const OWN_COMPARISONS: &[(&str, &str)] = &[
    ("src/providers/azure/arm/documents", "the home of such comparisons"),
    ("src/providers/azure/auth", "names of clouds and identity systems in azure.json, read before ARM is known"),
    ("src/providers/azure/config", "words of azure.json"),
    ("src/providers/azure/load_balancer/lease/plan.rs", "the holder of a Lease"),
    ("src/providers/azure/metadata/describe.rs", "names that the machine's metadata service tells"),
    ("src/providers/azure/node.rs", "the value of a Node's label"),
    ("src/providers/azure/planner/load_balancer/annotations", "words that users write into annotations"),
    ("src/providers/azure/planner/load_balancer/spec/probes.rs", "words that users write into annotations"),
    ("src/providers/azure/planner/load_balancer/tag_list.rs", "a word that users write into annotations"),
    ("src/serving/authentication/token.rs", "a scheme of HTTP authentication"),
];

#[test]
fn letter_case_is_compared_in_few_places() {
    let compares = |path: &PathBuf| product_code(path).contains("eq_ignore_ascii_case");
    let is_product = |path: &PathBuf| !is_test_file(path) && !path.starts_with("src/sandbox");
    let found: Vec<PathBuf> = rust_files("src").into_iter().filter(is_product).filter(compares).collect();
    let is_home = |path: &&PathBuf| !OWN_COMPARISONS.iter().any(|(home, _)| path.starts_with(home));
    let strays: Vec<_> = found.iter().filter(is_home).collect();
    assert!(strays.is_empty(), "use `arm::documents` (`is`, `name_is`, `same_as`, `spelling`): {strays:?}");
    let is_unused = |row: &&(&str, &str)| !found.iter().any(|path| path.starts_with(row.0));
    let unused: Vec<_> = OWN_COMPARISONS.iter().filter(is_unused).collect();
    assert!(unused.is_empty(), "they compare nothing any more: {unused:?}");
}

#[test]
fn modules_name_only_modules_above_them() {
    let mut above = BTreeSet::new();
    for (module, allowed) in ALLOWED {
        assert!(allowed.split_whitespace().all(|other| above.contains(other)), "`{module}` names what is not above it");
        above.insert(*module);
    }
}

/// A library that one file may name, so that whoever replaces it changes that file alone.
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

#[test]
fn the_import_scanner_sees_what_it_should() {
    let code = "use crate::{\n    metrics::{A, B},\n    runtime::clock::Clock,\n};\nlet x = crate::cli::parse();";
    assert_eq!(crate_imports(code), ["metrics", "runtime", "cli"]);
}
