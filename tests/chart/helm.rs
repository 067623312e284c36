//! Tests that need Helm: results, lint, schema, refusals, the package.
//!
//! `HELM_PYTHON` is an interpreter with the package helm-python-sdk, which embeds Helm v4; `.ci/helm` makes one and `make test` sets it.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write as _,
    process::{Command, Stdio},
    sync::LazyLock,
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::chart::{
    monitoring,
    objects::{check, files, folder, parse, read},
};

/// Prefix of the cases whose results are not stored, and name of one of them.
const MONITORING: &str = "monitoring";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HelmOutput {
    cases: BTreeMap<String, HelmResult>,
    lint: BTreeMap<String, Value>,
    package_is_same: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HelmResult {
    objects: String,
    notes: String,
    error: String,
}

/// Output of one run of Helm for all tests.
static OUTPUT: LazyLock<HelmOutput> = LazyLock::new(|| {
    let python = env::var("HELM_PYTHON")
        .unwrap_or_else(|_| panic!("HELM_PYTHON is not set: run `make test`, or set it to what .ci/helm prints"));
    let values: BTreeMap<String, String> = [files("values"), files("refused")].concat().into_iter().collect();
    let chart = folder("../../manifests/chart");
    let mut helm = Command::new(&python)
        .arg(folder("helm.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{python}: {error}"));
    let input = json!({"chart": chart, "values": values}).to_string();
    helm.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = helm.wait_with_output().unwrap();
    assert!(output.status.success(), "{python} failed; run it with the same input to see why");
    serde_json::from_slice(&output.stdout).unwrap()
});

fn of(case: &str) -> &'static HelmResult {
    OUTPUT.cases.get(case).unwrap_or_else(|| panic!("no case {case}"))
}

#[test]
fn rendered_results_are_current() {
    let mut stale = Vec::new();
    let mut cases: Vec<String> = files("values").into_iter().map(|(case, _)| case).collect();
    cases.retain(|case| !case.starts_with(MONITORING));
    for case in &cases {
        let result = of(case);
        assert!(result.error.is_empty(), "{case}: {}", result.error);
        let path = folder("rendered").join(format!("{case}.yaml"));
        let text = format!("# What Helm makes of ../values/{case}.yaml; UPDATE_DOCS=1 writes it.\n{}", result.objects);
        if fs::read_to_string(&path).unwrap_or_default() != text {
            if env::var_os("UPDATE_DOCS").is_some() {
                fs::write(&path, text).unwrap();
            } else {
                stale.push(case);
            }
        }
    }
    assert!(stale.is_empty(), "tests/chart/rendered is out of date, `make docs` writes it again: {stale:?}");
    let stored: Vec<String> = files("rendered").into_iter().map(|(case, _)| case).collect();
    assert_eq!(stored, cases);
}

#[test]
fn lint_reports_no_warning() {
    for (case, report) in &OUTPUT.lint {
        let warnings =
            report["messages"].as_array().into_iter().flatten().filter(|message| message["severity"].as_i64() > Some(1));
        assert_eq!(warnings.collect::<Vec<_>>(), Vec::<&Value>::new(), "{case}");
        assert_eq!(report["errors"].as_array().map_or(0, Vec::len), 0, "{case}: {report}");
    }
    assert!(OUTPUT.lint.len() >= 9);
}

#[test]
fn the_package_has_all_files_of_the_folder() {
    assert!(OUTPUT.package_is_same);
}

#[test]
fn unsupported_values_are_refused_with_the_reason() {
    let refused = files("refused");
    assert!(refused.len() >= 12);
    for (case, text) in refused {
        let error = &of(&case).error;
        let reasons: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# refused: ")).collect();
        assert!(!reasons.is_empty(), "{case} names no reason");
        for reason in reasons {
            assert!(error.contains(reason), "{case}: {reason:?} is not in {error:?}");
        }
    }
}

#[test]
fn reused_values_of_another_chart_are_refused_with_the_remedy() {
    let error = &of("reused").error;
    assert!(error.contains("Use --reset-then-reuse-values instead"), "{error}");
    assert!(!error.contains("nil pointer"), "{error}");
}

#[test]
fn monitoring_is_complete_and_points_to_the_published_runbooks() {
    let objects = objects(MONITORING);
    monitoring::check(&objects);
    assert!(objects.iter().all(|object| object["kind"] != "DaemonSet"), "the string \"false\" is off");
}

fn objects(case: &str) -> Vec<Value> {
    let result = of(case);
    assert!(result.error.is_empty(), "{case}: {}", result.error);
    let objects = parse(&result.objects);
    objects.iter().for_each(|object| check(case, object));
    objects
}

#[test]
fn alerts_about_the_leader_follow_the_election() {
    monitoring::check_lease(&objects("monitoring-lease"), "my-lease");
    monitoring::check_no_election(&objects("monitoring-no-election"));
}

#[test]
fn alerts_and_dashboards_follow_selector_and_cluster_label() {
    monitoring::check_selector(&objects("monitoring-fleet"));
}

#[test]
fn notes_name_the_required_checks() {
    let notes = &of("minimal").notes;
    assert!(notes.contains("has to be readable for user 65532"), "{notes}");
    assert!(!of("additions").notes.contains("has to be readable"), "azure.json comes from a Secret");
    assert!(notes.contains("helm rollback azure"), "{notes}");
    // Helm has evaluated all templates.
    OUTPUT.cases.values().for_each(|case| assert!(!case.notes.contains("{{"), "{}", case.notes));
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart: Value = parse(&read(&folder("../../manifests/chart/Chart.yaml"))).remove(0);
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
}
