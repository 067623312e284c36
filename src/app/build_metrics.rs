//! Metrics about the program itself: its version, and the enabled features.
//!
//! In: the version and the feature gates. Out: two families of upstream's.

use crate::{
    cli::{feature_gates, platform},
    metrics::Metrics,
};

/// Publishes the gates that have an effect in this program. Upstream: `k8s.io/component-base/metrics/prometheus/feature`.
pub(super) fn publish_feature_gates(gates: &feature_gates::FeatureGates, metrics: &Metrics) {
    for gate in feature_gates::TABLE.iter().filter(|gate| gate.effect.is_some()) {
        let on = if gates.enabled(gate.name) { 1.0 } else { 0.0 };
        metrics.feature_enabled.with_label_values(&[gate.name, gate.stage.label()]).set(on);
    }
}

/// Publishes the version. Upstream: `k8s.io/component-base/metrics/version.go`.
pub(super) fn publish_build_info(version: &str, metrics: &Metrics) {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let platform = platform();
    let labels = [major, minor, version, "", "", "", "", "rustc", &platform];
    metrics.build_info.with_label_values(&labels).set(1.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::value::{FlagValue, MapStringBool};

    #[test]
    fn build_info_has_the_version() {
        let metrics = Metrics::new().unwrap();
        publish_build_info("v1.30.2", &metrics);
        let page = metrics.render().unwrap();
        let line = page.lines().find(|line| line.starts_with("kubernetes_build_info{")).unwrap();
        assert!(line.contains(r#"major="1",minor="30""#) && line.contains(r#"git_version="v1.30.2""#), "{line}");
        assert!(line.ends_with(" 1"), "{line}");
    }

    #[test]
    fn feature_gates_with_an_effect_are_metrics() {
        let metrics = Metrics::new().unwrap();
        let gates = MapStringBool::parse("ComponentFlagz=false").unwrap();
        publish_feature_gates(&feature_gates::resolve(&gates).gates, &metrics);
        let text = metrics.render().unwrap();
        assert!(text.contains("kubernetes_feature_enabled{name=\"ComponentFlagz\",stage=\"BETA\"} 0"), "{text}");
        assert!(!text.contains("WatchListClient") && !text.contains("ConsistentListFromCache"), "{text}");
        assert!(text.contains("kubernetes_feature_enabled{name=\"AllAlpha\",stage=\"ALPHA\"} 0"), "{text}");
    }
}
