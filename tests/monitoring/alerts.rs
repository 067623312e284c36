//! Alerts: promtool accepts them, each fires only in its cases, uses existing metrics and labels, and has a runbook.

use std::{collections::BTreeSet, fs};

use cloud_controller_manager::runtime::yaml;
use serde_json::{Value, json};

use crate::monitoring::{
    path,
    promtool::promtool,
    query::{missing_names, names},
    read,
    runbooks::page,
};

pub(crate) const RULES: &str = "manifests/chart/files/alerts.yaml";
const CASES: &str = "tests/monitoring/alerts.test.yaml";
pub(crate) const RUNBOOKS: &str = "docs/runbooks";
pub(crate) const PREFIX: &str = "CloudControllerManager";

/// Scenarios in which a fault of a simulated API server, cloud or file makes alerts fire.
const SCENARIOS: [&str; 2] = ["tests/api_server_faults/alerts.rs", "tests/azure_services/alerts.rs"];

fn alerts() -> Vec<Value> {
    let rules: Value = yaml::parse(&read(RULES)).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn name(alert: &Value) -> &str {
    alert["alert"].as_str().unwrap().strip_prefix(PREFIX).unwrap()
}

/// Panics unless every case of a test file passes. Its rules are the shipped rules without the texts of the runbooks.
fn assert_cases(cases: &Value) {
    let mut rules: Value = yaml::parse(&read(RULES)).unwrap();
    for group in rules["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            rule["annotations"].as_object_mut().unwrap().remove("runbook");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut cases = cases.clone();
    cases["rule_files"] = json!(["rules.json"]);
    for (name, document) in [("rules.json", &rules), ("cases.json", &cases)] {
        fs::write(folder.path().join(name), document.to_string()).unwrap();
    }
    let (is_right, output) = promtool(&["test", "rules", "cases.json"], folder.path(), "");
    assert!(is_right, "{output}");
}

fn cases() -> Value {
    yaml::parse(&read(CASES)).unwrap()
}

#[test]
fn promtool_accepts_the_rules_and_every_case() {
    let (is_right, output) = promtool(&["check", "rules", "--lint-fatal", RULES], &path(""), "");
    assert!(is_right, "{output}");
    assert_cases(&cases());
}

/// Jobs of programs with series of the same names: cert-manager, kube-apiserver, kube-controller-manager, a CSI driver.
const FOREIGN_JOBS: [&str; 4] = ["cert-manager", "kubernetes", "kube-controller-manager", "csi-azuredisk"];
/// Series of a leader, which keeps alerts about the leader silent.
const LEADER: &str = r#"leader_election_master_status{cluster="west",job="cloud-controller-manager",instance="z:10258",name="cloud-controller-manager"}"#;

/// Returns a case with its series under another job, next to a healthy leader, and without expected alerts.
fn as_foreign(case: &Value, job: &str) -> Value {
    let mut foreign = case.clone();
    for series in foreign["input_series"].as_array_mut().unwrap() {
        let name = series["series"].as_str().unwrap().replace("job=\"cloud-controller-manager\"", &format!("job={job:?}"));
        series["series"] = name.into();
    }
    foreign["input_series"].as_array_mut().unwrap().push(json!({"series": LEADER, "values": "1x200"}));
    for expected in foreign["alert_rule_test"].as_array_mut().unwrap() {
        expected["exp_alerts"] = json!([]);
    }
    foreign
}

#[test]
fn series_of_other_programs_fire_nothing() {
    let cases = cases();
    let fires =
        |case: &&Value| case["alert_rule_test"].as_array().unwrap().iter().any(|test| test["exp_alerts"] != json!([]));
    let firing: Vec<&Value> = cases["tests"].as_array().unwrap().iter().filter(fires).collect();
    assert!(firing.len() >= alerts().len());
    let foreign: Vec<Value> =
        FOREIGN_JOBS.iter().flat_map(|job| firing.iter().map(move |case| as_foreign(case, job))).collect();
    let mut file = cases.clone();
    file["tests"] = foreign.into();
    assert_cases(&file);
}

/// Tests the query of the guide that lists the clusters that are ready to switch.
#[test]
fn the_gate_in_the_guide_lists_ready_clusters_only() {
    let guide = read("docs/guides/monitoring.md");
    let query = guide.split("```promql\n").nth(1).unwrap().split("```").next().unwrap();
    let planned = |cluster: &str, kind: &str, values: &str| json!({"series": format!("cloud_controller_manager_planned_writes{{cluster={cluster:?},instance=\"s\",kind={kind:?}}}"), "values": values});
    // Each cluster has two leftovers. In addition, one has a write for an hour, one has an unread resource, and one is younger than a day.
    let clusters = [
        ("ready", "2x400", "0x400"),
        ("writes", "2x100 3x10 2x290", "0x400"),
        ("unread", "2x400", "0x300 1x100"),
        ("young", "_x200 2x200", "_x200 0x200"),
    ];
    let series = clusters.iter().flat_map(|(cluster, writes, unread)| {
        [planned(cluster, "node", writes), planned(cluster, "leftovers", "2x400"), planned(cluster, "unread", unread)]
    });
    let expected = json!([{"labels": "{cluster=\"ready\"}", "value": 0}]);
    let expression = json!({"expr": query, "eval_time": "30h", "exp_samples": expected});
    let test = json!({"interval": "5m", "input_series": series.collect::<Vec<_>>(), "promql_expr_test": [expression]});
    assert_cases(&json!({"evaluation_interval": "5m", "tests": [test]}));
}

#[test]
fn every_expression_selects_the_job_and_groups_by_cluster() {
    for alert in alerts() {
        let expression = alert["expr"].as_str().unwrap();
        let names = names(expression);
        for (metric, labels) in &names.metrics {
            assert!(labels.contains("job"), "{metric} of {}", name(&alert));
        }
        let selectors = expression.matches('{').count();
        assert_eq!(expression.matches("{job=\"cloud-controller-manager\"").count(), selectors, "{}", name(&alert));
        let aggregations = expression.matches(" by (").count();
        assert!(aggregations > 0 && expression.matches(" by (cluster").count() == aggregations, "{}", name(&alert));
        assert_eq!(expression.matches(" on (").count(), expression.matches(" on (cluster)").count(), "{}", name(&alert));
    }
}

#[test]
fn each_alert_has_a_case_that_fires_and_one_that_does_not() {
    let cases = cases();
    let (mut fires, mut is_silent) = (BTreeSet::new(), BTreeSet::new());
    for case in cases["tests"].as_array().unwrap() {
        for expected in case["alert_rule_test"].as_array().unwrap() {
            let alert = expected["alertname"].as_str().unwrap().to_owned();
            let is_quiet = expected["exp_alerts"].as_array().unwrap().is_empty();
            if is_quiet { &mut is_silent } else { &mut fires }.insert(alert);
        }
    }
    let all: BTreeSet<String> = alerts().iter().map(|alert| alert["alert"].as_str().unwrap().to_owned()).collect();
    assert_eq!((&fires, &is_silent), (&all, &all));
    assert!(all.len() >= 15);
}

#[test]
fn each_alert_has_a_fault_that_fires_it() {
    let texts = SCENARIOS.map(read);
    let scenarios =
        texts.iter().flat_map(|text| text.split("#[tokio::test").skip(1)).filter(|body| body.contains("firing("));
    let scenarios: String = scenarios.collect();
    let alerts = alerts();
    let has_fault = |alert: &&Value| scenarios.contains(&format!("\"{}\"", name(alert)));
    let without: Vec<_> = alerts.iter().filter(|alert| !has_fault(alert)).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn alerts_use_existing_metrics_and_labels() {
    for alert in alerts() {
        let texts: String = alert["annotations"].as_object().unwrap().values().map(Value::to_string).collect();
        assert_eq!(missing_names(alert["expr"].as_str().unwrap(), &texts), Vec::<String>::new(), "{}", name(&alert));
    }
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let mut expected = BTreeSet::new();
    for alert in alerts() {
        let title = name(&alert);
        let file = page(title);
        let text = read(&file);
        assert!(text.starts_with(&format!("# {title}\n")), "{file} has another title than {title}");
        for part in ["## Meaning", "## Look", "## Act"] {
            assert!(text.contains(&format!("\n{part}\n")), "{file} has no {part}");
        }
        expected.insert(file);
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{title}");
    }
    let existing = fs::read_dir(path(RUNBOOKS)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let existing: BTreeSet<String> =
        existing.filter(|file| file != "README.md").map(|file| format!("{RUNBOOKS}/{file}")).collect();
    assert_eq!(existing, expected);
    let index = read(&format!("{RUNBOOKS}/README.md"));
    for file in &expected {
        assert!(index.contains(file.strip_prefix("docs/runbooks/").unwrap()), "the index has no {file}");
    }
}
