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

/// Puts the items that `$setElementOrder/<field>` names into its order. Items that only the server has are kept before the
/// named item that followed them.
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
    use crate::sandbox::kinds::{NODE, by_plural};
    use serde_json::json;

    /// Kind, object, patch and result.
    const CASES: &str = r#"
        // Conditions merge by type, new ones go to the end.
        nodes | {"status": {"conditions": [{"type": "A", "status": "1"}, {"type": "B", "status": "2"}]}}
            | {"status": {"conditions": [{"type": "C", "status": "3"}, {"type": "A", "status": "4"}]}}
            | {"status": {"conditions": [{"type": "A", "status": "4"}, {"type": "B", "status": "2"}, {"type": "C", "status": "3"}]}}
        // The trap of addresses: two of a type, the first is overwritten, the second stays.
        nodes | {"status": {"addresses": [{"type": "InternalIP", "address": "1"}, {"type": "InternalIP", "address": "2"}]}}
            | {"status": {"addresses": [{"type": "InternalIP", "address": "2"}]}}
            | {"status": {"addresses": [{"type": "InternalIP", "address": "2"}, {"type": "InternalIP", "address": "2"}]}}
        // ... which is why writers of addresses replace the list.
        nodes | {"status": {"addresses": [{"type": "InternalIP", "address": "1"}, {"type": "InternalIP", "address": "2"}]}}
            | {"status": {"addresses": [{"type": "Hostname", "address": "n"}, {"$patch": "replace"}]}}
            | {"status": {"addresses": [{"type": "Hostname", "address": "n"}]}}
        // Deleting one item by its key.
        services | {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}}
            | {"spec": {"ports": [{"port": 80, "$patch": "delete"}]}} | {"spec": {"ports": [{"port": 81, "name": "b"}]}}
        // Taints have no merge key: the list is replaced.
        nodes | {"spec": {"taints": [{"key": "a"}]}} | {"spec": {"taints": [{"key": "b"}]}} | {"spec": {"taints": [{"key": "b"}]}}
        // Finalizers are a set.
        services | {"metadata": {"finalizers": ["a", "b"]}} | {"metadata": {"finalizers": ["b", "c"]}}
            | {"metadata": {"finalizers": ["a", "b", "c"]}}
        services | {"metadata": {"finalizers": ["a", "b"]}}
            | {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]}}
            | {"metadata": {"finalizers": ["b"]}}
        // Objects: null removes, `$patch: replace` replaces, `$patch: delete` empties, `$retainKeys` keeps.
        nodes | {"metadata": {"labels": {"a": "1", "b": "2"}}} | {"metadata": {"labels": {"a": null, "c": "3"}}}
            | {"metadata": {"labels": {"b": "2", "c": "3"}}}
        nodes | {"metadata": {"labels": {"a": "1"}}} | {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}
            | {"metadata": {"labels": {"c": "3"}}}
        nodes | {"metadata": {"labels": {"a": "1"}}} | {"metadata": {"labels": {"$patch": "delete"}}} | {"metadata": {"labels": {}}}
        pods | {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
            | {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}
            | {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}
        // Lists in lists.
        pods | {"spec": {"containers": [{"name": "c", "env": [{"name": "A"}]}]}}
            | {"spec": {"containers": [{"name": "c", "env": [{"name": "B"}]}]}}
            | {"spec": {"containers": [{"name": "c", "env": [{"name": "A"}, {"name": "B"}]}]}}
        // Order.
        services | {"spec": {"ports": [{"port": 1}, {"port": 9}, {"port": 2}]}}
            | {"spec": {"$setElementOrder/ports": [{"port": 2}, {"port": 1}], "ports": [{"port": 2, "name": "x"}]}}
            | {"spec": {"ports": [{"port": 2, "name": "x"}, {"port": 9}, {"port": 1}]}}
        // Nulls in something new are dropped.
        nodes | {} | {"metadata": {"labels": {"a": null, "b": "1"}}} | {"metadata": {"labels": {"b": "1"}}}
    "#;

    #[test]
    fn merges_as_the_types_say() {
        let lines = CASES.lines().filter(|line| !line.trim().starts_with("//"));
        let cells: Vec<_> = lines.flat_map(|line| line.split('|')).map(str::trim).filter(|cell| !cell.is_empty()).collect();
        for case in cells.chunks(4) {
            let value = |cell: usize| serde_json::from_str::<Value>(case[cell]).unwrap();
            let mut target = value(1);
            apply(by_plural("", "v1", case[0]).unwrap(), &mut target, &value(2)).unwrap();
            assert_eq!(target, value(3), "{case:?}");
        }
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        let cases = [
            (json!([]), 400),
            (json!({"$patch": "merge-ish"}), 400),
            (json!({"status": {"conditions": [{"status": "True"}]}}), 422),
            (json!({"status": {"conditions": ["Ready"]}}), 400),
        ];
        for (patch, code) in cases {
            let mut target = json!({"status": {"conditions": []}});
            assert_eq!(apply(&NODE, &mut target, &patch).map_err(|refusal| refusal.code), Err(code), "patch {patch}");
        }
    }
}
