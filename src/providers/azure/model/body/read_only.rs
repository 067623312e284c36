//! Paths of the fields that only ARM writes, by type of document, from the table of types.
//!
//! A path names a field, in every element of the lists on the path.

use std::sync::LazyLock;

use crate::providers::azure::model::{ApiType, api};

/// Read-only fields of a type of document.
#[derive(Debug)]
pub struct ReadOnlyFields {
    pub kind: &'static ApiType,
    /// Paths of the fields, with dots as separators, sorted.
    pub paths: Vec<String>,
}

impl ReadOnlyFields {
    fn new(kind: &'static ApiType) -> Option<Self> {
        let row = kind.read_only?;
        let of_parts = row.parts.iter().flat_map(|(part, fields)| {
            let common = COMMON.map(|field| format!("properties.{part}.{field}"));
            common.into_iter().chain(fields.iter().map(move |field| format!("properties.{part}.properties.{field}")))
        });
        let properties = row.properties.iter().map(|field| format!("properties.{field}"));
        let own = COMMON.iter().chain(row.own).map(|field| (*field).to_owned());
        let mut paths: Vec<String> = own.chain(properties).chain(of_parts).collect();
        paths.sort_unstable();
        Some(Self { kind, paths })
    }
}

/// Returns the read-only fields of `kind`; `None` if the table has no row for it.
pub fn of(kind: &ApiType) -> Option<&'static ReadOnlyFields> {
    TABLE.iter().find(|fields| fields.kind == kind)
}

/// Read-only fields of all types.
pub static TABLE: LazyLock<Vec<ReadOnlyFields>> =
    LazyLock::new(|| api::ALL.iter().copied().filter_map(ReadOnlyFields::new).collect());

/// Read-only fields of every document, and of every part with its own version.
const COMMON: [&str; 3] = ["etag", "properties.provisioningState", "type"];
