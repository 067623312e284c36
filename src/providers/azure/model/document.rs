//! Common form of ARM documents: modelled fields, and all other fields of ARM, which are sent back unchanged.
//! Parts of network documents are kept without their version, which only ARM writes.
//!
//! In: JSON of ARM. Out: structs whose fields are all optional, so that absent, `[]` and `""` are preserved. A modelled
//! field that is `null` is absent afterwards, which means the same to ARM. Numbers outside `i64`, `u64` and `f64` are not
//! preserved; ARM's documents have none.

mod extra;

use std::collections::BTreeMap;

pub use extra::Extra;
use serde::{Deserialize, Deserializer};

use super::ResourceId;

/// Tags. Values are text; ARM lets them be `null`.
pub type Tags = BTreeMap<String, Option<String>>;

/// Declares documents: every field becomes an `Option` with its JSON name in camel case, or the given one, and every struct gets
/// the fields it does not model as `extra`, read by the given function.
macro_rules! documents {
    ($($(#[$doc:meta])* $name:ident $(extra $read:literal)? { $($field:ident: $type:ty $(= $json:literal)?,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $(
                #[doc = documents!(@name $field $($json)?)]
                #[serde(default, skip_serializing_if = "Option::is_none" $(, rename = $json)?)]
                pub $field: Option<$type>,
            )*
            /// Everything else.
            #[serde(flatten $(, deserialize_with = $read)?)]
            pub extra: $crate::providers::azure::model::document::Extra,
        }
    )*};
    (@name $field:ident $json:literal) => { concat!("`", $json, "`.") };
    (@name $field:ident) => { concat!("`", stringify!($field), "`, in camel case.") };
}
pub(super) use documents;

/// Declares documents that are only read: a field that is missing or `null` is empty, and other fields are dropped.
macro_rules! records {
    ($($(#[$doc:meta])* $visibility:vis $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty $(= $json:literal)?,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        $visibility struct $name {
            $(
                $(#[$field_doc])*
                #[serde(
                    deserialize_with = "crate::providers::azure::model::document::or_empty" $(, rename = $json)?
                )]
                $visibility $field: $type,
            )*
        }
    )*};
}
pub(crate) use records;

/// Reads a field of a record, which is empty if ARM sends no value.
pub(crate) fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(field: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(field)?.unwrap_or_default())
}

/// Gives documents that have an id and a name of their own the answers to which one they are.
macro_rules! identified {
    ($($name:ident,)*) => {$(
        impl $name {
            /// Whether it is the resource `id`.
            pub fn is(&self, id: &$crate::providers::azure::model::ResourceId) -> bool {
                self.id.as_deref().is_some_and(|text| id.same_as(text))
            }

            /// Whether it has this name.
            pub fn name_is(&self, name: &str) -> bool {
                self.name.as_deref().is_some_and(|known| $crate::providers::azure::model::spelling::same_name(known, name))
            }
        }
    )*};
}
pub(super) use identified;

documents! {
    /// A reference to another resource, in ARM's spelling.
    SubResource {
        id: String,
    }
    /// Price and size class.
    ArmSku {
        name: String,
        capacity: i64,
    }
    /// Edge zone.
    ExtendedLocation {
        name: String,
        kind: String = "type",
    }
}

impl SubResource {
    /// Creates a reference to `id`.
    pub fn to(id: &ResourceId) -> Self {
        Self { id: Some(id.as_str().to_owned()), extra: Extra::new() }
    }

    /// Returns the resource that it refers to; `None` if the text is not a resource ID.
    pub fn resource_id(&self) -> Option<ResourceId> {
        ResourceId::parse(self.id.as_deref()?).ok()
    }

    /// Returns `true` if it refers to `id`, letter case aside.
    pub fn refers_to(&self, id: &ResourceId) -> bool {
        self.id.as_deref().is_some_and(|text| id.same_as(text))
    }
}

#[cfg(test)]
mod tests;
