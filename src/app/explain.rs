//! Command `explain`: meaning of a name, with advice.
//!
//! In: the name of an error code, an event, an alert, a flag, a field, a metric, a check of `doctor`, or of something on a
//! Node or a Service; and the reference pages, or the tables without a page. Out: text and an exit code: 0 if the name was
//! found, else 1, with similar names.

mod alerts;
mod objects;

use std::process::ExitCode;

use serde_json::json;

use super::{app_error::AppError, doctor, events_reference::rows, process::print};
use crate::{
    cli::{
        ExplainOptions, docs,
        flags::{FlagTable, acr_credential_provider, health_probe_proxy, node_manager},
    },
    cloud_provider::{Registry, registry::ReferenceTopic},
    serving,
};

/// Minimum similarity of a suggested name.
const ALIKE: f64 = 0.82;
const SUGGESTIONS: usize = 3;
/// Largest difference in similarity between the best suggestion and the others.
const SPREAD: f64 = 0.03;

pub(super) fn run(registry: &Registry, options: &ExplainOptions) -> Result<ExitCode, AppError> {
    let topics = topics(registry);
    let found = find(&topics, &options.name);
    if found.is_empty() {
        let alike = suggestions(&topics, &options.name);
        let more = if alike.is_empty() { String::new() } else { format!("; did you mean {}?", alike.join(", ")) };
        return Err(format!("no description of {:?}{more}", options.name).into());
    }
    let text = if options.json { format!("{:#}", json!(found)) } else { text(&found) };
    Ok(print(&text, ExitCode::SUCCESS))
}

fn topics(registry: &Registry) -> Vec<ReferenceTopic> {
    let checks: Vec<_> = registry.all_diagnostics().map(|diagnostics| ("Provider", diagnostics.checks())).collect();
    let metrics = serving::metrics_reference(&registry.metrics());
    let pages = [
        ("metric", metrics.split("\n## Buckets").next().unwrap_or_default().to_owned()),
        ("flag", docs::flag_table(FlagTable::new(registry.flags()).sections())),
        ("flag of cloud-node-manager", docs::flag_table(&node_manager::sections())),
        ("flag of health-probe-proxy", docs::flag_table(health_probe_proxy::SECTIONS)),
        ("flag of acr-credential-provider", docs::flag_table(acr_credential_provider::SECTIONS)),
        ("check of doctor", doctor::reference_page(&checks)),
    ];
    let of_pages = pages.into_iter().flat_map(|(kind, page)| ReferenceTopic::rows(kind, 1, &page));
    let events = rows().map(ReferenceTopic::event);
    events.chain(alerts::topics()).chain(of_pages).chain(objects::topics()).chain(registry.topics()).collect()
}

fn find<'a>(topics: &'a [ReferenceTopic], name: &str) -> Vec<&'a ReferenceTopic> {
    // Flags are found with and without their dashes.
    let key = |name: &str| name.trim_start_matches('-').to_lowercase();
    let requested = key(name);
    let is_named = |topic: &&ReferenceTopic| topic.names.iter().any(|name| key(name) == requested);
    let mut found: Vec<_> = topics.iter().filter(is_named).collect();
    // Programs share flags.
    found.dedup_by(|topic, earlier| topic.lines == earlier.lines);
    found
}

fn suggestions(topics: &[ReferenceTopic], name: &str) -> Vec<String> {
    let needle = name.to_lowercase();
    let alike = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        if candidate.contains(&needle) { 1.0 } else { strsim::jaro_winkler(&candidate, &needle) }
    };
    let names = topics.iter().flat_map(|topic| &topic.names).map(|candidate| (alike(candidate), candidate));
    let mut near: Vec<_> = names.filter(|(score, _)| *score >= ALIKE).collect();
    near.sort_by(|(left, a), (right, b)| right.total_cmp(left).then_with(|| a.cmp(b)));
    near.dedup_by_key(|(_, name)| name.as_str());
    let best = near.first().map_or(0.0, |(score, _)| *score);
    near.retain(|(score, _)| *score >= best - SPREAD);
    near.into_iter().take(SUGGESTIONS).map(|(_, name)| name.clone()).collect()
}

fn text(found: &[&ReferenceTopic]) -> String {
    let of_topic = |topic: &&ReferenceTopic| {
        let lines: String = topic.lines.iter().map(|line| format!("{}\n", format!("  {line}").trim_end())).collect();
        format!("{} ({})\n{lines}", topic.names.first().map(String::as_str).unwrap_or_default(), topic.kind)
    };
    found.iter().map(of_topic).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_similar_ones_are_suggested() {
        let topics = topics(&Registry::new());
        let found = find(&topics, "WORKQUEUE_DEPTH");
        assert_eq!(text(&found).lines().next(), Some("workqueue_depth (metric)"));
        assert!(text(&found).contains("  Kind: gauge\n") && text(&found).contains("  Labels: name\n"));
        assert_eq!(find(&topics, "workqueue_queue_duration_seconds").len(), 1, "its buckets are not repeated");
        assert_eq!(find(&topics, "NodeDeletionDelayed").len(), 1);
        for name in ["DriftLeft", "cloudcontrollermanagerdriftleft"] {
            let found = text(&find(&topics, name));
            assert!(found.starts_with("CloudControllerManagerDriftLeft (alert)\n"), "{found}");
            assert!(found.contains("\n  Meaning\n") && found.contains("driftPolicy"), "{found}");
        }
        for name in ["--route-reconciliation-period", "route-reconciliation-period", "Route-Reconciliation-Period"] {
            let found = text(&find(&topics, name));
            assert!(found.starts_with("--route-reconciliation-period (flag)\n"), "{name}: {found}");
            assert!(found.contains("  Value: duration\n  Default: 10s\n  Meaning: "), "{found}");
        }
        assert!(text(&find(&topics, "--wait-routes")).starts_with("--wait-routes (flag of cloud-node-manager)\n"));
        assert_eq!(find(&topics, "--kubeconfig").len(), 1, "programs share flags");
        assert!(text(&find(&topics, "node-sync-period")).contains("Deprecated: "));
        assert_eq!(suggestions(&topics, "--route-reconcilation-period"), ["--route-reconciliation-period"]);
        for (name, kind) in [
            ("node.cloudprovider.kubernetes.io/uninitialized", "taint"),
            ("uninitialized", "taint"),
            ("topology.kubernetes.io/zone", "label"),
            ("cloud-controller-manager.io/LoadBalancer", "condition"),
            ("Invalid", "reason of the condition of Services"),
            ("rights", "check of doctor"),
        ] {
            assert!(find(&topics, name).iter().any(|topic| topic.kind == kind), "{name}");
        }
        assert!(find(&topics, "nonsense").is_empty() && suggestions(&topics, "nonsense").is_empty());
        assert_eq!(suggestions(&topics, "NodeDeletionDelay"), ["NodeDeletionDelayed"]);
    }
}
