//! Position in the document, and the findings so far.

use std::collections::{BTreeMap, HashMap};

use super::{
    document::{YamlNode, YamlValue},
    finding::ConfigFinding,
};
use crate::runtime::text::one_line;

/// Maximum number of unknown keys that are reported individually; the search for similar names is expensive.
const MAX_UNKNOWN_KEYS: usize = 50;
/// Maximum number of characters of a key that are shown and compared.
const MAX_KEY_CHARS: usize = 64;

/// Finding about a key that occurs twice.
pub(super) const REPEATED: &str = "given more than once, perhaps in different letter case; the last value counts";

/// Position in the document, and the collector of findings.
pub(super) struct FieldReader<'a> {
    path: String,
    /// Whether `true` and `5` are accepted as `"true"` and `"5"` where a string is expected.
    pub(super) scalars_are_strings: bool,
    pub(super) findings: &'a mut Vec<ConfigFinding>,
}

impl<'a> FieldReader<'a> {
    /// Creates a reader at the top of the document.
    pub(super) fn new(findings: &'a mut Vec<ConfigFinding>) -> Self {
        Self { path: String::new(), scalars_are_strings: false, findings }
    }

    /// Returns an error: `expected` was not found here.
    pub(super) fn type_error<T>(&mut self, node: &YamlNode, expected: &str) -> Option<T> {
        self.findings.push(ConfigFinding::error(self.path.clone(), format!("expected {expected}")).at(node.line));
        None
    }

    /// Adds a warning about this position.
    pub(super) fn warn(&mut self, node: &YamlNode, message: &str) {
        self.findings.push(ConfigFinding::warning(self.path.clone(), message).at(node.line));
    }

    /// Reads the entry `key` of the object here.
    pub(super) fn entry<T>(&mut self, key: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.below(&format!("{dot}{}", shown(key)), read)
    }

    /// Reads the value at `step` below this position.
    pub(super) fn below<T>(&mut self, step: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.push_str(step);
        let result = read(self);
        self.path.truncate(length);
        result
    }

    /// Returns the entries with a known name in any letter case, under the canonical name.
    ///
    /// Of repeated keys, the last value counts, in the order of their first appearance. Nulls are skipped. Other keys become
    /// findings.
    pub(super) fn known_entries<'n>(
        &mut self,
        entries: &'n [(String, YamlNode)],
        names: &[&'static str],
    ) -> Vec<(&'static str, &'n YamlNode)> {
        let canonical: HashMap<String, &'static str> = names.iter().map(|name| (name.to_ascii_lowercase(), *name)).collect();
        let mut found: Vec<(&'static str, &YamlNode)> = Vec::new();
        let (mut unrecognized, mut repeated) = (Vec::new(), BTreeMap::new());
        for (key, node) in entries {
            match canonical.get(&key.to_ascii_lowercase()) {
                None => unrecognized.push((key, node)),
                Some(name) => match found.iter_mut().find(|(existing, _)| existing == name) {
                    Some(entry) => {
                        entry.1 = node;
                        repeated.insert(*name, node);
                    }
                    None => found.push((*name, node)),
                },
            }
        }
        for (name, node) in repeated {
            self.entry(name, |reader| reader.warn(node, REPEATED));
        }
        self.report_unknown(&unrecognized, names);
        found.retain(|(_, node)| node.value != YamlValue::Null);
        found
    }

    fn report_unknown(&mut self, unrecognized: &[(&String, &YamlNode)], names: &[&'static str]) {
        for (key, node) in unrecognized.iter().take(MAX_UNKNOWN_KEYS) {
            let advice = nearest(key, names).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            self.entry(key, |reader| reader.warn(node, &format!("unknown field, ignored{advice}")));
        }
        if let Some((_, node)) = unrecognized.get(MAX_UNKNOWN_KEYS) {
            self.warn(node, &format!("{} further unknown fields, ignored", unrecognized.len() - MAX_UNKNOWN_KEYS));
        }
    }
}

/// Returns the beginning of a key or name, without line breaks.
pub(super) fn shown(key: &str) -> String {
    one_line(&key.chars().take(MAX_KEY_CHARS).collect::<String>())
}

/// Returns the name within a few typos of `key`, if any.
pub(super) fn nearest(key: &str, names: &[&'static str]) -> Option<&'static str> {
    let key = shown(key).to_lowercase();
    let most = key.chars().count() / 3;
    let distance = |name: &&'static str| strsim::damerau_levenshtein(&key, &name.to_lowercase());
    let near = names.iter().map(|name| (distance(name), *name)).min_by_key(|(distance, _)| *distance);
    near.filter(|(distance, _)| *distance <= most).map(|(_, name)| name)
}
