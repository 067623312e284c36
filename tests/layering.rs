//! Imports point one way and pure modules stay pure: the cheap substitute for a workspace of crates.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Top-level module → the top-level modules of ours that it may name.
const ALLOWED: &[(&str, &[&str])] = &[
    ("flags", &[]),
    ("metrics", &[]),
    ("runtime", &["metrics"]),
    ("cloud_provider", &["flags", "runtime", "metrics"]),
    ("node", &["cloud_provider", "runtime"]),
    ("controllers", &["cloud_provider", "runtime", "node", "metrics"]),
    ("health_probe_proxy", &["runtime"]),
    ("node_manager", &["cloud_provider", "controllers", "metrics", "node", "runtime"]),
    ("providers", &["cloud_provider", "flags", "runtime", "metrics"]),
    ("serving", &["runtime", "metrics"]),
    ("cli", &["flags", "runtime"]),
    ("sandbox", &["app", "cli", "cloud_provider", "controllers", "metrics", "node", "providers", "runtime", "serving"]),
    (
        "app",
        &[
            "cli",
            "cloud_provider",
            "controllers",
            "health_probe_proxy",
            "metrics",
            "node",
            "node_manager",
            "runtime",
            "serving",
        ],
    ),
];

/// Tables of plain data that a module may read although it may not name the module around them.
const TABLES: &[(&str, &str)] = &[("cli", "crate::controllers::names"), ("cli", "crate::controllers::leader_migration")];

/// Configuration types of the parts, which the command line builds although it may not name the part around them: where they are,
/// and the module. They are plain data.
const CONFIGURATION: &[(&str, &str)] = &[
    ("src/cloud_provider/config.rs", "crate::cloud_provider::config"),
    ("src/cloud_provider/load_balancer_class.rs", "crate::cloud_provider::load_balancer_class"),
    ("src/controllers/node/config.rs", "crate::controllers::node::config"),
    ("src/controllers/node_ipam/config.rs", "crate::controllers::node_ipam::config"),
    ("src/controllers/node_lifecycle/config.rs", "crate::controllers::node_lifecycle::config"),
    ("src/controllers/route/config.rs", "crate::controllers::route::config"),
    ("src/controllers/service/config.rs", "crate::controllers::service::config"),
    ("src/node_manager/config.rs", "crate::node_manager::config"),
    ("src/serving/config.rs", "crate::serving::config"),
];

/// Folders in which every file is pure: no I/O, no clock, no `async`.
const PURE_FOLDERS: &[&str] = &[
    "src/node",
    "src/providers/azure/arm/documents",
    "src/providers/azure/planner",
    "src/sandbox/azure/topology",
    "src/sandbox/patch",
];

