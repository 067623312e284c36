//! Executes a request for objects on the [`Storage`]. Pure: request, body and time in, reply out.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    http::{ResourceRequest, Verb},
    kinds::{self, Kind},
    patch::{self, PatchType},
    refusal::Refusal,
    selectors::Selector,
    storage::{Deleted, Preconditions, Storage, Write, key_of},
    strategy::{Origin, Part},
    watch::WatchRequest,
};
use crate::runtime::{store::ObjectKey, yaml};

/// Response of the server.
#[derive(Debug)]
pub enum Reply {
    /// Object, with the HTTP code.
    Object(u16, Arc<Value>),
    /// Document that is sent unchanged, such as a `metav1.Status`.
    Document(Value),
    List(List),
    /// A stream of events.
    Watch(WatchRequest),
}

/// A list, or a page of one.
#[derive(Debug)]
pub struct List {
    /// The resourceVersion as of which it is.
    pub revision: u64,
    pub items: Vec<Arc<Value>>,
    /// Start of the next page.
    pub continue_token: Option<String>,
    /// Number of objects that follow this page, if nothing was filtered.
    pub remaining: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    /// `Content-Type`.
    pub content_type: &'a str,
    pub bytes: &'a [u8],
}

impl Body<'_> {
    /// Returns the body as a value; null when there is none.
    pub fn value(&self) -> Result<Value, Refusal> {
        if self.bytes.is_empty() {
            return Ok(Value::Null);
        }
        if self.content_type.contains("protobuf") || self.content_type.contains("cbor") {
            return Err(Refusal::unsupported_media_type(self.content_type));
        }
        if self.content_type.contains("yaml") {
            let text = std::str::from_utf8(self.bytes).map_err(|error| Refusal::bad_request(error.to_string()))?;
            return yaml::parse(text).map_err(|error| Refusal::bad_request(error.to_string()));
        }
        serde_json::from_slice(self.bytes).map_err(|error| Refusal::bad_request(error.to_string()))
    }
}

/// Executes `request` on the storage.
pub fn execute(storage: &mut Storage, request: &ResourceRequest, body: Body<'_>, write: Write) -> Result<Reply, Refusal> {
    let write = Write { dry_run: write.dry_run || request.parameters.text("dryRun") == "All", ..write };
    match request.verb {
        Verb::Get => Ok(Reply::Object(200, storage.get(request.kind, &key(request)?)?)),
        Verb::List => list(storage, request).map(Reply::List),
        Verb::Watch => WatchRequest::of(request).map(Reply::Watch),
        Verb::Create => create(storage, request, body.value()?, write),
        Verb::Update => update(storage, request, body.value()?, write),
        Verb::Patch => patch(storage, request, body, write),
        Verb::Delete => delete(storage, request, &body.value()?, write),
        Verb::DeleteCollection => delete_collection(storage, request, write),
    }
}

fn key(request: &ResourceRequest) -> Result<ObjectKey, Refusal> {
    let name = request.name.as_deref().ok_or_else(Refusal::method_not_allowed)?;
    Ok(ObjectKey::namespaced(request.namespace.as_deref().unwrap_or_default(), name))
}

fn create(storage: &mut Storage, request: &ResourceRequest, object: Value, write: Write) -> Result<Reply, Refusal> {
    if request.name.is_some() {
        return Err(Refusal::method_not_allowed());
    }
    let namespace = target_namespace(storage, request.kind, request.namespace.as_deref(), &object)?;
    storage.create(request.kind, &namespace, object, write).map(|object| Reply::Object(201, object))
}

/// Checks that the namespace exists and is not being deleted. Upstream: the `NamespaceLifecycle` admission plugin.
fn target_namespace(storage: &Storage, kind: &Kind, namespace: Option<&str>, object: &Value) -> Result<String, Refusal> {
    if !kind.namespaced {
        return Ok(String::new());
    }
    let Some(namespace) = namespace else { return Err(Refusal::method_not_allowed()) };
    let found = storage.get(&kinds::NAMESPACE, &ObjectKey::cluster(namespace))?;
    if found["metadata"].get("deletionTimestamp").is_some() {
        let name = key_of(object).name;
        let message = format!("{} {name:?} is forbidden: namespace {namespace} is being terminated", kind.qualified());
        return Err(Refusal::of_code(403, &message));
    }
    Ok(namespace.to_owned())
}

fn part(request: &ResourceRequest) -> Result<Part, Refusal> {
    match request.subresource.as_str() {
        "" => Ok(Part::Main),
        "status" => Ok(Part::Status),
        _ => Err(Refusal::method_not_allowed()),
    }
}

fn update(storage: &mut Storage, request: &ResourceRequest, object: Value, write: Write) -> Result<Reply, Refusal> {
    let (key, part) = (key(request)?, part(request)?);
    let sent = &object["metadata"];
    let creates = part == Part::Main && request.kind.create_on_update && storage.get(request.kind, &key).is_err();
    if creates && sent["resourceVersion"].as_str().unwrap_or_default().is_empty() {
        if sent["name"].as_str() != Some(&key.name) {
            return Err(Refusal::bad_request("the name of the object does not match the name on the URL"));
        }
        let namespace = target_namespace(storage, request.kind, request.namespace.as_deref(), &object)?;
        return storage.create(request.kind, &namespace, object, write).map(|object| Reply::Object(201, object));
    }
    let updated = storage.update(request.kind, &key, object, (part, Origin::Put), write)?;
    Ok(Reply::Object(200, updated))
}

