//! Series as Prometheus would scrape them, and the shipped alerts that fire on them.
//!
//! In: the metrics of replicas, one text for each and minute. Out: names of the alerts that fire at some minute, as promtool finds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use cloud_controller_manager::runtime::yaml;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::promtool::promtool;

const RULES: &str = "manifests/chart/files/alerts.yaml";

/// Values of each series, one per minute; `None` while the series did not exist.
pub(crate) struct ScrapedSeries {
    start: f64,
    minutes: usize,
    values: BTreeMap<String, Vec<Option<f64>>>,
}

impl ScrapedSeries {
    /// Creates an empty set of series. Time 0 of promtool is `start`.
    pub(crate) fn since(start: Timestamp) -> Self {
        Self { start: start.as_duration().as_secs_f64(), minutes: 0, values: BTreeMap::new() }
    }

    /// Adds a minute: the metrics of each running replica, by the name of its instance.
    pub(crate) fn scrape(&mut self, replicas: &[(&str, String)]) {
        for (instance, text) in replicas {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            for (series, value) in lines.filter_map(|line| line.rsplit_once(' ')) {
                let is_moment = series.split('{').next().is_some_and(|name| name.ends_with("_timestamp_seconds"));
                let value = value.parse::<f64>().ok().map(|value| if is_moment { value - self.start } else { value });
                let values = self.values.entry(with_target(series, instance)).or_default();
                values.resize(self.minutes, None);
                values.push(value);
            }
        }
        self.minutes += 1;
        self.values.values_mut().for_each(|values| values.resize(self.minutes, None));
    }

    /// Returns the alerts that fire at some minute, without the common prefix of their names.
    pub(crate) fn firing(&self) -> BTreeSet<String> {
        let rules: Value = yaml::parse(&std::fs::read_to_string(RULES).unwrap()).unwrap();
        let groups = rules["groups"].as_array().unwrap().iter();
        let alerts: Vec<Value> = groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
        let alert_tests = (0..self.minutes).flat_map(|minute| {
            let expect = move |alert: &Value| json!({"eval_time": format!("{minute}m"), "alertname": alert["alert"], "exp_alerts": []});
            alerts.iter().map(expect).collect::<Vec<_>>()
        });
        let test =
            json!({"interval": "1m", "input_series": self.series(), "alert_rule_test": alert_tests.collect::<Vec<_>>()});
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join(RULES);
        let file = tempfile::NamedTempFile::new().unwrap();
        let tests = json!({"rule_files": [rules], "evaluation_interval": "1m", "tests": [test]});
        std::fs::write(file.path(), tests.to_string()).unwrap();
        let (_, output) = promtool(&["test", "rules", file.path().to_str().unwrap()], Path::new("."), "");
        assert!(output.contains("SUCCESS") || output.contains("alertname:"), "{output}");
        let named = output.split("alertname: CloudControllerManager").skip(1).filter_map(|rest| rest.split(',').next());
        named.map(str::to_owned).collect()
    }

    fn series(&self) -> Vec<Value> {
        self.values.iter().map(|(name, values)| json!({"series": name, "values": words(values)})).collect()
    }
}

/// Formats values for promtool. A series that ended is stale immediately; otherwise Prometheus would use its last value for 5 minutes.
fn words(values: &[Option<f64>]) -> String {
    let mut was_there = false;
    let word = |value: &Option<f64>| {
        was_there |= value.is_some();
        value.map_or_else(|| if was_there { "stale" } else { "_" }.to_owned(), |value| value.to_string())
    };
    values.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the series with the labels that Prometheus adds.
fn with_target(series: &str, instance: &str) -> String {
    let target = format!("cluster=\"test\",job=\"cloud-controller-manager\",instance=\"{instance}\"");
    match series.split_once('{') {
        Some((name, labels)) => format!("{name}{{{target},{labels}"),
        None => format!("{series}{{{target}}}"),
    }
}

/// Returns a set of names of alerts.
pub(crate) fn set(alerts: &[&str]) -> BTreeSet<String> {
    alerts.iter().map(|alert| (*alert).to_owned()).collect()
}