/// Files outside of these that decide. Beside them every file is guarded that says of itself that it is pure.
const PURE_FILES: &[&str] = &[
    "src/cli/config/build.rs",
    "src/controllers/leader_migration.rs",
    "src/controllers/names.rs",
    "src/controllers/node/plan.rs",
    "src/controllers/node_ipam/allocations.rs",
    "src/controllers/node_ipam/cidr_set.rs",
    "src/controllers/node_ipam/plan.rs",
    "src/controllers/node_lifecycle/mass_deletion.rs",
    "src/controllers/node_lifecycle/plan.rs",
    "src/controllers/route/plan.rs",
    "src/controllers/service/conditions.rs",
    "src/controllers/service/needs_update.rs",
    "src/controllers/service/plan.rs",
    "src/controllers/service/predicates.rs",
    "src/health_probe_proxy/forwarded.rs",
    "src/health_probe_proxy/proxy_header.rs",
    "src/providers/azure/arm/answer.rs",
    "src/providers/azure/arm/batch/bisect.rs",
    "src/providers/azure/arm/batch/delay.rs",
    "src/providers/azure/arm/budget/buckets.rs",
    "src/providers/azure/arm/budget/charge.rs",
    "src/providers/azure/arm/budget/limits.rs",
    "src/providers/azure/arm/budget/queue.rs",
    "src/providers/azure/arm/budget/quota_headers.rs",
    "src/providers/azure/arm/classify.rs",
    "src/providers/azure/arm/error_body.rs",
    "src/providers/azure/arm/operation.rs",
    "src/providers/azure/arm/operation_watch/evidence.rs",
    "src/providers/azure/arm/operation_watch/schedule.rs",
    "src/providers/azure/arm/retry.rs",
    "src/providers/azure/arm/retry_after.rs",
    "src/providers/azure/arm/settings.rs",
    "src/providers/azure/auth/token_schedule.rs",
    "src/providers/azure/check/permissions.rs",
    "src/providers/azure/check/requirements.rs",
    "src/providers/azure/config/decode.rs",
    "src/providers/azure/config/environment.rs",
    "src/providers/azure/config/merge.rs",
    "src/providers/azure/config/validate.rs",
    "src/providers/azure/instances/describe.rs",
    "src/providers/azure/instances/existence.rs",
    "src/providers/azure/instances/ownership.rs",
    "src/providers/azure/instances/provider_id.rs",
    "src/providers/azure/inventory/build.rs",
    "src/providers/azure/inventory/denial.rs",
    "src/providers/azure/inventory/existence.rs",
    "src/providers/azure/inventory/names.rs",
    "src/providers/azure/inventory/plan.rs",
    "src/providers/azure/inventory/records.rs",
    "src/providers/azure/inventory/resolve.rs",
    "src/providers/azure/inventory/second_look.rs",
    "src/providers/azure/inventory/settings.rs",
    "src/providers/azure/load_balancer/apply/planned_version.rs",
    "src/providers/azure/load_balancer/backend_pools/outcome.rs",
    "src/providers/azure/load_balancer/explain/blame.rs",
    "src/providers/azure/load_balancer/explain/codes.rs",
    "src/providers/azure/load_balancer/lease/plan.rs",
    "src/providers/azure/load_balancer/observe/documents.rs",
    "src/providers/azure/load_balancer/observe/effects.rs",
    "src/providers/azure/load_balancer/observe/network_cache.rs",
    "src/providers/azure/load_balancer/observe/network_cache/event_order.rs",
    "src/providers/azure/load_balancer/observe/network_cache/write_back.rs",
    "src/providers/azure/metadata/describe.rs",
    "src/providers/azure/metadata/retry.rs",
    "src/providers/azure/out_of_service/decide.rs",
    "src/runtime/backoff.rs",
    "src/runtime/client/proxy.rs",
    "src/runtime/events/correlator.rs",
    "src/runtime/leader_election/lease.rs",
    "src/runtime/token_bucket.rs",
    "src/runtime/work_queue.rs",
    "src/serving/connection_table.rs",
    "src/serving/pages/overview.rs",
    "src/serving/pages/overview/facts.rs",
    "src/serving/pages/overview/html.rs",
    "src/serving/pages/overview/sections.rs",
    "src/serving/request_validation.rs",
];

/// What a pure module must not contain.
const IMPURE: &[&str] =
    &["async fn", "async move", ".await", "kube::Client", "Api<", "tracing::", "Instant::now", "Timestamp::now", "Mutex<"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files
}