fn patch(storage: &mut Storage, request: &ResourceRequest, body: Body<'_>, write: Write) -> Result<Reply, Refusal> {
    let (kind, key, part) = (request.kind, key(request)?, part(request)?);
    let patch_type =
        PatchType::of_content_type(body.content_type).ok_or_else(|| Refusal::unsupported_media_type(body.content_type))?;
    let patch = body.value()?;
    if patch_type == PatchType::Apply && part == Part::Main && storage.get(kind, &key).is_err() {
        let namespace = target_namespace(storage, kind, request.namespace.as_deref(), &patch)?;
        return storage.create(kind, &namespace, patch, write).map(|object| Reply::Object(201, object));
    }
    let patched = patch::apply(kind, patch_type, &*storage.get(kind, &key)?, &patch)?;
    let updated = storage.update(kind, &key, patched, (part, Origin::Patch), write)?;
    Ok(Reply::Object(200, updated))
}

fn delete(storage: &mut Storage, request: &ResourceRequest, options: &Value, write: Write) -> Result<Reply, Refusal> {
    let text = |field: &str| options["preconditions"][field].as_str().map(str::to_owned);
    let preconditions = Preconditions { uid: text("uid"), resource_version: text("resourceVersion") };
    let dry_run = write.dry_run || options["dryRun"].as_array().is_some_and(|stages| !stages.is_empty());
    match storage.delete(request.kind, &key(request)?, &preconditions, Write { dry_run, ..write })? {
        Deleted::Waiting(object) => Ok(Reply::Object(200, object)),
        Deleted::Gone(object) => Ok(Reply::Document(deleted_status(request.kind, &object))),
    }
}

fn deleted_status(kind: &Kind, object: &Value) -> Value {
    let details = json!({
        "name": object["metadata"]["name"], "group": kind.group, "kind": kind.plural, "uid": object["metadata"]["uid"],
    });
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

fn delete_collection(storage: &mut Storage, request: &ResourceRequest, write: Write) -> Result<Reply, Refusal> {
    let List { items, .. } = list(storage, request)?;
    let mut last = Vec::with_capacity(items.len());
    for object in items {
        match storage.delete(request.kind, &key_of(&object), &Preconditions::default(), write)? {
            Deleted::Gone(object) | Deleted::Waiting(object) => last.push(object),
        }
    }
    Ok(Reply::List(List { revision: storage.revision(), items: last, continue_token: None, remaining: None }))
}

fn list(storage: &Storage, request: &ResourceRequest) -> Result<List, Refusal> {
    let parameters = &request.parameters;
    let selector = Selector::parse(parameters.text("labelSelector"), parameters.text("fieldSelector"))?;
    let page = Page::of(storage, request)?;
    let objects = storage.list(request.kind, page.revision).map_err(|refusal| page.explain(refusal))?;
    let in_namespace = |key: &ObjectKey| request.namespace.as_deref().is_none_or(|namespace| key.namespace == namespace);
    let mut matching = objects
        .into_iter()
        .filter(|(key, _)| page.after.as_ref().is_none_or(|after| key > after) && in_namespace(key))
        .filter(|(_, object)| selector.matches(object));
    let page_items: Vec<_> = matching.by_ref().take(page.limit).collect();
    let rest = matching.count();
    let last = page_items.last().filter(|_| rest > 0).map(|(key, _)| page.token(key));
    let remaining = (rest > 0 && selector == Selector::default()).then_some(rest);
    let items = page_items.into_iter().map(|(_, object)| object).collect();
    Ok(List { revision: page.revision, items, continue_token: last, remaining })
}

/// Requested part of a list.
#[derive(Debug)]
struct Page {
    revision: u64,
    after: Option<ObjectKey>,
    limit: usize,
}

impl Page {
    fn of(storage: &Storage, request: &ResourceRequest) -> Result<Self, Refusal> {
        let parameters = &request.parameters;
        let limit = parameters.number("limit")?.filter(|limit| *limit > 0);
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        if let token @ [_, ..] = parameters.text("continue").as_bytes() {
            let (revision, after) = decode_token(token).ok_or_else(|| Refusal::bad_request("continue key is not valid"))?;
            return Ok(Self { revision, after: Some(after), limit });
        }
        let requested = parameters.number("resourceVersion")?.unwrap_or_default();
        if requested > storage.revision() {
            return Err(Refusal::too_large_version(requested, storage.revision()));
        }
        let exact = parameters.text("resourceVersionMatch") == "Exact";
        Ok(Self { revision: if exact { requested } else { storage.revision() }, after: None, limit })
    }

    fn token(&self, last: &ObjectKey) -> String {
        let text = format!("{}/{}/{}", self.revision, last.namespace, last.name);
        text.bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    fn explain(&self, refusal: Refusal) -> Refusal {
        if refusal.code == 410 && self.after.is_some() { Refusal::continue_expired() } else { refusal }
    }
}

fn decode_token(token: &[u8]) -> Option<(u64, ObjectKey)> {
    let digits = token.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let text = String::from_utf8(digits.collect::<Option<Vec<u8>>>()?).ok()?;
    let mut parts = text.splitn(3, '/');
    let revision = parts.next()?.parse().ok()?;
    Some((revision, ObjectKey::namespaced(parts.next()?, parts.next()?)))
}
