//! Strategic merge patch: like a merge patch, but lists with a merge key are merged item by item, and there are `$`
//! directives.
//!
//! Upstream: apimachinery `pkg/util/strategicpatch/patch.go`, whose choices are kept, e.g. that the first item with the key
//! wins when several have it.

use serde_json::{Map, Value};

use crate::sandbox::{
    kinds::{Kind, ListRule},
    refusal::Refusal,
};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// Applies `patch` to the object `target` of `kind`.
pub fn apply(kind: &Kind, target: &mut Value, patch: &Value) -> Result<(), Refusal> {
    let Value::Object(patch) = patch else {
        return Err(Refusal::bad_request("a strategic merge patch must be a JSON object"));
    };
    merge_object(kind, "", target, patch)
}

fn merge_object(kind: &Kind, path: &str, target: &mut Value, patch: &Map<String, Value>) -> Result<(), Refusal> {
    match patch.get(PATCH).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            *target = Value::Object(without_directives(patch));
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some(other) => return Err(unknown_directive(other)),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return Ok(()) };
    retain_keys(target, patch)?;
    delete_from_lists(target, patch)?;
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        merge_field(kind, &path, target, (name, value))?;
    }
    order_elements(kind, path, target, patch)
}

fn merge_field(
    kind: &Kind,
    path: &str,
    target: &mut Map<String, Value>,
    (name, value): (&String, &Value),
) -> Result<(), Refusal> {
    match value {
        Value::Null => {
            target.remove(name);
        }
        Value::Object(patch) => merge_object(kind, path, target.entry(name.clone()).or_insert(Value::Null), patch)?,
        Value::Array(patch) => {
            let current = target.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
            let merged = match kind.list_rule(path) {
                None => replace_list(patch),
                Some(ListRule::Set) => merge_set(current, patch),
                Some(ListRule::Key(key)) => merge_list(kind, path, current, patch, key)?,
            };
            target.insert(name.clone(), Value::Array(merged));
        }
        scalar => {
            target.insert(name.clone(), scalar.clone());
        }
    }
    Ok(())
}

fn replace_list(patch: &[Value]) -> Vec<Value> {
    patch.iter().filter(|item| item.get(PATCH).is_none()).cloned().collect()
}

fn merge_set(mut current: Vec<Value>, patch: &[Value]) -> Vec<Value> {
    for item in patch {
        if !current.contains(item) {
            current.push(item.clone());
        }
    }
    current
}

fn merge_list(kind: &Kind, path: &str, mut current: Vec<Value>, patch: &[Value], key: &str) -> Result<Vec<Value>, Refusal> {
    if patch.iter().any(|item| directive(item) == Some("replace")) {
        return Ok(replace_list(patch));
    }
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(Refusal::bad_request(format!("{path}: items of a strategic merge patch must be objects")));
        };
        let Some(order) = fields.get(key) else {
            return Err(Refusal::unprocessable(format!("{path}: map does not contain declared merge key: {key}")));
        };
        match directive(item) {
            Some("delete") => current.retain(|existing| existing.get(key) != Some(order)),
            None | Some("merge") => match current.iter_mut().find(|existing| existing.get(key) == Some(order)) {
                Some(existing) => merge_object(kind, path, existing, fields)?,
                None => {
                    let mut added = Value::Null;
                    merge_object(kind, path, &mut added, fields)?;
                    current.push(added);
                }
            },
            Some(other) => return Err(unknown_directive(other)),
        }
    }
    Ok(current)
}

fn directive(item: &Value) -> Option<&str> {
    item.get(PATCH).map(|directive| directive.as_str().unwrap_or_default())
}

fn retain_keys(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), Refusal> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let Some(keys) = keys.as_array() else {
        return Err(Refusal::bad_request("invalid patch format of $retainKeys: it must be a list"));
    };
    target.retain(|name, _| keys.iter().any(|key| key.as_str() == Some(name)));
    Ok(())
}

fn delete_from_lists(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), Refusal> {
    for (name, values) in patch {
        let Some(field) = name.strip_prefix(DELETE_FROM_LIST) else { continue };
        let Some(values) = values.as_array() else {
            return Err(Refusal::bad_request(format!("invalid patch format of primitive list: {name} must be a list")));
        };
        if let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) {
            list.retain(|item| !values.contains(item));
        }
    }
    Ok(())
}

/// Puts the items that `$setElementOrder/<field>` names into its order. Items that only the server has stay before the named item
/// that they stood before.
fn order_elements(
    kind: &Kind,
    path: &str,
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Refusal> {
    for (name, order) in patch {
        let Some(field) = name.strip_prefix(ELEMENT_ORDER) else { continue };
        let Some(order) = order.as_array() else {
            return Err(Refusal::bad_request(format!(
                "invalid patch format of setElementOrder list: {name} must be a list"
            )));
        };
        let path = if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
        let key = match kind.list_rule(&path) {
            Some(ListRule::Key(key)) => Some(key),
            Some(ListRule::Set) => None,
            None => continue,
        };
        if let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) {
            *list = ordered(std::mem::take(list), order, key);
        }
    }
    Ok(())
}

