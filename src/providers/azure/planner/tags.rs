//! Merge of desired tags into the tags of shared and own resources, without changes to tags of other owners. Pure.
//!
//! In: a resource's tags, the desired tags, and the prefixes of keys that are kept. Out: the tags, changed where they must
//! be. Upstream: `pkg/provider/azure_loadbalancer.go`, `reconcileTags`. Unlike upstream, one write replaces a key by a
//! desired key of another letter case, and an empty prefix protects nothing.

use std::collections::BTreeMap;

use crate::providers::azure::model::{document::Tags, names, spelling};

/// Prefix of the keys of tags with which this program marks resources.
const MARK: &str = "k8s-azure-";

/// Merges the desired tags into those of a resource and returns `true` if anything changed.
///
/// Keys and values are equal in any letter case, and an existing key keeps its spelling. If `system` is not empty, keys are
/// removed that are not desired in this spelling and do not start with one of its prefixes.
///
/// ARM would reject a write with too many tags, so tags that a resource has no room for are omitted: see [`without_room`].
///
/// If no tags are configured at all, callers leave the tags of shared resources unchanged.
pub fn merge(existing: &mut Option<Tags>, wanted: &BTreeMap<String, String>, system: &[String]) -> bool {
    let mut tags = existing.clone().unwrap_or_default();
    if !system.is_empty() {
        tags.retain(|key, _| wanted.contains_key(key) || is_protected(key, system));
    }
    // The marks of this program prove ownership, so they come first.
    let (marks, labels): (Vec<_>, Vec<_>) = wanted.iter().partition(|(key, _)| spelling::starts_with(key, MARK));
    for (key, value) in marks.into_iter().chain(labels) {
        let has_value = |text: &Option<String>| spelling::same_name(text.as_deref().unwrap_or_default(), value);
        if !tags.iter().any(|(name, text)| spelling::same_name(name, key) && has_value(text)) {
            set(&mut tags, key, value);
        }
    }
    let before = existing.as_ref();
    let changed = before.map_or(!tags.is_empty(), |before| *before != tags);
    if changed {
        *existing = Some(tags);
    }
    changed
}

/// Sets one tag; an existing key keeps its spelling. Adds nothing to a resource that has as many tags as ARM accepts.
pub fn set(tags: &mut Tags, key: &str, value: &str) {
    let has_room = tags.len() < names::MAX_TAGS;
    match tags.iter_mut().find(|(name, _)| spelling::same_name(name, key)) {
        Some((_, text)) => *text = Some(value.to_owned()),
        None if has_room => _ = tags.insert(key.to_owned(), Some(value.to_owned())),
        None => {}
    }
}

/// Returns the keys of the desired tags that a resource has no room for.
pub fn without_room<'a>(tags: Option<&Tags>, wanted: &'a BTreeMap<String, String>) -> Vec<&'a str> {
    let has = |key: &str| tags.is_some_and(|tags| tags.keys().any(|name| spelling::same_name(name, key)));
    wanted.keys().map(String::as_str).filter(|key| !has(key)).collect()
}

fn is_protected(key: &str, system: &[String]) -> bool {
    let starts = |prefix: &str| spelling::starts_with(key, prefix);
    system.iter().map(|prefix| prefix.trim()).any(|prefix| !prefix.is_empty() && starts(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs = &'static [(&'static str, &'static str)];

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned()))).collect()
    }

    #[test]
    fn tags_are_added_and_changed_and_removed_only_beside_system_tags() {
        #[rustfmt::skip]
        let cases: &[(Pairs, Pairs, &[&str], Pairs)] = &[
            (&[], &[], &[], &[]),
            (&[("a", "1")], &[], &[], &[("a", "1")]),
            (&[("a", "1")], &[("b", "2")], &[], &[("a", "1"), ("b", "2")]),
            (&[("A", "X")], &[("a", "x")], &[], &[("A", "X")]),
            (&[("A", "X")], &[("a", "y")], &[], &[("A", "y")]),
            (&[("a", "1"), ("old", "1"), ("K8s-x", "1")], &[("a", "1")], &["k8s-"], &[("a", "1"), ("K8s-x", "1")]),
            (&[("ENV", "x"), ("K8s-x", "1")], &[("env", "X"), ("k8s-X", "2")], &["k8s-"], &[("env", "X"), ("K8s-x", "2")]),
            (&[("ENV", "x"), ("env", "y")], &[("env", "y")], &["k8s-"], &[("env", "y")]),
            (&[("old", "1")], &[("a", "1")], &[""], &[("a", "1")]),
            (&[("é", "1")], &[], &["k"], &[]),
        ];
        for (existing, wanted, system, expected) in cases {
            let wanted: BTreeMap<String, String> = wanted.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let system: Vec<String> = system.iter().map(|text| (*text).to_owned()).collect();
            let mut actual = Some(tags(existing));
            assert_eq!(merge(&mut actual, &wanted, &system), existing != expected, "{existing:?} + {wanted:?}");
            assert_eq!(actual, Some(tags(expected)), "{existing:?} + {wanted:?}");
            assert!(!merge(&mut actual, &wanted, &system), "twice: {existing:?} + {wanted:?}");
        }
    }

    #[test]
    fn a_resource_gets_as_many_tags_as_arm_accepts() {
        let many = (0..60).map(|number| format!("a{number:02}")).chain(["k8s-azure-owner-service".to_owned()]);
        let wanted: BTreeMap<String, String> = many.map(|key| (key, "v".to_owned())).collect();
        let mut actual = None;
        assert!(merge(&mut actual, &wanted, &[]));
        assert!(!merge(&mut actual, &wanted, &[]), "twice");
        let tags = actual.unwrap();
        assert!(tags.len() == 50 && tags.contains_key("k8s-azure-owner-service"), "{tags:?}");
        let omitted = without_room(Some(&tags), &wanted);
        assert_eq!((omitted.len(), omitted.first()), (11, Some(&"a49")));
    }

    #[test]
    fn absent_tags_stay_absent_until_one_is_wanted_and_null_is_an_empty_value() {
        let mut none = None;
        assert!(!merge(&mut none, &BTreeMap::new(), &["k".into()]));
        assert_eq!(none, None);
        let wanted = [("a".to_owned(), String::new())].into();
        assert!(!merge(&mut Some([("a".to_owned(), None)].into()), &wanted, &[]));
        assert!(merge(&mut none, &wanted, &[]));
        assert_eq!(none, Some(tags(&[("a", "")])));
    }
}