/// The code of a file without its inline tests and comments.
fn product_code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains("tests"))
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
    for path in sources(Path::new("src")) {
        let module = top_module(&path);
        if module == "main" || module == "lib" || is_test_file(&path) {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!("{}: module `{module}` has no row in ALLOWED", path.display()));
            continue;
        };
        let tables = TABLES.iter().filter(|(reader, _)| *reader == module);
        let mut code = tables.fold(product_code(&path), |code, (_, table)| code.replace(table, "table"));
        if module == "cli" {
            code = without_configuration(code);
        }
        for import in crate_imports(&code) {
            if import != module && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{}: `{module}` must not import `{import}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The code as if configuration types were nobody's.
fn without_configuration(code: String) -> String {
    CONFIGURATION.iter().fold(code, |code, (_, part)| code.replace(&format!("{part}::"), "table::"))
}

#[test]
fn configuration_types_are_plain_data() {
    for (file, module) in CONFIGURATION {
        let code = without_configuration(product_code(Path::new(file)));
        let imports = crate_imports(&code);
        assert!(
            imports.iter().all(|import| ["flags", "runtime"].contains(&import.as_str())),
            "{module} imports {imports:?}"
        );
        let impure: Vec<_> = IMPURE.iter().filter(|word| code.contains(**word)).collect();
        assert!(impure.is_empty(), "{module} contains {impure:?}");
    }
}

/// Whether the module says of itself, in a sentence of its first comment, that it is pure.
fn says_that_it_is_pure(text: &str) -> bool {
    let lines = text.lines().take_while(|line| line.starts_with("//!")).map(|line| line.trim_start_matches("//!").trim());
    let comment = lines.collect::<Vec<_>>().join(" ");
    let mut sentences = comment.split(". ").map(|sentence| sentence.trim().trim_end_matches('.'));
    sentences.any(|sentence| {
        let claim = ["Pure", "Pure over ", "Pure functions "];
        let begins = sentence == claim[0] || claim[1..].iter().any(|start| sentence.starts_with(start));
        begins || ["Pure:", "Pure;", "Pure,"].iter().any(|start| sentence.starts_with(start)) || sentence.ends_with(": pure")
    })
}

#[test]
fn what_decides_does_no_io() {
    let mut wrong = Vec::new();
    for path in sources(Path::new("src")).into_iter().filter(|path| !is_test_file(path)) {
        let is_listed = PURE_FILES.iter().any(|file| path == Path::new(file));
        let is_inside = PURE_FOLDERS.iter().any(|folder| path.starts_with(folder));
        if is_listed || is_inside || says_that_it_is_pure(&fs::read_to_string(&path).unwrap()) {
            let code = product_code(&path);
            let found = IMPURE.iter().filter(|word| code.contains(**word));
            wrong.extend(found.map(|word| format!("{}: contains `{word}`", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_listed_as_pure_is_there_once() {
    let mut listed: Vec<&str> = PURE_FILES.iter().chain(PURE_FOLDERS).copied().collect();
    let gone: Vec<_> = listed.iter().filter(|path| !Path::new(path).exists()).collect();
    assert!(gone.is_empty(), "moved or renamed? {gone:?}");
    let is_inside = |file: &&&str| PURE_FOLDERS.iter().any(|folder| Path::new(file).starts_with(folder));
    let doubled: Vec<_> = PURE_FILES.iter().filter(is_inside).collect();
    assert!(doubled.is_empty(), "in a pure folder anyway: {doubled:?}");
    listed.sort_unstable();
    assert!(listed.windows(2).all(|pair| pair[0] < pair[1]), "twice in the list");
}

#[test]
fn a_claim_of_purity_is_recognised() {
    for claim in [
        "//! What to do: pure.",
        "//! A.\n//!\n//! Pure. Upstream: x.",
        "//! Pure over\n//! time.",
        "//! Pure; y.",
        "//! Pure: text in.",
    ] {
        assert!(says_that_it_is_pure(claim), "{claim}");
    }
    for other in ["//! `plan` is pure.", "use a;\n//! Pure.", "//! All but `x` is pure: good."] {
        assert!(!says_that_it_is_pure(other), "{other}");
    }
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
    let found: Vec<PathBuf> = sources(Path::new("src")).into_iter().filter(is_product).filter(compares).collect();
    let is_home = |path: &&PathBuf| !OWN_COMPARISONS.iter().any(|(home, _)| path.starts_with(home));
    let strays: Vec<_> = found.iter().filter(is_home).collect();
    assert!(strays.is_empty(), "use `arm::documents` (`is`, `name_is`, `same_as`, `spelling`): {strays:?}");
    let is_unused = |row: &&(&str, &str)| !found.iter().any(|path| path.starts_with(row.0));
    let unused: Vec<_> = OWN_COMPARISONS.iter().filter(is_unused).collect();
    assert!(unused.is_empty(), "they compare nothing any more: {unused:?}");
}

#[test]
fn the_arrows_form_no_circle() {
    let arrows = |module: &str| ALLOWED.iter().find(|(name, _)| *name == module).map_or(&[][..], |(_, allowed)| *allowed);
    for (start, _) in ALLOWED {
        let mut seen: Vec<&str> = arrows(start).to_vec();
        let mut next = 0;
        while let Some(module) = seen.get(next).copied() {
            let more = arrows(module).iter().filter(|other| !seen.contains(other)).copied().collect::<Vec<_>>();
            seen.extend(more);
            next += 1;
        }
        assert!(!seen.contains(start), "ALLOWED leads from `{start}` back to it");
    }
}

/// A library that one file may name, so that whoever replaces it changes that file alone.
const ONE_HOME: &[(&str, &str)] =
    &[("serde_yaml", "src/runtime/yaml.rs"), ("serde_saphyr", "src/providers/azure/config/document.rs")];

#[test]
fn libraries_with_one_home_stay_there() {
    let folders = ["src", "tests", "benches", "fuzz/src"];
    let files: Vec<_> = folders.iter().flat_map(|folder| sources(Path::new(folder))).collect();
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
