//! Differences between two documents, one line per value. Pure.
//!
//! In: a document before and after. Out: `~ path: old → new`, `+ path: value`, `- path: value`. Entries of lists are matched
//! by their names, if they have any.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::runtime::text::{excerpt, one_line};

/// Maximum length of a printed value.
const MAX_VALUE: usize = 120;

/// Returns every difference, in the order of the keys.
pub(super) fn differences(before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    let mut lines = Vec::new();
    compare("", before, after, &mut lines);
    lines
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, lines: &mut Vec<String>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => fields(path, before, after, lines),
        (Some(Value::Array(before)), Some(Value::Array(after))) if are_named(before) && are_named(after) => {
            fields(path, &by_name(before), &by_name(after), lines);
        }
        (Some(before), Some(after)) => lines.push(format!("~ {path}: {} → {}", shown(before), shown(after))),
        (None, Some(after)) => lines.push(format!("+ {path}: {}", shown(after))),
        (Some(before), None) => lines.push(format!("- {path}: {}", shown(before))),
        (None, None) => {}
    }
}

fn fields(path: &str, before: &Map<String, Value>, after: &Map<String, Value>, lines: &mut Vec<String>) {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        compare(&path, before.get(key), after.get(key), lines);
    }
}

fn are_named(items: &[Value]) -> bool {
    let names: BTreeSet<&str> = items.iter().filter_map(|item| item["name"].as_str()).collect();
    names.len() == items.len()
}

fn by_name(items: &[Value]) -> Map<String, Value> {
    items.iter().map(|item| (item["name"].as_str().unwrap_or_default().to_owned(), item.clone())).collect()
}

fn shown(value: &Value) -> String {
    excerpt(&one_line(&value.to_string()), MAX_VALUE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_that_differs_has_a_line() {
        let before = json!({"a": 1, "rules": [{"name": "x", "port": 80}, {"name": "y"}], "tags": {"k": "v"}, "l": [1, 2]});
        let after = json!({"a": 1, "rules": [{"name": "z"}, {"name": "x", "port": 81}], "l": [1], "new": true});
        let expected = [
            "~ l: [1,2] → [1]",
            "+ new: true",
            "~ rules.x.port: 80 → 81",
            "- rules.y: {\"name\":\"y\"}",
            "+ rules.z: {\"name\":\"z\"}",
            "- tags: {\"k\":\"v\"}",
        ];
        assert_eq!(differences(Some(&before), Some(&after)), expected);
        assert!(differences(Some(&before), Some(&before)).is_empty());
    }
}
