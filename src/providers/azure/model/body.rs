//! Body of a write: the fields that ARM reads, without those that only ARM writes. Pure.
//!
//! In: a document, mostly from ARM. Out: its JSON without the fields of [`read_only`]. Fields that the table does not name
//! are sent, whatever their origin: newer fields of Azure, settings of other users. The version that a write requires is sent
//! in a header, not in the body.

mod filter;
pub mod read_only;

use std::ops::BitOr;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{ApiType, api};
use filter::{Fields, Without, remove};
use read_only::ReadOnlyFields;

/// Path of the pools of a load balancer.
const POOLS: &str = "properties.backendAddressPools";
const ADDRESSES: &str = "loadBalancerBackendAddresses";
const CONFIGURATION: &str = "networkInterfaceIPConfiguration";

/// Returns the body of a write of this document.
pub fn of(kind: &ApiType, document: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let Some(fields) = read_only::of(kind) else { return serde_json::to_vec(document) };
    if *kind == api::BACKEND_POOLS {
        let mut body = serde_json::to_value(document)?;
        strip(fields, &mut body);
        return serde_json::to_vec(&body);
    }
    let fields = Fields { paths: &fields.paths, tree: Some(POOLS), change: strip_pools, depth: 0 };
    let mut body = serde_json::to_vec(&Without { value: document, fields })?;
    // It is kept until the operation has ended.
    body.shrink_to_fit();
    Ok(body)
}

fn strip_pools(pools: &mut Value) {
    for pool in pools.as_array_mut().into_iter().flatten() {
        strip_pool(pool);
    }
}

/// Removes the fields that only ARM writes. Returns the paths of those that were present.
pub fn strip(fields: &'static ReadOnlyFields, body: &mut Value) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = fields.paths.iter().map(String::as_str).filter(|path| remove(body, path)).collect();
    found.extend(strip_members(fields, body).then_some(CONFIGURATION));
    found
}

/// Removes the interfaces from the addresses of pools. Returns `true` if there were any.
fn strip_members(fields: &ReadOnlyFields, body: &mut Value) -> bool {
    if *fields.kind == api::BACKEND_POOLS {
        return strip_pool(body);
    }
    let pools = body.pointer_mut("/properties/backendAddressPools").and_then(Value::as_array_mut);
    pools.into_iter().flatten().map(strip_pool).fold(false, BitOr::bitor)
}

fn strip_pool(pool: &mut Value) -> bool {
    // An index would add the missing field, so use `get_mut`.
    let properties = pool.get_mut("properties").and_then(Value::as_object_mut);
    properties.is_some_and(strip_interfaces)
}

/// Removes the addresses if they only show the interfaces that reference the pool.
///
/// If one has other settings, all are kept, because ARM identifies them by the interface. Addresses with an IP lose the interface.
fn strip_interfaces(pool: &mut Map<String, Value>) -> bool {
    let Some(addresses) = pool.get_mut(ADDRESSES).and_then(Value::as_array_mut) else { return false };
    if !addresses.is_empty() && addresses.iter().all(only_shows_interface) {
        return pool.remove(ADDRESSES).is_some();
    }
    let with_ip = addresses.iter_mut().filter(|address| has_ip(address));
    with_ip.map(|address| remove(&mut address["properties"], CONFIGURATION)).fold(false, BitOr::bitor)
}

fn has_ip(address: &Value) -> bool {
    address["properties"]["ipAddress"].as_str().is_some_and(|ip| !ip.is_empty())
}

fn only_shows_interface(address: &Value) -> bool {
    let Some(properties) = address["properties"].as_object() else { return false };
    let is_default = |(name, value): (&String, &Value)| match name.as_str() {
        CONFIGURATION => true,
        "adminState" => value == "None",
        "ipAddress" => value == "",
        _ => value.is_null(),
    };
    properties.contains_key(CONFIGURATION) && properties.iter().all(is_default)
}

#[cfg(test)]
mod tests;
