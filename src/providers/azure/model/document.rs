//! Common form of ARM documents: modeled fields, and all other fields of ARM, which are sent back unchanged.
//! Parts of network documents are kept without their version, which only ARM writes.
//!
//! In: JSON of ARM. Out: structs whose fields are all optional, so that absent, `[]` and `""` are preserved. A modeled
//! field that is `null` is absent afterwards, which means the same to ARM. Numbers outside `i64`, `u64` and `f64` are not
//! preserved; ARM's documents have none.

mod extra;

use std::collections::BTreeMap;

pub use extra::Extra;
use serde::{Deserialize, Deserializer};

use super::ResourceId;

/// Tags of a resource. ARM allows `null` as a value.
pub type Tags = BTreeMap<String, Option<String>>;

/// Declares documents. Every field becomes an `Option` with its JSON name in camel case, or the specified one. Every struct gets
/// its other fields as `extra`, read by the specified function.
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
            /// Fields that the struct does not model.
            #[serde(flatten $(, deserialize_with = $read)?)]
            pub extra: $crate::providers::azure::model::document::Extra,
        }
    )*};
    (@name $field:ident $json:literal) => { concat!("`", $json, "`.") };
    (@name $field:ident) => { concat!("`", stringify!($field), "`, in camel case.") };
}
pub(super) use documents;

/// Declares documents that are only read. A missing or `null` field is empty, and other fields are dropped.
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

/// Deserializes a field of a record, which is empty if ARM sends no value.
pub(crate) fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(field: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(field)?.unwrap_or_default())
}

/// Implements comparisons with an ID and a name for documents that have both.
macro_rules! identified {
    ($($name:ident,)*) => {$(
        impl $name {
            /// Returns `true` if this is the resource `id`.
            pub fn is(&self, id: &$crate::providers::azure::model::ResourceId) -> bool {
                self.id.as_deref().is_some_and(|text| id.same_as(text))
            }

            /// Returns `true` if the name is `name`, ignoring case.
            pub fn name_is(&self, name: &str) -> bool {
                self.name.as_deref().is_some_and(|own| $crate::providers::azure::model::spelling::same_name(own, name))
            }
        }
    )*};
}
pub(super) use identified;

documents! {
    /// Reference to another resource, in ARM's spelling.
    SubResource {
        id: String,
    }
    /// SKU, which selects features and price.
    ArmSku {
        name: String,
        capacity: i64,
    }
    /// Edge zone of a resource.
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

    /// Returns the ID of the referenced resource; `None` if the text is not a resource ID.
    pub fn resource_id(&self) -> Option<ResourceId> {
        ResourceId::parse(self.id.as_deref()?).ok()
    }

    /// Returns `true` if the reference is to `id`, ignoring case.
    pub fn refers_to(&self, id: &ResourceId) -> bool {
        self.id.as_deref().is_some_and(|text| id.same_as(text))
    }
}

#[cfg(test)]
mod tests;
