//! Upstream's request metrics: one observation per call, whatever it took.
//!
//! Upstream: `pkg/azclient/metrics`. Labels are the same; here every call reports, there only the generated ones do.

use std::{sync::Arc, time::Duration};

use super::{ArmError, request::Ask};
use crate::metrics::Metrics;

/// Counts for one client.
pub(super) struct Counted<'a>(pub(super) &'a Arc<Metrics>);

/// Subscription and lower-cased resource group in a path; empty when there is none.
fn place(path: &str) -> (&str, String) {
    let mut segments = path.split('/').skip(1);
    let mut after = |word: &str| {
        let found = segments.next().is_some_and(|segment| segment.eq_ignore_ascii_case(word));
        found.then(|| segments.next()).flatten().unwrap_or_default()
    };
    let subscription = after("subscriptions");
    (subscription, after("resourcegroups").to_ascii_lowercase())
}

/// ARM's codes are words of letters. Anything else is what somebody else put there: it must not become a series of its own, of which
/// there could be any number, nor show what it holds.
fn code_label(code: &str) -> &str {
    let is_word = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_word { code } else { "other" }
}

impl Counted<'_> {
    /// A call has ended.
    pub(super) fn ended<T>(&self, ask: &Ask, took: Duration, outcome: Result<&T, &ArmError>) {
        let (subscription, group) = place(ask.url.path());
        let labels = [ask.call, ask.kind.metric, &group, subscription];
        self.0.arm_request_duration.with_label_values(&labels).observe(took.as_secs_f64());
        if let Err(error) = outcome {
            let status = error.status.map(|status| status.to_string()).unwrap_or_default();
            let [call, resource, group, subscription] = labels;
            let labels = [call, resource, group, subscription, &status, code_label(&error.code)];
            self.0.arm_request_errors.with_label_values(&labels).inc();
        }
    }

    /// ARM answered that a quota is used up.
    pub(super) fn throttled(&self, ask: &Ask) {
        let (subscription, group) = place(ask.url.path());
        self.0.arm_request_throttled.with_label_values(&[ask.call, ask.kind.metric, &group, subscription]).inc();
    }

    /// The budget made a request wait.
    pub(super) fn rate_limited(&self, ask: &Ask) {
        let (subscription, group) = place(ask.url.path());
        self.0.arm_request_rate_limited.with_label_values(&[ask.call, ask.kind.metric, &group, subscription]).inc();
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
    fn places() {
        assert_eq!(place("/subscriptions/S/resourceGroups/G/providers/x"), ("S", "g".into()));
        assert_eq!(place("/subscriptions/S/providers/x"), ("S", String::new()));
        assert_eq!(place("/x"), ("", String::new()));
        assert_eq!(place(""), ("", String::new()));
    }
}
