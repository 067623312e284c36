//! Alerts of the chart, for `explain`.
//!
//! In: the file of alerts, as Prometheus reads it, with the text of each runbook. Out: a topic per alert, found by its whole name
//! and by the short name of its runbook.

use serde_json::Value;

use crate::{cloud_provider::registry::ReferenceTopic, runtime::yaml};

const FILE: &str = include_str!("../../../manifests/chart/files/alerts.yaml");
/// Prefix of the names of alerts.
const PREFIX: &str = "CloudControllerManager";

pub(super) fn topics() -> Vec<ReferenceTopic> {
    let file: Value = yaml::parse(FILE).unwrap_or_default();
    let groups = file["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()).map(topic).collect()
}

fn topic(rule: &Value) -> ReferenceTopic {
    let annotations = &rule["annotations"];
    let name = rule["alert"].as_str().unwrap_or_default();
    let names = [name].into_iter().chain(name.strip_prefix(PREFIX)).map(str::to_owned).collect();
    let texts = ["summary", "description"].into_iter().filter_map(|key| annotations[key].as_str()).map(plain);
    // The lines of an expression are joined, so that the runbook is easy to find.
    let expression = rule["expr"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let facts = [format!("Fires on: {expression}"), String::new()];
    let runbook = annotations["runbook"].as_str().unwrap_or_default().trim_end().lines().map(str::to_owned);
    ReferenceTopic { kind: "alert", names, lines: texts.chain(facts).chain(runbook).collect() }
}

/// Returns the text without Prometheus's templates, such as `{{ $value }}`, and without the name of the cluster.
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
    fn templates_are_omitted() {
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
    fn alerts_file_is_small() {
        assert!(FILE.len() < 48 * 1024, "{} bytes", FILE.len());
    }
}
