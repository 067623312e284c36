//! Imports point one way and pure modules stay pure: the cheap substitute for a workspace of crates.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Top-level module → the top-level modules of ours that it may name.
const ALLOWED: &[(&str, &[&str])] = &[
    ("metrics", &[]),
    ("runtime", &["metrics"]),
    ("cloud_provider", &["runtime", "metrics"]),
    ("node", &["cloud_provider", "runtime"]),
    ("controllers", &["cloud_provider", "runtime", "node", "metrics"]),
    ("node_manager", &["cloud_provider", "controllers", "metrics", "node", "runtime"]),
    ("providers", &["cloud_provider", "runtime", "metrics"]),
    ("serving", &["runtime", "metrics"]),
    ("cli", &["runtime"]),
    ("sandbox", &["app", "cli", "cloud_provider", "controllers", "metrics", "node", "providers", "runtime", "serving"]),
    ("app", &["cli", "cloud_provider", "controllers", "metrics", "node", "node_manager", "runtime", "serving"]),
];

/// Tables of plain data that a module may read although it may not name the module around them.
const TABLES: &[(&str, &str)] = &[("cli", "crate::controllers::names")];

/// File names of modules that decide: no I/O, no clock, no `async`.
const PURE_FILES: &[&str] = &[
    "plan.rs",
    "mass_deletion.rs",
    "preview.rs",
    "work_queue.rs",
    "lease.rs",
    "backoff.rs",
    "token_bucket.rs",
    "correlator.rs",
    "predicates.rs",
    "needs_update.rs",
    "conditions.rs",
    "proxy.rs",
    "connection_table.rs",
    "request_validation.rs",
    // azure: configuration
    "decode.rs",
    "merge.rs",
    "validate.rs",
    "requirements.rs",
    "environment.rs",
    // azure: requests
    "resource_id.rs",
    "classify.rs",
    "error_body.rs",
    "operation.rs",
    "schedule.rs",
    "evidence.rs",
    "retry.rs",
    "retry_after.rs",
    "answer.rs",
    "buckets.rs",
    "queue.rs",
    "limits.rs",
    "quota_headers.rs",
    "charge.rs",
    "token_schedule.rs",
    "permissions.rs",
    // azure: batches
    "bisect.rs",
    "delay.rs",
    // azure: routes
    "next_hop.rs",
    "listing.rs",
    // azure: machines
    "records.rs",
    "build.rs",
    "names.rs",
    "resolve.rs",
    "denial.rs",
    "second_look.rs",
    "describe.rs",
    "existence.rs",
    "ownership.rs",
    "provider_id.rs",
    "decide.rs",
    // azure: load balancers
    "naming.rs",
    "settings.rs",
    "observed.rs",
    "spec.rs",
    "codes.rs",
    "blame.rs",
    "network_query.rs",
    "documents.rs",
    "network_cache.rs",
    "event_order.rs",
    "write_back.rs",
    "effects.rs",
    "planned_version.rs",
    "member_resource.rs",
    "target.rs",
    "managed_pool.rs",
    "nodes.rs",
    "outcome.rs",
];

/// Folders in which every file is pure.
const PURE_FOLDERS: &[&str] = &["src/node", "src/providers/azure/planner"];

/// Parts of the azure provider, each of which may name itself and those after it.
const AZURE: &[&[&str]] = &[
    &["local"],
    &["provider", "session_proxy", "check"],
    &["session"],
    &["routes", "load_balancer", "metadata"],
    &["planner"],
    &["instances", "out_of_service"],
    &["inventory"],
    &["arm"],
    &["auth"],
    &["config", "node", "operation_metrics"],
];

/// The vocabulary of ARM that everything in the azure provider may use.
const AZURE_WORDS: &[&str] = &["ResourceId", "InvalidResourceId", "MaxBodySize", "ArmTransport", "ArmTransportError"];

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
        let code = tables.fold(product_code(&path), |code, (_, table)| code.replace(table, "table"));
        for import in crate_imports(&code) {
            if import != module && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{}: `{module}` must not import `{import}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The parts of the azure provider that `code` names, but for the common vocabulary of `arm`.
fn azure_imports(code: &str) -> Vec<String> {
    let flat = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut names = Vec::new();
    for part in AZURE.iter().flat_map(|level| level.iter()) {
        for start in ["azure::", "azure::{", "super::{", "super::", "super::super::", "super::super::{"] {
            for (at, _) in
                flat.match_indices(&format!("{start}{part}::")).chain(flat.match_indices(&format!("{start} {part}::")))
            {
                let rest = &flat[at..];
                let list = rest.split(';').next().unwrap_or_default();
                let used = list.split(&format!("{part}::")).nth(1).unwrap_or_default();
                let words =
                    used.trim_start_matches('{').split([',', '}', ' ']).map(str::trim).filter(|word| !word.is_empty());
                let only_words = *part == "arm" && words.clone().next().is_some_and(|word| AZURE_WORDS.contains(&word));
                if !only_words {
                    names.push((*part).to_owned());
                }
            }
        }
    }
    names
}

#[test]
fn the_azure_provider_reads_downwards() {
    let level = |part: &str| AZURE.iter().position(|level| level.contains(&part));
    let folder = Path::new("src/providers/azure");
    let mut wrong = Vec::new();
    for path in sources(folder) {
        let inside = path.strip_prefix(folder).unwrap();
        let part = inside.components().next().unwrap().as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned();
        if part == "mod" || is_test_file(&path) || path.ends_with("world.rs") {
            continue;
        }
        let Some(own) = level(&part) else {
            wrong.push(format!("{}: `{part}` has no place in AZURE", path.display()));
            continue;
        };
        let upward =
            azure_imports(&product_code(&path)).into_iter().filter(|name| level(name).is_some_and(|level| level < own));
        wrong.extend(upward.map(|name| format!("{}: `{part}` must not name `{name}`", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_decides_does_no_io() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in sources(Path::new("src")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let pure = PURE_FILES.contains(&name.as_str()) || PURE_FOLDERS.iter().any(|folder| path.starts_with(folder));
        if !pure || is_test_file(&path) {
            continue;
        }
        seen += 1;
        let code = product_code(&path);
        wrong.extend(
            IMPURE.iter().filter(|word| code.contains(**word)).map(|word| format!("{}: contains `{word}`", path.display())),
        );
    }
    assert!(seen >= 5, "only {seen} pure modules found: has a file been renamed?");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
