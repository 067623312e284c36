//! What Azure refuses, by type. Pure: the document as it would be kept, what there is besides it, and the document before.

use serde_json::Value;

use super::{kinds, references, refusal::Refusal, shape, store::Store};
use crate::providers::azure::arm::ResourceId;

/// Checks that everything a document refers to exists: its own parts, and other documents or their parts.
pub fn references(store: &Store, id: &ResourceId, body: &Value) -> Result<(), Refusal> {
    let key = id.key();
    for (target, referrer) in references::made_by(&key, body) {
        let Ok(target) = ResourceId::parse(&target) else {
            return Err(Refusal::invalid(
                "LinkedInvalidPropertyId",
                format!("Property id '{target}' at '{}' is invalid.", referrer.element),
            ));
        };
        let kind = target.resource_type();
        let known = kinds::kind_of(&kind).is_some() || kinds::part_of(&kind).is_some();
        if known
            && !own_part(&key, body, &target)
            && (is_own(&key, &target) || !store.exists(target.as_str()))
            && !store_has(store, &target)
        {
            return Err(Refusal::dangling(&referrer.element, target.as_str()));
        }
    }
    Ok(())
}

fn is_own(key: &str, target: &ResourceId) -> bool {
    target.key().strip_prefix(key).is_some_and(|rest| rest.starts_with('/'))
}

/// A document of its own below this one, such as an instance's interface.
fn store_has(store: &Store, target: &ResourceId) -> bool {
    store.get(target.as_str()).is_some()
}

fn own_part(key: &str, body: &Value, target: &ResourceId) -> bool {
    let list = target.resource_type().rsplit('/').next().unwrap_or_default().to_owned();
    let names = body["properties"].as_object().into_iter().flat_map(|properties| properties.keys());
    let list = names.into_iter().find(|name| name.eq_ignore_ascii_case(&list));
    is_own(key, target) && list.is_some_and(|list| shape::part(body, list, target.name()).is_some())
}

/// Checks a document by the rules of its type.
pub fn document(store: &Store, id: &ResourceId, old: Option<&Value>, body: &Value) -> Result<(), Refusal> {
    let _ = (store, id, old, body);
    Ok(())
}

/// Checks whether a document may be deleted.
pub fn deletion(store: &Store, id: &ResourceId, body: &Value) -> Result<(), Refusal> {
    let _ = (store, id, body);
    Ok(())
}
