//! Alerts: promtool accepts them, each fires and stays silent when it should, names what there is, and has a runbook.

use std::{collections::BTreeSet, fs};

use cloud_controller_manager::runtime::yaml;
use serde_json::Value;

use crate::{path, promtool::promtool, query::unknown, read};

const RULES: &str = "manifests/chart/files/alerts.yaml";
const CASES: &str = "tests/monitoring/alerts.test.yaml";
const RUNBOOKS: &str = "docs/runbooks";
const PREFIX: &str = "CloudControllerManager";

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
