//! Rules for writes: metadata that the server owns, the split between object and status, finalizers, defaults, validation.
//! Pure. Upstream: apiserver `pkg/registry/rest/{create,update,delete}.go` and the `strategy.go` of each kind.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    allocations::Allocations,
    kinds::{self, Kind},
    refusal::{Cause, Refusal},
    service,
    storage::Preconditions,
    validation,
};

/// Part of the object that a write is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The object itself: its status is kept.
    Main,
    /// The status subresource: everything but metadata and status is kept.
    Status,
}

/// Origin of an update; the two differ in how they refuse another UID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Put,
    Patch,
}

/// Metadata that clients cannot change.
const SERVER_OWNED: [&str; 7] =
    ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];

/// Returns the timestamp format of `metav1.Time`.
pub fn timestamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Sets the fields that the server owns at create.
pub fn prepare_create(
    kind: &Kind,
    namespace: &str,
    object: &mut Value,
    now: Timestamp,
    revision: u64,
) -> Result<(), Refusal> {
    check_type(kind, object)?;
    let meta = metadata(object)?;
    if meta.get("resourceVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty()) {
        return Err(Refusal::bad_request("resourceVersion should not be set on objects to be created"));
    }
    set_name(kind, meta, revision)?;
    set_namespace(kind, meta, namespace)?;
    for owned in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "selfLink"] {
        meta.remove(owned);
    }
    meta.insert("uid".into(), json!(uid(revision)));
    meta.insert("creationTimestamp".into(), json!(timestamp(now)));
    if kind.generation {
        meta.insert("generation".into(), json!(1));
    }
    if kind.status && !kind.status_at_create {
        object["status"] = initial_status(kind);
    }
    Ok(())
}

fn initial_status(kind: &Kind) -> Value {
    match kind.plural {
        "services" => json!({"loadBalancer": {}}),
        "namespaces" => json!({"phase": "Active"}),
        "pods" => json!({"phase": "Pending"}),
        _ => json!({}),
    }
}

fn check_type(kind: &Kind, object: &mut Value) -> Result<(), Refusal> {
    let Value::Object(fields) = object else { return Err(Refusal::bad_request("the body must be a JSON object")) };
    let expected = [("apiVersion", kind.api_version()), ("kind", kind.kind.to_owned())];
    for (field, expected) in expected {
        match fields.get(field).and_then(Value::as_str).unwrap_or_default() {
            "" => {
                fields.insert(field.to_owned(), json!(expected));
            }
            actual if actual == expected => {}
            actual => {
                let message = format!("{field} is {actual:?}, this path takes {expected:?}");
                return Err(Refusal::bad_request(message));
            }
        }
    }
    Ok(())
}

fn metadata(object: &mut Value) -> Result<&mut Map<String, Value>, Refusal> {
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().ok_or_else(|| Refusal::bad_request("metadata must be an object"))
}

fn set_name(kind: &Kind, meta: &mut Map<String, Value>, revision: u64) -> Result<(), Refusal> {
    let text = |field: &str| meta.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, prefix) = (text("name"), text("generateName"));
    if name.is_empty() && prefix.is_empty() {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        return Err(Refusal::invalid(kind, "", &[cause]));
    }
    if name.is_empty() {
        meta.insert("name".into(), json!(format!("{prefix}{}", suffix(revision))));
    }
    Ok(())
}

fn set_namespace(kind: &Kind, meta: &mut Map<String, Value>, namespace: &str) -> Result<(), Refusal> {
    let actual = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !kind.namespaced {
        meta.remove("namespace");
        return Ok(());
    }
    if !actual.is_empty() && actual != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::bad_request(message));
    }
    meta.insert("namespace".into(), json!(namespace));
    Ok(())
}

