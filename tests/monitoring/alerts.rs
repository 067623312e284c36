//! Alerts: promtool accepts them, each fires and stays silent when it should, names what there is, and has a runbook.

use std::{collections::BTreeSet, fs};

use cloud_controller_manager::runtime::yaml;
use serde_json::Value;

use crate::{path, promtool::promtool, query::unknown, read};

const RULES: &str = "manifests/chart/files/alerts.yaml";
const CASES: &str = "tests/monitoring/alerts.test.yaml";
const RUNBOOKS: &str = "docs/runbooks";
const PREFIX: &str = "CloudControllerManager";

/// The scenario in which a fault of a simulated API server, cloud or file makes each alert fire.
const SCENARIOS: &[(&str, &str, &[&str])] = &[
    ("tests/api_server_faults/alerts.rs", "a_lease_that_nobody_can_write_is_told", &["NoLeader"]),
    ("tests/api_server_faults/alerts.rs", "two_leases_for_one_cluster_are_told", &["TwoLeaders"]),
    ("tests/api_server_faults/alerts.rs", "a_replica_that_is_not_ready_is_told", &["NotReady"]),
    ("tests/api_server_faults/alerts.rs", "a_reconcile_that_does_not_end_is_told", &["ReconcileStuck"]),
    ("tests/api_server_faults/alerts.rs", "a_panic_is_told_and_an_error_is_not", &["Panics"]),
    ("tests/api_server_faults/alerts.rs", "a_watch_that_is_forbidden_is_told", &["WatchErrors"]),
    ("tests/api_server_faults/alerts.rs", "a_certificate_with_few_days_left_is_told", &["CertificateExpires"]),
    ("tests/api_server_faults/alerts.rs", "a_limit_that_is_too_low_is_told", &["ApiThrottled"]),
    (
        "tests/azure_services/alerts.rs",
        "a_role_that_is_taken_away_is_told",
        &["ArmForbidden", "ServicesFailing", "ServiceStuck", "InventoryOld"],
    ),
    ("tests/azure_services/alerts.rs", "throttling_is_told", &["ArmThrottled", "BudgetWait"]),
    ("tests/azure_services/alerts.rs", "machines_that_azure_denies_are_told", &["MassDeletionHeld"]),
    ("tests/azure_services/alerts.rs", "nodes_that_wait_for_their_machine_are_told", &["NodesUninitialized", "NodesSlow"]),
    ("tests/azure_services/alerts.rs", "nodes_that_registered_without_the_taint_fire", &["NodesWithoutProviderID"]),
    ("tests/azure_services/alerts.rs", "a_changed_file_that_does_not_work_is_told", &["ConfigurationRefused"]),
    ("tests/azure_services/alerts.rs", "a_load_balancer_with_little_room_is_told", &["LoadBalancerNearlyFull"]),
    ("tests/azure_services/alerts.rs", "what_somebody_changes_again_and_again_is_told", &["DriftLeft"]),
];

fn alerts() -> Vec<Value> {
    let rules: Value = yaml::parse(&read(RULES)).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn name(alert: &Value) -> &str {
    alert["alert"].as_str().unwrap().strip_prefix(PREFIX).unwrap()
}

#[test]
fn promtool_accepts_the_rules_and_every_case() {
    let (is_right, told) = promtool(&["check", "rules", "--lint-fatal", RULES], &path(""), "");
    assert!(is_right, "{told}");
    let (is_right, told) = promtool(&["test", "rules", "alerts.test.yaml"], &path("tests/monitoring"), "");
    assert!(is_right, "{told}");
}

#[test]
fn each_alert_has_a_case_that_fires_and_one_that_does_not() {
    let cases: Value = yaml::parse(&read(CASES)).unwrap();
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
    let mut fired = BTreeSet::new();
    for (file, scenario, names) in SCENARIOS {
        let text = read(file);
        let start = text.find(&format!("fn {scenario}()")).unwrap_or_else(|| panic!("{file} has no {scenario}"));
        // It ends where the next item of the file has its closing brace.
        let body = text[start..].split("\n}\n").next().unwrap();
        for name in *names {
            assert!(body.contains(&format!("\"{name}\"")) && body.contains("firing("), "{scenario} has no {name}");
            assert!(fired.insert((*name).to_owned()), "{name} twice");
        }
    }
    assert_eq!(fired, alerts().iter().map(|alert| name(alert).to_owned()).collect());
}

#[test]
fn alerts_name_what_there_is() {
    for alert in alerts() {
        let texts: String = alert["annotations"].as_object().unwrap().values().map(Value::to_string).collect();
        assert_eq!(unknown(alert["expr"].as_str().unwrap(), &texts), Vec::<String>::new(), "{}", name(&alert));
    }
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let mut expected = BTreeSet::new();
    for alert in alerts() {
        let file = alert["annotations"]["runbook_url"].as_str().unwrap();
        let title = name(&alert);
        let text = read(file);
        assert!(text.starts_with(&format!("# {title}\n")), "{file} has another title than {title}");
        for part in ["## Meaning", "## Look", "## Act"] {
            assert!(text.contains(&format!("\n{part}\n")), "{file} has no {part}");
        }
        expected.insert(file.to_owned());
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{title}");
    }
    let there = fs::read_dir(path(RUNBOOKS)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> =
        there.filter(|file| file != "README.md").map(|file| format!("{RUNBOOKS}/{file}")).collect();
    assert_eq!(there, expected);
    let index = read(&format!("{RUNBOOKS}/README.md"));
    for file in &expected {
        assert!(index.contains(file.strip_prefix("docs/runbooks/").unwrap()), "the index has no {file}");
    }
}
