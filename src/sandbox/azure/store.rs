//! The documents of the simulated subscriptions: what ARM keeps. Pure: no clock, no I/O; the same writes give the same state.
//!
//! In: documents as ARM shows them, derived parts or not. Out: the same documents with etags and everything that ARM derives.
//! Documents are kept without what is derived ([`super::view`] adds it), under their lower-cased ids.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    addresses::Counters,
    canonical,
    history::History,
    kinds,
    references::{References, Referrer, made_by},
    shape, view,
};
use crate::providers::azure::model::ResourceId;

/// Reason why a document cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a document needs an `id` that is an ARM resource id: {0}")]
pub struct InvalidDocument(pub String);

/// Document in its stored form.
#[derive(Debug, Clone)]
pub struct Document {
    /// ID as it was written.
    pub id: String,
    /// Type in lower case.
    pub kind: String,
    /// Content, without etag and without what is derived.
    pub body: Arc<Value>,
    /// Changes with every write of it, or of what shows in it.
    pub revision: u64,
    /// Whether no operation on it has succeeded yet: the fields that Azure adds then are not shown.
    pub unfinished: bool,
}

#[derive(Debug, Default)]
pub struct Store {
    documents: BTreeMap<String, Document>,
    types: BTreeMap<String, BTreeSet<String>>,
    references: References,
    history: History,
    revision: u64,
    /// Source of new public addresses.
    pub counters: Counters,
}

impl Store {
    /// Creates or replaces a document silently: no check, a new etag and nothing else.
    ///
    /// Parts get IDs, `provisioningState` defaults to `Succeeded`; etags and back-references in it are dropped, because they
    /// are derived.
    pub fn put_document(&mut self, mut document: Value) -> Result<(), InvalidDocument> {
        let text = document["id"].as_str().unwrap_or_default().to_owned();
        let id = ResourceId::parse(&text).map_err(|error| InvalidDocument(error.to_string()))?;
        shape::complete(&id, &mut document);
        self.counters.observe(&document);
        self.insert(&id, document);
        self.set_unfinished(&id.key(), false);
        Ok(())
    }

    /// Replaces all documents by these.
    pub fn load(&mut self, documents: Vec<Value>) -> Result<(), InvalidDocument> {
        *self = Self { revision: self.revision, ..Self::default() };
        documents.into_iter().try_for_each(|document| self.put_document(document))
    }

    /// Returns all documents in canonical form, by lower-cased id.
    pub fn dump(&self) -> Vec<Value> {
        self.documents.values().map(|document| canonical::document(self, document)).collect()
    }

    /// Stores `body`, which is complete, unchanged. Documents it refers to or no longer refers to keep their etags.
    pub fn insert(&mut self, id: &ResourceId, body: Value) {
        let key = id.key();
        let before = self.forget(&key);
        let unfinished = before.as_ref().is_some_and(|before| before.unfinished);
        self.history.note(&key, before, true);
        self.references.add(&key, &body);
        let kind = id.resource_type().to_ascii_lowercase();
        let kind = if kind.is_empty() { "microsoft.resources/resourcegroups".to_owned() } else { kind };
        self.types.entry(kind.clone()).or_default().insert(key.clone());
        self.revision += 1;
        let document =
            Document { id: id.as_str().to_owned(), kind, body: Arc::new(body), revision: self.revision, unfinished };
        self.documents.insert(key, document);
    }

    /// Deletes a document and everything below it (a group's resources, a scale set's instances). Returns `false` if it did not exist.
    pub fn delete_document(&mut self, id: &str) -> bool {
        let key = id.to_ascii_lowercase();
        let below: Vec<String> = self.below(&key).map(|(key, _)| key.clone()).collect();
        for key in &below {
            self.take(key);
        }
        self.take(&key)
    }

    fn take(&mut self, key: &str) -> bool {
        let before = self.forget(key);
        let found = before.is_some();
        self.history.note(key, before, false);
        found
    }

    fn forget(&mut self, key: &str) -> Option<Document> {
        let old = self.documents.remove(key)?;
        self.references.remove(key, &old.body);
        if let Some(keys) = self.types.get_mut(&old.kind) {
            keys.remove(key);
        }
        self.revision += 1;
        Some(old)
    }

    /// Sets the time of the following changes.
    pub fn set_time(&mut self, now: Instant) {
        self.history.set_time(now);
    }

    /// Returns the documents written after `time` (`None`: whenever), by key.
    pub fn written_since(&self, time: Option<Instant>) -> BTreeSet<String> {
        self.history.written_since(time)
    }

    /// Returns the documents as they were at `time`, as far back as the history has them.
    pub fn as_of(&self, time: Option<Instant>) -> Self {
        let mut documents = self.documents.clone();
        for (key, before) in self.history.undo(time) {
            match before {
                Some(before) => documents.insert(key.to_owned(), before.clone()),
                None => documents.remove(key),
            };
        }
        let mut past = Self { revision: self.revision, ..Self::default() };
        for (key, document) in &documents {
            past.references.add(key, &document.body);
            past.types.entry(document.kind.clone()).or_default().insert(key.clone());
        }
        Self { documents, ..past }
    }