/// Returns 64 well mixed bits of a revision (splitmix64).
fn mixed(revision: u64) -> u64 {
    let mut bits = revision.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns a UID that looks random and depends on the revision alone.
pub fn uid(revision: u64) -> String {
    let bits = (u128::from(mixed(revision)) << 64) | u128::from(mixed(!revision));
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
}

/// Returns the five characters that follow a `generateName`. Upstream: `k8s.io/apiserver/pkg/storage/names`.
fn suffix(revision: u64) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let digits = mixed(revision).to_be_bytes();
    digits[..5].iter().map(|digit| char::from(ALPHABET[usize::from(*digit) % ALPHABET.len()])).collect()
}

/// Converts the object of a client to one that an update may store.
pub fn prepare_update(kind: &Kind, part: Part, origin: Origin, old: &Value, new: &mut Value) -> Result<(), Refusal> {
    check_type(kind, new)?;
    metadata(new)?;
    check_identity(kind, origin, old, new)?;
    keep_server_owned(old, new);
    keep_other_part(kind, part, old, new);
    check_new_finalizers(kind, old, new)?;
    if kind.generation && content(old) != content(new) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
        new["metadata"]["generation"] = json!(generation + 1);
    }
    Ok(())
}

fn check_identity(kind: &Kind, origin: Origin, old: &Value, new: &Value) -> Result<(), Refusal> {
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    for field in ["name", "namespace"] {
        if metadata_text(new, field).is_some_and(|actual| Some(actual) != old["metadata"][field].as_str()) {
            let message = format!("the {field} of the object does not match the {field} on the URL");
            return Err(Refusal::bad_request(message));
        }
    }
    let uid = old["metadata"]["uid"].as_str().unwrap_or_default();
    match (origin, metadata_text(new, "uid")) {
        (Origin::Put, Some(actual)) if actual != uid => {
            let reason = format!("Precondition failed: UID in precondition: {actual}, UID in object meta: {uid}");
            return Err(Refusal::conflict(kind, name, &reason));
        }
        (Origin::Patch, Some(actual)) if actual != uid => {
            let cause = Cause::invalid("metadata.uid", format!("{actual:?}: field is immutable"));
            return Err(Refusal::invalid(kind, name, &[cause]));
        }
        _ => {}
    }
    match metadata_text(new, "resourceVersion") {
        None if !kind.unconditional_update => {
            let cause = Cause::invalid("metadata.resourceVersion", "0: must be specified for an update");
            Err(Refusal::invalid(kind, name, &[cause]))
        }
        Some(version) if old["metadata"]["resourceVersion"].as_str() != Some(version) => Err(Refusal::modified(kind, name)),
        _ => Ok(()),
    }
}

fn metadata_text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object["metadata"].get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn keep_server_owned(old: &Value, new: &mut Value) {
    let Some(meta) = new["metadata"].as_object_mut() else { return };
    for field in SERVER_OWNED.into_iter().chain(["resourceVersion"]) {
        match old["metadata"].get(field) {
            Some(value) => meta.insert(field.to_owned(), value.clone()),
            None => meta.remove(field),
        };
    }
}

fn keep_other_part(kind: &Kind, part: Part, old: &Value, new: &mut Value) {
    if !kind.status {
        return;
    }
    let (Some(old), Some(new)) = (old.as_object(), new.as_object_mut()) else { return };
    match part {
        Part::Main => {
            match old.get("status") {
                Some(status) => new.insert("status".to_owned(), status.clone()),
                None => new.remove("status"),
            };
        }
        Part::Status => {
            new.retain(|field, _| field == "metadata" || field == "status");
            for (field, value) in old.iter().filter(|(field, _)| *field != "metadata" && *field != "status") {
                new.insert(field.clone(), value.clone());
            }
        }
    }
}

fn check_new_finalizers(kind: &Kind, old: &Value, new: &Value) -> Result<(), Refusal> {
    if old["metadata"].get("deletionTimestamp").is_none() {
        return Ok(());
    }
    let before = finalizers(old);
    let added: Vec<_> = finalizers(new).iter().filter(|finalizer| !before.contains(finalizer)).collect();
    if added.is_empty() {
        return Ok(());
    }
    let message = "no new finalizers can be added if the object is being deleted";
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    Err(Refusal::invalid(kind, name, &[Cause::forbidden("metadata.finalizers", message)]))
}