fn ordered(list: Vec<Value>, order: &[Value], key: Option<&str>) -> Vec<Value> {
    let identity = |item: &Value| key.map_or_else(|| item.clone(), |key| item.get(key).cloned().unwrap_or_default());
    let rank = |item: &Value| order.iter().position(|named| identity(named) == identity(item));
    let mut named: Vec<Value> = list.iter().filter(|item| rank(item).is_some()).cloned().collect();
    named.sort_by_key(|item| rank(item));
    let mut named = named.into_iter();
    let positions: Vec<Option<Value>> =
        list.into_iter().map(|item| if rank(&item).is_some() { named.next() } else { Some(item) }).collect();
    positions.into_iter().flatten().collect()
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(name, _)| !name.starts_with('$')).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn unknown_directive(directive: &str) -> Refusal {
    Refusal::bad_request(format!("$patch is {directive:?}; accepted: merge, replace, delete"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::kinds::{NODE, POD, SERVICE};
    use serde_json::json;

    fn patched(kind: &Kind, mut target: Value, patch: &Value) -> Value {
        apply(kind, &mut target, patch).unwrap();
        target
    }

    #[test]
    fn merges_as_the_types_say() {
        let two = json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "10.0.0.2"}]);
        let cases = [
            // Conditions merge by type, new ones go to the end.
            (
                &NODE,
                json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]}}),
                json!({"status": {"conditions": [{"type": "Net", "status": "True"}, {"type": "Ready", "status": "Unknown"}]}}),
                json!({"status": {"conditions": [
                    {"type": "Ready", "status": "Unknown"}, {"type": "Disk", "status": "False"}, {"type": "Net", "status": "True"},
                ]}}),
            ),
            // The trap of addresses: two of a type, the first is overwritten, the second stays.
            (
                &NODE,
                json!({"status": {"addresses": two}}),
                json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}}),
                json!({"status": {"addresses": [
                    {"type": "InternalIP", "address": "10.0.0.2"}, {"type": "InternalIP", "address": "10.0.0.2"},
                ]}}),
            ),
            // ... which is why writers of addresses replace the list.
            (
                &NODE,
                json!({"status": {"addresses": two}}),
                json!({"status": {"addresses": [{"type": "Hostname", "address": "n"}, {"$patch": "replace"}]}}),
                json!({"status": {"addresses": [{"type": "Hostname", "address": "n"}]}}),
            ),
            // Deleting one item by its key.
            (
                &SERVICE,
                json!({"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}}),
                json!({"spec": {"ports": [{"port": 80, "$patch": "delete"}]}}),
                json!({"spec": {"ports": [{"port": 81, "name": "b"}]}}),
            ),
            // Taints have no merge key: the list is replaced.
            (
                &NODE,
                json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
                json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}),
                json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}),
            ),
            // Finalizers are a set.
            (
                &SERVICE,
                json!({"metadata": {"finalizers": ["a", "b"]}}),
                json!({"metadata": {"finalizers": ["b", "c"]}}),
                json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            ),
            (
                &SERVICE,
                json!({"metadata": {"finalizers": ["a", "b"]}}),
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]}}),
                json!({"metadata": {"finalizers": ["b"]}}),
            ),
            // Objects: null removes, `$patch: replace` replaces, `$patch: delete` empties, `$retainKeys` keeps.
            (
                &NODE,
                json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
                json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
                json!({"metadata": {"labels": {"b": "2", "c": "3"}}}),
            ),
            (
                &NODE,
                json!({"metadata": {"labels": {"a": "1"}}}),
                json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}}),
                json!({"metadata": {"labels": {"c": "3"}}}),
            ),
            (
                &NODE,
                json!({"metadata": {"labels": {"a": "1"}}}),
                json!({"metadata": {"labels": {"$patch": "delete"}}}),
                json!({"metadata": {"labels": {}}}),
            ),
            (
                &POD,
                json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
                json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}),
                json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
            ),
            // Lists in lists.
            (
                &POD,
                json!({"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}}),
                json!({"spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}]}}),
                json!({"spec": {"containers": [
                    {"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                ]}}),
            ),
            // Order.
            (
                &SERVICE,
                json!({"spec": {"ports": [{"port": 1}, {"port": 9}, {"port": 2}]}}),
                json!({"spec": {"$setElementOrder/ports": [{"port": 2}, {"port": 1}], "ports": [{"port": 2, "name": "x"}]}}),
                json!({"spec": {"ports": [{"port": 2, "name": "x"}, {"port": 9}, {"port": 1}]}}),
            ),
            // Nulls in something new are dropped.
            (
                &NODE,
                json!({}),
                json!({"metadata": {"labels": {"a": null, "b": "1"}}}),
                json!({"metadata": {"labels": {"b": "1"}}}),
            ),
        ];
        for (kind, target, patch, expected) in cases {
            assert_eq!(patched(kind, target, &patch), expected, "patch {patch}");
        }
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        let cases = [
            (json!([]), 400),
            (json!({"$patch": "merge-ish"}), 400),
            (json!({"status": {"conditions": [{"status": "True"}]}}), 422),
            (json!({"status": {"conditions": ["Ready"]}}), 400),
            (json!({"spec": {"$retainKeys": "a"}}), 400),
            (json!({"metadata": {"$setElementOrder/finalizers": 1}}), 400),
            (json!({"metadata": {"$deleteFromPrimitiveList/finalizers": 1}}), 400),
        ];
        for (patch, code) in cases {
            let mut target = json!({"status": {"conditions": []}});
            assert_eq!(apply(&NODE, &mut target, &patch).map_err(|refusal| refusal.code), Err(code), "patch {patch}");
        }
    }
}
