//! JSON text without some of its fields, copied piece by piece. Pure.
//!
//! In: text, the paths of fields that go, and one field whose value is changed as a tree. Out: text. A tree of all of it would take eight
//! times as much memory, which for a load balancer of many Services is megabytes.

use std::{collections::BTreeMap, ops::BitOr};

use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

/// Returns `text` without the fields at `paths`. The value at the path `tree` is passed to `change`, without those fields.
pub(super) fn without(
    paths: &[&str],
    tree: &str,
    text: &[u8],
    change: impl FnOnce(&mut Value),
) -> serde_json::Result<Vec<u8>> {
    let mut filter = Filter { out: Vec::with_capacity(text.len()), change: Some(change) };
    filter.copy(serde_json::from_slice(text)?, paths, Some(tree))?;
    filter.out.shrink_to_fit();
    Ok(filter.out)
}

/// Removes the field at the path, in every element of a list on the way. Returns `true` if there was one.
pub(super) fn remove(value: &mut Value, path: &str) -> bool {
    match value {
        Value::Array(items) => items.iter_mut().map(|item| remove(item, path)).fold(false, BitOr::bitor),
        Value::Object(fields) => match path.split_once('.') {
            Some((first, rest)) => fields.get_mut(first).is_some_and(|inner| remove(inner, rest)),
            None => fields.remove(path).is_some(),
        },
        _ => false,
    }
}

struct Filter<F> {
    out: Vec<u8>,
    change: Option<F>,
}

impl<F: FnOnce(&mut Value)> Filter<F> {
    fn copy(&mut self, text: &RawValue, paths: &[&str], tree: Option<&str>) -> serde_json::Result<()> {
        match text.get().as_bytes().first() {
            Some(b'{') if !paths.is_empty() || tree.is_some() => self.copy_object(text, paths, tree),
            Some(b'[') if !paths.is_empty() => self.copy_array(text, paths),
            _ => {
                self.out.extend_from_slice(text.get().as_bytes());
                Ok(())
            }
        }
    }

    fn copy_object(&mut self, text: &RawValue, paths: &[&str], tree: Option<&str>) -> serde_json::Result<()> {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text.get())?;
        let mut before = b'{';
        for (name, value) in fields.iter().filter(|(name, _)| !paths.contains(&name.as_str())) {
            self.out.push(before);
            before = b',';
            serde_json::to_writer(&mut self.out, name)?;
            self.out.push(b':');
            let below = |path: &str| path.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('.')).map(str::len);
            let inner: Vec<&str> = paths.iter().filter_map(|path| Some(&path[path.len() - below(path)?..])).collect();
            match tree {
                Some(tree) if tree == name => self.copy_tree(value, &inner)?,
                _ => self.copy(value, &inner, tree.and_then(|tree| Some(&tree[tree.len() - below(tree)?..])))?,
            }
        }
        if before == b'{' {
            self.out.push(b'{');
        }
        self.out.push(b'}');
        Ok(())
    }

    fn copy_array(&mut self, text: &RawValue, paths: &[&str]) -> serde_json::Result<()> {
        let items: Vec<&RawValue> = serde_json::from_str(text.get())?;
        self.out.push(b'[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            self.copy(item, paths, None)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn copy_tree(&mut self, text: &RawValue, paths: &[&str]) -> serde_json::Result<()> {
        let mut value: Value = serde_json::from_str(text.get())?;
        for path in paths {
            remove(&mut value, path);
        }
        if let Some(change) = self.change.take() {
            change(&mut value);
        }
        self.out.extend_from_slice(to_raw_value(&value)?.get().as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The same by way of a tree.
    fn by_tree(paths: &[&str], mut value: Value) -> Value {
        for path in paths {
            remove(&mut value, path);
        }
        value
    }

    #[test]
    fn what_is_left_is_what_a_tree_would_have() {
        let paths = ["etag", "a.etag", "a.b", "a.list.x", "a.list.x.y", "a.list.deep.z", "none.of", "text.x"];
        for value in [
            json!({}),
            json!({"etag": 1}),
            json!({"etag": 1, "keep": {"etag": 2, "a": {"etag": 3}}}),
            json!({"a": {"etag": 1, "b": [1, 2], "list": [{"x": 1, "deep": [{"z": 1, "w": 2}]}, {}, 7, null, [{"x": 1, "k": 2}]]}}),
            json!({"a": [{"etag": 1, "c": "\"quoted\" and \\ and ü"}], "text": "x", "none": null, "k\"ey": {"etag": 1}}),
            json!([{"etag": 1, "a": {"b": 2, "c": 3}}]),
            json!("etag"),
        ] {
            let text = serde_json::to_vec(&value).unwrap();
            let left = without(&paths, "nowhere", &text, |_| unreachable!("there is no such field")).unwrap();
            assert_eq!(String::from_utf8(left).unwrap(), by_tree(&paths, value.clone()).to_string(), "{value}");
        }
    }

    #[test]
    fn one_field_is_changed_as_a_tree() {
        let text = br#"{"a": {"b": [{"x": 1, "y": 2}], "c": 3}, "b": 4}"#;
        let changed = without(&["a.b.x"], "a.b", text, |value| {
            assert_eq!(*value, json!([{"y": 2}]));
            value[0]["z"] = json!(5);
        });
        assert_eq!(changed.unwrap(), br#"{"a":{"b":[{"y":2,"z":5}],"c":3},"b":4}"#);
    }
}
