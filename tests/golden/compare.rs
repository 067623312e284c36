//! Differences between two states, each with its path. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use cloud_controller_manager::sandbox::azure::canonical;
use serde_json::{Map, Value};

use crate::golden::{case::State, normal::normal};

/// Difference between two states at one path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// Id of the document, then fields and names in lists.
    pub(crate) path: String,
    pub(crate) expected: Option<Value>,
    pub(crate) found: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), |value| brief(&value.to_string()));
        write!(out, "{}\n  expected {}\n  found    {}", self.path, text(&self.expected), text(&self.found))
    }
}

fn brief(text: &str) -> String {
    const SHOWN: usize = 600;
    let short = canonical::shorten(text);
    if short.chars().count() <= SHOWN { short } else { short.chars().take(SHOWN).chain("…".chars()).collect() }
}

/// Returns the differences in meaning between `expected` and `found`.
pub(crate) fn differences(expected: &State, found: &State) -> Vec<Difference> {
    let ids: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let mut all = Vec::new();
    for id in ids {
        let (expected, found) = (expected.get(id), found.get(id));
        if expected != found {
            let name = expected.or(found).and_then(|document| document["id"].as_str()).unwrap_or(id);
            let (expected, found) = (expected.map(normal), found.map(normal));
            descend(&canonical::shorten(name), expected.as_ref(), found.as_ref(), &mut all);
        }
    }
    all
}

/// Adds the differences at and below `path`. List elements are compared by name.
pub(crate) fn descend(path: &str, expected: Option<&Value>, found: Option<&Value>, all: &mut Vec<Difference>) {
    if expected == found {
        return;
    }
    match (expected, found) {
        (Some(Value::Object(expected)), Some(Value::Object(found))) => {
            let fields: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
            for field in fields {
                descend(&format!("{path}.{field}"), expected.get(field), found.get(field), all);
            }
        }
        (Some(Value::Array(expected_items)), Some(Value::Array(found_items))) => {
            match (by_name(expected_items), by_name(found_items)) {
                (Some(expected), Some(found)) => {
                    let names: BTreeSet<&str> = expected.keys().chain(found.keys()).copied().collect();
                    for name in names {
                        let (expected, found) = (expected.get(name).copied(), found.get(name).copied());
                        descend(&format!("{path}[{}]", canonical::shorten(name)), expected, found, all);
                    }
                }
                _ => all.push(Difference { path: path.to_owned(), expected: expected.cloned(), found: found.cloned() }),
            }
        }
        _ => all.push(Difference { path: path.to_owned(), expected: expected.cloned(), found: found.cloned() }),
    }
}

/// Returns the elements of a list by name or id, or `None` unless each has a unique one.
fn by_name(items: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    let key = |fields: &'_ Map<String, Value>| fields.contains_key("name").then_some("name").or(Some("id"));
    let mut named = BTreeMap::new();
    for item in items {
        let name = item.get(key(item.as_object()?)?)?.as_str()?;
        if named.insert(name, item).is_some() {
            return None;
        }
    }
    Some(named)
}
