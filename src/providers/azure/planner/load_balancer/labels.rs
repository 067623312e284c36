//! Labels, and selectors of the configuration that match them. Pure.
//!
//! In: `matchLabels` and `matchExpressions` as configured. Out: the matcher of labels, and the keys that it reads.
//! Upstream: apimachinery, `metav1.LabelSelectorAsSelector`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Labels of an object.
pub type LabelMap = BTreeMap<String, String>;

/// Returns the labels that have one of `keys`. Changes of other labels have no effect.
pub fn with_keys(labels: Option<&LabelMap>, keys: &BTreeSet<&str>) -> LabelMap {
    let found = labels.into_iter().flatten().filter(|(key, _)| keys.contains(key.as_str()));
    found.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// A condition on the value of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelCondition {
    /// Label with one of these values.
    In(Vec<String>),
    /// Label with none of these values, or no such label.
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

/// Selector whose conditions must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelMatcher {
    conditions: Vec<(String, LabelCondition)>,
}

impl LabelMatcher {
    /// Returns the matcher of a configured selector, whose operators and values have been checked.
    pub fn new(selector: &LabelSelector) -> Self {
        let equal = selector.match_labels.iter().flatten();
        let equal = equal.map(|(key, value)| (key.clone(), LabelCondition::In(vec![value.clone()])));
        let rows = selector.match_expressions.iter().flatten().map(|row| (row.key.clone(), condition(row)));
        Self { conditions: equal.chain(rows).collect() }
    }

    /// Returns `true` if there is no condition, so that all labels match.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Returns `true` if `labels` meet every condition.
    pub fn matches(&self, labels: &LabelMap) -> bool {
        self.conditions.iter().all(|(key, condition)| holds(condition, labels.get(key)))
    }

    /// Returns the keys of the labels that the conditions read.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.conditions.iter().map(|(key, _)| key.as_str())
    }
}

fn condition(row: &LabelSelectorRequirement) -> LabelCondition {
    let values = || row.values.clone().unwrap_or_default();
    match row.operator.as_str() {
        "In" => LabelCondition::In(values()),
        "NotIn" => LabelCondition::NotIn(values()),
        "Exists" => LabelCondition::Exists,
        _ => LabelCondition::DoesNotExist,
    }
}

fn holds(condition: &LabelCondition, value: Option<&String>) -> bool {
    match (condition, value) {
        (LabelCondition::In(values), Some(value)) => values.contains(value),
        (LabelCondition::NotIn(values), Some(value)) => !values.contains(value),
        (LabelCondition::Exists, Some(_)) | (LabelCondition::NotIn(_) | LabelCondition::DoesNotExist, None) => true,
        (LabelCondition::DoesNotExist, Some(_)) | (LabelCondition::In(_) | LabelCondition::Exists, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_condition_has_to_hold() {
        let labels = LabelMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), String::new())]);
        let row = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "web", "tier": "x"}}), false),
            (row("app", "In", &["api", "web"]), true),
            (row("none", "In", &["web"]), false),
            (row("app", "NotIn", &["web"]), false),
            (row("none", "NotIn", &["web"]), true),
            (row("tier", "Exists", &[]), true),
            (row("none", "Exists", &[]), false),
            (row("tier", "DoesNotExist", &[]), false),
            (row("none", "DoesNotExist", &[]), true),
        ] {
            let matcher = LabelMatcher::new(&serde_json::from_value(selector.clone()).unwrap());
            assert_eq!(matcher.matches(&labels), expected, "{selector}");
        }
    }
}
