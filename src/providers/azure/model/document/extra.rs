//! Fields of a document that are not modeled.
//!
//! In: the remaining fields of an object of ARM. Out: the same fields, for reading and for writing back.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Fields that are not modeled, in ARM's spelling.
///
/// Stored as a sorted list, because most parts of a document have one or two such fields, and the smallest map allocates eleven
/// entries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extra(Box<[(Box<str>, Value)]>);

impl Extra {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns `true` if all fields of the document are modeled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Deserializes the fields of a part without its version and type, which only ARM writes and only whole documents need.
    pub fn of_part<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::without(&["etag", "type"], deserializer)
    }

    /// Deserializes the properties of a part without its provisioning state, which only ARM writes.
    pub fn of_part_properties<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::without(&["provisioningState"], deserializer)
    }

    /// Removes fields that a load balancer has in each of its hundreds of parts.
    fn without<'de, D: Deserializer<'de>>(names: &[&str], deserializer: D) -> Result<Self, D::Error> {
        let Self(fields) = Self::deserialize(deserializer)?;
        Ok(Self(fields.into_iter().filter(|(name, _)| !names.contains(&name.as_ref())).collect()))
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        let index = self.0.binary_search_by(|(existing, _)| existing.as_ref().cmp(name)).ok()?;
        self.0.get(index).map(|(_, value)| value)
    }
}

impl Serialize for Extra {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Deserializes the fields. If a name occurs twice, the last field is kept.
impl<'de> Deserialize<'de> for Extra {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(|fields| Self(fields.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_ignored_and_the_last_field_of_a_name_is_kept() {
        let read = |text| serde_json::from_str::<Extra>(text).unwrap();
        assert_eq!(read(r#"{"a": 1, "b": 2}"#), read(r#"{"b": 0, "a": 1, "b": 2}"#));
        assert_ne!(read(r#"{"a": 1}"#), read(r#"{"a": null}"#));
        assert!(serde_json::from_str::<Extra>("[]").is_err());
    }
}
