//! The alerts that come with the program, for `explain`.
//!
//! In: the file of alerts, as Prometheus reads it, with the text of each runbook. Out: a topic each, found by its whole name and by the
//! short one that runbooks have.

use serde::Deserialize;

use crate::{cloud_provider::registry::ReferenceTopic, runtime::yaml};

const FILE: &str = include_str!("../../../manifests/chart/files/alerts.yaml");
/// Prefix of the names of alerts.
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
    runbook: String,
}

pub(super) fn topics() -> Vec<ReferenceTopic> {
    let file: Option<AlertFile> = yaml::parse(FILE).ok();
    file.into_iter().flat_map(|file| file.groups).flat_map(|group| group.rules).map(topic).collect()
}

fn topic(rule: AlertRule) -> ReferenceTopic {
    let AlertAnnotations { summary, description, runbook } = rule.annotations;
    let names = rule.alert.strip_prefix(PREFIX).into_iter().map(str::to_owned);
    let (summary, description) = (plain(&summary), description.as_deref().map(plain));
    // The lines of an expression are joined, so that the runbook is easy to find.
    let expression = rule.expr.split_whitespace().collect::<Vec<_>>().join(" ");
    let facts = [format!("Fires on: {expression}"), String::new()];
    let runbook = runbook.trim_end().lines().map(str::to_owned);
    let lines = std::iter::once(summary).chain(description).chain(facts).chain(runbook).collect();
    ReferenceTopic { kind: "alert", names: std::iter::once(rule.alert.clone()).chain(names).collect(), lines }
}

/// Returns the text without the templates that Prometheus fills in, such as `{{ $value }}`, and without the name of the cluster.
fn plain(text: &str) -> String {
    let text = text.split("{{ with ").next().unwrap_or_default();
    let mut parts = text.split("{{");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "…" + part.split_once("}}").map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_left_out() {
        let cluster = "{{ $value }} wait{{ with $labels.cluster }} in cluster {{ . }}{{ end }}";
        for (text, expected) in
            [("no", "no"), ("{{ $value }} of {{ $labels.a }}: x", "… of …: x"), ("a {{ b", "a …"), (cluster, "… wait")]
        {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn every_alert_has_a_topic_with_its_runbook() {
        let topics = topics();
        assert_eq!(topics.len(), FILE.matches("- alert: ").count());
        for topic in &topics {
            for part in ["Meaning", "Look", "Act"] {
                assert!(topic.lines.iter().any(|line| line == part), "{part} of {topic:?}");
            }
            assert!(topic.names.len() == 2 && !topic.lines[0].contains("{{"), "{topic:?}");
        }
    }

    #[test]
    fn runbooks_take_little_room_in_the_binary() {
        assert!(FILE.len() < 48 * 1024, "{} bytes", FILE.len());
    }
}
