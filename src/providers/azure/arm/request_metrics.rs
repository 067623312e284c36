//! Upstream's request metrics: one observation per call, however many requests it sent.
//!
//! Upstream: `pkg/azclient/metrics`. The labels are the same. Here every call is measured, upstream only the generated ones.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::request::RequestTemplate;
use crate::{
    metrics::Metrics,
    providers::azure::{
        metrics::{AzureMetricRows, AzureMetrics, OTHER},
        model::{ArmError, spelling},
    },
};

/// Recorder of the request metrics of a client.
pub(super) struct ArmRequestMetrics<'a> {
    pub(super) metrics: &'a Arc<Metrics>,
    /// Resource groups that become labels, in lower case; with `None`, all do.
    ///
    /// Users can name further groups, and each label is a series that is never removed.
    pub(super) groups: Option<&'a BTreeSet<String>>,
    /// Subscriptions that become labels, in lower case. Provider IDs of Nodes can name others.
    pub(super) subscriptions: Option<&'a BTreeSet<String>>,
}

/// Returns the subscription and the lower-case resource group in a path, each empty if missing.
fn group_of_path(path: &str) -> (&str, String) {
    let mut segments = path.split('/').skip(1);
    let mut after = |word: &str| {
        let found = spelling::is_word(segments.next(), word);
        found.then(|| segments.next()).flatten().unwrap_or_default()
    };
    let subscription = after("subscriptions");
    (subscription, after("resourcegroups").to_ascii_lowercase())
}

/// Returns the label of an error code. ARM's codes are words of letters; other text must neither become a series nor be shown.
fn code_label(code: &str) -> &str {
    let is_word = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_word { code } else { OTHER }
}

impl ArmRequestMetrics<'_> {
    /// Returns the labels of the subscription and the resource group in `path`.
    fn group_labels<'p>(&self, path: &'p str) -> (&'p str, String) {
        let (subscription, group) = group_of_path(path);
        let is_labeled = |configured: Option<&BTreeSet<String>>, name: &str| {
            name.is_empty() || configured.is_none_or(|configured| configured.contains(&name.to_lowercase()))
        };
        let subscription = if is_labeled(self.subscriptions, subscription) { subscription } else { OTHER };
        let group = if is_labeled(self.groups, &group) { group } else { OTHER.to_owned() };
        (subscription, group)
    }

    /// Passes the rows and the labels of a call to `record`.
    fn record(&self, template: &RequestTemplate, record: impl FnOnce(&AzureMetricRows, [&str; 4])) {
        let Some(metrics) = self.metrics.table::<AzureMetrics>() else { return };
        let (subscription, group) = self.group_labels(template.url.path());
        record(&metrics.rows, [template.call, template.kind.metric, &group, subscription]);
    }

    /// Records the end of a call.
    pub(super) fn call_ended<T>(&self, template: &RequestTemplate, took: Duration, outcome: Result<&T, &ArmError>) {
        self.record(template, |rows, labels| {
            rows.arm_request_duration.with_label_values(&labels).observe(took.as_secs_f64());
            if let Err(error) = outcome {
                let status = error.status.map(|status| status.to_string()).unwrap_or_default();
                let [call, resource, group, subscription] = labels;
                let labels = [call, resource, group, subscription, &status, code_label(&error.code)];
                rows.arm_request_errors.with_label_values(&labels).inc();
            }
        });
    }

    /// Records a response that reports an exhausted quota.
    pub(super) fn throttled(&self, template: &RequestTemplate) {
        self.record(template, |rows, labels| rows.arm_request_throttled.with_label_values(&labels).inc());
    }

    /// Records a request that the budget delayed.
    pub(super) fn rate_limited(&self, template: &RequestTemplate) {
        self.record(template, |rows, labels| rows.arm_request_rate_limited.with_label_values(&labels).inc());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_become_labels() {
        for (code, label) in [
            ("TooManyRequests", "TooManyRequests"),
            ("", ""),
            ("Bearer eyJ0.e30.x", "other"),
            ("token-1", "other"),
            ("Zürich", "other"),
        ] {
            assert_eq!(code_label(code), label, "{code}");
        }
        assert_eq!(code_label(&"a".repeat(65)), "other");
    }

    #[test]
    fn unconfigured_groups_and_subscriptions_are_other() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let groups = BTreeSet::from(["rg".to_owned()]);
        let recorder = |groups| ArmRequestMetrics { metrics: &metrics, groups, subscriptions: None };
        let group_label =
            |groups, group: &str| recorder(groups).group_labels(&format!("/subscriptions/s/resourceGroups/{group}/x")).1;
        assert_eq!(group_label(Some(&groups), "RG"), "rg");
        assert_eq!(group_label(Some(&groups), &"x".repeat(240_000)), "other");
        assert_eq!(group_label(None, "Any"), "any");
        assert_eq!(recorder(Some(&groups)).group_labels("/subscriptions/s/providers/x").1, "");
        for odd in ["/x", ""] {
            assert_eq!(recorder(None).group_labels(odd), ("", String::new()), "{odd}");
        }
        let subscriptions = BTreeSet::from(["mine".to_owned()]);
        let recorder = ArmRequestMetrics { metrics: &metrics, groups: None, subscriptions: Some(&subscriptions) };
        for (subscription, label) in [("Mine", "Mine"), ("theirs", "other")] {
            let path = format!("/subscriptions/{subscription}/resourceGroups/g");
            let labels = recorder.group_labels(&path);
            assert_eq!(labels, (label, "g".to_owned()));
        }
    }
}
