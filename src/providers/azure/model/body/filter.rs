//! Serialization of a document without some of its fields, in one pass. Pure.
//!
//! In: the document, and the paths of the removed fields. Out: the remaining fields, in any format. A tree of the whole document would
//! take eight times the memory, which is megabytes for a load balancer of many Services.

use std::{
    fmt::{self, Write},
    ops::BitOr,
};

use serde::{
    Serialize, Serializer,
    ser::{Error, Impossible, SerializeMap, SerializeSeq, SerializeStruct},
};
use serde_json::Value;

/// Removes the field at `path`, in every element of lists on the path. Returns `true` if it existed.
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

/// Removed fields, and a field whose value is changed as a tree.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    /// Paths of the removed fields, sorted.
    pub paths: &'a [String],
    /// Path of the value that is changed as a tree.
    pub tree: Option<&'a str>,
    /// Change that is applied to the tree.
    pub change: fn(&mut Value),
    /// Length of the path of the current value, including its final dot.
    pub depth: usize,
}

impl<'a> Fields<'a> {
    fn rest(self, path: &'a str) -> &'a str {
        path.get(self.depth..).unwrap_or_default()
    }

    fn has_none(self) -> bool {
        self.paths.is_empty() && self.tree.is_none()
    }

    fn removes(self, name: &str) -> bool {
        self.paths.iter().any(|path| self.rest(path) == name)
    }

    fn is_tree(self, name: &str) -> bool {
        self.tree.is_some_and(|tree| self.rest(tree) == name)
    }

    /// Returns the fields of the value called `name`.
    fn below(self, name: &str) -> Self {
        let is_below = |path: &str| self.rest(path).strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        // Sorted paths below one value are adjacent.
        let first = self.paths.iter().position(|path| is_below(path)).unwrap_or(self.paths.len());
        let paths = self.paths.get(first..).unwrap_or_default();
        let count = paths.iter().take_while(|path| is_below(path)).count();
        Self {
            paths: paths.get(..count).unwrap_or_default(),
            tree: self.tree.filter(|tree| is_below(tree)),
            depth: self.depth + name.len() + 1,
            ..self
        }
    }
}

/// Value without some of its fields.
pub(super) struct Without<'a, T: ?Sized> {
    pub value: &'a T,
    pub fields: Fields<'a>,
}

impl<T: Serialize + ?Sized> Serialize for Without<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.fields.has_none() {
            return self.value.serialize(serializer);
        }
        self.value.serialize(Filter { inner: serializer, fields: self.fields, name: String::new() })
    }
}

/// Serializer that forwards all but the removed fields. `name` is the key of the next value.
struct Filter<'a, S> {
    inner: S,
    fields: Fields<'a>,
    name: String,
}

/// Adapter that displays a key as text.
struct Key<'a, K: ?Sized>(&'a K);

impl<K: Serialize + ?Sized> fmt::Display for Key<'_, K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.serialize(formatter)
    }
}

impl<M: SerializeMap> SerializeMap for Filter<'_, M> {
    type Ok = M::Ok;
    type Error = M::Error;

    fn serialize_key<K: Serialize + ?Sized>(&mut self, key: &K) -> Result<(), M::Error> {
        self.name.clear();
        write!(self.name, "{}", Key(key)).map_err(|_| M::Error::custom("expected a text as key"))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), M::Error> {
        if self.fields.removes(&self.name) {
            return Ok(());
        }
        let below = Without { value, fields: self.fields.below(&self.name) };
        if !self.fields.is_tree(&self.name) {
            return self.inner.serialize_entry(&self.name, &below);
        }
        let mut tree = serde_json::to_value(below).map_err(M::Error::custom)?;
        (self.fields.change)(&mut tree);
        self.inner.serialize_entry(&self.name, &tree)
    }

    fn end(self) -> Result<M::Ok, M::Error> {
        self.inner.end()
    }
}

impl<S: SerializeSeq> SerializeSeq for Filter<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.inner.serialize_element(&Without { value, fields: self.fields })
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.inner.end()
    }
}

/// Serializes a struct as a map, which is the same in JSON.
impl<M: SerializeMap> SerializeStruct for Filter<'_, M> {
    type Ok = M::Ok;
    type Error = M::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), M::Error> {
        self.serialize_entry(key, value)
    }

    fn end(self) -> Result<M::Ok, M::Error> {
        SerializeMap::end(self)
    }
}

