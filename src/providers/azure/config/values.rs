//! Types of the fields of `azure.json`, with their accepted values and error texts.
//!
//! In: a [`YamlNode`]. Out: the typed value, or a finding with what was expected (never the value itself, which may be a secret).

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value as Json;

use super::{
    document::{YamlNode, YamlValue},
    reader::{FieldReader, REPEATED},
};

/// A type that a field can have.
pub(super) trait FieldValue: Sized {
    /// Whether `""` selects the default.
    const EMPTY_IS_DEFAULT: bool = false;
    /// Returns the accepted values, for messages and the reference page: `string`, `one of standard, vmss, vmssflex`.
    fn kind() -> String;
    /// Reads the value; `None` after a finding.
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self>;
    /// Parses the default of the table.
    fn default_from(text: &str) -> Self;
    /// Returns `true` for Go's zero value, which selects the default.
    fn is_zero(&self) -> bool {
        false
    }
    /// Returns the value in the notation of the file.
    fn to_json(&self) -> Json;
}

/// Reads the value of a field with a default, which replaces empty words and (mostly) zero.
pub(super) fn read_or_default<T: FieldValue>(
    node: &YamlNode,
    reader: &mut FieldReader<'_>,
    default: &str,
    zero_is_default: bool,
) -> Option<T> {
    if T::EMPTY_IS_DEFAULT && node.value == YamlValue::Text(String::new()) {
        return Some(T::default_from(default));
    }
    let value = T::read(node, reader)?;
    Some(if zero_is_default && value.is_zero() { T::default_from(default) } else { value })
}

impl FieldValue for String {
    fn kind() -> String {
        "string".to_owned()
    }
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        match &node.value {
            YamlValue::Text(text) => Some(text.clone()),
            YamlValue::Bool(value) if reader.scalars_are_strings => Some(value.to_string()),
            YamlValue::Whole(value) if reader.scalars_are_strings => Some(value.to_string()),
            YamlValue::Number(value) if reader.scalars_are_strings => Some(value.to_string()),
            YamlValue::Bool(_) | YamlValue::Whole(_) | YamlValue::Number(_) => {
                reader.type_error(node, "string; put the value in quotes")
            }
            _ => reader.type_error(node, &Self::kind()),
        }
    }
    fn default_from(text: &str) -> Self {
        text.to_owned()
    }
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
    fn to_json(&self) -> Json {
        self.as_str().into()
    }
}

impl FieldValue for bool {
    fn kind() -> String {
        "true or false".to_owned()
    }
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        match &node.value {
            YamlValue::Bool(value) => Some(*value),
            _ => reader.type_error(node, &Self::kind()),
        }
    }
    fn default_from(text: &str) -> Self {
        text == "true"
    }
    fn to_json(&self) -> Json {
        (*self).into()
    }
}

/// Returns a whole number; YAML's `5.0` is one, as for Go, which turns YAML into JSON first.
fn whole(node: &YamlNode) -> Option<i64> {
    match &node.value {
        YamlValue::Whole(value) => Some(*value),
        YamlValue::Number(value) if value.fract() == 0.0 && value.abs() < 1e15 => format!("{value:.0}").parse().ok(),
        _ => None,
    }
}

impl FieldValue for i32 {
    fn kind() -> String {
        "whole number".to_owned()
    }
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        match whole(node).and_then(|value| Self::try_from(value).ok()) {
            None => reader.type_error(node, &Self::kind()),
            value => value,
        }
    }
    fn default_from(text: &str) -> Self {
        text.parse().unwrap_or_default()
    }
    fn is_zero(&self) -> bool {
        *self == 0
    }
    fn to_json(&self) -> Json {
        (*self).into()
    }
}

