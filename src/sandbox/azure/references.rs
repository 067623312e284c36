//! References among the documents. In: documents as they are written. Out: the elements that refer to an ID.
//!
//! An element is a document or one of its embedded parts (an object with `name` and an `id` below the document's). Any other
//! object with an `id` is a reference, made by the element around it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Element that makes a reference. Ordered by ID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Referrer {
    /// Id of the element, lower-case.
    pub element_key: String,
    /// Id of the element as written.
    pub element: String,
    /// Key of the document that the element is, or is in.
    pub document: String,
}

#[derive(Debug, Default)]
pub struct References {
    referrers: BTreeMap<String, BTreeSet<Referrer>>,
}

impl References {
    /// Adds what `document` (its key and body) refers to.
    pub fn add(&mut self, key: &str, body: &Value) {
        for (target, referrer) in made_by(key, body) {
            self.referrers.entry(target).or_default().insert(referrer);
        }
    }

    /// Removes the references that `document` makes.
    pub fn remove(&mut self, key: &str, body: &Value) {
        for (target, referrer) in made_by(key, body) {
            if let Some(referrers) = self.referrers.get_mut(&target) {
                referrers.remove(&referrer);
                if referrers.is_empty() {
                    self.referrers.remove(&target);
                }
            }
        }
    }

    /// Returns the elements that refer to `target` (lower-case), by id.
    pub fn to<'a>(&'a self, target: &str) -> impl Iterator<Item = &'a Referrer> + use<'a> {
        self.referrers.get(target).into_iter().flatten()
    }
}

/// Returns the ids, lower-case, that a document refers to, with the element that does.
pub fn made_by(key: &str, body: &Value) -> Vec<(String, Referrer)> {
    let mut found = Vec::new();
    let id = body["id"].as_str().unwrap_or(key);
    walk(key, id, body, true, &mut found);
    found
}

fn walk(key: &str, element: &str, value: &Value, top: bool, found: &mut Vec<(String, Referrer)>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(key, element, item, false, found)),
        Value::Object(fields) => {
            let mut element = element;
            if let Some(id) = fields.get("id").and_then(Value::as_str).filter(|id| !top && id.starts_with('/')) {
                let lower = id.to_ascii_lowercase();
                if fields.contains_key("name") && is_below(&lower, key) {
                    element = id;
                } else {
                    let (element_key, element) = (element.to_ascii_lowercase(), element.to_owned());
                    found.push((lower, Referrer { element_key, element, document: key.to_owned() }));
                }
            }
            fields.values().filter(|value| !value.is_string()).for_each(|value| walk(key, element, value, false, found));
        }
        _ => {}
    }
}

fn is_below(id: &str, key: &str) -> bool {
    id.strip_prefix(key).is_some_and(|rest| rest.starts_with('/'))
}