fn content(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(field, _)| *field != "metadata" && *field != "status").collect()
}

fn finalizers(object: &Value) -> &[Value] {
    object["metadata"].get("finalizers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns `true` if finalizers prevent the deletion of the object.
pub fn has_finalizers(object: &Value) -> bool {
    !finalizers(object).is_empty()
}

/// Returns `true` if the object waited for its finalizers, and none remains.
pub fn is_released(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some() && !has_finalizers(object)
}

/// Marks an object that has finalizers for deletion.
pub fn mark_deleted(kind: &Kind, object: &mut Value, now: Timestamp) {
    object["metadata"]["deletionTimestamp"] = json!(timestamp(now));
    object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    if kind.generation {
        let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
        object["metadata"]["generation"] = json!(generation + 1);
    }
    if kind.plural == kinds::NAMESPACE.plural {
        object["status"]["phase"] = json!("Terminating");
    }
}

/// Refuses a delete that is meant for another object, or for another version of it.
pub fn check_preconditions(kind: &Kind, object: &Value, preconditions: &Preconditions) -> Result<(), Refusal> {
    let required =
        [("UID", "uid", &preconditions.uid), ("ResourceVersion", "resourceVersion", &preconditions.resource_version)];
    for (title, field, required) in required {
        let found = object["metadata"][field].as_str().unwrap_or_default();
        if let Some(required) = required.as_deref().filter(|required| *required != found) {
            let reason =
                format!("Precondition failed: {title} in precondition: {required}, {title} in object meta: {found}");
            return Err(Refusal::conflict(kind, object["metadata"]["name"].as_str().unwrap_or_default(), &reason));
        }
    }
    Ok(())
}

/// Sets defaults, and allocates ports and addresses.
pub fn complete(kind: &Kind, old: Option<&Value>, new: &mut Value, allocations: &Allocations) -> Vec<Cause> {
    match kind.plural {
        "services" => service::complete(old, new, allocations),
        "nodes" => complete_node(new),
        "secrets" => complete_secret(new),
        _ => Vec::new(),
    }
}

/// Completes a Node: the older singular field and the list mirror each other. Upstream: `pkg/apis/core/v1/conversion.go`.
fn complete_node(node: &mut Value) -> Vec<Cause> {
    if node.get("spec").is_none_or(Value::is_null) {
        node["spec"] = json!({});
    }
    let spec = &mut node["spec"];
    match (spec.get("podCIDR").cloned(), spec.get("podCIDRs").cloned()) {
        (Some(single), None) => spec["podCIDRs"] = json!([single]),
        (None, Some(Value::Array(list))) if !list.is_empty() => spec["podCIDR"] = list[0].clone(),
        _ => {}
    }
    Vec::new()
}

fn complete_secret(secret: &mut Value) -> Vec<Cause> {
    let Some(fields) = secret.as_object_mut() else { return Vec::new() };
    if let Some(Value::Object(plain)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| json!({}));
        for (name, value) in plain {
            let bytes = k8s_openapi::ByteString(value.as_str().unwrap_or_default().as_bytes().to_vec());
            data[name] = serde_json::to_value(bytes).unwrap_or_default();
        }
    }
    fields.entry("type").or_insert_with(|| json!("Opaque"));
    Vec::new()
}

/// Validates `new` against `old`.
pub fn validate(kind: &Kind, old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let mut causes = validation::name(kind, new);
    causes.extend(match kind.plural {
        "nodes" => validation::node(old, new),
        "services" => service::validate(old, new),
        "leases" => validation::lease(new),
        "events" => validation::event(new),
        _ => Vec::new(),
    });
    causes
}