impl FieldValue for f64 {
    fn kind() -> String {
        "number".to_owned()
    }
    #[expect(clippy::cast_precision_loss, reason = "rates need no 64 bits")]
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        match &node.value {
            YamlValue::Whole(value) => Some(*value as Self),
            YamlValue::Number(value) if value.is_finite() => Some(*value),
            _ => reader.type_error(node, &Self::kind()),
        }
    }
    fn default_from(text: &str) -> Self {
        text.parse().unwrap_or_default()
    }
    fn is_zero(&self) -> bool {
        *self == 0.0
    }
    fn to_json(&self) -> Json {
        (*self).into()
    }
}

/// Longest duration in seconds, some 68 years, which can still be added to any instant.
const MAX_SECONDS: u64 = i32::MAX as u64;

/// Duration that must not be negative. Elsewhere a negative duration selects the default, as in Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NotNegative(pub Duration);

impl FieldValue for NotNegative {
    fn kind() -> String {
        "whole number of seconds, not below 0".to_owned()
    }
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        match whole(node) {
            Some(seconds) if seconds >= 0 => Duration::read(node, reader).map(Self),
            _ => reader.type_error(node, &Self::kind()),
        }
    }
    fn default_from(text: &str) -> Self {
        Self(Duration::default_from(text))
    }
    fn is_zero(&self) -> bool {
        self.0.is_zero()
    }
    fn to_json(&self) -> Json {
        self.0.to_json()
    }
}

impl FieldValue for Duration {
    fn kind() -> String {
        "whole number of seconds".to_owned()
    }
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        match whole(node) {
            None => reader.type_error(node, &Self::kind()),
            Some(seconds) => {
                if seconds < 0 {
                    reader.warn(node, "a time below 0 counts as 0, and 0 as the default");
                }
                Some(Self::from_secs(u64::try_from(seconds).unwrap_or_default().min(MAX_SECONDS)))
            }
        }
    }
    fn default_from(text: &str) -> Self {
        Self::from_secs(text.parse().unwrap_or_default())
    }
    fn is_zero(&self) -> bool {
        Self::is_zero(self)
    }
    fn to_json(&self) -> Json {
        self.as_secs().into()
    }
}

impl<T: FieldValue> FieldValue for Option<T> {
    fn kind() -> String {
        T::kind()
    }
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        T::read(node, reader).map(Some)
    }
    fn default_from(text: &str) -> Self {
        (!text.is_empty()).then(|| T::default_from(text))
    }
    fn to_json(&self) -> Json {
        self.as_ref().map_or(Json::Null, T::to_json)
    }
}

impl<T: FieldValue> FieldValue for Vec<T> {
    fn kind() -> String {
        format!("list of {}", T::kind())
    }
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        let YamlValue::List(items) = &node.value else { return reader.type_error(node, &Self::kind()) };
        let read = |(index, item)| reader.below(&format!("[{index}]"), |reader| T::read(item, reader));
        // Every item is read, so that every problem is found.
        items.iter().enumerate().map(read).collect::<Vec<_>>().into_iter().collect()
    }
    fn default_from(_: &str) -> Self {
        Self::new()
    }
    fn to_json(&self) -> Json {
        self.iter().map(T::to_json).collect()
    }
}

impl<T: FieldValue> FieldValue for BTreeMap<String, T> {
    fn kind() -> String {
        format!("map of {}", T::kind())
    }
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        let YamlValue::Map(entries) = &node.value else { return reader.type_error(node, &Self::kind()) };
        let mut map = Self::new();
        let mut is_good = true;
        for (key, item) in entries {
            let value = match item.value {
                YamlValue::Null => Some(T::default_from("")),
                _ => reader.entry(key, |reader| T::read(item, reader)),
            };
            is_good &= value.is_some();
            if value.and_then(|value| map.insert(key.clone(), value)).is_some() {
                reader.entry(key, |reader| reader.warn(item, REPEATED));
            }
        }
        is_good.then_some(map)
    }
    fn default_from(_: &str) -> Self {
        Self::new()
    }
    fn to_json(&self) -> Json {
        Json::Object(self.iter().map(|(key, value)| (key.clone(), value.to_json())).collect())
    }
}
