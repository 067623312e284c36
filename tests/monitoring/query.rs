//! Names in a PromQL query: metrics with the labels of their selectors, and the labels of the grouping.
//!
//! Input: a query that promtool accepts. Output: the names. The code is not a parser: it only separates names of metrics from keywords.

use std::collections::{BTreeMap, BTreeSet};

use crate::monitoring::metric_names;

/// Keywords and functions of PromQL that the queries use.
const WORDS: &str = "sum max min count avg topk by without on ignoring group_left group_right or and unless bool offset \
    rate increase histogram_quantile vector time label_values absent last_over_time";
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// Names in a query.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct QueryNames {
    /// Metrics, with the labels in their braces.
    pub(crate) metrics: BTreeMap<String, BTreeSet<String>>,
    /// Labels of `by (…)` and the like.
    pub(crate) grouping: BTreeSet<String>,
}

/// Returns names, numbers and single characters, without strings and durations.
fn tokens(query: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = query.chars().peekable();
    while let Some(next) = rest.next() {
        if next == '"' {
            while rest.next_if(|letter| *letter != '"').is_some() {}
            rest.next();
        } else if next == '[' {
            while rest.next_if(|letter| *letter != ']').is_some() {}
            rest.next();
        } else if next.is_alphanumeric() || next == '_' {
            let mut word = next.to_string();
            while let Some(letter) = rest.next_if(|letter| letter.is_alphanumeric() || "_:.".contains(*letter)) {
                word.push(letter);
            }
            tokens.push(word);
        } else if !next.is_whitespace() {
            tokens.push(next.to_string());
        }
    }
    tokens
}

fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
}

pub(crate) fn names(query: &str) -> QueryNames {
    let mut found = QueryNames::default();
    let tokens = tokens(query);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        if GROUPING.contains(&token.as_str()) && tokens.get(at).is_some_and(|next| next == "(") {
            let inside = tokens[at + 1..].iter().take_while(|token| *token != ")");
            found.grouping.extend(inside.filter(|token| is_name(token)).cloned());
            at += tokens[at..].iter().position(|token| token == ")").unwrap_or_default() + 1;
        } else if is_name(token) && !WORDS.split_whitespace().any(|word| word == token) {
            let labels = found.metrics.entry(token.clone()).or_default();
            if tokens.get(at).is_some_and(|next| next == "{") {
                let inside = tokens[at..].iter().take_while(|token| *token != "}");
                labels.extend(inside.filter(|token| is_name(token)).cloned());
                at += tokens[at..].iter().position(|token| token == "}").unwrap_or_default() + 1;
            }
        }
    }
    found
}

/// Returns the label that a template shows: `{{ $labels.name | … }}` of an alert, `{{name}}` of a legend.
fn shown_label(piece: &str) -> Option<&str> {
    let label = piece.split_once("$labels.").map_or_else(|| piece.trim(), |(_, rest)| rest);
    let label = label.split_whitespace().next()?;
    (is_name(label) && label != "end").then_some(label)
}

/// Returns the missing metrics and labels of a query, and of its legend or text.
pub(crate) fn missing_names(query: &str, shown: &str) -> Vec<String> {
    let existing = metric_names::metrics();
    let names = names(query);
    let mut missing = Vec::new();
    let mut labels = BTreeSet::new();
    for (metric, selected) in &names.metrics {
        match existing.get(metric) {
            None => missing.push(format!("no metric {metric}")),
            Some(has) => {
                missing.extend(selected.difference(has).map(|label| format!("{metric} has no label {label}")));
                labels.extend(has.clone());
            }
        }
    }
    let grouped = names.grouping.difference(&labels).map(|label| format!("no metric of {query} has the label {label}"));
    missing.extend(grouped);
    // Labels that the grouping removes cannot be shown.
    let remaining = if names.grouping.is_empty() { labels } else { names.grouping };
    let pieces = shown.split("{{").skip(1).filter_map(|piece| piece.split("}}").next());
    for label in pieces.filter_map(shown_label).filter(|label| !remaining.contains(*label)) {
        missing.push(format!("{query} has no label {label} to show"));
    }
    missing
}

#[test]
fn names_of_a_query_are_found() {
    let found = names("histogram_quantile(0.9, sum by (le, call) (rate(a_bucket{x=\"y by\",z!~\"w\"}[5m]))) > 2 * b_total");
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(found.metrics, BTreeMap::from([("a_bucket".into(), set(&["x", "z"])), ("b_total".into(), set(&[]))]));
    assert_eq!(found.grouping, set(&["call", "le"]));
    assert_eq!(
        missing_names("sum by (nonsense) (workqueue_depth{name=\"x\"})", ""),
        ["no metric of sum by (nonsense) (workqueue_depth{name=\"x\"}) has the label nonsense"]
    );
    assert_eq!(missing_names("workqueue_depth{queue=\"x\"}", "{{name}}"), ["workqueue_depth has no label queue"]);
    assert_eq!(missing_names("sum(nothing)", ""), ["no metric nothing"]);
    assert_eq!(missing_names("sum by (name) (workqueue_depth)", "{{ $labels.instance }}").len(), 1);
}