/// Methods that forward a value without fields.
macro_rules! forward {
    ($($method:ident($($value:ident: $type:ty),*))*) => {$(
        fn $method(self $(, $value: $type)*) -> Result<S::Ok, S::Error> {
            self.inner.$method($($value),*)
        }
    )*};
}

/// Methods for shapes that do not occur in ARM documents.
macro_rules! refuse {
    ($($method:ident($($type:ty),*) -> $output:ty;)*) => {$(
        fn $method(self $(, _: $type)*) -> Result<$output, S::Error> {
            Err(S::Error::custom("a document of ARM has no tuples and variants"))
        }
    )*};
}

impl<'a, S: Serializer> Serializer for Filter<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Filter<'a, S::SerializeSeq>;
    type SerializeMap = Filter<'a, S::SerializeMap>;
    type SerializeStruct = Filter<'a, S::SerializeMap>;
    type SerializeTuple = Impossible<S::Ok, S::Error>;
    type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
    type SerializeTupleVariant = Impossible<S::Ok, S::Error>;
    type SerializeStructVariant = Impossible<S::Ok, S::Error>;

    /// Forwards no length, because the number of remaining fields is unknown.
    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Ok(Filter { inner: self.inner.serialize_map(None)?, fields: self.fields, name: self.name })
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Self::SerializeStruct, S::Error> {
        self.serialize_map(Some(length))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Ok(Filter { inner: self.inner.serialize_seq(length)?, fields: self.fields, name: self.name })
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }

    forward! {
        serialize_bool(value: bool) serialize_i8(value: i8) serialize_i16(value: i16) serialize_i32(value: i32)
        serialize_i64(value: i64) serialize_u8(value: u8) serialize_u16(value: u16) serialize_u32(value: u32)
        serialize_u64(value: u64) serialize_f32(value: f32) serialize_f64(value: f64) serialize_char(value: char)
        serialize_str(value: &str) serialize_bytes(value: &[u8]) serialize_none() serialize_unit()
        serialize_unit_struct(name: &'static str)
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_newtype_variant(name, index, variant, value)
    }

    refuse! {
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn without(value: &Value, paths: &[&str], tree: &str, change: fn(&mut Value)) -> String {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let fields = Fields { paths: &paths, tree: Some(tree), change, depth: 0 };
        serde_json::to_string(&Without { value, fields }).unwrap()
    }

    /// Removes the fields from a tree.
    fn by_tree(paths: &[&str], mut value: Value) -> Value {
        for path in paths {
            remove(&mut value, path);
        }
        value
    }

    #[test]
    fn the_filter_yields_the_same_as_a_tree() {
        let mut paths = ["etag", "a.etag", "a.b", "a.list.x", "a.list.x.y", "a.list.deep.z", "none.of", "text.x"];
        paths.sort_unstable();
        for value in [
            json!({}),
            json!({"etag": 1}),
            json!({"etag": 1, "keep": {"etag": 2, "a": {"etag": 3}}}),
            json!({"a": {"etag": 1, "b": [1, 2], "list": [{"x": 1, "deep": [{"z": 1, "w": 2}]}, {}, 7, null, [{"x": 1, "k": 2}]]}}),
            json!({"a": [{"etag": 1, "c": "\"quoted\" and \\ and ü"}], "text": "x", "none": null, "k\"ey": {"etag": 1}}),
            json!([{"etag": 1, "a": {"b": 2, "c": 3}}]),
            json!("etag"),
        ] {
            let filtered = without(&value, &paths, "nowhere", |_| unreachable!("there is no such field"));
            assert_eq!(filtered, by_tree(&paths, value.clone()).to_string(), "{value}");
        }
    }

    #[test]
    fn a_field_is_changed_as_a_tree() {
        let value = json!({"a": {"b": [{"x": 1, "y": 2}], "c": 3}, "b": 4});
        let changed = without(&value, &["a.b.x"], "a.b", |value| {
            assert_eq!(*value, json!([{"y": 2}]));
            value[0]["z"] = json!(5);
        });
        assert_eq!(changed, r#"{"a":{"b":[{"y":2,"z":5}],"c":3},"b":4}"#);
    }
}
