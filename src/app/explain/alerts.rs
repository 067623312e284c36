//! The alerts that come with the program, for `explain`.
//!
//! In: the file of alerts, as Prometheus reads it. Out: a topic each, found by its whole name and by the short one that runbooks have.

use serde::Deserialize;

use crate::{cloud_provider::registry::ReferenceTopic, runtime::yaml};

const FILE: &str = include_str!("../../../manifests/chart/files/alerts.yaml");
/// What every name of an alert begins with.
const PREFIX: &str = "CloudControllerManager";

#[derive(Deserialize)]
struct AlertFile {
    groups: Vec<AlertGroup>,
}

#[derive(Deserialize)]
struct AlertGroup {
    rules: Vec<AlertRule>,
}

#[derive(Deserialize)]
struct AlertRule {
    alert: String,
    expr: String,
    annotations: AlertAnnotations,
}

#[derive(Deserialize)]
struct AlertAnnotations {
    summary: String,
    description: Option<String>,
    runbook_url: String,
}

pub(super) fn topics() -> Vec<ReferenceTopic> {
    let file: Option<AlertFile> = yaml::parse(FILE).ok();
    file.into_iter().flat_map(|file| file.groups).flat_map(|group| group.rules).map(topic).collect()
}

fn topic(rule: AlertRule) -> ReferenceTopic {
    let AlertAnnotations { summary, description, runbook_url } = rule.annotations;
    let names = rule.alert.strip_prefix(PREFIX).into_iter().map(str::to_owned);
    let (summary, description) = (plain(&summary), description.as_deref().map(plain));
    let facts = [format!("Fires on: {}", rule.expr.trim()), format!("Runbook: {runbook_url}")];
    let lines = std::iter::once(summary).chain(description).chain(facts).collect();
    ReferenceTopic { kind: "alert", names: std::iter::once(rule.alert.clone()).chain(names).collect(), lines }
}

/// Without the templates that Prometheus fills in: `{{ $value }}`.
fn plain(text: &str) -> String {
    let mut parts = text.split("{{");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "…" + part.split_once("}}").map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_left_out() {
        for (text, expected) in [("no", "no"), ("{{ $value }} of {{ $labels.a }}: x", "… of …: x"), ("a {{ b", "a …")]
        {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn every_alert_has_a_topic_with_its_runbook() {
        let topics = topics();
        assert_eq!(topics.len(), FILE.matches("- alert: ").count());
        for topic in &topics {
            let [_, .., runbook] = topic.lines.as_slice() else { panic!("{topic:?}") };
            let page = runbook.trim_start_matches("Runbook: ");
            assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(page).is_file(), "{page}");
            assert!(topic.names.len() == 2 && !topic.lines[0].contains("{{"), "{topic:?}");
        }
    }
}
