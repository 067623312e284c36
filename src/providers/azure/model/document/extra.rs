//! Fields of a document that are not modelled.
//!
//! In: whatever is left of an object of ARM. Out: the same fields, to be looked at and to go back.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Names of the fields with the version and the type of a part.
const VERSION: [&str; 3] = ["etag", "provisioningState", "type"];

/// Fields that are not modelled, in ARM's spelling.
///
/// A sorted list rather than a map: nearly every part of a document has one or two of them, and the smallest map has room
/// for eleven.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extra(Box<[(Box<str>, Value)]>);

impl Extra {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the fields of a part of a document, without its version, which only ARM writes and only whole documents need.
    ///
    /// Hundreds of parts in a load balancer have one each.
    pub fn of_part<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Self(fields) = Self::deserialize(deserializer)?;
        Ok(Self(fields.into_iter().filter(|(name, _)| !VERSION.contains(&name.as_ref())).collect()))
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

/// Of fields of the same name the last one.
impl<'de> Deserialize<'de> for Extra {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(|fields| Self(fields.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_matter_and_the_last_of_a_name_counts() {
        let read = |text| serde_json::from_str::<Extra>(text).unwrap();
        assert_eq!(read(r#"{"a": 1, "b": 2}"#), read(r#"{"b": 0, "a": 1, "b": 2}"#));
        assert_ne!(read(r#"{"a": 1}"#), read(r#"{"a": null}"#));
        assert!(serde_json::from_str::<Extra>("[]").is_err());
    }
}