    /// Returns a document, or a part of one, as a GET with `$expand=instanceView` shows it.
    pub fn document(&self, id: &str) -> Option<Value> {
        let shown = |document: &Document| view::document(self, document, view::Expand::InstanceView);
        if let Some(document) = self.get(id) {
            return Some(shown(document));
        }
        let id = ResourceId::parse(id).ok()?;
        let (_, list) = kinds::part_of(&id.resource_type())?;
        let parent = shown(self.get(id.parent()?.as_str())?);
        shape::part(&parent, list, id.name()).cloned()
    }

    /// Returns all documents of a type (any letter case), as [`Store::document`] shows them, by id.
    pub fn documents_of(&self, resource_type: &str) -> Vec<Value> {
        self.of_type(resource_type).map(|(_, document)| view::document(self, document, view::Expand::InstanceView)).collect()
    }

    /// Returns a document in its stored form.
    pub fn get(&self, id: &str) -> Option<&Document> {
        self.documents.get(&id.to_ascii_lowercase())
    }

    /// Returns the documents of a type (any letter case), by key.
    pub fn of_type(&self, resource_type: &str) -> impl Iterator<Item = (&String, &Document)> {
        self.types
            .get(&resource_type.to_ascii_lowercase())
            .into_iter()
            .flatten()
            .filter_map(|key| self.documents.get_key_value(key))
    }

    /// Returns the documents of a type (lower-case) whose ids are below `scope` and behind `after`, by key.
    pub fn of_type_below(&self, kind: &str, scope: &str, after: &str) -> impl Iterator<Item = (&String, &Document)> {
        let prefix = format!("{}/", scope.to_ascii_lowercase());
        let start = if after > prefix.as_str() { after.to_owned() } else { prefix.clone() };
        let keys = self.types.get(kind).map(|keys| keys.range((Bound::Excluded(start), Bound::Unbounded)));
        let keys = keys.into_iter().flatten().take_while(move |key| key.starts_with(&prefix));
        keys.filter_map(|key| self.documents.get_key_value(key))
    }

    /// Returns the documents whose ids are below `id`, by key.
    pub fn below(&self, id: &str) -> impl Iterator<Item = (&String, &Document)> {
        let prefix = format!("{}/", id.to_ascii_lowercase());
        let range = (Bound::Included(prefix.clone()), Bound::Unbounded);
        self.documents.range(range).take_while(move |(key, _)| key.starts_with(&prefix))
    }

    /// Returns the elements that refer to `id`, by id.
    pub fn referrers<'a>(&'a self, id: &str) -> impl Iterator<Item = &'a Referrer> + use<'a> {
        self.references.to(&id.to_ascii_lowercase())
    }

    /// Returns the keys of the documents, other than itself, that a document or its parts refer to; a part's document for a
    /// part.
    pub fn referred_documents(&self, key: &str, body: &Value) -> BTreeSet<String> {
        made_by(key, body)
            .into_iter()
            .filter_map(|(target, _)| self.document_key(&target))
            .filter(|found| found != key)
            .collect()
    }

    /// Returns the key of the document that `id` names or is in.
    pub fn document_key(&self, id: &str) -> Option<String> {
        let mut id = id.to_ascii_lowercase();
        while !id.is_empty() {
            if self.documents.contains_key(&id) {
                return Some(id);
            }
            id.truncate(id.rfind('/')?);
        }
        None
    }

    /// Returns `true` if `id` names a document or a part of one.
    pub fn exists(&self, id: &str) -> bool {
        if self.get(id).is_some() {
            return true;
        }
        let Ok(id) = ResourceId::parse(id) else { return false };
        let Some((_, list)) = kinds::part_of(&id.resource_type()) else { return false };
        let parent = id.parent().and_then(|parent| self.get(parent.as_str()));
        parent.is_some_and(|parent| shape::part(&parent.body, list, id.name()).is_some())
    }

    /// Sets whether the fields that Azure adds to a document at the end of its creation are still missing.
    pub fn set_unfinished(&mut self, key: &str, unfinished: bool) {
        if let Some(document) = self.documents.get_mut(key) {
            document.unfinished = unfinished;
        }
    }

    /// Gives a document a new etag.
    pub fn touch(&mut self, id: &str) {
        let key = id.to_ascii_lowercase();
        if let Some(document) = self.documents.get_mut(&key) {
            self.history.note(&key, Some(document.clone()), false);
            self.revision += 1;
            document.revision = self.revision;
        }
    }

    /// Changes a document silently; it gets a new etag. Returns `false` if it did not exist.
    pub fn change_document(&mut self, id: &str, change: impl FnOnce(&mut Value)) -> bool {
        let Some(document) = self.get(id) else { return false };
        let mut body = (*document.body).clone();
        let id = document.id.clone();
        change(&mut body);
        let Ok(id) = ResourceId::parse(&id) else { return false };
        self.insert(&id, body);
        true
    }
}
